"""Inductor's C++ kernels that one environment generated, called from the graph that another one compiles.

Inductor's output code asks its AsyncCompile for each kernel, by its source: `cpp` in PyTorch 2.1, `cpp_pybinding` in
2.5. Here the answer is the other environment's machine code of the same kernel, called through its C function
``kernel``, which both versions export. All else, such as the graph, its buffers and PyTorch's own operators, stays this
environment's.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Callable, Sequence

import torch

from . import blame, generated, kernels, references, wire

if TYPE_CHECKING:
    from .problem import ProblemWorkload


class Exchanged(kernels.Model):
    """A compiled model whose C++ kernels are those of a folder of caches."""

    def __init__(self, kernel: wire.KernelRequest, workload: ProblemWorkload) -> None:
        given = generated.cpp_kernels(kernel.generated)
        self.called: list[str] = []
        self.all = len(given)
        compiler = _compiler()
        compiler.cpp = compiler.cpp_pybinding = self._taking(given)
        name = "ModelNew" if kernel.model_new else "Model"
        super().__init__(kernel.model_new or workload.problem, workload, kernel.device, name)
        if name == "Model":
            references.compile_forward(self.model)

    @property
    def told(self) -> str:
        return f"{len(set(self.called))} of {self.all} kernels"

    def _taking(self, given: Sequence[generated.CppKernel]) -> Callable[..., Any]:
        """In place of a method that takes a kernel's source last."""
        left = list(given)

        @blame.enters_subject
        def take(_self: Any, *arguments: Any) -> Callable[..., None]:
            wanted = generated.signature(arguments[-1])
            if not left or left[0].signature != wanted:
                raise RuntimeError(f"no generated kernel of the other environment takes ({wanted})")
            other = left.pop(0)
            entry = ctypes.CDLL(other.path).kernel
            entry.restype = None

            @blame.enters_subject
            def call(*values: Any) -> None:
                self.called.append(other.name)
                entry(*map(_as_c, values))

            return call

        return take


def _compiler() -> Any:
    """Inductor's AsyncCompile, which moved after 2.1."""
    try:
        from torch._inductor.async_compile import AsyncCompile
    except ImportError:
        from torch._inductor.codecache import AsyncCompile
    return AsyncCompile


def _as_c(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return ctypes.c_void_p(value.data_ptr())
    return ctypes.c_long(value) if isinstance(value, int) else value
