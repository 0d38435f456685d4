"""Times every operator of a script, and does nothing else: a dispatch mode below autograd without digests."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from .operators import Operator
from .places import Places


class Timer(TorchDispatchMode):  # type: ignore[misc]
    """What an operator takes is the time of its call: what PyTorch does below autograd, and not what the mode does."""

    failed = ""  # as of the recorder; here what an operator raises is the script's own

    def __init__(self, request: dict[str, Any]) -> None:
        super().__init__()
        self.out, self.process = request["out"], os.getpid()
        self.places = Places(request)
        self.calls: list[Any] = []
        self.spent_ns: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if os.getpid() != self.process or self.places.here() is None:
            return func(*args, **kwargs)
        started = time.perf_counter_ns()
        result = func(*args, **kwargs)
        self.spent_ns.append(time.perf_counter_ns() - started)
        self.calls.append(func)
        return result

    def close(self) -> dict[str, Any]:
        """`times.json`: names and nanoseconds of the operators, in their order. Nothing more is told of the whole."""
        self.places.close()
        names = {func: Operator(func).name for func in set(self.calls)}
        with open(os.path.join(self.out, "times.json"), "w", encoding="utf-8") as file:
            json.dump({"names": [names[func] for func in self.calls], "spent_ns": self.spent_ns}, file)
        return {}
