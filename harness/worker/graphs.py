"""Times on a GPU without what stands between launches: replays of a CUDA graph that holds several calls back to back.

A graph can be empty: what a kernel puts on the legacy default stream is not captured, it runs at once. So every output
of a captured call, each in memory of its own, is poisoned, and must hold the bytes of the first call's output again
after a replay, before the replays are timed and after.

Capture as in PyTorch's notes on CUDA graphs (Semantics, "CUDA Graphs"): some calls on a side stream first, then
`torch.cuda.graph`.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from typing import Any, Callable

import torch

from . import blame, events, kernels, sampling, tensors, wire

SAMPLE_US = 1000.0  # a replay's length, where outputs allow
MOST_CALLS = 100
MOST_OUTPUT_BYTES = 8 << 20  # of a replay's calls, so that the cache still holds what they read
SIDE_CALLS = 3
ESCAPING_CALLS = 3
Right = Callable[[Any], bool]  # whether an output with other bits than the expected one's may be right


class Refused(Exception):
    """No replay of this call is a time; the message says why. `escaped`: see `Timing`."""

    def __init__(self, message: str, escaped: bool | None = None) -> None:
        super().__init__(message)
        self.escaped = escaped


def sample(
    call: kernels.Call, expected: Any, timing: wire.SamplingRequest, row: wire.TargetTiming, right: Right | None = None
) -> float:
    """The replays' times into a row that has the cold ones, or why there are none; the process goes on either way.
    Gives the seconds that it took. `call` gives a new tensor each time; `expected` is what the first call gave."""
    try:
        samples, calls, witnessed_ns = _replays(call, expected, statistics.median(row.samples_us), timing, right)
    except Refused as error:
        row.hot_message, row.escaped = str(error), error.escaped
        return 0.0
    except Exception as error:
        row.hot_message = kernels.failure(error, "capturing its calls").message
        torch.cuda.synchronize()  # a fault of the device is no refusal
        return 0.0
    hot_us = [sample.us for sample in samples]
    row.hot_message = sampling.implausible(sum(hot_us) * calls * 1000, witnessed_ns)
    if row.hot_message:
        return 0.0
    row.hot_us, row.hot_sampled_s, row.hot_calls_per_sample = hot_us, [sample.at_s for sample in samples], calls
    return witnessed_ns / 1e9


def calls_per_sample(call_us: float, output_bytes: int) -> int:
    room = MOST_OUTPUT_BYTES // max(1, output_bytes)
    return max(1, min(MOST_CALLS, room, math.ceil(SAMPLE_US / max(call_us, 1e-3))))


def _replays(
    call: kernels.Call, expected: Any, call_us: float, timing: wire.SamplingRequest, right: Right | None
) -> tuple[list[events.Sample], int, int]:
    """(samples, calls in each, nanoseconds that they took in all by the second clock)."""
    if tensors.dtype_name(expected) not in tensors.POISON:
        raise Refused(f"outputs of dtype {tensors.dtype_name(expected)} cannot be poisoned, to see a replay write them")
    calls = calls_per_sample(call_us, expected.numel() * expected.element_size())
    graph, outputs = capture(call, calls)
    try:
        _check(graph, outputs, expected, right)
    except Unwritten as error:
        escaped = _done_at_once(call, expected)
        how = "ran at once, on another stream than the one it was given," if escaped else "was not done at all"
        said = f"{error}: what a call does is not in the graph; it {how} while it was captured"
        raise Refused(said, escaped) from None
    sampler = events.WarmSampler(graph.replay, calls)
    call_us = statistics.median(sample.us for sample in _first(sampler))
    samples, witnessed_ns = events.collect(sampler, call_us, timing)
    _check(graph, outputs, expected, right)
    return samples, calls, witnessed_ns


def _done_at_once(call: kernels.Call, expected: Any) -> bool:
    """Whether outputs stand there as soon as calls were captured, which puts off whatever is on the calls' own stream.
    Each is new memory, so what stood there before is not the right output of several."""
    _, outputs = capture(call, ESCAPING_CALLS)
    torch.cuda.synchronize()
    return all(tensors.alike(output, expected) for output in outputs)


def _first(sampler: events.Sampler) -> list[events.Sample]:
    """The first sample that the host was fast enough for."""
    while True:
        found = sampler.take(1)
        if found:
            return found


@blame.enters_subject
def capture(call: kernels.Call, count: int, before: kernels.Call | None = None) -> tuple[Any, list[Any]]:
    """(a graph of `count` calls, their outputs). What the call raises while it is captured is raised. `before`: what is
    called before the capture, instead."""
    here = torch.cuda.current_stream()
    side = torch.cuda.Stream()
    side.wait_stream(here)
    with torch.cuda.stream(side):
        for _ in range(SIDE_CALLS):
            (before or call)()
    here.wait_stream(side)
    graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
    try:
        with torch.cuda.graph(graph, pool=pool):
            outputs = [call() for _ in range(count)]
    except BaseException:
        _clean_up(pool, here)
        raise
    return graph, outputs


def _clean_up(pool: Any, here: Any) -> None:
    """After a capture that failed. Where ending it failed too, PyTorch leaves its stream the current one and its
    allocator capturing: no later capture, and no allocation that must free others first, would succeed. PyTorch 2.5
    ends that by the pool, 2.1 by the current stream alone. And its generator believes that it is captured, and refuses
    to draw, until a capture ends well."""
    if torch.cuda.current_stream() != here:
        device = torch.cuda.current_device()
        for name in ("_cuda_endAllocateToPool", "_cuda_endAllocateCurrentStreamToPool"):
            for arguments in ((device, pool), (device,)):
                with contextlib.suppress(AttributeError, RuntimeError, TypeError):  # another version's, or ended
                    getattr(torch._C, name)(*arguments)
    torch.cuda.set_stream(here)
    with contextlib.suppress(RuntimeError), torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.zeros(1, device="cuda")


class Unwritten(Refused):
    """A replay does not write every output."""


def _check(graph: Any, outputs: list[Any], expected: Any, right: Right | None) -> None:
    """Refused where a replay does not write every output, or writes other bytes than the first call, which are not
    `right` either."""
    for output in outputs:
        tensors.poison(output)
    torch.cuda.synchronize()
    graph.replay()
    torch.cuda.synchronize()
    unwritten = sum(tensors.has_poison(output) for output in outputs)
    if unwritten:
        raise Unwritten(f"a replay of its calls leaves {unwritten} of {len(outputs)} outputs unwritten")
    other = sum(not (tensors.same_bits(output, expected) or (right and right(output))) for output in outputs)
    if other:
        raise Refused(f"a replay of its calls gives {other} of {len(outputs)} outputs other bits than the first call")
