"""Measures every operator of a script, and does nothing else: a dispatch mode below autograd without digests."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Callable

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .operators import Operator
from .places import Places


class Timer(TorchDispatchMode):  # type: ignore[misc]
    """What is measured of an operator is its call: what PyTorch does below autograd, and not what the mode does. Its
    nanoseconds, or, where the request has `with` "memory", the most bytes that it needs besides what was there."""

    failed = ""  # as of the recorder; here what an operator raises is the script's own

    def __init__(self, request: dict[str, Any]) -> None:
        super().__init__()
        self.out, self.process = request["out"], os.getpid()
        self.places = Places(request)
        self.measure = _needed_bytes if request["with"] == "memory" else _spent_ns
        self.calls: list[Any] = []
        self.values: list[Any] = []  # numbers, or the two events between which the time passes

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if os.getpid() != self.process or self.places.here() is None:
            return func(*args, **kwargs)
        value, result = self.measure(lambda: func(*args, **kwargs))
        self.values.append(value)
        self.calls.append(func)
        return result

    def close(self) -> dict[str, Any]:
        """`operators.json`: names and values of the operators, in their order. Nothing more is told of the whole."""
        self.places.close()
        names = {func: Operator(func).name for func in set(self.calls)}
        values = [each if isinstance(each, int) else _elapsed_ns(*each) for each in self.values]
        with open(os.path.join(self.out, "operators.json"), "w", encoding="utf-8") as file:
            json.dump({"names": [names[func] for func in self.calls], "values": values}, file)
        return {}


def _spent_ns(call: Callable[[], Any]) -> tuple[Any, Any]:
    """Once a script uses a GPU, what passes on the GPU's own clock: an operator that it did not wait for takes none."""
    if torch.cuda.is_initialized():
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        result = call()
        end.record()
        return (begin, end), result
    started = time.perf_counter_ns()
    result = call()
    return time.perf_counter_ns() - started, result


def _elapsed_ns(begin: Any, end: Any) -> int:
    end.synchronize()
    return int(begin.elapsed_time(end) * 1e6)


def _needed_bytes(call: Callable[[], Any]) -> tuple[int, Any]:
    """The peak of PyTorch's allocator above what was allocated, its results included. On the CPU from the profiler of
    one call, which is told of every allocation; what oneDNN and MKL allocate by themselves is not among them."""
    legacy = torch._C._autograd
    kind, nothing = torch.autograd.ProfilerState.CPU, torch._C._profiler._ExperimentalConfig()
    config = torch.autograd.ProfilerConfig(kind, False, True, False, False, False, nothing)
    start = _on_devices("memory_allocated")
    _on_devices("reset_peak_memory_stats")
    legacy._enable_profiler_legacy(config)
    try:
        result = call()
    finally:
        threads = legacy._disable_profiler_legacy()
    now = most = 0
    for event in (each for thread in threads for each in thread if each.kind() == "memory_alloc"):
        now += event.cpu_memory_usage()
        most = max(most, now)
    return most + sum(_on_devices("max_memory_allocated")) - sum(start), result


def _on_devices(name: str) -> list[int]:
    """Of every GPU that is used."""
    count = torch.cuda.device_count() if torch.cuda.is_initialized() else 0
    return [getattr(torch.cuda, name)(each) for each in range(count)]
