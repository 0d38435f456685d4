"""Runs a command, and ends it with all its descendants as soon as the process that started this one is gone.

A signal for a parent's death (prctl(2), `PR_SET_PDEATHSIG`) reaches a child and nobody below it. This process takes
it instead, and is the subreaper of everything below: what loses its parent there becomes its child, whatever session
it made for itself.

It does the same when the command has ended, and when it gets SIGTERM. Its exit code is the command's, or 128 + N where
signal N ended that.

usage: guard.py PARENT COMMAND..., with the process id of who starts it. Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterator

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
CANNOT = 125  # exit code: the command could not be started

libc = ctypes.CDLL(None, use_errno=True)


def children() -> Iterator[int]:
    """Of this process, those that have ended included (proc(5))."""
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            if int(file.read().rpartition(b")")[2].split()[1]) == os.getpid():
                yield int(name)


def end_all() -> None:
    """Kill children until none is left: theirs become ours when they end."""
    with contextlib.suppress(ChildProcessError):
        while True:
            for child in children():
                with contextlib.suppress(OSError):
                    os.kill(child, signal.SIGKILL)
            os.waitpid(-1, 0)


def main(parent: int, command: list[str]) -> None:
    waited = {signal.SIGTERM, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it was gone before
        os._exit(CANNOT)
    child = os.fork()
    if not child:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, waited)
        try:
            os.execvp(command[0], command)
        except OSError as error:
            print(f"{command[0]} cannot be started: {error}", file=sys.stderr, flush=True)
        os._exit(CANNOT)
    while signal.sigwait(waited) == signal.SIGCHLD:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == child:
                    end_all()
                    os._exit(128 + os.WTERMSIG(ended[1]) if os.WIFSIGNALED(ended[1]) else os.WEXITSTATUS(ended[1]))
    end_all()
    os._exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
