"""Child processes that are certain to end: at their limit, with the harness, and with all their descendants."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

MARK = "KERNEL_MATRIX_CHILD"
LOG_EXCERPT_BYTES = 4000
PASSED_ON = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "TMPDIR",
    "CC",
    "CXX",
    "CUDA_HOME",
    "CUDA_VISIBLE_DEVICES",
    "LD_LIBRARY_PATH",
    "SSL_CERT_FILE",
)
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a process ended. `returncode` is negative for a signal; `timed_out` means that it was killed at its limit."""

    returncode: int
    timed_out: bool
    duration_s: float
    log: str

    @property
    def how(self) -> str:
        if self.timed_out:
            return f"killed at its limit of {self.duration_s:.0f} s"
        if self.returncode < 0:
            try:
                name = signal.Signals(-self.returncode).name
            except ValueError:
                name = f"signal {-self.returncode}"
            return f"died by {name}"
        return f"exited with {self.returncode}"


def clean_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """A short environment: what the user's shell holds must not be what differs."""
    kept = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return {
        **kept,
        "PYTHONHASHSEED": "0",
        "PYTHONNOUSERSITE": "1",
        "PYTHONUNBUFFERED": "1",
        **extra,
    }


def _die_with_parent() -> None:
    """In the child, before exec: a harness that is killed takes its children along (prctl(2))."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def tail(path: Path, size_bytes: int = LOG_EXCERPT_BYTES) -> str:
    """The end of a log, as text, from the start of a line."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            whole = file.tell() <= size_bytes
            file.seek(max(0, file.tell() - size_bytes))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return text if whole else "[...]\n" + text.partition("\n")[2]


def _kill_marked(mark: str) -> None:
    """Kill whatever still carries the mark, also what left its process group or its parent."""
    for _ in range(20):
        found = False
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                    if process.status() == psutil.STATUS_ZOMBIE:
                        continue
                    found = True
                    process.kill()
        if not found:
            return
        time.sleep(0.05)


def run_child(
    command: Sequence[str], *, cwd: Path, log: Path, timeout_s: float, environment: Mapping[str, str]
) -> Ended:
    """Run a command in its own session, its output in `log`, and leave no descendant behind."""
    mark = uuid.uuid4().hex
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    timed_out = False
    with log.open("ab") as output:
        child = subprocess.Popen(
            list(command),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=clean_environment({**environment, MARK: mark}),
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
        try:
            child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            _kill_marked(mark)
    return Ended(returncode=child.returncode, timed_out=timed_out, duration_s=time.monotonic() - started, log=tail(log))
