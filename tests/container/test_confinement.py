"""What a sandbox keeps from the code in it, seen from that code: in a container, and under bubblewrap as root and in a
user namespace. How tasks end: test_limits.py.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from harness.executors.process import Gate
from harness.executors.sandbox import TASK_USER
from tests.conftest import ROOT
from tests.container.cells import AnyCells, BwrapCells, Cells, achieved, asleep
from tests.container.engines import until

pytestmark = [pytest.mark.container, pytest.mark.timeout(900)]


@pytest.fixture
def listener() -> Iterator[tuple[int, str, list[object]]]:
    """Give a port of this machine, on all its addresses, an abstract name, and who connected to the port."""
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
    """Return this machine's own, the bridge of its engine among them."""
    every = (entry for entries in psutil.net_if_addrs().values() for entry in entries)
    return sorted({entry.address for entry in every if entry.family == socket.AF_INET})


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


SECRETS = (
    "/root/.ssh",
    "/etc/shadow",
    "/var/run/docker.sock",
    "/dev/vda",
    "/dev/mem",
    "/dev/kmsg",
)


def test_it_sees_no_file_and_no_process_of_the_machine(any_cells: AnyCells, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    paths = [secret, ROOT / "matrix.yaml", Path.home() / ".cache" / "kernel-matrix", any_cells.folder / "project"]
    result = any_cells.attempts(
        """
        for path in request["paths"]:
            attempt(path, lambda: open(path).read() if not os.path.isdir(path) else os.listdir(path))
        result["processes"] = str(max(int(name) for name in os.listdir("/proc") if name.isdigit()))
        result["hostname"] = os.uname().nodename
        """,
        paths=[*map(str, paths), f"/proc/1/root{secret}", *SECRETS],
    )
    assert result.pop("hostname") == "sandbox" and int(result.pop("processes")) < 100
    assert len(result) == len(paths) + 1 + len(SECRETS) and not achieved(result), achieved(result)


def test_nothing_but_its_own_folders_can_be_written(any_cells: AnyCells, tmp_path: Path) -> None:
    source, out = any_cells.folder / "project" / "csrc" / "kernel.cu", tmp_path / "out"
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text("of the project")
    result = any_cells.attempts(
        """
        for folder in ("/", "/usr", "/dev", "/etc", "/proc", "/sys", "/opt",
                       os.path.dirname(__file__), sys.prefix, os.path.dirname(os.__file__)):
            attempt(folder, lambda: open(folder + "/mine", "w"))
        for path in ("/etc/passwd", sys.executable, request["source"], __file__, "/proc/sysrq-trigger",
                     "/proc/sys/kernel/core_pattern", asked):
            attempt(path, lambda: open(path, "a").write("x"))
        attempt("remove", lambda: os.unlink(request["source"]))
        attempt("hostname", lambda: call("sethostname", b"x", 1))
        attempt("own", lambda: open("mine", "w").write("x"))
        """,
        reads=(source,),
        source=str(source),
    )
    assert len(result) > 18 and achieved(result).keys() == {"own"}, achieved(result)
    assert source.read_text() == "of the project" and not out.exists()


CONTAINED = """
attempt("user namespace", lambda: call("unshare", 0x10000000))
attempt("keyring", lambda: call("syscall", 248, b"user", b"x", b"y", 1, -3))
"""


def test_no_more_rights_can_be_had(any_cells: AnyCells) -> None:
    result = any_cells.attempts(
        """
        status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines())
        for key in ("CapPrm", "CapEff", "CapAmb", "NoNewPrivs", "Seccomp"):
            result[key] = str(int(status[key], 16))
        result["ids"] = f"{os.getresuid()} {os.getresgid()}"
        result["names"] = ",".join(os.environ)
        attempt("root", lambda: os.setuid(0))
        attempt("groups", lambda: os.setgroups([0]))
        attempt("chroot", lambda: os.chroot("/"))
        attempt("mount", lambda: call("mount", b"none", b"/proc", b"tmpfs", 0, None))
        attempt("remount", lambda: call("mount", b"none", b"/", b"", 32, None))
        attempt("device", lambda: os.mknod("null", 0o20666, os.makedev(1, 3)))
        attempt("priority", lambda: os.nice(-5))
        attempt("bpf", lambda: call("syscall", 321, 0, None, 0))
        attempt("clock", lambda: call("clock_settime", 0, (ctypes.c_long * 2)(0, 0)))
        attempt("module", lambda: call("syscall", 175, b"", 0, b""))
        attempt("handle", lambda: call("syscall", 304, 0, None, 0))
        libc.unshare(0x10000000 | 0x00020000)  # a user and a mount namespace, where the machine allows one
        attempt("remount /", lambda: call("mount", None, b"/", None, 32 | 4096, None))
        attempt("remount /usr", lambda: call("mount", None, b"/usr", None, 32 | 4096, None))
        attempt("write", lambda: open("/usr/x", "w"))
        """
        + (CONTAINED.replace("\n", "\n        ") if any_cells.is_container else "")
    )
    assert {result.pop(name) for name in ("CapPrm", "CapEff", "CapAmb")} == {"0"}
    assert result.pop("Seccomp") == ("2" if any_cells.is_container else "0")
    assert result.pop("NoNewPrivs") == "1" and result.pop("ids") == f"{(TASK_USER,) * 3} {(TASK_USER,) * 3}"
    assert not {"SSH_CONNECTION", "KERNEL_MATRIX_CACHE"} & set(result.pop("names").split(","))
    assert len(result) >= 14 and not achieved(result), achieved(result)


def test_programs_that_would_raise_rights_do_not(any_cells: AnyCells) -> None:
    result = any_cells.result(
        """
        import os, stat, subprocess
        result["programs"] = [name for name in os.listdir("/bin") if os.stat("/bin/" + name).st_mode & stat.S_ISUID]
        said = subprocess.run(["su", "-c", "id -u"], stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout
        result["ran"] = said
        """
    )
    assert result["programs"] and result["ran"].strip() != "0"


def test_a_task_sees_nothing_of_the_one_before(any_cells: AnyCells) -> None:
    code = "import os; result['left'] = os.path.exists('left'); open('left', 'w').write('x')"
    assert [any_cells.result(code)["left"] for _ in range(2)] == [False, False]


@pytest.mark.parametrize("left", ["pass", "os.mkfifo(request['link'] + '/ended')"])
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
    with cells.linking() as link, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(cells.result, waits, link=link)
        ended = cells(ends, link=link, request={"link": str(link)}).ended
        assert (ended.returncode, waiting.result()) == (3, {"link": ["ended", "waits"]})


def test_two_sandboxes_meet_in_a_folder(any_cells: AnyCells) -> None:
    listening = """
        import array, os, socket
        server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        server.bind(request["link"] + "/socket")
        server.listen(1)
        connection, _ = server.accept()
        data, rights, _, _ = connection.recvmsg(100, socket.CMSG_SPACE(4))
        result["data"], result["memory"] = data.decode(), os.pread(array.array("i", rights[0][2])[0], 100, 0).decode()
        """
    connecting = """
        import array, os, socket, time
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        while client.connect_ex(request["link"] + "/socket"):
            time.sleep(0.05)
        memory = os.memfd_create("m")
        os.write(memory, b"shared")
        client.sendmsg([b"hello"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [memory]))])
        """
    with any_cells.linking() as link, ThreadPoolExecutor(2) as pool:
        request = {"link": str(link)}
        one = pool.submit(any_cells.result, listening, link=link, request=request)
        pool.submit(any_cells.result, connecting, link=link, request=request).result()
    assert one.result() == {"data": "hello", "memory": "shared"}


# -- bubblewrap alone -----------------------------------------------------------------------------------------------


def test_it_starts_on_its_processors(bwrap_cells: BwrapCells) -> None:
    every = os.sched_getaffinity(0)
    if len(every) < 2:
        pytest.skip("this machine has one processor")
    code = "import os\nresult['own'] = sorted(os.sched_getaffinity(0))"
    bound = max(every)
    assert bwrap_cells.result(code, processors=(bound,)) == {"own": [bound]}
    assert bwrap_cells.result(code) == {"own": sorted(every)}


def test_a_gate_holds_it_back(bwrap_cells: BwrapCells) -> None:
    gate = Gate()
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(bwrap_cells, "sys.stdin.read()\nresult['read'] = 1", gate=gate, timeout_s=30)
        assert not going.done()
        gate.open()
        assert going.result().result == {"read": 1}


HARNESS = """
import sys
from pathlib import Path
from harness.executors.bwrap import find_bwrap
from tests.container.cells import SLEEP_S, BwrapCells
cells = BwrapCells(find_bwrap(), Path(sys.argv[1]))
cells(f"import os; os.setsid(); os.execvp('sleep', ['sleep', '{SLEEP_S}'])", timeout_s=600)
"""


def test_a_killed_harness_leaves_no_process(bwrap_cells: BwrapCells, tmp_path: Path) -> None:
    harness = subprocess.Popen([sys.executable, "-c", HARNESS, str(tmp_path)], cwd=ROOT)
    try:
        until(asleep, "a task")
    finally:
        harness.send_signal(signal.SIGKILL)
        harness.wait()
    until(lambda: not asleep(), "no process left")


def test_without_bubblewrap_a_task_runs_as_it_did(tmp_path: Path) -> None:
    plain = BwrapCells(None, tmp_path)
    assert plain.result("import os; result['user'] = os.getuid()") == {"user": os.geteuid()}
    assert plain("import os; os.mkdir(answered); os._exit(0)").result is None, "a folder is no result"
