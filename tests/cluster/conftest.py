"""Four nodes of Slurm on this machine, each a slurmd of its own name. Debian: slurmctld, slurmd, munge."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

NODES = ("n1", "n2", "n3", "n4")
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged")
# Of every cluster on one machine.
SHARED = """\
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SchedulerType=sched/builtin
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SlurmdTimeout=5
KillWait=2
MessageTimeout=5
GresTypes=gpu
PartitionName=main Nodes=n[1-4] Default=YES MaxTime=60 State=UP
"""
CONFIGURATION = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort=16817
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmdPidFile={folder}/%n.pid
SlurmdSpoolDir={folder}/spool-%n
NodeName=n[1-4] NodeHostname={host} NodeAddr=127.0.0.1 Port=[17101-17104] CPUs=4 RealMemory=64000 Gres=gpu:h200:1
"""


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.variables = {"SLURM_CONF": str(folder / "slurm.conf")}
        for name in ("state", *(f"spool-{node}" for node in NODES)):
            (folder / name).mkdir(parents=True)
        host = socket.gethostname().partition(".")[0]
        (folder / "slurm.conf").write_text((CONFIGURATION + SHARED).format(host=host, folder=folder))
        (folder / "gres.conf").write_text("NodeName=n[1-4] Name=gpu Type=h200 File=/dev/null\n")  # none that computes
        (folder / "cgroup.conf").write_text("CgroupPlugin=autodetect\n")
        self._munge()
        self.say("slurmctld")
        for node in NODES:
            self.start(node)
        self.wait_idle()

    def _munge(self) -> None:
        """Who says which user, by a key of this cluster's own."""
        own = {name: self.folder / f"munge.{name}" for name in ("key", "socket", "pid", "seed", "log")}
        own["key"].touch(0o600)
        own["key"].write_bytes(os.urandom(1024))
        # --force: its folder lies below one that others may write.
        self.say(
            "munged",
            "--force",
            f"--key-file={own['key']}",
            f"--socket={own['socket']}",
            f"--pid-file={own['pid']}",
            f"--seed-file={own['seed']}",
            f"--log-file={own['log']}",
        )

    def wait_idle(self) -> None:
        deadline = time.monotonic() + 60
        while self.say("sinfo", "--noheader", "--Node", "--format=%T").split() != ["idle"] * len(NODES):
            assert time.monotonic() < deadline, self.say("sinfo", "--Node", "--long")
            time.sleep(0.5)

    def say(self, *words: str) -> str:
        done = subprocess.run(words, env={**os.environ, **self.variables}, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def start(self, node: str) -> None:
        self.say("slurmd", "-N", node)

    def kill(self, node: str) -> None:
        """As if its machine had lost its power: the daemon and what it runs, at once."""
        running = self.say("squeue", "--noheader", "--states=RUNNING", f"--nodelist={node}", "--format=%i").split()
        daemon = int((self.folder / f"{node}.pid").read_text())
        os.kill(daemon, signal.SIGKILL)
        for job in running:
            for process in processes_of(job):
                process.kill()

    def stop(self) -> None:
        for name in ("slurmctld", *NODES, "munge"):
            try:
                os.kill(int((self.folder / f"{name}.pid").read_text()), signal.SIGTERM)
            except (OSError, ValueError):
                continue


def processes_of(job: str) -> list[psutil.Process]:
    """Those that have its id in their environment, and the daemon's step."""
    found = []
    for process in psutil.process_iter():
        try:
            of_job = process.environ().get("SLURM_JOB_ID") == job
            step = f"slurmstepd: [{job}." in " ".join(process.cmdline())
        except psutil.Error:
            continue
        if of_job or step:
            found.append(process)
    return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"there is no {missing[0]}: apt-get install slurmctld slurmd munge")
    if os.getuid() != 0:
        pytest.skip("a Slurm of one's own takes root")
    made = Cluster(tmp_path_factory.mktemp("slurm"))
    yield made
    made.stop()
