"""Executors: where an environment lives and runs.

An executor prepares a planned environment and runs the tasks of `harness.worker` in it. The plan, the records and
the report know nothing else of it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from harness.config.plan import PlannedEnvironment
from harness.executors.process import Ended, Gate
from harness.schema.environment_records import EnvironmentRecord
from harness.worker import wire

Variables = Mapping[str, Mapping[str, str]]  # environment id to what its processes have in theirs (`matrix.variables`)


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The terms on which a task's process runs."""

    timeout_s: float
    variables: Mapping[str, str] | None = None  # in place of the environment's own
    until: threading.Event | None = None  # once it is set, the process has a few seconds left
    gate: Gate | None = None  # only for an executor that `holds_back`
    link: Path | None = None  # a folder of `Executor.linking`, where the sockets of tasks meet that run side by side
    processors: tuple[int, ...] = ()  # those that it may use, where its executor `binds`; (): any

    def variables_of(self, environment: str, known: Variables) -> Mapping[str, str]:
        """Return what the process has in its environment, of what environments have."""
        return known.get(environment, {}) if self.variables is None else self.variables


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task, for a fresh process of a prepared environment.

    `reads` and `writes` are the files and folders that the request names: an executor whose environments do not see
    this machine's files takes the first there and brings the second back. A folder in both is shared.
    """

    environment: str
    name: str
    request: wire.Request
    scratch: Path  # a folder of its own, removed afterwards
    log: Path
    terms: Terms
    reads: tuple[Path, ...] = ()
    writes: tuple[Path, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a task gave back; `result` is None where its process ended without one."""

    result: dict[str, Any] | None
    ended: Ended


class Executor(Protocol):
    name: str
    holds_back: bool  # whether a task can be started early and wait for its `Terms.gate`

    def folder(self, environment: EnvironmentRecord) -> Path:
        """Where a prepared environment lies."""

    def key(self, environment: PlannedEnvironment, pins: Path | None) -> str:
        """Digest of all that determines an environment. HarnessError where that cannot be known."""

    def prepare(self, environment: PlannedEnvironment, pins: Path | None) -> EnvironmentRecord:
        """Make the environment, or find it made, and prove what it is. A failure is a `broken` record.

        `pins` is the environment's pin file; the host's environment has none.
        """

    def run(self, task: Task) -> Answer:
        """Run a task to its end. InfrastructureError where the executor itself fails."""

    def binds(self, environment: str) -> bool:
        """Whether a task in that environment stays on its `Terms.processors`."""

    def linking(self, environment: str) -> AbstractContextManager[Path]:
        """A folder for the `Terms.link` of tasks in that environment, for as long as the context lasts."""

    def stop(self) -> None:
        """End whatever runs now, in whichever thread: its `run` raises."""
