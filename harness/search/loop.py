"""The loop of bisect and sweep: what is next is measured in an ordinary run and recorded, until nothing is left.

A search has a folder. question.json is written when it begins, a record of each step when that is done, the answer at
the end. A search that was killed goes on from what is there, and a run that was made is found again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Generic, TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.config.matrix import Matrix
from harness.run.folders import held
from harness.run.prepare import Options
from harness.schema.run_records import Selection
from harness.schema.storage import AnyRecord, Run, load_record, save_record
from harness.tools import cache_folder, lock_file
from harness.workflow.matrix import run_matrix

Step = TypeVar("Step")
Answer = TypeVar("Answer")


class Search(ABC, Generic[Step, Answer]):
    options: Options

    @abstractmethod
    def recall(self) -> str:
        """Read the records of the steps that are done. They in words; '' where there are none."""

    @abstractmethod
    def next_step(self) -> Step | None:
        """What to measure next; None where nothing is left."""

    @abstractmethod
    def take(self, step: Step) -> None:
        """Measure it, and record what was seen."""

    @abstractmethod
    def conclude(self) -> Answer:
        """Record the answer."""

    def run(self) -> Answer:
        """Take step after step, beginning after those that are recorded."""
        if before := self.recall():
            print(f"going on: {before}")
        while (step := self.next_step()) is not None:
            self.take(step)
        return self.conclude()

    def measure(self, matrix: Matrix, selection: Selection, *, blocks: int | None = None, admit: bool = False) -> Run:
        """An ordinary run of this matrix, made or found."""
        options = replace(self.options, derived=matrix, explain=False, blocks=blocks, admit=admit)
        return run_matrix(options, selection)[0]


@contextmanager
def working_on(kind: str, folder: Path, key: str) -> Iterator[None]:
    """Hold a search's folder."""
    waiting = f"another process is working on this very {kind}; waiting for it"
    with held(lock_file(cache_folder(), f"{kind}-{key[:16]}"), waiting):
        for part in folder.rglob(".*.part"):  # of one that was killed while it wrote
            part.unlink()
        yield


def recorded(folder: Path, model: type[AnyRecord], ask: Callable[[], AnyRecord]) -> AnyRecord:
    """The question that is in the folder, or, where a search begins, the one that `ask` makes."""
    path = folder / "question.json"
    if not path.exists():
        save_record(path, ask())
    return load_record(path, model)


def without_option(command: Sequence[str], name: str) -> list[str]:
    """A command without an option and its value."""
    return [
        word
        for before, word in zip(["", *command], command, strict=False)
        if before != name and not word.startswith(name)
    ]


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*map(Text, row))
    Console(highlight=False, soft_wrap=True).print(table)
