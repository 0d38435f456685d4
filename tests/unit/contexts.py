"""Contexts and executors that are stand-ins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from harness.executors import Answer, Task
from harness.executors.process import Ended
from harness.run.context import Context
from harness.schema.run_records import GpuFacts
from tests.messages import answered


class FakeContext(SimpleNamespace):
    """What a test gives, with the methods of a `Context` that make tasks of it. Keys are named after their kind."""

    task, scratch, truth_folder, hold = Context.task, Context.scratch, Context.truth_folder, Context.hold

    def key(self, kind: str, asked: Any = "", **place: Any) -> str:
        return f"{kind} {asked}".strip()


def ended(returncode: int = 0, *, timed_out: bool = False, duration_s: float = 1.0, log: str = "the log") -> Ended:
    return Ended(returncode=returncode, timed_out=timed_out, duration_s=duration_s, log=log)


class FakeExecutor:
    """Gives the same result for every task, or what a function makes of it, and keeps the tasks. None: it died.

    A result is a dataclass of `wire`, or its fields.
    """

    name = "fake"

    def __init__(self, result: Any) -> None:
        self.result, self.tasks = result, list[Task]()

    def binds(self, environment: str) -> bool:
        return True

    def run(self, task: Task) -> Answer:
        self.tasks.append(task)
        result = self.result(task) if callable(self.result) else self.result
        answer = None if result is None else answered(result)
        return Answer(result=answer, ended=ended(1 if result is None else 0, duration_s=2.0))


def gpu_facts(uuid: str = "GPU-1", name: str = "Fake", **changes: Any) -> GpuFacts:
    facts: dict[str, Any] = {
        "driver": "1",
        "memory_bytes": 1,
        "ecc": None,
        "mig": None,
        "power_limit_w": None,
        "max_sm_mhz": None,
    }
    return GpuFacts(uuid=uuid, name=name, **facts | changes)
