"""Batches: tasks of one kind share a process that imports PyTorch once, and forks for each (`harness.worker.batch`).

A batch is only how they run. One that gives no result there (it crashed, or was killed) runs again in a process of its
own, and how that ends is what counts. On a CPU one that took too long does not run again.

A batch runs in one sandbox. So its tasks never load code under test but that of one kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain, takewhile
from typing import TypeVar

from harness.executors import Answer, Task
from harness.run.context import Context, answer_of, checked
from harness.run.device import run_task
from harness.schema.records import Device
from harness.worker import codec, wire

T = TypeVar("T")

MOST = 16  # tasks of a batch: records are written when it ends
START_S = 120.0  # for importing PyTorch


def in_batches(items: Sequence[T], batch_of: Callable[[T], str], at_once: int = 1) -> list[list[T]]:
    """Return those of the same name together, in about equal parts; '': by itself.

    `at_once`: so many batches run side by side, so each name has as many parts, if it has two items for each.
    """
    names = dict.fromkeys(map(batch_of, items))
    batches = [[item] for item in items if not batch_of(item)]
    for name in filter(None, names):
        some = [item for item in items if batch_of(item) == name]
        parts = max(math.ceil(len(some) / MOST), min(at_once, len(some) // 2), 1)
        size = math.ceil(len(some) / parts)
        batches += [some[start : start + size] for start in range(0, len(some), size)]
    return batches


def run_batch(context: Context, tasks: Sequence[Task], device: Device) -> list[Answer]:
    """Return the answers to tasks of one kind in one environment, in their order. Unrecorded as `run_task`."""
    together = _together(context, tasks) if len(tasks) > 1 else [None] * len(tasks)
    if device == "cuda":  # what died, or hangs, may have taken the GPU from those after it
        ran = list(takewhile(lambda answer: answer is not None and answer.result is not None, together))
        together = [*ran, *[None] * (len(tasks) - len(ran))]
    return [known or run_task(context, task, device) for task, known in zip(tasks, together, strict=True)]


def _together(context: Context, tasks: Sequence[Task]) -> list[Answer | None]:
    first = tasks[0]
    requests = [codec.dump(task.request) for task in tasks]
    batch = replace(
        first,
        name="batch",
        request=wire.BatchRequest(task=first.name, requests=requests, timeout_s=first.terms.timeout_s),
        scratch=first.scratch.with_name(f"batch-{first.scratch.name}"),
        log=first.log.with_name(f"batch-{first.log.name}"),
        terms=replace(first.terms, timeout_s=START_S + sum(task.terms.timeout_s for task in tasks)),
        reads=tuple(dict.fromkeys(chain.from_iterable(task.reads for task in tasks))),
        writes=tuple(dict.fromkeys(chain.from_iterable(task.writes for task in tasks))),
    )
    answer = answer_of(context, batch)
    result = checked(wire.BatchResult, answer, "it")
    if not isinstance(result, wire.BatchResult) or len(result.answers) != len(tasks):  # a kernel may have written it
        return [None] * len(tasks)
    return [
        Answer(result=each.result, ended=replace(answer.ended, duration_s=each.duration_s, timed_out=each.timed_out))
        if each.result or each.timed_out
        else None
        for each in result.answers
    ]
