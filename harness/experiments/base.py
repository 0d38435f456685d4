"""One experiment on one cell: where its record lies, on what its outcome depends, and how it is made."""

from __future__ import annotations

import abc
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from harness.run.context import Context
from harness.run.folders import now_utc
from harness.run.memo import is_recorded
from harness.schema.environment_records import BuildRecord
from harness.schema.records import CellRecord
from harness.schema.run_records import Cell
from harness.schema.storage import Run
from harness.worker import protocol


def path_of(run: Run, cell: Cell, name: str) -> Path:
    """Return where the record of an experiment of this name lies."""
    return run.experiment_path(cell.environment, cell.kernel, cell.device, cell.workload, name)


@dataclass(frozen=True, kw_only=True)
class CellExperiment(abc.ABC):
    """An experiment on a cell, which leaves one record."""

    context: Context
    cell: Cell
    record: ClassVar[type[CellRecord]]

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Return the name of the record's file."""

    @property
    @abc.abstractmethod
    def key(self) -> str:
        """Return the digest of all that determines the outcome."""

    @abc.abstractmethod
    def measure(self) -> dict[str, Any]:
        """Return the record's fields. What the code under test does is one of them; nothing is raised for it."""

    @property
    def path(self) -> Path:
        return path_of(self.context.run, self.cell, self.name)

    @property
    def about(self) -> str:
        """Return what names its folders and logs."""
        return f"{self.cell.kernel}-{self.cell.device}-{self.cell.workload}"

    @property
    def build(self) -> BuildRecord:
        return self.context.builds[self.cell.environment, self.cell.kernel, self.cell.device]

    @property
    def is_recorded(self) -> bool:
        """Return whether this run holds its record, or another one, from which it is copied."""
        return is_recorded(self.context, self.path, self.record, self.key)

    def make(self) -> Any:
        """Make the experiment; return its record."""
        started_utc, started = now_utc(), time.monotonic()
        fields = self.measure()
        fields.setdefault("duration_s", round(time.monotonic() - started, 3))
        return self.record(**vars(self.cell), key=self.key, started_utc=started_utc, **fields)

    def run(self) -> Any:
        """Make the experiment; return its record as it is saved."""
        return self.context.save(self.path, self.make())

    def find_unavailable(self, target: str) -> str:
        """Return why a target, the kernel or a reference, cannot be called in the cell's environment, or ''."""
        environment = self.context.environments[self.cell.environment]
        if environment.status != protocol.OK:
            return f"its environment is {environment.status.replace('_', ' ')}: {environment.message}"
        if target == protocol.KERNEL and self.build.status != protocol.OK:
            return f"its build is {self.build.status.replace('_', ' ')}: {self.build.message}"
        store = self.context.stores.get(self.cell.workload)
        return store.why if store is not None and store.folder is None else ""
