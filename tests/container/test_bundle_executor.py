"""Executor `bundle` with a real bundle, unpacked: cells that run any code.

Each is done as root, and as a user without rights where this machine lets one have namespaces.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import tempfile
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pynvml  # noqa: F401 - before a fork becomes another user, who may not be able to read this Python's packages
import pytest

from harness.errors import InfrastructureError
from harness.isolate import Task
from harness.isolate.bundle.executor import BundleExecutor
from harness.isolate.bundle.manifest import load_bundle
from harness.isolate.bundle.namespaces import ENTER, probe_namespaces
from harness.isolate.sandbox import VERB
from tests.conftest import ROOT
from tests.container.conftest import BUNDLED, stage_code
from tests.container.unpacked import NOBODY, mounted, readable, snapshot
from tests.messages import made

pytestmark = [pytest.mark.container, pytest.mark.timeout(1500)]

SLEEP_S = "86353"  # what cells leave asleep


def forked(function: Callable[[], Any], user: int | None) -> Any:
    """What a function gives in a child process, as another user; InfrastructureError as it was raised there."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.close(ours)
        try:
            if user is not None:
                os.setgroups([])
                os.setresgid(user, user, user)
                os.setresuid(user, user, user)
            answer = {"value": function()}
        except InfrastructureError as error:
            answer = {"infrastructure": error.message}
        except BaseException as error:
            answer = {"error": repr(error)}
        with open(theirs, "w") as file:
            json.dump(answer, file)
        os._exit(0)
    os.close(theirs)
    with open(ours) as file:
        text = file.read()
    os.waitpid(child, 0)
    said = json.loads(text)
    if "infrastructure" in said:
        raise InfrastructureError(said["infrastructure"])
    assert "error" not in said, said
    return said["value"]


class Cells:
    """Runs code in cells of the bundle, through the executor: what a verb may do, this may."""

    def __init__(self, unpacked: Path, folder: Path, user: int | None) -> None:
        self.folder, self.user = folder, user
        self.bundle = load_bundle(unpacked)
        self.staged = stage_code(folder / "fake")
        if user is not None:
            for path in [folder, *folder.rglob("*")]:
                os.chown(path, user, user)
        self.namespaces = forked(lambda: vars(probe_namespaces(self.bundle)), user)

    def run(self, code: str, timeout_s: float = 60, **options: Any) -> dict[str, Any]:
        """How the verb ended, and what it put into `result`."""
        from harness.isolate.bundle.namespaces import Namespaces

        def here() -> dict[str, Any]:
            granted = Namespaces(rootless=self.namespaces["rootless"], granted=tuple(self.namespaces["granted"]))
            executor = BundleExecutor(self.bundle, granted, self.folder / "project", self.folder / "cache", 2)
            executor.worker = self.staged
            name = uuid.uuid4().hex
            task = Task(
                environment=BUNDLED, name="code",
                request=made(code=textwrap.dedent(code), **options.pop("request", {})),
                scratch=self.folder / "scratch" / name, log=self.folder / "logs" / f"{name}.log", timeout_s=timeout_s,
                **options,
            )  # fmt: skip
            answer = executor.run(task)
            ended = answer.ended
            return {"result": answer.result, "code": ended.returncode, "timed_out": ended.timed_out, "log": ended.log}

        return forked(here, self.user)

    def result(self, code: str, **options: Any) -> dict[str, Any]:
        answer = self.run(code, **options)
        assert answer["result"] is not None, answer
        return answer["result"]


@pytest.fixture(scope="module", params=["root", "nobody"])
def cells(request: pytest.FixtureRequest, unpacked: Path) -> Iterator[Cells]:
    if request.param == "nobody" and not readable(ENTER):
        pytest.skip(f"another user cannot read {ENTER}")
    folder = Path(tempfile.mkdtemp(prefix="kernel-matrix-cells-"))
    try:
        yield Cells(unpacked, folder, NOBODY if request.param == "nobody" else None)
    except InfrastructureError as error:
        pytest.skip(f"this machine refuses {request.param} a root of its own: {error.message}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


ATTEMPTS = """
def attempt(name, call):
    try:
        result[name] = repr(call())
    except BaseException as error:
        result[name] = type(error).__name__
import ctypes, os, socket, subprocess
libc = ctypes.CDLL(None, use_errno=True)
"""


def test_a_cell_is_another_user_s_with_no_rights(cells: Cells) -> None:
    result = cells.result("""
        import getpass, os
        status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines() if ":" in line)
        result.update(uid=os.getuid(), gid=os.getgid(), groups=os.getgroups(), name=getpass.getuser(), cwd=os.getcwd(),
                      caps=int(status["CapEff"], 16), inherited=int(status["CapInh"], 16),
                      privileges=status["NoNewPrivs"].strip(), node=os.uname().nodename, names=sorted(os.environ))
    """)
    assert (result["uid"], result["gid"], result["name"]) == (VERB, VERB, "verb")
    assert set(result["groups"]) <= {VERB, NOBODY} and result["cwd"] == "/out"
    assert (result["caps"], result["inherited"], result["privileges"]) == (0, 0, "1")
    assert result["node"] == "cell" and "SSH_CONNECTION" not in result["names"] and "PWD" not in result["names"]


def test_it_writes_to_its_own_folder_and_nowhere_else(cells: Cells, unpacked: Path) -> None:
    before = snapshot(unpacked)
    places = ["/x", "/usr/x", "/etc/passwd", "/opt/environment/x", "/opt/environment/bin/python", "/in/x",
              "/in/request.json", "/in/worker/inside/__init__.py", "/dev/x", "/sys/x", "/proc/sys/kernel/hostname",
              "/proc/sysrq-trigger", "/var/x", "/root/x", "/home/x"]  # fmt: skip
    result = cells.result(
        ATTEMPTS
        + f"""
for place in {places!r}:
    attempt(place, lambda: open(place, "a").write("x"))
for place in ("/out/x", "/tmp/x", "/dev/shm/x", "/dev/null"):
    attempt(place, lambda: open(place, "a").write("x"))
open("/out/program", "w").write("#!/bin/sh\\n")
os.chmod("/out/program", 0o755)
attempt("runs", lambda: subprocess.run(["/out/program"]))
"""
    )
    assert {name: said for name, said in result.items() if said == "1"}.keys() == {
        "/out/x", "/tmp/x", "/dev/shm/x", "/dev/null"}  # fmt: skip
    assert result["runs"] == "PermissionError"
    assert snapshot(unpacked) == before


def test_one_that_compiles_may_run_what_it_wrote(cells: Cells) -> None:
    code = """
        import os, subprocess
        open("/out/program", "w").write("#!/bin/sh\\nexit 7\\n")
        os.chmod("/out/program", 0o755)
        result["code"] = subprocess.run(["/out/program"]).returncode
    """
    assert cells.result(code, compiles=True)["code"] == 7


def test_it_sees_no_file_no_process_and_no_network_of_the_machine(cells: Cells, unpacked: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        name = f"\0kernel-matrix-{os.getpid()}"
        abstract.bind(name)
        abstract.listen()
        port = server.getsockname()[1]
        result = cells.result(
            ATTEMPTS
            + f"""
for place in {[str(ROOT), str(ROOT / "matrix.yaml"), str(Path.home() / ".cache"), str(cells.folder), str(unpacked)]!r}:
    attempt(place, lambda: os.stat(place))
attempt("hostname", lambda: open("/etc/hostname").read())
attempt("tcp", lambda: socket.create_connection(("127.0.0.1", {port}), 2))
attempt("abstract", lambda: socket.socket(socket.AF_UNIX).connect({name!r}))
attempt("outside", lambda: socket.create_connection(("1.1.1.1", 53), 2))
attempt("first", lambda: os.listdir("/proc/1/root"))
result["processes"] = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
result["interfaces"] = os.listdir("/sys/class/net")
with socket.create_server(("127.0.0.1", 0)) as own:
    socket.create_connection(own.getsockname(), 2).close()
"""
        )
    processes, interfaces = result.pop("processes"), result.pop("interfaces")
    assert len(processes) <= 3 and interfaces == ["lo"]
    hostname = result.pop("hostname")
    assert socket.gethostname() not in hostname
    assert set(result.values()) <= {"FileNotFoundError", "ConnectionRefusedError", "OSError", "PermissionError"}, result


def test_it_gains_nothing_by_namespaces_of_its_own(cells: Cells, unpacked: Path) -> None:
    before = snapshot(unpacked)
    result = cells.result(
        ATTEMPTS
        + """
def call(function, *arguments):
    if function(*arguments):
        raise OSError(ctypes.get_errno(), "refused")
attempt("mount", lambda: call(libc.mount, b"tmpfs", b"/tmp", b"tmpfs", 0, None))
attempt("umount", lambda: call(libc.umount2, b"/opt/environment", 2))
attempt("setuid", lambda: os.setuid(0))
attempt("mknod", lambda: os.mknod("/out/disk", 0o60666, os.makedev(8, 0)))
libc.unshare(0x10000000 | 0x00020000)  # a user and a mount namespace, where the machine allows one
attempt("remount /", lambda: call(libc.mount, None, b"/", None, 32 | 4096, None))
attempt("remount /usr", lambda: call(libc.mount, None, b"/usr", None, 32 | 4096, None))
attempt("umount again", lambda: call(libc.umount2, b"/opt/environment", 2))
attempt("write", lambda: open("/usr/x", "w"))
"""
    )
    assert set(result.values()) <= {"PermissionError", "OSError"}, result
    assert snapshot(unpacked) == before


@pytest.mark.parametrize(
    ("code", "status"),
    [("import os; os.abort()", -6), ("import os; os.kill(os.getpid(), 11)", -11), ("import os; os._exit(3)", 3)],
)
def test_how_it_ended_is_told(cells: Cells, code: str, status: int) -> None:
    answer = cells.run(code)
    assert answer["code"] == status and answer["result"] is None


def asleep() -> list[int]:
    return [p.pid for p in psutil.process_iter() if SLEEP_S in " ".join(_words(p))]


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


DAEMON = f"""
import subprocess, time
subprocess.Popen(["setsid", "sleep", "{SLEEP_S}"], start_new_session=True)
time.sleep({{}})
"""


def test_at_its_time_limit_all_of_it_ends(cells: Cells) -> None:
    answer = cells.run(DAEMON.format(600), timeout_s=2)
    assert answer["timed_out"] and answer["result"] is None
    assert not asleep() and not mounted(str(cells.folder))


def test_what_a_verb_leaves_behind_ends_with_it(cells: Cells) -> None:
    assert cells.result(DAEMON.format(0.1)) == {}
    assert not asleep()


def test_a_killed_harness_leaves_no_process_and_no_mount(cells: Cells) -> None:
    child = os.fork()
    if not child:
        cells.run(DAEMON.format(600), timeout_s=600)
        os._exit(0)
    try:
        deadline = time.monotonic() + 60
        while not asleep() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert asleep() and mounted(str(cells.folder))
        harness = psutil.Process(child).children()  # `forked` runs it in a child of its own
        for process in [*harness, psutil.Process(child)]:
            process.send_signal(signal.SIGKILL)
    finally:
        os.waitpid(child, 0)
    deadline = time.monotonic() + 60
    while (asleep() or mounted(str(cells.folder))) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not asleep() and not mounted(str(cells.folder))


def test_links_among_what_it_leaves_are_no_way_to_the_machine_s_files(cells: Cells, tmp_path: Path) -> None:
    secret, target = cells.folder / "secret", cells.folder / "target"
    secret.write_text("{}")
    answer = cells.run(f"""
        import os
        os.mkdir("/out/w0")
        os.symlink({str(secret)!r}, "/out/w0/file")
        os.symlink("/etc", "/out/w0/folder")
        open("/out/w0/plain", "w").write("plain")
        os.symlink({str(secret)!r}, "/out/result.json")
        os._exit(0)
    """, writes=(target,))  # fmt: skip
    assert answer["result"] is None, "a result that is a link is none"
    assert {path.name: path.read_text() for path in target.iterdir()} == {"file": "", "folder": "", "plain": "plain"}
