"""`compiled`: the first call of what compiles at run time, its later calls, and what was generated.

The compilers' caches are in a folder of the request's: empty for a cold first call, as another process left it for a
warm one. A first call is counted from making the model on, since some compile then; PyTorch is imported before. What it
says is the word of the process that the code under test lives in.
"""

from __future__ import annotations

import statistics
from typing import Any, Callable

import torch

from . import generated, kernels, protocol, tensors, tools, wire
from . import workload as workloads
from .loading import load_kernel
from .sampling import clock_ns

RECIPE = "independent"
LATER_CALLS, LATER_S = 50, 1.0  # at most


def compiled(request: wire.CompiledRequest) -> wire.CompiledResult:
    protocol.set_caches(request.caches)
    torch.set_num_threads(request.threads)
    workload = workloads.parse_workload(request.workload)
    result = wire.CompiledResult(protocol.OK)
    try:
        arrays = workload.arrays(RECIPE, 0, request.seed)
        first, later = (workload.arguments(arrays, request.device) for _ in range(2))
        tensors.synchronise(request.device)  # and a GPU's context is there
        with torch.no_grad():
            start = clock_ns()
            call = _first(request, workload, first, later)
            tensors.synchronise(request.device)
            result.first_s = (clock_ns() - start) / 1e9
            with kernels.blamed("a later call"):
                result.later_us = _later(call, request.device)
        programs = tools.cuda_folder() if request.device == "cuda" else ""
        result.generated = generated.generated(request.caches, programs)
        result.picked = generated.picked(request.caches)
    except wire.Failed as error:
        result.fail(error)
    return result


def _first(
    request: wire.CompiledRequest, workload: workloads.Workload, arguments: list[Any], later: list[Any]
) -> Callable[[], Any]:
    """Make the model and call it once; return its next calls, which a model is given other arguments for: it may write
    to them."""
    if request.kernel is None:
        reference = workload.references([protocol.MODEL], request.device)[0]
        reference.attempt(arguments)
        return reference.bind(later)
    call = load_kernel(request.kernel, workload).bind(arguments, anew=True)
    with kernels.blamed("the first call"):
        call()
    return call


def _later(call: Callable[[], Any], device: str) -> float:
    """Median of a call's time once it is compiled, in microseconds. The second call may still compile, and is left
    out."""
    call()
    tensors.synchronise(device)
    times: list[int] = []
    while len(times) < LATER_CALLS and sum(times) < LATER_S * 1e9:
        start = clock_ns()
        call()
        tensors.synchronise(device)
        times.append(clock_ns() - start)
    return statistics.median(times) / 1e3
