"""`profile`: operators and device functions of one target, with their self times, over some profiled calls.

The profiler itself costs a microsecond or two an operator: the numbers tell where the time goes, and what went
elsewhere in another environment. How much time there is in all, launches tell.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from . import kernels, operators, problem, protocol, sampling, subjects, tensors, wire
from .loading import load_kernel

RECIPE = "independent"
FEWEST_CALLS = 3


def profile(request: wire.ProfileRequest) -> wire.ProfileResult:
    torch.set_num_threads(request.threads)
    workload = subjects.parse_workload(request.workload)
    device, target, kernel = request.device, request.target, request.kernel
    result, call = wire.ProfileResult(protocol.OK, threads=torch.get_num_threads()), None
    try:
        arrays = workload.arrays(RECIPE, 0, request.seed)
        arguments = workload.arguments(arrays, device)
        with torch.no_grad(), contextlib.ExitStack() as stack:
            if target == protocol.KERNEL:
                assert kernel is not None
                if kernel.model_new:
                    call = _traced(kernel, kernel.model_new, workload, arguments, result)
                else:
                    call = load_kernel(kernel, workload).bind(arguments, anew=True)
            else:
                reference = workload.references([target], device)[0]
                reference.attempt(workload.arguments(arrays, device))
                stack.enter_context(reference.active())
                call = reference.bind(arguments)
            with kernels.blamed(target):
                _observe(call, request, result)
    except wire.Failed as error:
        result.fail(error)
        if call is not None:
            result.operators = until_it_raises(call, device)
    return result


def _traced(
    kernel: wire.KernelRequest,
    path: str,
    workload: subjects.Workload,
    arguments: list[Any],
    result: wire.ProfileResult,
) -> kernels.Call:
    """A kernel in Python, bound: which lines of its file run until its first call has returned, and what making it
    draws. A call that raises is left to who calls it next."""
    device = kernel.device
    with operators.running(path) as numbers:
        made = load_kernel(kernel, workload)
        assert isinstance(made, kernels.ModelKernel) and isinstance(workload, problem.ProblemWorkload)
        own, models = tensors.drawn(device), workload.drawn_by_model(device)
        if models is not None and not made.given:  # stored weights take the place of what was drawn
            result.draws_as_model = own == models
        call = made.bind(arguments, anew=True)
        with contextlib.suppress(wire.Failed), kernels.blamed("the first call"):
            call()
            tensors.synchronise(device)
    result.lines = operators.lines_of(path, numbers)
    return call


def until_it_raises(call: kernels.Call, device: str) -> list[wire.OperatorTime]:
    """Return what a call that ends with an exception ran before it: which operators tells why; their times tell
    nothing."""

    def attempted() -> None:
        with contextlib.suppress(Exception):
            call()

    with torch.no_grad():
        return operators.summed(_events(attempted, device, 1), torch.profiler.DeviceType.CPU)


def _observe(call: kernels.Call, request: wire.ProfileRequest, result: wire.ProfileResult) -> None:
    """Warm up, then profile: at most `calls` calls in about `most_s` seconds."""
    device, most_s = request.device, request.most_s
    _, fastest_ns = sampling.warm_up(lambda: _once(call, device), min(0.2, most_s), FEWEST_CALLS)
    calls = max(FEWEST_CALLS, min(request.calls, int(most_s * 1e9 / max(1.0, fastest_ns))))
    _events(call, device, 1)  # the profiler's own start-up
    events = _events(call, device, calls)
    result.profiled_calls, result.operators = calls, operators.summed(events, torch.profiler.DeviceType.CPU)


def _once(call: kernels.Call, device: str) -> None:
    call()
    tensors.synchronise(device)


def _events(call: kernels.Call, device: str, calls: int) -> list[Any]:
    with tensors.profiled(device) as profiler:
        for _ in range(calls):
            with torch.profiler.record_function(operators.CALL):
                _once(call, device)
    return list(profiler.events())
