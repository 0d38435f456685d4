"""A container engine of its own, which may be killed: the machine's may be in use by others."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from pathlib import Path

import psutil

NETWORK = "198.51.100.1/24"  # for documents (RFC 5737): no machine is there. `--bridge=none` would remove docker0


class OwnEngine:
    """A dockerd whose images lie in `folder`, and stay there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bridge = f"kmr{os.getpid()}"
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["ip", "link", "add", self.bridge, "type", "bridge"], check=True)
        subprocess.run(["ip", "address", "add", NETWORK, "dev", self.bridge], check=True)

    @property
    def address(self) -> str:
        return f"unix://{self.folder / 'docker.sock'}"

    def start(self) -> None:
        for name in ("docker.pid", "exec/containerd/containerd.pid"):  # of one that was killed
            (self.folder / name).unlink(missing_ok=True)
        with (self.folder / "dockerd.log").open("ab") as log:
            self.process = subprocess.Popen(
                ["dockerd", f"--data-root={self.folder / 'data'}", f"--exec-root={self.folder / 'exec'}",
                 f"--pidfile={self.folder / 'docker.pid'}", f"--host={self.address}", f"--bridge={self.bridge}",
                 "--iptables=false", "--ip6tables=false"],
                stdout=log, stderr=log,
            )  # fmt: skip
        deadline = time.monotonic() + 60
        while self._docker("version").returncode:
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError(f"the engine does not start: see {self.folder / 'dockerd.log'}")
            time.sleep(0.1)

    def take(self, *images: str) -> None:
        """Images of the machine's engine that are not here yet: minutes."""
        for image in images:
            if self._docker("image", "inspect", image).returncode:
                with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as saved:
                    subprocess.run(["docker", f"--host={self.address}", "load"], stdin=saved.stdout, check=True)

    def _docker(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["docker", f"--host={self.address}", *words], capture_output=True, text=True)

    def docker(self, *words: str, check: bool = True) -> str:
        done = self._docker(*words)
        if check:
            done.check_returncode()
        return done.stdout

    def kill(self) -> None:
        """kill -9: it takes its containerd along, and leaves what runs in containers running."""
        assert self.process is not None
        children = psutil.Process(self.process.pid).children()
        self.process.kill()
        self.process.wait()
        psutil.wait_procs(children, timeout=10)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(30)
            self.process.kill()
        subprocess.run(["ip", "link", "delete", self.bridge], check=False)
