"""Four nodes of Slurm, each in namespaces of its own: its name and machine-id, its processes, and a small disk for /tmp
and the daemon's spool. A node that loses its power takes all its processes with it, as a machine does.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.cluster.conftest import NODES, SHARED

DISK_MIB = 96
FILLER = "filler"
OFFSET = "campaign-clock"  # in each node's /tmp: by how many seconds its wall clock is off
# Shorter than Slurm's own: a node counts as gone after 5 s, not 5 min, and what is queued again waits for 11 s, not 2
# min (the time for which credentials hold).
CONFIGURATION = """\
ClusterName=campaign
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/none
AuthInfo=cred_expire=10
CredType=cred/none
SlurmdPidFile={folder}/nodes/%n/slurmd.pid
SlurmdSpoolDir={folder}/nodes/%n/spool
SlurmctldTimeout=5
UnkillableStepTimeout=10
MinJobAge=1800
FirstJobId={port}01
NodeName=n[1-4] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=4 Gres=gpu:1
"""
# The first process of a node stays when its daemon is killed: what the daemon had started goes on.
BOOT = """\
hostname {node}
mount --bind {folder}/nodes/{node}/tmp /tmp
mount --bind {folder}/nodes/{node}/machine-id /etc/machine-id
mkdir -p {folder}/nodes/{node}/spool
slurmd -N {node}
while :; do sleep 1; done
"""


def said(*words: str, conf: Path | None = None, check: bool = True) -> str:
    variables = {"SLURM_CONF": str(conf)} if conf else {}
    done = subprocess.run(words, env={**os.environ, **variables}, capture_output=True, text=True, timeout=60)
    if check and done.returncode:
        raise RuntimeError(f"{words}: {done.stdout}{done.stderr}")
    return done.stdout


class Nodes:
    """The controller and its nodes, below a folder that all of them see."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.conf = folder, folder / "slurm.conf"
        self.first: dict[str, subprocess.Popen[bytes]] = {}
        self.mounted: list[Path] = []
        (folder / "state").mkdir(parents=True)
        host = socket.gethostname().partition(".")[0]
        ports = {"port": port, "first": port + 1, "last": port + len(NODES)}
        self.conf.write_text((CONFIGURATION + SHARED).format(host=host, folder=folder, **ports))
        (folder / "gres.conf").write_text("NodeName=n[1-4] Name=gpu File=/dev/null\n")
        (folder / "cgroup.conf").write_text("CgroupPlugin=autodetect\n")

    def __enter__(self) -> Nodes:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        # What is mounted below it, the nodes see too.
        said("mount", "--bind", str(self.folder), str(self.folder))
        self.mounted.append(self.folder)
        said("mount", "--make-shared", str(self.folder))
        self.start_controller()
        for node in NODES:
            place = self.folder / "nodes" / node
            place.mkdir(parents=True)
            said("mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", f"campaign-{node}", str(place))
            self.mounted.append(place)
            (place / "machine-id").write_text(f"{hashlib.md5(node.encode()).hexdigest()}\n")
            self.boot(node)
        self.wait_idle()

    def __exit__(self, *caught: object) -> None:
        for node in NODES:
            self.power_off(node)
        self.kill_controller()
        for place in reversed(self.mounted):
            said("umount", "-l", str(place), check=False)

    def slurm(self, *words: str, check: bool = True) -> str:
        return said(*words, conf=self.conf, check=check)

    # -- the controller ------------------------------------------------------------------------------------

    def start_controller(self) -> None:
        self.slurm("slurmctld")

    def kill_controller(self) -> None:
        pid = _pid(self.folder / "slurmctld.pid")
        if pid and psutil.pid_exists(pid):
            os.kill(pid, signal.SIGKILL)
            _until(lambda: not _is_running(pid))

    # -- a node --------------------------------------------------------------------------------------------

    def boot(self, node: str) -> None:
        """Switch a machine on. Its /tmp is empty, as after a start of a system that keeps it in memory."""
        shutil.rmtree(self.folder / "nodes" / node / "tmp", ignore_errors=True)
        (self.folder / "nodes" / node / "tmp").mkdir()
        (self.folder / "nodes" / node / "tmp").chmod(0o1777)
        self.first[node] = subprocess.Popen(
            [
                "unshare",
                "--mount",
                "--propagation=slave",
                "--uts",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
                "sh",
                "-c",
                BOOT.format(node=node, folder=self.folder),
            ],
            env={**os.environ, "SLURM_CONF": str(self.conf)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )

    def is_on(self, node: str) -> bool:
        return node in self.first and self.first[node].poll() is None

    def power_off(self, node: str) -> None:
        """Everything of it ends at once."""
        first = self.first.get(node)
        if first is None or first.poll() is not None:
            return
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(first.pid).children():
                process.kill()  # the namespace's first one, with which all others end
        first.wait(20)

    def daemon(self, node: str) -> psutil.Process | None:
        for process in self.processes(node):
            with contextlib.suppress(psutil.Error):
                if process.name() == "slurmd":
                    return process
        return None

    def kill_daemon(self, node: str) -> bool:
        """The daemon alone; its jobs go on."""
        daemon = self.daemon(node)
        with contextlib.suppress(psutil.Error):
            if daemon is not None:
                daemon.kill()
                return True
        return False

    def start_daemon(self, node: str) -> None:
        """Again, in the node that is still on."""
        if not self.is_on(node):
            self.boot(node)
        elif self.daemon(node) is None:
            inside = psutil.Process(self.first[node].pid).children()[0].pid
            words = ["nsenter", "--mount", "--uts", "--pid", f"--target={inside}", "slurmd", "-N", node]
            self.slurm(*words, check=False)

    def processes(self, node: str) -> list[psutil.Process]:
        if not self.is_on(node):
            return []
        try:
            return psutil.Process(self.first[node].pid).children(recursive=True)
        except psutil.Error:
            return []

    def disk(self, node: str) -> Path:
        """The node's own: /tmp, and what the daemon keeps of jobs."""
        return self.folder / "nodes" / node

    def clock(self, node: str) -> Path:
        """By how much the jobs of a node see another wall clock. Its daemon sees the right one, or Slurm would refuse
        its credentials."""
        return self.disk(node) / "tmp" / OFFSET

    # -- all together --------------------------------------------------------------------------------------

    def repair(self) -> None:
        """All of it up again, as an administrator would."""
        if not _is_running(_pid(self.folder / "slurmctld.pid")):
            self.start_controller()
        for node in NODES:
            free(self.disk(node))
            self.clock(node).unlink(missing_ok=True)
            self.start_daemon(node)
        _until(lambda: "is UP" in self.slurm("scontrol", "ping", check=False))
        for node in NODES:
            self.resume(node)

    def resume(self, node: str) -> None:
        self.slurm("scontrol", "update", f"nodename={node}", "state=resume", check=False)

    def states(self) -> dict[str, str]:
        lines = self.slurm("sinfo", "--noheader", "--Node", "--format=%N %T", check=False).splitlines()
        return {words[0]: words[1] for line in lines if len(words := line.split()) == 2}

    def wait_idle(self, seconds: float = 90) -> None:
        if not _until(lambda: self.states() == dict.fromkeys(NODES, "idle"), seconds):
            raise RuntimeError(f"the nodes do not come back: {self.slurm('sinfo', '--Node', '--long', check=False)}")

    def jobs(self) -> dict[str, tuple[str, str, str]]:
        """(its shard, state, node) of each job by its id. Where the controller does not answer there are none."""
        lines = self.slurm("squeue", "--noheader", "--format=%i|%j|%T|%N", check=False).splitlines()
        split = [line.strip().split("|") for line in lines]
        return {w[0]: (w[1].removeprefix("km-"), w[2], w[3]) for w in split if len(w) == 4}


def fill(disk: Path) -> None:
    """Not a byte is left on it."""
    with open(disk / FILLER, "ab", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            with contextlib.suppress(OSError):
                while file.write(b"x" * size):
                    pass


def free(disk: Path) -> None:
    (disk / FILLER).unlink(missing_ok=True)


def _pid(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0


def _is_running(pid: int) -> bool:
    try:
        return bool(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _until(condition: Callable[[], bool], seconds: float = 30) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True
