"""Child processes that are certain to end: at their limit, with the harness, and with all their descendants."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from harness.worker.text import last_line, plain

GUARD = Path(__file__).with_name("guard.py")
MARK = "KERNEL_MATRIX_CHILD"
TEMPORARY, OWNER = "kernel-matrix-", "owner"  # of temporary folders: how they begin, and a file in them
LOG_EXCERPT_BYTES = 4000
LOG_LIMIT_BYTES = 8 << 20  # of what one process prints: half of it from the start, half from the end
READ_BYTES = 1 << 20  # the most that a pipe holds
LOOK_S = 0.05  # between looks at a silent child
# Sent at a limit of a file's size, of a processor's time, and for a system call that the sandbox does not grant.
LIMIT_SIGNALS = (signal.SIGXFSZ, signal.SIGXCPU, signal.SIGSYS)
LAST_WORDS_S = 5.0  # for a process whose `until` is over, and for a guard to end what is below it
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
DECISIVE = ("CC", "CXX", "CUDA_HOME", "LD_LIBRARY_PATH")  # of those: what can move a number, or choose what does


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a process ended; `how` says it of one that gave no result.

    `returncode` is negative for a signal; `timed_out` means that it was killed at its time limit; `killed_by` names
    another limit that it ran into, such as "its memory limit of 8 GiB".
    """

    returncode: int
    timed_out: bool
    duration_s: float
    log: str
    killed_by: str = ""
    overhead_s: float = 0.0  # what a place to run in cost, before and after the process

    @property
    def from_outside(self) -> bool:
        """Whether it was killed at no limit of its own: memory ran short, someone did it, or it did it itself."""
        return self.returncode == -signal.SIGKILL and not self.timed_out and not self.killed_by

    @property
    def at_limit(self) -> bool:
        """Return whether a limit ended it, other than that of time."""
        return bool(self.killed_by) or (not self.timed_out and -self.returncode in LIMIT_SIGNALS)

    @property
    def last_line(self) -> str:
        """Return the last line of its log; empty where it printed nothing."""
        return last_line(self.log)

    @property
    def how(self) -> str:
        if self.timed_out:
            return "killed at its time limit"
        if self.killed_by:
            return f"killed at {self.killed_by}"
        if self.returncode < 0:
            try:
                name = signal.Signals(-self.returncode).name
            except ValueError:
                name = f"signal {-self.returncode}"
            return f"died by {name}"
        if self.returncode == 0:
            return "exited with 0 before it gave a result"
        return f"exited with {self.returncode}"


class Gate:
    """Holds a child back that makes itself ready and then reads its standard input, which ends when the gate opens.

    The time in front of it counts neither against the child's limit nor as its duration.
    """

    def __init__(self) -> None:
        self.entrance, self._exit = os.pipe()  # no other child inherits either
        self.opened_s: float | None = None  # by time.monotonic

    def open(self) -> None:
        if self.opened_s is None:
            self.opened_s = time.monotonic()
            os.close(self._exit)

    def close_entrance(self) -> None:
        """Once the child has it, or has ended."""
        if self.entrance >= 0:
            os.close(self.entrance)
            self.entrance = -1


def clean_environment(extra: Mapping[str, str], passed_on: Sequence[str] = PASSED_ON) -> dict[str, str]:
    """Return a short environment: what the user's shell holds must not be what differs."""
    kept = {name: os.environ[name] for name in passed_on if name in os.environ}
    return {**kept, "PYTHONHASHSEED": "0", "PYTHONNOUSERSITE": "1", "PYTHONUNBUFFERED": "1", **extra}


def inherited(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Of what is passed on, what can move a number: for keys, and as a digest, since it holds this machine's paths."""
    return {name: hashlib.sha256(environ[name].encode()).hexdigest() for name in DECISIVE if environ.get(name)}


def tail(path: Path, size_bytes: int = LOG_EXCERPT_BYTES) -> str:
    """Return the end of a log, as text, from the start of a line."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            whole = file.tell() <= size_bytes
            file.seek(max(0, file.tell() - size_bytes))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    text = plain(text)
    return text if whole else "[...]\n" + (text.partition("\n")[2] or text)


class CappedLog:
    """A log file whose head is written at once; of the rest the tail is kept, and written at the end."""

    def __init__(self, path: Path, limit_bytes: int = LOG_LIMIT_BYTES) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb")  # what an interrupted attempt printed is not this one's
        self._half = limit_bytes // 2
        self._head_bytes = 0
        self._tail = bytearray()
        self._dropped_bytes = 0

    def write(self, data: bytes) -> None:
        head = data[: self._half - self._head_bytes]
        self._file.write(head)
        self._file.flush()
        self._head_bytes += len(head)
        self._tail += data[len(head) :]
        if len(self._tail) > 2 * self._half:  # twice, for each cut moves what is kept
            self._cut()

    def _cut(self) -> None:
        extra = max(0, len(self._tail) - self._half)
        self._dropped_bytes += extra
        del self._tail[:extra]

    def close(self) -> None:
        self._cut()
        if self._dropped_bytes:
            self._file.write(f"\n[... {self._dropped_bytes} bytes dropped here ...]\n".encode())
        self._file.write(self._tail)
        self._file.close()

    def __enter__(self) -> CappedLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _take(pipe: IO[bytes], log: CappedLog) -> bool:
    """Move what is in the pipe now to the log; False once nobody can write to it."""
    data = pipe.read(READ_BYTES)
    log.write(data or b"")
    return data != b""


def _wait(child: subprocess.Popen[bytes], pipe: IO[bytes], log: CappedLog, time_left: Callable[[], float]) -> bool:
    """Empty the pipe until the child ends, so that it never waits for us; False where it did not end in time.

    `time_left` gives its seconds, as far as is known now.
    """
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    is_open = True
    while child.poll() is None:
        left_s = time_left()
        if left_s <= 0:
            return False
        pause_s = min(left_s, LOOK_S)
        if is_open:
            poll.poll(pause_s * 1000)
            is_open = _take(pipe, log)
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):  # it closed its output, and may run on
                child.wait(pause_s)
    return True


def birth(pid: int) -> str:
    """When a process began, in ticks since the machine did, whatever its clock says; '' where none runs (proc(5))."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state == "Z" else fields[18]


def owner() -> str:
    """Name this process, so that another one can tell whether it still lives. File names and labels end with it."""
    return f"{_machine()}-{os.getpid()}-{birth(os.getpid())}"


def _machine() -> str:
    """Return a digest of where a process id means the same."""
    boot, space = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")
    place = f"{boot.read_text().strip()}.{space.stat().st_ino}" if boot.exists() and space.exists() else "unknown"
    return hashlib.sha256(place.encode()).hexdigest()[:8]


def is_orphan(name: str) -> bool:
    """Return whether the process is gone that `owner` named at the end of a name. One of another machine, or before a
    restart, is not ours."""
    *_, machine, pid, born = ("-" * 3 + name).split("-")
    if not pid.isdecimal() or machine != _machine():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False  # it lives, and is another user's, who may hide its birth
    return birth(int(pid)) != born


def kill_leftovers() -> None:
    """End what a harness that was killed left behind: compilers that write to a build folder still, and its temporary
    folders."""
    killed = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if is_orphan(process.environ().get(MARK, "")):
                process.kill()
                killed.append(process)
    psutil.wait_procs(killed, timeout=5)
    _remove_temporary(is_orphan)


def remove_own_temporary() -> None:
    """Remove temporary folders, where this process ends before its threads do."""
    _remove_temporary(lambda name: name == f"{TEMPORARY}{owner()}")


def _remove_temporary(is_over: Callable[[str], bool]) -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{TEMPORARY}*"):
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid == os.geteuid() and is_over(folder.name.rpartition("-")[0]):
                shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder with a short name, as long as the context lasts; `kill_leftovers` removes those of a dead harness, which
    their names tell."""
    with tempfile.TemporaryDirectory(prefix=f"{TEMPORARY}{owner()}-") as name:
        yield Path(name)


class Clock:
    """The time of a child: since it began, or since its gate opened, and how much it has left."""

    def __init__(self, timeout_s: float, gate: Gate | None, until: threading.Event | None) -> None:
        self.timeout_s, self.gate, self.until = timeout_s, gate, until
        self.started_s = time.monotonic()
        self.over_s = math.inf  # when nobody needed the child any more

    def elapsed_s(self) -> float:
        now_s = time.monotonic()
        if self.gate is None:
            return now_s - self.started_s
        return now_s - (now_s if self.gate.opened_s is None else max(self.started_s, self.gate.opened_s))

    def left_s(self) -> float:
        """Return the seconds that it may still run, as far as is known now."""
        if self.until is not None and self.until.is_set():
            self.over_s = min(self.over_s, time.monotonic())
        return min(self.timeout_s - self.elapsed_s(), self.over_s + LAST_WORDS_S - time.monotonic())


def run_child(
    command: Sequence[str],
    *,
    cwd: Path,
    log: Path,
    timeout_s: float,
    environment: Mapping[str, str],
    gate: Gate | None = None,
    until: threading.Event | None = None,
) -> Ended:
    """Run a command in its own session, its output in `log`, and leave no descendant behind, not even where this
    process is killed: `guard` lies between the two.
    """
    clock = Clock(timeout_s, gate, until)
    with CappedLog(log) as kept:
        child = _start_child(command, cwd, environment, gate)
        output = child.stdout
        assert output is not None
        try:
            timed_out = not _wait(child, output, kept, clock.left_s)
            duration_s = clock.elapsed_s()
        finally:
            _end_child(child)
            with output:  # what is left, and no more: who holds the other end all the same finds it closed
                _take(output, kept)
    return Ended(returncode=signalled(child.returncode), timed_out=timed_out, duration_s=duration_s, log=tail(log))


def signalled(code: int) -> int:
    """Return an exit status as `subprocess` gives it: a guard, an engine or a shell says 128 + N of a process that died
    by signal N."""
    return 128 - code if code - 128 in signal.valid_signals() else code


def _start_child(
    command: Sequence[str], cwd: Path, environment: Mapping[str, str], gate: Gate | None
) -> subprocess.Popen[bytes]:
    """Start a guard, which starts the command. Reading its output does not wait."""
    child = subprocess.Popen(
        [sys.executable, "-ISB", str(GUARD), str(os.getpid()), *command],
        cwd=cwd,
        stdin=subprocess.DEVNULL if gate is None else gate.entrance,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        env=clean_environment({**environment, MARK: owner()}),
        start_new_session=True,
    )
    if gate is not None:
        gate.close_entrance()
    assert child.stdout is not None
    os.set_blocking(child.stdout.fileno(), False)
    return child


def _end_child(guard: subprocess.Popen[bytes]) -> None:
    """End a guard with all that is below it, where it has not ended."""
    guard.terminate()
    try:
        guard.wait(LAST_WORDS_S)
    except subprocess.TimeoutExpired:  # it was stopped
        with contextlib.suppress(ProcessLookupError):
            os.killpg(guard.pid, signal.SIGKILL)
        guard.wait()


def end_descendants() -> None:
    """Kill every child of this process, and theirs."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            process.kill()
