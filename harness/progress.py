"""What the user sees while a run goes on: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from harness.worker.text import plain


def printable(text: str) -> str:
    """Without what would command a terminal: some of it was written by the code under test."""
    return plain(text).replace("\t", " ")


class Display:
    """Counts steps. Usable from several threads; `note` lines stay, the current step does not."""

    def __init__(self, total: int) -> None:
        self.console = Console(stderr=False, highlight=False, soft_wrap=True)
        self._started, self._lock, self._done, self._total = time.monotonic(), threading.Lock(), 0, total
        self._bar: Progress | None = None
        if sys.stdout.isatty():
            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=self.console,
                transient=True,
            )
            self._task = self._bar.add_task("starting", total=total)

    def __enter__(self) -> Display:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def note(self, text: str) -> None:
        """A line that stays."""
        with self._lock:
            self.console.print(printable(text), markup=False)

    def more(self, count: int) -> None:
        """So many steps were added."""
        with self._lock:
            self._total += count
            if self._bar:
                self._bar.update(self._task, total=self._total)

    def step(self, text: str, count: int = 1) -> None:
        """`count` steps are done; `text` says which."""
        text = printable(text)
        with self._lock:
            self._done += count
            if self._bar:
                self._bar.update(self._task, completed=self._done, description=text[:60])
            else:
                elapsed = time.monotonic() - self._started
                self.console.print(f"[{self._done}/{self._total} {elapsed:6.1f} s] {text}", markup=False)
