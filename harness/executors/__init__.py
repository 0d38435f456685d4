"""Executors: where an environment lives and runs.

An executor prepares a planned environment and runs the verbs of `harness.inside` in it. The plan, the records and
the report know nothing else of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from harness.plan import PlannedEnvironment
from harness.process import Ended
from harness.records import EnvironmentRecord


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a verb gave back; `result` is None where its process ended without one."""

    result: dict[str, Any] | None
    ended: Ended


class Executor(Protocol):
    name: str

    def folder(self, environment: EnvironmentRecord) -> Path:
        """Where a prepared environment lies."""

    def prepare(self, environment: PlannedEnvironment, pins: Path) -> EnvironmentRecord:
        """Make the environment, or find it made, and prove what it is. A failure is a `broken` record."""

    def run(
        self, environment: str, verb: str, request: dict[str, Any], *, scratch: Path, log: Path, timeout_s: float
    ) -> Answer:
        """Run one verb in a fresh process of a prepared environment, with `scratch` as its working folder."""
