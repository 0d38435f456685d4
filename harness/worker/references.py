"""SDPA backends, forced by name in the way that this PyTorch has, with proof of the operator that ran."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any, Iterable, Iterator

import torch

from . import tensors

# What must be in the name of an operator that ran, for the forced backend to have run.
MARKS = {
    "flash": "flash_attention",
    "math": "attention_math",
    "efficient": "efficient_attention",
    "cudnn": "cudnn_attention",
}
BACKENDS = {
    "flash": "FLASH_ATTENTION",
    "math": "MATH",
    "efficient": "EFFICIENT_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
}


class Unsupported(Exception):
    """This PyTorch refuses the problem on this backend; the message is its reason."""


@contextlib.contextmanager
def forced(name: str) -> Iterator[None]:
    """Allow the backend `name` and no other; `default` leaves the choice to PyTorch."""
    if name == "default":
        yield
        return
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel
    except ImportError:
        if name == "cudnn":
            raise Unsupported(f"PyTorch {torch.__version__} has no cuDNN attention") from None
        # Only where the newer way is missing: later versions' old switch leaves cuDNN on, which precedes math.
        with torch.backends.cuda.sdp_kernel(
            enable_flash=name == "flash", enable_math=name == "math", enable_mem_efficient=name == "efficient"
        ):
            yield
        return
    backend = getattr(SDPBackend, BACKENDS[name], None)
    if backend is None:
        raise Unsupported(f"PyTorch {torch.__version__} has no {name} attention")
    with sdpa_kernel(backend):
        yield


def attention(q: Any, k: Any, v: Any, causal: bool, scale: float) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)


def attempt(name: str, q: Any, k: Any, v: Any, causal: bool, scale: float) -> None:
    """One call, to find out whether it runs at all; Unsupported with PyTorch's reason where not."""
    try:
        with warnings.catch_warnings(record=True) as caught, forced(name):
            warnings.simplefilter("always")
            attention(q, k, v, causal, scale)
            tensors.synchronise(q.device.type)
    except (RuntimeError, NotImplementedError) as error:
        if tensors.lost(q.device.type):  # a fault is no refusal
            raise
        raise Unsupported(_reason(error, caught)) from None


def prove(name: str, q: Any, k: Any, v: Any, causal: bool, scale: float) -> list[str]:
    """Names of the operators that one call ran, device functions after them; Unsupported where it cannot be forced."""
    attempt(name, q, k, v, causal, scale)
    activities = [torch.profiler.ProfilerActivity.CPU]
    if q.is_cuda:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with forced(name), torch.profiler.profile(activities=activities) as profile:
        attention(q, k, v, causal, scale)
        tensors.synchronise(q.device.type)
    operators, functions = [], []
    for event in sorted(profile.events(), key=lambda event: event.time_range.start):
        if event.name.startswith("aten::_") and "attention" in event.name:
            operators.append(event.name)
        elif event.device_type != torch.profiler.DeviceType.CPU and not event.name.startswith("Mem"):
            functions.append(plain(event.name))
    ran = list(dict.fromkeys(operators + functions))
    mark = MARKS.get(name)
    if mark and not any(mark in operator for operator in operators):
        raise Unsupported("{} was forced, but PyTorch ran {}".format(name, ", ".join(ran) or "no attention operator"))
    return ran


def plain(function: str) -> str:
    """A device function's name without return type, template arguments and parameters."""
    depth, kept = 0, []
    for character in function.replace("(anonymous namespace)", "{anonymous}"):
        if character in "<(":
            depth += 1
        elif character in ">)":
            depth -= 1
        elif depth == 0:
            kept.append(character)
    return "".join(kept).split(" ")[-1] or function


def _reason(error: Exception, caught: Iterable[warnings.WarningMessage]) -> str:
    """One line: the exception's first, then what PyTorch warned about the backend it would not use."""
    lines = [str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__]
    for warning in caught:
        text = str(warning.message).split(" (Triggered internally")[0].strip()
        if text and "deprecated" not in text:
            lines.append(text)
    return " ".join(dict.fromkeys(lines))
