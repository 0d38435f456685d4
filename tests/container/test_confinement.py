"""What a container's cell keeps from the code in it, seen from that code. Of a bundle's: test_bundle_executor.py."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness.isolate.sandbox import KEEPER_USER, TASK_USER
from tests.container.cells import AnyCells, Cells, achieved

pytestmark = pytest.mark.container

@pytest.fixture
def listener() -> Iterator[tuple[int, list[object]]]:
    """A port of this machine, on all its addresses, and who connected to it."""
    heard: list[object] = []
    with socket.socket() as server:
        server.bind(("0.0.0.0", 0))
        server.listen()

        def listen() -> None:
            try:
                while True:
                    heard.append(server.accept()[1])
            except OSError:
                return

        threading.Thread(target=listen, daemon=True).start()
        yield server.getsockname()[1], heard


def addresses() -> list[str]:
    """This machine's own, the bridge of its engine among them; two interfaces may share one."""
    found = {entry.address for entries in psutil.net_if_addrs().values() for entry in entries
             if entry.family == socket.AF_INET}  # fmt: skip
    assert "127.0.0.1" in found
    return sorted(found)


def test_there_is_no_network(cells: Cells, listener: tuple[int, list[object]]) -> None:
    port, heard = listener
    with socket.create_connection(("127.0.0.1", port), 5):  # the listener listens
        pass
    while not heard:
        pass
    heard.clear()
    result = cells.attempts(
        """
        for address in request["addresses"]:
            attempt(address, lambda: socket.create_connection((address, request["port"]), 2))
        attempt("name", lambda: socket.getaddrinfo("pypi.org", 443))
        attempt("datagram", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 53)))
        attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
        attempt("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
        attempt("engine", lambda: socket.socket(socket.AF_UNIX).connect("/var/run/docker.sock"))
        result["interfaces"] = ",".join(name for _, name in socket.if_nameindex())
        """,
        addresses=addresses(),
        port=port,
    )
    interfaces = set(result.pop("interfaces").split(","))
    # Tunnel devices of a new network namespace are there on some kernels, down and without an address.
    assert not [name for name in interfaces if name.startswith(("eth", "en", "veth", "docker"))], interfaces
    assert len(result) == 5 + len(addresses()) and not achieved(result) and not heard


def test_the_hosts_files_are_not_there(cells: Cells, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    secret.chmod(0o644)
    for folder in tmp_path.parents:
        if folder.stat().st_uid == os.getuid() and str(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    result = cells.attempts(
        """
        for path in request["paths"]:
            attempt(path, lambda: open(path).read() if not os.path.isdir(path) else os.listdir(path))
        """,
        paths=[str(secret), f"/proc/1/root{secret}", "/work", "/root", "/etc/shadow", "/var/run/docker.sock",
               "/dev/vda", "/dev/mem", "/dev/kmsg", "/proc/kcore", "/proc/1/environ", "/proc/1/mem"],
    )  # fmt: skip
    assert len(result) == 12 and not achieved(result)


def test_nothing_but_its_own_folder_can_be_written(cells: Cells) -> None:
    source = cells.executor.root / "csrc" / "kernel.cu"
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text("of the project")
    result = cells.attempts(
        """
        given = [folder for folder, _, _ in os.walk("/in")]
        assert "/in/project/csrc" in given
        for folder in ("/", "/opt/environment", "/tmp", "/dev", "/dev/shm", "/etc", "/proc", "/sys", "/var/tmp", "/run",
                       "/opt/environment/lib/python3.11/site-packages", "/usr/local/bin", *given):
            attempt(folder, lambda: open(folder + "/mine", "w"))
        attempt("request", lambda: open("/in/request.json", "a"))
        attempt("replace", lambda: os.replace("/in/request.json", "/in/other"))
        attempt("remove", lambda: os.unlink("/in/request.json"))
        attempt("open up", lambda: os.chmod("/in", 0o777))
        attempt("hostname", lambda: call("sethostname", b"x", 1))
        attempt("kernel", lambda: open("/proc/sys/kernel/core_pattern", "w"))
        attempt("cgroup", lambda: open("/sys/fs/cgroup/pids/pids.max", "w"))
        attempt("keyring", lambda: call("syscall", 248, b"user", b"x", b"y", 1, -3))
        attempt("shared memory", lambda: call("shmget", 0x1234, 4096, 0o1600))
        attempt("source", lambda: open("/in/project/csrc/kernel.cu", "w"))
        result["own"] = str(open("/out/mine", "w").write("x"))
        """,
        reads=(source,),
    )
    assert result.pop("own") == "1"
    # A segment of System V lives in the cell's own IPC namespace, and dies with it.
    result.pop("shared memory")
    assert len(result) > 25 and not achieved(result), achieved(result)


def test_no_more_rights_can_be_had(cells: Cells) -> None:
    result = cells.attempts(
        """
        status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines())
        result["status"] = ",".join(status[key].strip() for key in
            ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp"))
        result["ids"] = f"{os.getresuid()} {os.getresgid()} {os.getgroups()}"
        attempt("root", lambda: os.setuid(0))
        attempt("keeper", lambda: os.setuid(request["keeper"]))
        attempt("groups", lambda: os.setgroups([0]))
        attempt("chroot", lambda: os.chroot("/out"))
        attempt("mount", lambda: call("mount", b"none", b"/out", b"tmpfs", 0, None))
        attempt("remount", lambda: call("mount", b"none", b"/", b"", 32, None))
        attempt("unmount", lambda: call("umount2", b"/in", 2))
        attempt("user namespace", lambda: call("unshare", 0x10000000))
        attempt("mount namespace", lambda: call("unshare", 0x00020000))
        attempt("device", lambda: os.mknod("/out/null", 0o20666, os.makedev(1, 3)))
        attempt("own", lambda: os.chown("/out/w0", 0, 0))
        attempt("priority", lambda: os.nice(-5))
        attempt("trace", lambda: call("ptrace", 16, 1, 0, 0))
        attempt("kill", lambda: os.kill(1, 9))
        attempt("stop", lambda: os.kill(1, 19))
        attempt("read memory", lambda: open("/proc/1/mem", "rb").read(1))
        attempt("take a file", lambda: os.open("/proc/1/fd/0", os.O_RDONLY))
        attempt("bpf", lambda: call("syscall", 321, 0, None, 0))
        attempt("clock", lambda: call("clock_settime", 0, (ctypes.c_long * 2)(0, 0)))
        attempt("module", lambda: call("syscall", 175, b"", 0, b""))
        attempt("kexec", lambda: call("syscall", 246, 0, 0, None, 0))
        attempt("handle", lambda: call("syscall", 304, 0, None, 0))
        """,
        keeper=KEEPER_USER,
    )
    zero = "0" * 16
    assert result.pop("status") == ",".join([zero] * 5 + ["1", "2"])
    assert result.pop("ids") in {f"{(TASK_USER,) * 3} {(TASK_USER,) * 3} {groups}" for groups in ([], [TASK_USER])}
    assert len(result) == 22 and not achieved(result), achieved(result)


def test_programs_that_would_raise_rights_do_not(cells: Cells) -> None:
    result = cells.result(
        """
        import os, stat, subprocess
        found = []
        for folder, _, names in os.walk("/usr"):
            for name in names:
                path = os.path.join(folder, name)
                if not os.path.islink(path) and os.stat(path).st_mode & (stat.S_ISUID | stat.S_ISGID):
                    found.append(path)
        result["programs"] = found
        result["ran"] = subprocess.run(["su", "-c", "id -u"], capture_output=True, text=True).stdout
        """
    )
    # The base has some (su, mount): without this, the test would prove nothing.
    assert result["programs"] and result["ran"].strip() != "0"


def test_other_processes_are_not_to_be_seen(cells: Cells) -> None:
    result = cells.result(
        """
        import os
        result["seen"] = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
        result["self"] = os.getpid()
        """
    )
    assert result["seen"] == [1, result["self"]], "the keeper, and this"


@pytest.mark.parametrize("compiles", [False, True])
def test_what_it_wrote_it_runs_only_where_it_must(any_cells: AnyCells, compiles: bool) -> None:
    result = any_cells.result(
        """
        import os, shutil, subprocess
        shutil.copy("/bin/true", "/out/program")
        os.chmod("/out/program", 0o755)
        try:
            result["program"] = subprocess.run(["/out/program"]).returncode
        except OSError as error:
            result["program"] = error.strerror
        """,
        compiles=compiles,
    )
    assert result["program"] == (0 if compiles else "Permission denied")


def test_a_cell_sees_nothing_of_the_one_before(any_cells: AnyCells) -> None:
    any_cells.result("open('/out/left', 'w').write('x'); result['x'] = 1")
    assert any_cells.result("import os; result['left'] = os.listdir('/out')")["left"] == []
