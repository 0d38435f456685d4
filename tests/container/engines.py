"""An engine of the tests' own."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path


def until(holds: Callable[[], object], what: str, timeout_s: float = 60) -> None:
    """Wait until something holds. AssertionError with `what` where it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"not in {timeout_s:.0f} s: {what}"
        time.sleep(0.05)


class OwnEngine:
    """A dockerd of the tests' own, whose images lie in `folder`: it may be killed, and the machine's is others' too."""

    def __init__(self, folder: Path, *options: str, network: str = "198.51.100.1/24") -> None:
        """`network`: one of those for documents (RFC 5737). A bridge of its own: `none` would remove docker0."""
        self.folder, self.options = folder, options
        self.bridge = f"km{network.partition('.')[0]}-{os.getpid()}"
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["ip", "link", "add", self.bridge, "type", "bridge"], check=True)
        subprocess.run(["ip", "address", "add", network, "dev", self.bridge], check=True)

    @property
    def address(self) -> str:
        return f"unix://{self.folder / 'docker.sock'}"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def start(self) -> None:
        for name in ("docker.pid", "exec/containerd/containerd.pid"):  # a killed one's, perhaps another's by now
            (self.folder / name).unlink(missing_ok=True)
        command = [
            "dockerd",
            f"--data-root={self.data}",
            f"--exec-root={self.folder / 'exec'}",
            f"--host={self.address}",
            f"--pidfile={self.folder / 'docker.pid'}",
            f"--bridge={self.bridge}",
            "--iptables=false",
            "--ip6tables=false",
            *self.options,
        ]
        with (self.folder / "dockerd.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        until(self.answers, f"a dockerd of our own: see {self.folder / 'dockerd.log'}")

    def answers(self) -> bool:
        said = (self.folder / "dockerd.log").read_text()[-900:]
        assert self.process is not None and self.process.poll() is None, said
        return self.docker("version", check=False).returncode == 0

    def docker(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "DOCKER_HOST": self.address}
        return subprocess.run(["docker", *arguments], check=check, env=environment, capture_output=True, text=True)

    def take(self, *images: str) -> None:
        """Images of the machine's engine that are not here yet: minutes."""
        for image in images:
            if self.docker("image", "inspect", image, check=False).returncode:
                with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as saved:
                    subprocess.run(["docker", f"--host={self.address}", "load"], stdin=saved.stdout, check=True)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(30)
            self.process.kill()
        subprocess.run(["ip", "link", "delete", self.bridge], check=False)


class SecondEngine(OwnEngine):
    """One that has a port too, and all it keeps in memory, on a disk of limited size."""

    def __init__(self, folder: Path, size: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.tcp = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        super().__init__(folder, f"--host={self.tcp}", "--tls=false", network="192.0.2.1/24")
        self.disk = folder / "disk"
        self.disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", self.disk], check=True)
        self.start()

    @property
    def data(self) -> Path:
        return self.disk / "data"

    def remove(self) -> None:
        self.stop()
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
