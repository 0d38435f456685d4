"""Processes that the code under test started, and left running when its call returned: they are ended.

They would keep cores busy while other code is measured, and hold a launch until its time limit.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from typing import Callable, Iterator, Optional

from . import protocol, sampling, tools, wire

PR_SET_CHILD_SUBREAPER = 36
Order = Callable[[bytes, Optional[int]], bytes]  # as `host` has it
ROUNDS = 20  # each ends one generation: the children of a process that ended become this process's


class Unwatched:
    """Children that nobody counts or ends."""

    failed: wire.Failed | None = None  # of the calls before the next order

    def end(self) -> int:
        """End the processes that were left running. Return how many there were."""
        return 0

    def left(self) -> wire.Failed | None:
        """End the processes that were left running. Return the failure of a kernel that left some."""
        count = self.end()
        return wire.Failed(protocol.WRONG, protocol.LEFT_RUNNING.format(count)) if count else None

    def look(self) -> None:
        """End the processes that were left running, for which `refuse` fails."""
        self.failed = self.left() or self.failed

    def refuse(self) -> None:
        """Raise `wire.Failed` once, where calls left processes running."""
        failed, self.failed = self.failed, None
        if failed is not None:
            raise failed

    def checked(self, order: Order) -> Order:
        """Return an order that fails where it leaves processes running."""

        def perform(payload: bytes, file: int | None) -> bytes:
            try:
                return order(payload, file)
            finally:
                self.look()
                self.refuse()

        return perform


class Children(Unwatched):
    """The processes below this one. Those that are there when this is made stay."""

    def __init__(self) -> None:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # no descendant gets away to another parent
        # A proc file system of another process namespace names processes by other numbers: those are not touched.
        self.can_look = os.path.realpath("/proc/self") == f"/proc/{os.getpid()}"
        self.own = frozenset(_children())
        self.newest = sampling.newest_process()

    def end(self) -> int:
        newest = sampling.newest_process()
        if not self.can_look or (newest is not None and newest == self.newest):
            return 0  # no process was started since the last look
        ended = 0
        for _ in range(ROUNDS):
            running = [child for child in _children() if child not in self.own and _is_running(child)]
            if not running:
                break
            for child in running:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            for child in running:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(child, 0)
            ended += len(running)
        self.newest = newest
        return ended


def watched() -> Unwatched:
    """Return the children of a process that has the code under test."""
    return Children()


def _children() -> Iterator[int]:
    """Yield the children of every thread of this process (proc(5))."""
    with contextlib.suppress(OSError):
        for thread in os.listdir("/proc/self/task"):
            yield from map(int, tools.read_text(f"/proc/self/task/{thread}/children").split())


def _is_running(process: int) -> bool:
    """Return False of one that has ended and that nobody has waited for yet."""
    fields = tools.read_text(f"/proc/{process}/stat").rpartition(")")[2].split()
    return bool(fields) and fields[0] not in "ZX"
