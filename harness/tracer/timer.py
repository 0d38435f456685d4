"""Times every operator of a script, and does nothing else: a dispatch mode below autograd without digests."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .operators import Operator
from .places import Places


class Timer(TorchDispatchMode):  # type: ignore[misc]
    """What an operator takes is the time of its call: what PyTorch does below autograd, and not what the mode does.

    Once a script uses a GPU, that is what passes on the GPU's own clock: an operator that the GPU did not wait for
    takes no time.
    """

    failed = ""  # as of the recorder; here what an operator raises is the script's own

    def __init__(self, request: dict[str, Any]) -> None:
        super().__init__()
        self.out, self.process = request["out"], os.getpid()
        self.places = Places(request)
        self.calls: list[Any] = []
        self.spent: list[Any] = []  # nanoseconds, or the two events

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if os.getpid() != self.process or self.places.here() is None:
            return func(*args, **kwargs)
        self.calls.append(func)
        if torch.cuda.is_initialized():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            result = func(*args, **kwargs)
            end.record()
            self.spent.append((begin, end))
            return result
        started = time.perf_counter_ns()
        result = func(*args, **kwargs)
        self.spent.append(time.perf_counter_ns() - started)
        return result

    def close(self) -> dict[str, Any]:
        """`times.json`: names and nanoseconds of the operators, in their order. Nothing more is told of the whole."""
        self.places.close()
        names = {func: Operator(func).name for func in set(self.calls)}
        spent_ns = [each if isinstance(each, int) else _elapsed_ns(*each) for each in self.spent]
        with open(os.path.join(self.out, "times.json"), "w", encoding="utf-8") as file:
            json.dump({"names": [names[func] for func in self.calls], "spent_ns": spent_ns}, file)
        return {}


def _elapsed_ns(begin: Any, end: Any) -> int:
    end.synchronize()
    return int(begin.elapsed_time(end) * 1e6)
