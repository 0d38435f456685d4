"""`profile`: operators and device functions of one target, with their self times, over some profiled calls.

The profiler itself costs a microsecond or two an operator: the numbers tell where the time goes, and what went
elsewhere in another environment. How much time there is in all, launches tell.
"""

import contextlib

import torch

from . import kernels, lines, operators, problem, protocol, sampling, tensors
from . import workload as workloads
from .references import Unsupported

RECIPE = "independent"
FEWEST_CALLS = 3


def profile(request):
    """request: kernel (for the target `kernel`), workload, target, seed, device, threads, calls, most_s."""
    torch.set_num_threads(request.threads)
    workload = workloads.parse_workload(request.workload)
    device, target = request.device, request.target
    result = {"status": protocol.OK, "message": "", "log_excerpt": "", "profiled_calls": 0, "operators": []}
    result["threads"], call = torch.get_num_threads(), None
    try:
        arguments = workload.arguments(workload.arrays(RECIPE, 0, request.seed), device)
        with torch.no_grad(), contextlib.ExitStack() as stack:
            if target == protocol.KERNEL and request.kernel.model_new:
                call = _followed(request.kernel, workload, arguments, result)
            elif target == protocol.KERNEL:
                call = kernels.load(request.kernel, workload).bind(arguments, anew=True)
            else:
                reference = workload.references([target], device)[0]
                reference.attempt(arguments)
                stack.enter_context(reference.active())
                call = reference.bind(arguments)
            with kernels.blamed(target):
                result.update(observe(call, device, request.calls, request.most_s))
    except kernels.KernelFailure as error:
        result.update(status=error.status, message=error.message, log_excerpt=error.excerpt)
        if call is not None:
            result["operators"] = until_it_raises(call, device)
    except Unsupported as error:
        result.update(status=protocol.UNSUPPORTED, message=str(error))
    return result


def _followed(kernel, workload, arguments, result):
    """A kernel in Python, bound: which lines of its file run until its first call has returned, and what making it
    draws. A call that raises is left to who calls it next."""
    path, device = kernel.model_new, kernel.device
    with lines.running(path) as numbers:
        made = kernels.load(kernel, workload)
        own, models = problem.drawn(device), workload.drawn_by_model(device)
        if models is not None and not made.given:  # stored weights take the place of what was drawn
            result["draws_as_model"] = own == models
        call = made.bind(arguments, anew=True)
        with contextlib.suppress(kernels.KernelFailure), kernels.blamed("the first call"):
            call()
            tensors.synchronise(device)
    result["lines"] = lines.told(path, numbers)
    return call


def until_it_raises(call, device):
    """What a call that ends with an exception ran before it: which operators tells why; their times tell nothing."""

    def attempted():
        with contextlib.suppress(Exception):
            call()

    with torch.no_grad():
        return operators.summed(_events(attempted, device, 1), torch.profiler.DeviceType.CPU)


def observe(call, device, calls, most_s):
    """Warm up, then profile: at most `calls` calls in about `most_s` seconds."""
    _, fastest_ns = sampling.warm_up(lambda: _once(call, device), min(0.2, most_s), FEWEST_CALLS)
    calls = max(FEWEST_CALLS, min(calls, int(most_s * 1e9 / max(1.0, fastest_ns))))
    _events(call, device, 1)  # the profiler's own start-up
    events = _events(call, device, calls)
    return {"profiled_calls": calls, "operators": operators.summed(events, torch.profiler.DeviceType.CPU)}


def _once(call, device):
    call()
    tensors.synchronise(device)


def _events(call, device, calls):
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(calls):
            with torch.profiler.record_function(operators.CALL):
                _once(call, device)
    return list(profiler.events())
