"""Runs a command, and ends it with all its descendants as soon as the process that started this one is gone.

A signal for a parent's death (prctl(2), `PR_SET_PDEATHSIG`) reaches a child and nobody below it. This process takes
it instead, and is the subreaper of everything below: what loses its parent there becomes its child, whatever session
it made for itself.

It writes to an open file how much memory the command had used when it ended, as getrusage(2) has it: in KiB, the most
that its process had resident, or the largest process that it had waited for. Only the parent of a process learns that,
and learns it free of what the process that starts this one uses: this one is small when it forks.

usage: guard.py PARENT REPORT COMMAND..., with the process id of who starts it, and the open file's number. Standard
library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
REST_S = 0.2
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


def peaks_of_rest() -> Iterator[int]:
    """Yield the peak of each process that ends just after the command, and knows those that it waited for.

    bubblewrap ends before the first process of its sandbox, which waited for the task.
    """
    deadline = time.monotonic() + REST_S
    while time.monotonic() < deadline:
        try:
            process, _, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if process:
            yield usage.ru_maxrss
        else:
            time.sleep(0.005)


def end_as(code: int) -> None:
    """End this process as one of that status did (waitpid(2))."""
    if os.WIFSIGNALED(code):
        number = os.WTERMSIG(code)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(code))


def main(parent: int, report: int, command: list[str]) -> None:
    os.set_inheritable(report, False)
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
            while (ended := os.wait4(-1, os.WNOHANG))[0]:
                if ended[0] == child:
                    peak = max([ended[2].ru_maxrss, *peaks_of_rest()])
                    with contextlib.suppress(OSError):  # nobody reads it any more
                        os.write(report, b"%d" % peak)
                    end_as(ended[1])
    end_all()
    os._exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
