"""A task by its name: which module has it, and what must be set before that is imported."""

from __future__ import annotations

import importlib
import os
from typing import Any, Callable

from . import wire

MODULES = {name: task.module or name for name, task in wire.TASKS.items()}


def prepared(name: str) -> Callable[[Any], Any]:
    """Import the task's module. What is returned takes a request, and gives a result also of a failure that the task
    knows."""
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
    function = getattr(importlib.import_module("." + MODULES[name], __package__), task.function or name)

    def perform(request: Any) -> Any:
        try:
            return function(request)
        except wire.Failed as error:
            return task.result(error.status, error.message, error.log_excerpt)

    return perform
