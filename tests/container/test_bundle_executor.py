"""Executor `bundle` with a real bundle, unpacked: what its cells keep from the code in them.

Each is done as root, and as a user without rights where this machine lets one have namespaces. How cells end, and what
they may run: test_limits.py and test_confinement.py, with those of containers.
"""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import psutil
import pytest

from harness.isolate.sandbox import TASK_USER
from tests.conftest import ROOT
from tests.container.cells import SLEEP_S, BundleCells, achieved, asleep
from tests.container.engines import until
from tests.container.unpacked import NOBODY, mounted, snapshot

pytestmark = [pytest.mark.container, pytest.mark.timeout(1500)]


def test_a_cell_is_another_user_s_with_no_rights(bundle_cells: BundleCells) -> None:
    result = bundle_cells.result("""
        import getpass, os
        status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines() if ":" in line)
        result.update(uid=os.getuid(), gid=os.getgid(), groups=os.getgroups(), name=getpass.getuser(), cwd=os.getcwd(),
                      caps=int(status["CapEff"], 16), inherited=int(status["CapInh"], 16),
                      privileges=status["NoNewPrivs"].strip(), node=os.uname().nodename, names=sorted(os.environ))
    """)
    assert (result["uid"], result["gid"], result["name"]) == (TASK_USER, TASK_USER, "verb")
    assert set(result["groups"]) <= {TASK_USER, NOBODY} and result["cwd"] == "/out"
    assert (result["caps"], result["inherited"], result["privileges"]) == (0, 0, "1")
    assert result["node"] == "sandbox" and "SSH_CONNECTION" not in result["names"] and "PWD" not in result["names"]


def test_it_writes_to_its_own_folder_and_nowhere_else(bundle_cells: BundleCells, unpacked: Path) -> None:
    before = snapshot(unpacked)
    closed = ["/x", "/usr/x", "/etc/passwd", "/opt/environment/x", "/opt/environment/bin/python", "/in/x",
              "/in/request.json", "/in/worker/worker/__init__.py", "/dev/x", "/sys/x", "/proc/sys/kernel/hostname",
              "/proc/sysrq-trigger", "/var/x", "/root/x", "/home/x"]  # fmt: skip
    opened = ["/out/x", "/tmp/x", "/dev/shm/x", "/dev/null"]
    code = 'for path in request["paths"]: attempt(path, lambda: open(path, "a").write("x"))'
    result = bundle_cells.attempts(code, paths=closed + opened)
    assert len(result) == 19 and achieved(result).keys() == set(opened)
    assert snapshot(unpacked) == before


def test_it_sees_no_file_no_process_and_no_network_of_the_machine(bundle_cells: BundleCells, unpacked: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        name = f"\0kernel-matrix-{os.getpid()}"
        abstract.bind(name)
        abstract.listen()
        result = bundle_cells.attempts(
            """
            for path in request["paths"]: attempt(path, lambda: os.stat(path))
            attempt("tcp", lambda: socket.create_connection(("127.0.0.1", request["port"]), 2))
            attempt("abstract", lambda: socket.socket(socket.AF_UNIX).connect(request["name"]))
            attempt("outside", lambda: socket.create_connection(("1.1.1.1", 53), 2))
            attempt("first", lambda: os.listdir("/proc/1/root"))
            attempt("hostname", lambda: open("/etc/hostname").read())
            result["processes"] = str(sum(name.isdigit() for name in os.listdir("/proc")))
            result["interfaces"] = ",".join(os.listdir("/sys/class/net"))
            with socket.create_server(("127.0.0.1", 0)) as own:
                socket.create_connection(own.getsockname(), 2).close()
            """,
            paths=list(map(str, [ROOT, ROOT / "matrix.yaml", Path.home() / ".cache", bundle_cells.folder, unpacked])),
            port=server.getsockname()[1],
            name=name,
        )
    assert int(result.pop("processes")) <= 3 and result.pop("interfaces") == "lo"
    assert socket.gethostname() not in result.pop("hostname")
    assert len(result) == 9 and not achieved(result), result


def test_it_gains_nothing_by_namespaces_of_its_own(bundle_cells: BundleCells, unpacked: Path) -> None:
    before = snapshot(unpacked)
    result = bundle_cells.attempts("""
        attempt("mount", lambda: call("mount", b"tmpfs", b"/tmp", b"tmpfs", 0, None))
        attempt("umount", lambda: call("umount2", b"/opt/environment", 2))
        attempt("setuid", lambda: os.setuid(0))
        attempt("mknod", lambda: os.mknod("/out/disk", 0o60666, os.makedev(8, 0)))
        libc.unshare(0x10000000 | 0x00020000)  # a user and a mount namespace, where the machine allows one
        attempt("remount /", lambda: call("mount", None, b"/", None, 32 | 4096, None))
        attempt("remount /usr", lambda: call("mount", None, b"/usr", None, 32 | 4096, None))
        attempt("umount again", lambda: call("umount2", b"/opt/environment", 2))
        attempt("write", lambda: open("/usr/x", "w"))
    """)
    assert len(result) == 8 and not achieved(result), result
    assert snapshot(unpacked) == before


def test_a_killed_harness_leaves_no_process_and_no_mount(bundle_cells: BundleCells) -> None:
    child = os.fork()
    if not child:
        bundle_cells(f"import os; os.execvp('sleep', ['sleep', '{SLEEP_S}'])", timeout_s=600)
        os._exit(0)
    place = str(bundle_cells.folder)
    try:
        until(lambda: asleep() and mounted(place), "a cell")
        harness = psutil.Process(child).children()  # `forked` runs it in a child of its own
        for process in [*harness, psutil.Process(child)]:
            process.send_signal(signal.SIGKILL)
    finally:
        os.waitpid(child, 0)
    until(lambda: not asleep() and not mounted(place), "no process and no mount left")


def test_links_among_what_it_leaves_are_no_way_to_the_machine_s_files(bundle_cells: BundleCells) -> None:
    secret, target = bundle_cells.folder / "secret", bundle_cells.folder / "target"
    secret.write_text("{}")
    code = """
        import os
        os.mkdir("/out/w0")
        os.symlink(request["secret"], "/out/w0/file")
        os.symlink("/etc", "/out/w0/folder")
        open("/out/w0/plain", "w").write("plain")
        os.symlink(request["secret"], "/out/result.json")
        os._exit(0)
    """
    answer = bundle_cells(code, request={"secret": str(secret)}, writes=(target,))
    assert answer.result is None, "a result that is a link is none"
    assert {path.name: path.read_text() for path in target.iterdir()} == {"file": "", "folder": "", "plain": "plain"}
