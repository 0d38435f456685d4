"""What a cell keeps from the code in it, seen from that code: a container's, and an unpacked bundle's, as root and as a
user without rights where this machine lets one have namespaces. How cells end: test_limits.py.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from harness.isolate.sandbox import KEEPER_USER, TASK_USER
from tests.conftest import ROOT
from tests.container.cells import SLEEP_S, AnyCells, BundleCells, Cells, achieved, asleep
from tests.container.engines import until
from tests.container.unpacked import NOBODY, mounted, snapshot

pytestmark = [pytest.mark.container, pytest.mark.timeout(1500)]


@pytest.fixture
def listener() -> Iterator[tuple[int, str, list[object]]]:
    """A port of this machine, on all its addresses, an abstract name, and who connected to the port."""
    heard: list[object] = []
    name = f"\0kernel-matrix-{os.getpid()}"
    with socket.socket() as server, socket.socket(socket.AF_UNIX) as abstract:
        server.bind(("0.0.0.0", 0))
        server.listen()
        abstract.bind(name)
        abstract.listen()

        def listen() -> None:
            try:
                while True:
                    heard.append(server.accept()[1])
            except OSError:
                return

        threading.Thread(target=listen, daemon=True).start()
        yield server.getsockname()[1], name, heard


def addresses() -> list[str]:
    """This machine's own, the bridge of its engine among them; two interfaces may share one."""
    found = {
        entry.address
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family == socket.AF_INET
    }
    assert "127.0.0.1" in found
    return sorted(found)


def test_there_is_no_network_but_its_own(any_cells: AnyCells, listener: tuple[int, str, list[object]]) -> None:
    port, name, heard = listener
    with socket.create_connection(("127.0.0.1", port), 5):  # the listener listens
        pass
    until(lambda: heard, "a connection")
    heard.clear()
    result = any_cells.attempts(
        """
        for address in request["addresses"]:
            attempt(address, lambda: socket.create_connection((address, request["port"]), 2))
        attempt("abstract", lambda: socket.socket(socket.AF_UNIX).connect(request["name"]))
        attempt("outside", lambda: socket.create_connection(("1.1.1.1", 53), 2))
        attempt("name", lambda: socket.getaddrinfo("pypi.org", 443))
        attempt("datagram", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 53)))
        attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
        attempt("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
        attempt("engine", lambda: socket.socket(socket.AF_UNIX).connect("/var/run/docker.sock"))
        result["interfaces"] = ",".join(name for _, name in socket.if_nameindex())
        with socket.create_server(("127.0.0.1", 0)) as own:
            socket.create_connection(own.getsockname(), 2).close()
        """,
        addresses=addresses(),
        port=port,
        name=name,
    )
    interfaces = set(result.pop("interfaces").split(","))
    # Tunnel devices of a new network namespace are there on some kernels, down and without an address.
    assert not [name for name in interfaces if name.startswith(("eth", "en", "veth", "docker"))], interfaces
    assert len(result) == 7 + len(addresses()) and not achieved(result) and not heard


def test_it_sees_no_file_and_no_process_of_the_machine(any_cells: AnyCells, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    secret.chmod(0o644)
    for folder in tmp_path.parents:
        if folder.stat().st_uid == os.getuid() and str(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    paths = [secret, ROOT, ROOT / "matrix.yaml", Path.home() / ".cache", any_cells.folder]
    result = any_cells.attempts(
        """
        for path in request["paths"]:
            attempt(path, lambda: open(path).read() if not os.path.isdir(path) else os.listdir(path))
        result["hostname"] = open("/etc/hostname").read()
        result["processes"] = str(sum(name.isdigit() for name in os.listdir("/proc")))
        """,
        paths=[
            *map(str, paths),
            f"/proc/1/root{secret}",
            "/work",
            "/root",
            "/etc/shadow",
            "/var/run/docker.sock",
            "/dev/vda",
            "/dev/mem",
            "/dev/kmsg",
            "/proc/kcore",
            "/proc/1/environ",
            "/proc/1/mem",
            "/proc/1/root",
        ],
    )
    assert socket.gethostname() not in result.pop("hostname")
    assert int(result.pop("processes")) <= (2 if isinstance(any_cells, Cells) else 3), "what keeps it, and this"
    assert len(result) == 17 and not achieved(result), achieved(result)


def test_nothing_but_its_own_folders_can_be_written(any_cells: AnyCells, unpacked: Path) -> None:
    before = snapshot(unpacked)
    source = any_cells.folder / "project" / "csrc" / "kernel.cu"
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text("of the project")
    result = any_cells.attempts(
        """
        given = [folder for folder, _, _ in os.walk("/in")]
        assert "/in/project/csrc" in given
        for folder in ("/", "/opt/environment", "/tmp", "/dev", "/dev/shm", "/etc", "/proc", "/sys", "/var/tmp", "/run",
                       "/root", "/home", "/opt/environment/lib/python3.11/site-packages", "/usr/local/bin", *given):
            attempt(folder, lambda: open(folder + "/mine", "w"))
        for path in ("/etc/passwd", "/opt/environment/bin/python", "/in/request.json", "/in/worker/worker/__init__.py",
                     "/in/project/csrc/kernel.cu", "/proc/sysrq-trigger", "/proc/sys/kernel/hostname",
                     "/proc/sys/kernel/core_pattern", "/sys/fs/cgroup/pids/pids.max"):
            attempt(path, lambda: open(path, "a").write("x"))
        attempt("replace", lambda: os.replace("/in/request.json", "/in/other"))
        attempt("remove", lambda: os.unlink("/in/request.json"))
        attempt("open up", lambda: os.chmod("/in", 0o777))
        attempt("hostname", lambda: call("sethostname", b"x", 1))
        if request["container"]:
            attempt("keyring", lambda: call("syscall", 248, b"user", b"x", b"y", 1, -3))
        attempt("own", lambda: open("/out/mine", "w").write("x"))
        """,
        reads=(source,),
        container=isinstance(any_cells, Cells),
    )
    in_memory = set() if isinstance(any_cells, Cells) else {"/tmp", "/dev/shm"}
    assert len(result) > 25 and achieved(result).keys() == {"own"} | in_memory, achieved(result)
    assert snapshot(unpacked) == before


def test_no_more_rights_can_be_had(any_cells: AnyCells, unpacked: Path) -> None:
    before, contained = snapshot(unpacked), isinstance(any_cells, Cells)
    result = any_cells.attempts(
        """
        import getpass
        status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines())
        for key in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp"):
            result[key] = str(int(status[key], 16))
        result["ids"] = f"{os.getresuid()} {os.getresgid()}"
        result["group ids"] = ",".join(map(str, os.getgroups()))
        result["place"] = f"{getpass.getuser()} {os.uname().nodename} {os.getcwd()}"
        result["names"] = ",".join(os.environ)
        attempt("root", lambda: os.setuid(0))
        attempt("keeper", lambda: os.setuid(request["keeper"]))
        attempt("groups", lambda: os.setgroups([0]))
        attempt("chroot", lambda: os.chroot("/out"))
        attempt("mount", lambda: call("mount", b"none", b"/out", b"tmpfs", 0, None))
        attempt("remount", lambda: call("mount", b"none", b"/", b"", 32, None))
        attempt("unmount", lambda: call("umount2", b"/in", 2))
        attempt("device", lambda: os.mknod("/out/null", 0o20666, os.makedev(1, 3)))
        attempt("own", lambda: os.chown("/out", 0, 0))
        attempt("priority", lambda: os.nice(-5))
        attempt("trace", lambda: call("ptrace", 16, 1, 0, 0))
        attempt("read memory", lambda: open("/proc/1/mem", "rb").read(1))
        attempt("take a file", lambda: os.open("/proc/1/fd/0", os.O_RDONLY))
        attempt("bpf", lambda: call("syscall", 321, 0, None, 0))
        attempt("clock", lambda: call("clock_settime", 0, (ctypes.c_long * 2)(0, 0)))
        attempt("module", lambda: call("syscall", 175, b"", 0, b""))
        attempt("kexec", lambda: call("syscall", 246, 0, 0, None, 0))
        attempt("handle", lambda: call("syscall", 304, 0, None, 0))
        if request["contained"]:
            attempt("user namespace", lambda: call("unshare", 0x10000000))
            attempt("mount namespace", lambda: call("unshare", 0x00020000))
            attempt("kill", lambda: os.kill(1, 9))
            attempt("stop", lambda: os.kill(1, 19))
        libc.unshare(0x10000000 | 0x00020000)  # a user and a mount namespace, where the machine allows one
        attempt("remount /", lambda: call("mount", None, b"/", None, 32 | 4096, None))
        attempt("remount /usr", lambda: call("mount", None, b"/usr", None, 32 | 4096, None))
        attempt("unmount the environment", lambda: call("umount2", b"/opt/environment", 2))
        attempt("write", lambda: open("/usr/x", "w"))
        """,
        keeper=KEEPER_USER,
        contained=contained,
    )
    assert {result.pop(name) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0"}
    assert (result.pop("CapBnd"), result.pop("Seccomp")) == ("0", "2") or not contained
    assert result.pop("NoNewPrivs") == "1" and result.pop("ids") == f"{(TASK_USER,) * 3} {(TASK_USER,) * 3}"
    assert set(result.pop("group ids").split(",")) <= {"", str(TASK_USER), str(NOBODY)}
    assert result.pop("place") == "verb sandbox /out"
    assert not {"SSH_CONNECTION", "KERNEL_MATRIX_CACHE"} & set(result.pop("names").split(","))
    assert len(result) == (26 if contained else 22) and not achieved(result), achieved(result)
    assert snapshot(unpacked) == before


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


@pytest.mark.parametrize("left", ["pass", "os.mkfifo('/link/ended')", "os.symlink('/in/nowhere', '/link/ended')"])
def test_who_waits_for_a_task_in_another_container_learns_that_it_ended(cells: Cells, left: str) -> None:
    waits = """
        import os, time
        os.mkdir("/link/waits")
        deadline = time.monotonic() + 60
        while not os.path.lexists("/link/ended") and time.monotonic() < deadline:
            time.sleep(0.01)
        result["link"] = sorted(os.listdir("/link"))
        """
    ends = f"""
        import os, time
        while not os.path.exists("/link/waits"):
            time.sleep(0.01)
        {left}
        os._exit(3)
        """
    with cells.executor.linking(cells.environment) as link, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(cells.result, waits, link=link)
        ended = cells(ends, link=link).ended
        assert (ended.returncode, waiting.result()) == (3, {"link": ["ended", "waits"]})
        assert ended.overhead_s < 30, "no pipe holds its keeper up"
