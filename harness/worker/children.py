"""Processes that the code under test started, and left running when its call returned: they are ended.

They would keep cores busy while other code is measured, and hold a launch until its time limit.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from typing import Iterator

from . import protocol, sampling, tools, wire

PR_SET_CHILD_SUBREAPER = 36
ROUNDS = 20  # each ends one generation: the children of a process that ended become this process's


class Children:
    """The processes below this one. Those that are there when this is made stay."""

    def __init__(self) -> None:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # no descendant gets away to another parent
        # A proc file system of another process namespace names processes by other numbers: those are not touched.
        self.can_look = os.path.realpath("/proc/self") == f"/proc/{os.getpid()}"
        self.own = frozenset(_children())
        self.newest = sampling.newest_process()

    def end(self) -> int:
        """End the processes that were left running. Return how many there were."""
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

    def left(self) -> wire.Failed | None:
        """End the processes that were left running. Return the failure of a kernel that left some."""
        count = self.end()
        return wire.Failed(protocol.WRONG, protocol.LEFT_RUNNING.format(count)) if count else None


def _children() -> Iterator[int]:
    """Yield the children of every thread of this process (proc(5))."""
    with contextlib.suppress(OSError):
        for thread in os.listdir("/proc/self/task"):
            yield from map(int, tools.read_text(f"/proc/self/task/{thread}/children").split())


def _is_running(process: int) -> bool:
    """Return False of one that has ended and that nobody has waited for yet."""
    fields = tools.read_text(f"/proc/{process}/stat").rpartition(")")[2].split()
    return bool(fields) and fields[0] not in "ZX"
