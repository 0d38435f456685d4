"""`batch`: several requests of one task. PyTorch is imported once; each is done in a process of its own, forked before
any operator ran, and before CUDA was initialised, which no forked process could use.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
from typing import Any, Callable

from . import codec, protocol, tasks, wire

FORK = multiprocessing.get_context("fork")


def batch(request: wire.BatchRequest) -> wire.BatchResult:
    perform = tasks.prepared(request.task)
    kind = wire.TASKS[request.task].request
    return wire.BatchResult([_answer(perform, codec.read(kind, each), request.timeout_s) for each in request.requests])


def _answer(perform: Callable[[Any], Any], request: Any, timeout_s: float) -> wire.Answered:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "result.json")
        started = time.monotonic()
        process = FORK.Process(target=_work, args=(perform, request, path))
        process.start()
        process.join(timeout_s)
        process.kill()
        process.join()
        result = protocol.read_json(path) if os.path.exists(path) else None
        return wire.Answered(time.monotonic() - started, result)


def _work(perform: Callable[[Any], Any], request: Any, path: str) -> None:
    protocol.set_caches(os.path.join(os.path.dirname(path), "caches"))
    protocol.write_json(path, codec.dump(perform(request)))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # as `__main__`
