"""What stands between the harness and a container engine in these tests: an engine of their own, and a wire to cut."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import psutil

DEFAULT_SOCKET = Path("/var/run/docker.sock")


def until(holds: Callable[[], object], what: str, timeout_s: float = 60) -> None:
    """Wait until something holds. AssertionError with `what` where it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"not in {timeout_s:.0f} s: {what}"
        time.sleep(0.05)


class Wire:
    """A socket that forwards to an engine, and can be cut and mended: an engine that goes away and comes back."""

    def __init__(self, path: Path, engine: Path = DEFAULT_SOCKET) -> None:
        self.path, self.engine = path, engine
        self.open: set[socket.socket] = set()
        self.listener: socket.socket | None = None
        self.mend()

    @property
    def address(self) -> str:
        return f"unix://{self.path}"

    def mend(self) -> None:
        self.path.unlink(missing_ok=True)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.listener.listen(64)
        threading.Thread(target=self._accept, args=(self.listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(str(self.engine))
            self.open |= {client, server}
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._forward, args=(source, target), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def cut(self) -> None:
        """Nobody is there any more, and whoever was connected hears so."""
        if self.listener is not None:
            with contextlib.suppress(OSError):
                self.listener.shutdown(socket.SHUT_RDWR)
            self.listener.close()
        self.path.unlink(missing_ok=True)
        while self.open:
            connection = self.open.pop()
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()


class SecondEngine:
    """A dockerd of the tests' own: another socket, and all it keeps in memory, on a disk of limited size."""

    def __init__(self, folder: Path, size: str) -> None:
        self.folder, self.disk = folder, folder / "disk"
        self.socket = folder / "docker.sock"
        self.disk.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", self.disk], check=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        # A bridge of its own: `--bridge=none` would remove the machine's docker0.
        self.bridge = f"kmt{os.getpid()}"
        subprocess.run(["ip", "link", "add", self.bridge, "type", "bridge"], check=True)
        subprocess.run(["ip", "address", "add", "192.0.2.1/24", "dev", self.bridge], check=True)
        self.process: subprocess.Popen[bytes] | None = None
        self.log: IO[bytes] = (folder / "dockerd.log").open("ab")
        self.start()

    @property
    def address(self) -> str:
        return f"unix://{self.socket}"

    @property
    def tcp(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def start(self) -> None:
        for name in ("docker.pid", "exec/containerd/containerd.pid"):  # a killed one's, perhaps another's by now
            (self.folder / name).unlink(missing_ok=True)
        self.process = subprocess.Popen(
            [
                "dockerd",
                f"--data-root={self.disk / 'data'}",
                f"--exec-root={self.folder / 'exec'}",
                f"--pidfile={self.folder / 'docker.pid'}",
                f"--host={self.address}",
                f"--host={self.tcp}",
                "--tls=false",
                f"--bridge={self.bridge}",
                "--iptables=false",
                "--ip6tables=false",
            ],
            stdout=self.log,
            stderr=self.log,
        )
        until(self.answers, f"a second dockerd: see {self.folder / 'dockerd.log'}")

    def answers(self) -> bool:
        said = (self.folder / "dockerd.log").read_text()[-900:]
        assert self.process is not None and self.process.poll() is None, said
        return self.docker("version", check=False).returncode == 0

    def docker(self, *arguments: str, check: bool = True, **options: object) -> subprocess.CompletedProcess[bytes]:
        environment = {**os.environ, "DOCKER_HOST": self.address}
        return subprocess.run(  # type: ignore[call-overload, no-any-return]
            ["docker", *arguments], check=check, env=environment, capture_output=True, **options
        )

    def kill(self) -> None:
        """What kill -9 does: it takes its containerd along, and leaves what runs in containers running."""
        assert self.process is not None
        children = psutil.Process(self.process.pid).children()
        self.process.kill()
        self.process.wait()
        psutil.wait_procs(children, timeout=10)

    def remove(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(30)
            self.process.kill()
        self.log.close()
        subprocess.run(["ip", "link", "delete", self.bridge], check=False)
        ours = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if str(self.folder) in line]
        for mount in sorted(ours, key=len, reverse=True):
            subprocess.run(["umount", "-l", mount], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextlib.contextmanager
    def full(self, left_bytes: int = 8 << 20) -> Iterator[None]:
        """Its disk with hardly anything left."""
        filler = self.disk / "filler"
        free = shutil.disk_usage(self.disk).free - left_bytes
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, free)
        try:
            yield
        finally:
            filler.unlink()
