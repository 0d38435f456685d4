"""What code in a sandbox of this machine's own Python can do, where the machine grants one."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from harness.isolate import Answer, Task
from harness.isolate import process as child_processes
from harness.isolate.choose import grant
from harness.isolate.confined import Process, run_confined
from harness.isolate.process import Gate
from harness.isolate.sandbox import TASK_USER, SandboxLimits, hand_over
from harness.isolate.venv import VenvExecutor
from harness.worker import wire
from tests.conftest import ROOT

pytestmark = [pytest.mark.environments, pytest.mark.timeout(300)]

GIB = 1 << 30
LIMITS = SandboxLimits(memory_bytes=GIB, processes=64, output_bytes=8 << 20, output_files=100)
HEAD = "import ctypes, errno, json, os, socket, subprocess, sys, time\nresult = {}\n"
TAIL = '\njson.dump(result, open(sys.argv[3], "w"))\n'


class Plain(VenvExecutor):
    """Tasks of the tests' own Python, as where this machine grants no sandbox."""

    def python(self, environment: str) -> Path:
        return Path(sys.executable)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    if grant()[0] is None:
        pytest.skip(f"this machine grants no sandbox: {grant()[1]}")
    yield tmp_path


def start(place: Path, code: str, *, name: str = "observe", tail: str = TAIL, **options: Any) -> Answer:
    """Run `code` as a task; what it puts into `result` is the answer's."""
    label = secrets.token_hex(4)
    worker = place / f"worker-{label}"
    (worker / "worker").mkdir(parents=True)
    (worker / "worker" / "__main__.py").write_text(HEAD + textwrap.dedent(code) + tail)
    task = Task(
        environment="e",
        name=name,
        request=wire.EmptyRequest(),
        scratch=place / label,
        log=place / f"{label}.log",
        **{"timeout_s": 60, **options},
    )
    variables = {"PYTHONPATH": str(worker), "PYTHONDONTWRITEBYTECODE": "1"}
    process = Process(python=Path(sys.executable), environment=None, worker=worker, variables=variables)
    namespaces = grant()[0]
    assert namespaces is not None
    return run_confined(task, process, namespaces, LIMITS)


def run(place: Path, code: str, **options: Any) -> dict[str, Any]:
    answer = start(place, code, **options)
    assert answer.result is not None, (answer.ended.how, answer.ended.log)
    return answer.result


def test_neither_network_nor_home_nor_processes_of_others(place: Path) -> None:
    home = Path.home()
    seen = run(
        place,
        f"""
        result["networks"] = sorted(name for _, name in socket.if_nameindex())
        try:
            socket.create_connection(("1.1.1.1", 53), timeout=5)
        except OSError as error:
            result["connect"] = errno.errorcode[error.errno]
        result["home"] = os.listdir({str(home)!r}) if os.path.exists({str(home)!r}) else []
        result["own_home"] = os.environ["HOME"]
        result["processes"] = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        result["tmp"] = os.listdir("/tmp")
        result["user"] = os.getuid()
        """,
    )
    assert seen["networks"] == ["lo"] and seen["connect"] == "ENETUNREACH"
    assert {".bashrc", ".ssh", ".cache", ".gitconfig"}.isdisjoint(seen["home"])
    assert seen["own_home"].startswith(str(place)) and seen["user"] == TASK_USER
    assert max(seen["processes"]) < 20 and os.getpid() not in seen["processes"]
    let_in = (str(place), str(ROOT))  # a checkout may lie there, too
    assert all(any(folder.startswith(f"/tmp/{name}") for folder in let_in) for name in seen["tmp"])


def test_nothing_of_the_machine_can_be_written(place: Path) -> None:
    read = place / "read"
    read.mkdir()
    (read / "file").write_text("as it was")
    os.chmod(read, 0o777)
    seen = run(
        place,
        f"""
        for path in ("/usr/new", "/etc/new", "/new", sys.prefix + "/new", {str(read)!r} + "/file", sys.argv[2],
                     os.path.dirname(__file__) + "/__main__.py", {str(read)!r} + "/new"):
            try:
                open(path, "a").close()
                result[path] = "written"
            except OSError as error:
                result[path] = errno.errorcode[error.errno]
        """,
        reads=(read,),
    )
    assert len(seen) == 8 and set(seen.values()) <= {"EROFS", "EACCES"}, seen
    assert [path.name for path in read.iterdir()] == ["file"]


def test_what_it_may_not_call(place: Path) -> None:
    code = """
        libc, me = ctypes.CDLL(None, use_errno=True), os.getpid()
        for name, number, *arguments in (("ptrace", 101, 0, 0, 0, 0), ("unshare", 272, 0x10000000),
                ("keyctl", 250, 0, 0, 0), ("mount", 165, 0, 0, 0, 0, 0), ("clone", 56, 0x10000000 | 17, 0, 0, 0, 0),
                ("clone3", 435, 0, 0), ("io_uring", 425, 1, 0), ("kcmp", 312, me, me, 0, 0, 0),
                ("personality", 135, 0x40000), ("asked", 135, 0xffffffff)):
            ctypes.set_errno(0)
            libc.syscall(number, *arguments)
            result[name] = errno.errorcode.get(ctypes.get_errno(), "ok")
        import threading
        thread = threading.Thread(target=result.setdefault, args=("thread", 1))
        thread.start(), thread.join()
        result["child"] = subprocess.run(["/bin/true"]).returncode
        """
    seen = run(place, code)
    refused = {"ptrace", "unshare", "keyctl", "mount", "clone", "io_uring", "kcmp", "personality"}
    assert {name for name, said in seen.items() if said == "EPERM"} == refused
    assert seen["clone3"] == "ENOSYS" and seen["asked"] == "ok" and seen["thread"] == 1 and seen["child"] == 0
    tracing = run(place, code.replace('("ptrace", 101, 0, 0, 0, 0), ', ""), name="check")
    assert tracing["kcmp"] == "ok" and tracing["personality"] == "ok" and tracing["mount"] == "EPERM"


def test_it_stays_on_its_processors_with_all_that_it_starts(place: Path) -> None:
    every = os.sched_getaffinity(0)
    if len(every) < 2:
        pytest.skip("this machine has one processor")
    code = f"""
        os.sched_setaffinity(0, {every})
        result["own"] = sorted(os.sched_getaffinity(0))
        child = "import os; os.sched_setaffinity(0, {every}); print(*os.sched_getaffinity(0))"
        said = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True).stdout
        result["child"] = sorted(map(int, said.split()))
        """
    bound = max(every)
    assert run(place, code, processors=(bound,)) == {"own": [bound], "child": [bound]}
    assert run(place, code) == {"own": sorted(every), "child": sorted(every)}


def test_limits_are_run_into(place: Path) -> None:
    seen = run(
        place,
        """
        try:
            bytearray(2 << 30)
        except MemoryError:
            result["memory"] = "refused"
        try:
            with open("large", "wb") as file:
                file.write(bytes(16 << 20))
        except OSError as error:
            result["file"] = errno.errorcode[error.errno]
        children = []
        try:
            for _ in range(200):
                children.append(subprocess.Popen(["/bin/sleep", "20"]))
        except OSError as error:
            result["processes"] = errno.errorcode[error.errno]
        result["core"] = __import__("resource").getrlimit(4)[1]
        """,
    )
    assert seen == {"memory": "refused", "file": "EFBIG", "processes": "EAGAIN", "core": 0}


def test_only_what_was_asked_for_is_taken_back_and_is_ours(place: Path) -> None:
    out, other, shared = place / "files" / "out", place / "files" / "other", place / "shared"
    shared.mkdir()
    (shared / "before").write_text("before")
    run(
        place,
        f"""
        os.makedirs({str(out)!r} + "/deep")
        open({str(out)!r} + "/deep/plain", "w").write("plain")
        os.symlink("/etc/passwd", {str(out)!r} + "/link")
        os.makedirs({str(out)!r} + "/closed", 0)
        open({str(other)!r}, "w").write("other")
        open({str(shared)!r} + "/after", "w").write(open({str(shared)!r} + "/before").read() + " and after")
        """,
        reads=(shared,),
        writes=(out, shared),
    )
    assert (out / "deep" / "plain").read_text() == "plain" and not (out / "link").is_symlink()
    assert not other.exists() and (shared / "after").read_text() == "before and after"
    assert {path.lstat().st_uid for path in place.rglob("*")} == {os.geteuid()}


LEFT = ("os.mkdir(sys.argv[3])", "os.symlink('/etc/passwd', sys.argv[3])", "os.mkfifo(sys.argv[3])")


@pytest.mark.parametrize("leaves", LEFT)
def test_a_result_that_is_no_plain_file_is_none(place: Path, leaves: str) -> None:
    answer = start(place, leaves, tail="\n")
    assert answer.result is None and answer.ended.returncode == 0
    assert run(place, "result['next'] = 1") == {"next": 1}


def test_two_sandboxes_meet_in_a_folder(place: Path) -> None:
    link = place / "link"
    link.mkdir()
    if os.geteuid() == 0:
        hand_over([link])
    listening = f"""
        import array
        server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        server.bind({str(link)!r} + "/socket")
        server.listen(1)
        connection, _ = server.accept()
        data, rights, _, _ = connection.recvmsg(100, socket.CMSG_SPACE(4))
        result["data"], result["memory"] = data.decode(), os.pread(array.array("i", rights[0][2])[0], 100, 0).decode()
        """
    connecting = f"""
        import array
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        while True:
            try:
                client.connect({str(link)!r} + "/socket")
                break
            except OSError:
                time.sleep(0.05)
        memory = os.memfd_create("m")
        os.write(memory, b"shared")
        client.sendmsg([b"hello"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [memory]))])
        """
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(run, place, listening, link=link)
        pool.submit(run, place, connecting, link=link).result()
    assert one.result() == {"data": "hello", "memory": "shared"}


def test_a_gate_holds_it_back(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than its limit, by a clock that is set forwards."""
    gate, late_s = Gate(), [0.0]
    monkeypatch.setattr(child_processes, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + late_s[0]))
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(start, place, "sys.stdin.read()\nresult['read'] = 1", gate=gate, timeout_s=1000)
        time.sleep(1)
        late_s[0] = 5000
        assert not going.done()
        gate.open()
        answer = going.result()
    assert answer.result == {"read": 1} and answer.ended.duration_s < 1000


def test_its_end_is_told_as_without_a_sandbox(place: Path) -> None:
    assert start(place, "os.kill(os.getpid(), 11)").ended.how == "died by SIGSEGV"
    assert start(place, "sys.exit(3)").ended.how == "exited with 3"
    sleeping = "subprocess.Popen(['/bin/sleep', '100'], start_new_session=True)\ntime.sleep(100)"
    assert start(place, sleeping, timeout_s=2).ended.timed_out


def test_only_a_build_runs_what_it_wrote(place: Path) -> None:
    code = """
        open("program", "w").write("#!/bin/sh\\nexit 0\\n")
        os.chmod("program", 0o755)
        try:
            result["code"] = subprocess.run(["./program"]).returncode
        except OSError as error:
            result["code"] = errno.errorcode[error.errno]
        """
    assert run(place, code)["code"] == "EACCES" and run(place, code, compiles=True)["code"] == 0


HARNESS = """
import sys
from pathlib import Path
from tests.environments.test_confined import start
code = '''
open("source", "w").close()
for _ in range(3):
    subprocess.Popen(["c++", "-x", "c++", "-", "-o", "program"], stdin=subprocess.PIPE, start_new_session=True)
time.sleep(1000)
'''
start(Path(sys.argv[1]), code, name=sys.argv[2], timeout_s=1000, compiles=True)
"""


def test_a_harness_that_is_killed_leaves_nothing(place: Path) -> None:
    mark = str(place)

    def of_it() -> dict[int, str]:
        """Processes that it started: they have its folder in their environment, whatever they did to their session."""
        found = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                said = process.environ().get("HOME", "") + " ".join(process.cmdline())
                if process.pid != os.getpid() and mark in said:
                    found[process.pid] = process.name()
        return found

    harness = subprocess.Popen([sys.executable, "-c", HARNESS, mark, "build"], cwd=ROOT)
    while list(of_it().values()).count("cc1plus") < 3:
        assert harness.poll() is None, of_it()
        time.sleep(0.1)
    harness.kill()
    harness.wait()
    while of_it():  # until the test's own limit
        time.sleep(0.1)


def test_without_namespaces_a_task_runs_as_it_did(tmp_path: Path) -> None:
    executor = Plain(tmp_path / "cache", threads=2)
    task = Task(
        environment="e",
        name="observe",
        request=wire.ObserveRequest(threads=2, verify=False, variables=[]),
        scratch=tmp_path / "scratch",
        log=tmp_path / "log",
        timeout_s=60,
    )
    answer = executor.run(task)
    assert answer.result is not None, answer.ended.log
    assert answer.result["confinement"]["seccomp"] == 0 and answer.result["confinement"]["user_id"] == os.getuid()
    assert not task.scratch.exists()
    worker = executor.worker / "worker" / "__main__.py"
    worker.write_text("import os, sys\nos.mkdir(sys.argv[3])\n")
    answer = executor.run(task)
    assert answer.result is None and answer.ended.returncode == 0, "a folder is no result, and ends nothing"
    assert executor.run(task).result is None


def test_a_crash_in_a_sandbox_has_the_memory_of_its_own_process(place: Path) -> None:
    """What the harness waits for is the program that made the sandbox, which is small."""
    held_bytes = 200 << 20
    ended = start(place, f"held = b'x' * {held_bytes}\nos.abort()\n").ended
    assert ended.how == "died by SIGABRT"
    assert ended.peak_bytes is not None and held_bytes < ended.peak_bytes < 2 * held_bytes
