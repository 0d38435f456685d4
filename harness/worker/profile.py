"""`profile`: operators and device functions of one target, with their self times, over some profiled calls.

The profiler itself costs a microsecond or two an operator: the numbers tell where the time goes, and what went
elsewhere in another environment. How much time there is in all, launches tell.
"""

from __future__ import annotations

import bisect
import collections
import contextlib
import linecache
import statistics
import sys
import threading
from types import FrameType
from typing import Any, Collection, Iterator, Sequence

import torch

from . import kernels, problem, protocol, sampling, tensors, wire
from . import workload as workloads
from .references import Unsupported

RECIPE = "independent"
FEWEST_CALLS = 3
MOST_LINES, TEXT_CHARACTERS = 2000, 160
CALL = "profiled call"  # the profiler's name of what we put around each call
REST = "outside operators"  # self time of that: the code under test, and what PyTorch does between operators
WAITING = ("cudaDeviceSynchronize", "Activity Buffer Request")  # ours and the profiler's
MOST_ROWS, NAME_CHARACTERS = 200, 300


def profile(request: wire.ProfileRequest) -> wire.ProfileResult:
    torch.set_num_threads(request.threads)
    workload = workloads.parse_workload(request.workload)
    device, target, kernel = request.device, request.target, request.kernel
    result, call = wire.ProfileResult(protocol.OK, threads=torch.get_num_threads()), None
    try:
        arguments = workload.arguments(workload.arrays(RECIPE, 0, request.seed), device)
        with torch.no_grad(), contextlib.ExitStack() as stack:
            if target == protocol.KERNEL:
                assert kernel is not None
                if kernel.model_new:
                    call = _traced(kernel, kernel.model_new, workload, arguments, result)
                else:
                    call = kernels.load(kernel, workload).bind(arguments, anew=True)
            else:
                reference = workload.references([target], device)[0]
                reference.attempt(arguments)
                stack.enter_context(reference.active())
                call = reference.bind(arguments)
            with kernels.blamed(target):
                _observe(call, request, result)
    except kernels.KernelFailure as error:
        result.status, result.message, result.log_excerpt = error.outcome
        if call is not None:
            result.operators = until_it_raises(call, device)
    except Unsupported as error:
        result.status, result.message = protocol.UNSUPPORTED, str(error)
    return result


def _traced(
    kernel: wire.KernelRequest,
    path: str,
    workload: workloads.Workload,
    arguments: list[Any],
    result: wire.ProfileResult,
) -> kernels.Call:
    """A kernel in Python, bound: which lines of its file run until its first call has returned, and what making it
    draws. A call that raises is left to who calls it next."""
    device = kernel.device
    with running(path) as numbers:
        made = kernels.load(kernel, workload)
        assert isinstance(made, kernels.Model) and isinstance(workload, problem.ProblemWorkload)
        own, models = problem.drawn(device), workload.drawn_by_model(device)
        if models is not None and not made.given:  # stored weights take the place of what was drawn
            result.draws_as_model = own == models
        call = made.bind(arguments, anew=True)
        with contextlib.suppress(kernels.KernelFailure), kernels.blamed("the first call"):
            call()
            tensors.synchronise(device)
    result.lines = lines_of(path, numbers)
    return call


def until_it_raises(call: kernels.Call, device: str) -> list[wire.OperatorTime]:
    """What a call that ends with an exception ran before it: which operators tells why; their times tell nothing."""

    def attempted() -> None:
        with contextlib.suppress(Exception):
            call()

    with torch.no_grad():
        return summed(_events(attempted, device, 1), torch.profiler.DeviceType.CPU)


def _observe(call: kernels.Call, request: wire.ProfileRequest, result: wire.ProfileResult) -> None:
    """Warm up, then profile: at most `calls` calls in about `most_s` seconds."""
    device, most_s = request.device, request.most_s
    _, fastest_ns = sampling.warm_up(lambda: _once(call, device), min(0.2, most_s), FEWEST_CALLS)
    calls = max(FEWEST_CALLS, min(request.calls, int(most_s * 1e9 / max(1.0, fastest_ns))))
    _events(call, device, 1)  # the profiler's own start-up
    events = _events(call, device, calls)
    result.profiled_calls, result.operators = calls, summed(events, torch.profiler.DeviceType.CPU)


def _once(call: kernels.Call, device: str) -> None:
    call()
    tensors.synchronise(device)


def _events(call: kernels.Call, device: str, calls: int) -> list[Any]:
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(calls):
            with torch.profiler.record_function(CALL):
                _once(call, device)
    return list(profiler.events())


def summed(events: Sequence[Any], on_host: Any) -> list[wire.OperatorTime]:
    """Rows, the longest first. `on_host`: the device type of host events.

    An operator belongs to the call in whose time it began. Of its self times the median over the calls is taken, since
    others on the machine disturb single calls, and PyTorch 2.1.0 rounds to microseconds and counts a few operators
    twice for it. A device function's time, which neither happens to, is the mean.
    """
    host = [event for event in events if event.device_type == on_host]
    calls = sorted((event.time_range.start, event.time_range.end) for event in host if event.name == CALL)
    starts = [start for start, _ in calls]
    by_name: dict[str, list[list[float]]] = collections.defaultdict(lambda: [[0, 0.0] for _ in calls])
    for event in host:
        number = bisect.bisect_right(starts, event.time_range.start) - 1
        if number >= 0 and event.time_range.start <= calls[number][1] and event.name not in WAITING:
            entry = by_name[REST if event.name == CALL else event.name][number]
            entry[0] += 1
            entry[1] += event.self_cpu_time_total
    rows = [
        _row(name, "operator", *(statistics.median(column) for column in zip(*entries)))
        for name, entries in by_name.items()
    ]
    on_device: dict[str, list[float]] = collections.defaultdict(list)
    for event in events:
        if event.device_type != on_host and event.name != CALL:
            on_device[event.name].append(event.time_range.elapsed_us())
    rows += [
        _row(name, "device_function", len(times) / len(calls), sum(times) / len(calls))
        for name, times in on_device.items()
        if calls
    ]
    return sorted((row for row in rows if row.calls), key=lambda row: -row.self_us)[:MOST_ROWS]


def _row(name: str, kind: str, calls: float, self_us: float) -> wire.OperatorTime:
    printable = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(name)[:NAME_CHARACTERS])
    return wire.OperatorTime(printable, kind, float(calls), max(0.0, float(self_us)))


@contextlib.contextmanager
def running(path: str) -> Iterator[set[int]]:
    """Gives a set that the numbers of `path`'s lines go into as they run, in this thread and those that it starts."""
    numbers: set[int] = set()
    tracing = [True]

    def of_a_call(frame: FrameType, _event: str, _value: Any) -> Any:
        return of_a_line if tracing and frame.f_code.co_filename == path else None

    def of_a_line(frame: FrameType, event: str, _value: Any) -> Any:
        if event == "line" and tracing:
            numbers.add(frame.f_lineno)
        return of_a_line if tracing else None

    before = sys.gettrace()
    threading.settrace(of_a_call)
    sys.settrace(of_a_call)
    try:
        yield numbers
    finally:
        tracing.clear()  # threads that go on are left alone
        sys.settrace(before)
        threading.settrace(None)


def lines_of(path: str, numbers: Collection[int]) -> list[wire.Line]:
    """These lines, each with its number and text; none where there are too many, or where Dynamo compiled something:
    what it compiled runs without its lines, and what it gave up runs with them."""
    if len(numbers) > MOST_LINES or _dynamo_compiled():
        return []
    return [wire.Line(number, linecache.getline(path, number).strip()[:TEXT_CHARACTERS]) for number in sorted(numbers)]


def _dynamo_compiled() -> bool:
    utils = sys.modules.get("torch._dynamo.utils")
    return bool(utils is not None and utils.counters["frames"])
