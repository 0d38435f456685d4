"""SDPA backends, forced by name in the way that this PyTorch has, with proof of the operator that ran."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any, Callable, ContextManager, Iterable, Iterator, Protocol, Sequence

import torch

from . import blame, outputs, problem_files, protocol, tensors, wire
from .blame import enters_subject

# What must be in the name of an operator that ran, for the forced backend to have run.
MARKS = {"math": "attention_math", **{name: f"{name}_attention" for name in ("flash", "efficient", "cudnn")}}


def unsupported(reason: str) -> wire.Failed:
    """This PyTorch refuses the problem on this backend."""
    return wire.Failed(protocol.UNSUPPORTED, reason)


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
            raise unsupported(f"PyTorch {torch.__version__} has no cuDNN attention") from None
        # Only where the newer way is missing: later versions' old switch leaves cuDNN on, which precedes math.
        with torch.backends.cuda.sdp_kernel(
            enable_flash=name == "flash", enable_math=name == "math", enable_mem_efficient=name == "efficient"
        ):
            yield
        return
    backend = getattr(SDPBackend, "MATH" if name == "math" else f"{name.upper()}_ATTENTION", None)
    if backend is None:
        raise unsupported(f"PyTorch {torch.__version__} has no {name} attention")
    with sdpa_kernel(backend):
        yield


@enters_subject
def attention(q: Any, k: Any, v: Any, causal: bool, scale: float, mask: Any = None) -> Any:
    """Heads of K and V that several of Q share are repeated first, in every version alike: 2.1.0 has no `enable_gqa`,
    and later ones refuse it on some backends."""
    shared = q.shape[1] // k.shape[1]
    if shared > 1:
        k, v = (tensor.repeat_interleave(shared, dim=1) for tensor in (k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=scale)


def graph(inputs: list[Any], d_out: Any, causal: bool, scale: float, mask: Any) -> outputs.Graph:
    """Of a call: gradients are of Q, K and V, along `d_out`. A step of it gives `attention.OUTPUTS`."""
    with torch.enable_grad():
        q, k, v = leaves = [tensor.detach().requires_grad_() for tensor in inputs]
        out = attention(q, k, v, causal, scale, mask)
    return outputs.Graph({"output": out}, dict(zip("qkv", leaves)), [out], [d_out])


class AttentionCall(Protocol):
    """What a reference needs to know of an attention."""

    causal: bool
    backward: bool
    scale: float
    dropout: float

    def given(self, values: Sequence[Any]) -> Any:
        """Return its inputs by their names."""


class SdpaReference:
    """A backend, forced by name, on an attention."""

    def __init__(self, name: str, workload: AttentionCall) -> None:
        self.name, self.workload = name, workload

    def active(self) -> ContextManager[None]:
        """The context in which a bound call uses the backend."""
        return forced(self.name)

    def bind(self, arguments: list[Any]) -> Callable[[], Any]:
        if self.workload.backward:
            return lambda: self.graph(arguments).step()
        q, k, v, mask, *_ = self.workload.given(arguments)
        return lambda: attention(q, k, v, self.workload.causal, self.workload.scale, mask)

    def graph(self, arguments: list[Any]) -> outputs.Graph:
        q, k, v, mask, _, d_out = self.workload.given(arguments)
        return graph([q, k, v], d_out, self.workload.causal, self.workload.scale, mask)

    def judged(self, arguments: list[Any]) -> outputs.Outputs:
        """Return the outputs of a call on these arguments, by name."""
        return outputs.named(self.bind(arguments)())

    def attempt(self, arguments: list[Any]) -> None:
        """One call, to find out whether it runs at all; `unsupported` with PyTorch's reason where not."""
        if self.workload.dropout:
            raise unsupported("SDPA draws its own dropout, and cannot be given draws")
        device = arguments[0].device.type
        try:
            with warnings.catch_warnings(record=True) as caught, self.active():
                warnings.simplefilter("always")
                self.bind(arguments)()
                tensors.synchronise(device)
        except (RuntimeError, NotImplementedError) as error:
            if tensors.lost(device):  # a fault is no refusal
                raise
            if skipped := blame.skip(error):
                raise skipped from None
            raise unsupported(_reason(error, caught)) from None

    def prove(self, arguments: list[Any]) -> list[str]:
        """Names of the operators that one call ran, device functions after them; `unsupported` where it cannot be
        forced."""
        self.attempt(arguments)
        device = arguments[0].device.type
        with self.active(), tensors.profiled(device) as profile:
            self.bind(arguments)()
            tensors.synchronise(device)
        operators, functions = [], []
        for event in sorted(profile.events(), key=lambda event: event.time_range.start):
            if event.name.startswith("aten::_") and "attention" in event.name:
                operators.append(event.name)
            elif event.device_type != torch.profiler.DeviceType.CPU and not event.name.startswith("Mem"):
                functions.append(plain(event.name))
        ran = list(dict.fromkeys(operators + functions))
        mark = MARKS.get(self.name)
        if mark and not any(mark in operator for operator in operators):
            names = ", ".join(ran) or "no attention operator"
            raise unsupported(f"{self.name} was forced, but PyTorch ran {names}")
        return ran


@enters_subject
def compile_forward(model: Any) -> None:
    """Its calls go through torch.compile from now on. It stays the same object, with its own names of parameters."""
    model.forward = torch.compile(model.bound() if isinstance(model, problem_files.OperatorModel) else model.forward)


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
