"""The code under test, in whichever of its forms a request has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from . import prebuilt, protocol, shared_object, wire
from .kernels import Extension, Kernel, ModelKernel

if TYPE_CHECKING:
    from .subjects import Workload


def load_kernel(kernel: wire.KernelRequest, workload: Workload) -> Kernel:
    """Return the request's kernel, ready to bind; `wire.Failed`."""
    device = kernel.device
    if device == "cuda" and not torch.cuda.is_available():
        raise wire.Failed(protocol.NOT_RUN, "PyTorch sees no CUDA device here")
    if workload.problem is None:
        if kernel.model_new:
            raise wire.Failed(protocol.NOT_RUN, "a ModelNew needs a workload with a problem file")
        if kernel.prebuilt:
            return prebuilt.load(kernel, workload)
        if kernel.library:
            return shared_object.Library(kernel.library, workload)
        return Extension(kernel.artifact or "", workload)
    if not kernel.model_new:
        raise wire.Failed(protocol.NOT_RUN, "a problem file's kernel is a Python file with ModelNew")
    return ModelKernel(kernel.model_new, workload, device)
