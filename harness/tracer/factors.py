"""Runs stored programs again with one factor changed, for the bits of their outputs.

Some factors are read by a library at its first call: they are variables, set in a process where no operator ran yet.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Iterator

import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from .digest import digest
from .programs import STORED, run

TIMES = 2
VARIABLES = {
    "vector": {"ATEN_CPU_CAPABILITY": "default"},
    "mkl": {"MKL_CBWR": "COMPATIBLE"},
    "deterministic": {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"},
}
ON_CPU = ("threads", "onednn", "denormals", "vector", "mkl")
ON_CUDA = ("cudnn", "tf32", "deterministic")
BACKENDS = {"math": "MATH", "flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION"}
ATTENTION = "aten::_scaled_dot_product_"


def vary_all(request: dict[str, Any]) -> dict[str, Any]:
    """Of every program, for each of the request's `factors` in turn (empty: nothing is changed): the digests of its
    outputs each time, None of an output that the factor says nothing of. No times where it cannot matter for the
    program, and None where PyTorch refused."""
    results: dict[str, Any] = {}
    for factor in request["factors"]:
        os.environ.update(VARIABLES.get(factor, {}))
    for name, path in request["programs"].items():
        program = torch.load(path, weights_only=False)
        results[name] = [_bits(factor, program) if _applies(factor, program) else [] for factor in request["factors"]]
    return results


def _bits(factor: str, program: dict[str, Any]) -> list[Any] | None:
    try:
        with _varied(factor):
            every = [run(program) for _ in range(TIMES)]
    except Exception:
        return None
    told = [factor not in BACKENDS or not slot or not _is_forced(program, op) for op, slot in every[0]]
    return [[digest(each) if known else None for each, known in zip(outputs.values(), told)] for outputs in every]


def _applies(factor: str, program: dict[str, Any]) -> bool:
    is_cuda = _is_cuda([[call["args"], list(call["kwargs"].values())] for call in program["calls"]])
    if factor in BACKENDS:
        known = is_cuda or factor == "math"  # on the CPU flash is the other one, and runs by itself
        return known and any(_is_forced(program, call["index"]) for call in program["calls"])
    if factor == "threads" and torch.get_num_threads() == 1:
        return False
    return not factor or factor in (ON_CUDA if is_cuda else ON_CPU)


def _is_cuda(value: Any) -> bool:
    if isinstance(value, tuple) and value and value[0] == STORED:
        return bool(value[1].is_cuda)
    return isinstance(value, (list, tuple)) and any(map(_is_cuda, value))


def _is_forced(program: dict[str, Any], index: int) -> bool:
    name = next(call["name"] for call in program["calls"] if call["index"] == index)
    return name.startswith(ATTENTION) and "backward" not in name


@contextlib.contextmanager
def _varied(factor: str) -> Iterator[None]:
    threads, matmul = torch.get_num_threads(), torch.backends.cuda.matmul
    tf32 = matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    if factor == "threads":
        torch.set_num_threads(1)
    elif factor == "denormals":
        torch.set_flush_denormal(True)
    elif factor == "tf32":
        matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    elif factor == "deterministic":
        torch.use_deterministic_algorithms(True, warn_only=True)
    context: Any = contextlib.nullcontext()
    if factor == "onednn":
        context = torch.backends.mkldnn.flags(enabled=False)
    elif factor == "cudnn":
        context = torch.backends.cudnn.flags(enabled=False)
    elif factor in BACKENDS:
        context = _Attention(factor)
    try:
        with context:
            yield
    finally:
        torch.set_num_threads(threads)
        torch.set_flush_denormal(False)
        torch.use_deterministic_algorithms(False)
        matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = tf32


class _Attention(TorchDispatchMode):  # type: ignore[misc]
    """In place of the first output of an attention operator that of the public function with this backend forced: the
    operators' own names and arguments differ by version."""

    def __init__(self, backend: str) -> None:
        super().__init__()
        self.backend = backend

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result, schema = func(*args, **(kwargs or {})), func._schema
        if not schema.name.startswith(ATTENTION) or "backward" in schema.name:
            return result
        given = {argument.name: argument.default_value for argument in schema.arguments if argument.has_default_value()}
        given.update(zip((argument.name for argument in schema.arguments), args))
        given.update(kwargs or {})
        if given["dropout_p"]:
            raise NotImplementedError("attention with dropout")
        mask = given.get("attn_mask", given.get("attn_bias"))
        more = {"attn_mask": mask, "is_causal": given["is_causal"], "scale": given["scale"]}
        with _forced(self.backend):
            output = functional.scaled_dot_product_attention(given["query"], given["key"], given["value"], **more)
        return (output, *result[1:])


def _forced(backend: str) -> Any:
    attention: Any = getattr(torch.nn, "attention", None)
    if hasattr(attention, "sdpa_kernel"):
        return attention.sdpa_kernel(getattr(attention.SDPBackend, BACKENDS[backend]))
    chosen = {"enable_flash": "flash", "enable_math": "math", "enable_mem_efficient": "efficient"}
    return torch.backends.cuda.sdp_kernel(**{name: each == backend for name, each in chosen.items()})
