"""`batch`: several requests of one task. PyTorch is imported once; each request is answered by a fork of that process.

The process forks before any operator ran and before CUDA was initialised: neither PyTorch's threads nor a CUDA context
survive a fork. It never loads the code under test, which its children may. So a batch's children have one kernel at
most, in a sandbox of their own, and what they say is as untrusted as the answer of a process that was started for them.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import tempfile
import time
from typing import Any, Callable

from . import children, codec, protocol, tasks, wire

FORK = multiprocessing.get_context("fork")


def batch(request: wire.BatchRequest) -> wire.BatchResult:
    perform = tasks.prepared(request.task)
    kind = wire.TASKS[request.task].request
    started = children.Children()
    answers = []
    for each in request.requests:
        answers.append(_answer(perform, codec.read(kind, each), request.timeout_s))
        started.end()  # what a kernel left running would slow the next one down, and could write to its files
    return wire.BatchResult(answers)


def _answer(perform: Callable[[Any], Any], request: Any, timeout_s: float) -> wire.Answered:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "result.json")
        started = time.monotonic()
        process = FORK.Process(target=_work, args=(perform, request, path))
        process.start()
        process.join(timeout_s)
        timed_out = process.exitcode is None
        process.kill()
        process.join()
        result = protocol.read_result(path) if process.exitcode == 0 else None
        return wire.Answered(time.monotonic() - started, result, timed_out)


def _work(perform: Callable[[Any], Any], request: Any, path: str) -> None:
    _draw_anew()
    protocol.set_caches(os.path.join(os.path.dirname(path), "caches"))
    protocol.write_json(path, codec.dump(perform(request)))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # as `__main__`


def _draw_anew() -> None:
    """Seed the generators that a fresh process seeds from the system. Forks would all draw the same numbers."""
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
