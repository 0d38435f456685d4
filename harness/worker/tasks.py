"""A task by its name: which module has it, and what must be set before that is imported."""

from __future__ import annotations

import importlib
import os
import traceback
from functools import partial
from typing import Any, Callable

from . import blame, wire

MODULES = {name: task.module or name for name, task in wire.TASKS.items()}


def prepared(name: str) -> Callable[[Any], Any]:
    """Import the task's module. What is returned takes a request, and gives a result also of a failure: one that the
    task knows, and whatever else it raises. `blame` tells who failed then."""
    if name != "observe":
        # numpy's matrix library starts its threads when numpy is imported, so before that. One: judging runs
        # whole trials in parallel, and no other task multiplies matrices in numpy.
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
    if name in ("host", "candidate"):
        # Inductor's compiling processes stay for ever: a kernel's process ends what its calls leave running.
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    if name in ("judge", "weigh"):
        # Its own threads compare while PyTorch's wait for work: those must sleep, not spin.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # the profiler of PyTorch 2.1 talks of its stages
    task = wire.TASKS[name]
    try:
        function = getattr(importlib.import_module("." + MODULES[name], __package__), task.function or name)
    except Exception as error:  # PyTorch or numpy is not there, or does not load
        if not issubclass(task.result, wire.Outcome):
            raise
        function = partial(_fail, blame.skip(error) or blame.of_tool(error))

    def perform(request: Any) -> Any:
        try:
            return function(request)
        except wire.Failed as error:
            return task.result(error.status, error.message, error.log_excerpt, error.fault)
        except Exception as error:
            if not issubclass(task.result, wire.Outcome):
                raise
            traceback.print_exc()
            failed = blame.skip(error) or _raised(error, name)
            return task.result(failed.status, failed.message, failed.log_excerpt, failed.fault)

    return perform


def _fail(error: wire.Failed, _request: Any) -> Any:
    raise error


def _raised(error: BaseException, doing: str) -> wire.Failed:
    from . import kernels  # which imports PyTorch

    return kernels.failure(error, doing)
