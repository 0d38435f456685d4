"""Slurm, by submitit, which writes the batch script and keeps each job's output; squeue says what became of a job.

sacct is not asked: a cluster without an accounting database has none. The project's folder must lie where nodes see it.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Collection, Mapping
from typing import Any

from harness.cluster.engine import State
from harness.cluster.shards import Shard
from harness.errors import InfrastructureError

QUEUED = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "RESIZING", "SPECIAL_EXIT", "SUSPENDED")
RUNNING = ("RUNNING", "COMPLETING", "SIGNALING", "STAGE_OUT", "STOPPED")
TIME = "sinfo shows the partition's limit; --time chooses a shorter one"
PARTITION = "sinfo lists the partitions; --partition chooses one"
ACCOUNT = "sacctmgr show associations lists your accounts; --sbatch account=NAME"
NODES = "sinfo --format '%N %G %f' lists what nodes have; --gpu and --sbatch choose among it"
# What sbatch says when it refuses a job, and for what reasons one that it took waits for ever.
REFUSED = {"partition": PARTITION, "account": ACCOUNT, "time limit": TIME, "node configuration": NODES}
NEVER = {
    "PartitionTimeLimit": TIME, "PartitionNodeLimit": PARTITION, "BadConstraints": NODES, "InvalidAccount": ACCOUNT,
    "InvalidQOS": "sacctmgr show qos lists them; --sbatch qos=NAME",
}  # fmt: skip
PROCESSORS = 4  # beside a GPU
AWAY, AWAY_S, AGAIN_S = "Unable to contact slurm controller", 60.0, 3.0
HELD = "launch failed requeued held"  # a node could not start it, and Slurm holds it until somebody comes
PARAMETERS = ("partition", "time", "gres", "constraint", "exclusive", "account", "qos", "mem", "cpus_per_task")


class Slurm:
    """`options`: of sbatch, by their long names. InfrastructureError where there is no Slurm here."""

    name = "slurm"
    programs: tuple[str, ...] = ("sbatch", "squeue", "scancel")

    def __init__(self, options: Mapping[str, str]) -> None:
        missing = [name for name in self.programs if shutil.which(name) is None]
        if missing:
            raise InfrastructureError(
                f"--on slurm: there is no {missing[0]} on the PATH", "run it where sbatch works, or: --on local"
            )
        self.options: dict[str, Any] = {name.replace("-", "_"): value for name, value in options.items()}

    def submit(self, shard: Shard, avoid: Collection[str]) -> str:
        import submitit
        from submitit.core.utils import FailedJobError

        options = self._asked(shard, avoid)
        unset = {"time": None, "wckey": None}  # submitit's own are five minutes, and its name
        known = unset | {name: value for name, value in options.items() if name in PARAMETERS}
        more = {name: value for name, value in options.items() if name not in PARAMETERS}
        executor = submitit.SlurmExecutor(folder=shard.folder / "slurm")
        executor.update_parameters(
            job_name=f"km-{shard.name}", use_srun=False, stderr_to_stdout=True, additional_parameters=more, **known
        )
        try:
            job = executor.submit(submitit.helpers.CommandFunction(shard.command, verbose=False))
        except FailedJobError as error:
            said = str(error).strip()[-400:]
            raise InfrastructureError(f"Slurm refused the shard {shard.name}: {said}", remedy(said)) from None
        return str(job.job_id)

    def _asked(self, shard: Shard, avoid: Collection[str]) -> dict[str, Any]:
        options = place(shard) | self.options
        excluded = [node for node in (self.options.get("exclude"), *sorted(avoid)) if node]
        return options | ({"exclude": ",".join(excluded)} if excluded else {})

    def states(self, jobs: Collection[str]) -> Mapping[str, State]:
        listed = _said("squeue", "--noheader", "--states=all", "--format=%i|%T|%N|%r", f"--user={_user()}")
        found: dict[str, State] = {}
        hopeless: dict[str, str] = {}
        held: list[str] = []
        for line in listed.splitlines():
            job, status, node, why = line.strip().split("|", 3)
            if job in jobs:
                found[job] = _state(status, node, why)
                hopeless |= {job: why} if status in QUEUED and why in NEVER else {}
                held += [job] if status in QUEUED and why == HELD else []
        if hopeless:
            _said("scancel", *(job for job, state in found.items() if state.status == "queued"))
            why = next(iter(hopeless.values()))
            raise InfrastructureError(f"Slurm would never start {len(hopeless)} of the jobs: {why}", NEVER[why])
        if held:  # taken back, and queued anew
            _said("scancel", *held)
            found |= {job: State(status="ended", why=HELD) for job in held}
        return found


def place(shard: Shard) -> dict[str, Any]:
    """What a shard asks Slurm for: a GPU, and processors for what starts and feeds it; on the CPU the whole node."""
    if shard.device == "cpu":
        return {"exclusive": True}
    return {"gres": ":".join(["gpu", *filter(None, [shard.gpu]), "1"]), "cpus_per_task": PROCESSORS}


def _state(status: str, node: str, why: str) -> State:
    if status in RUNNING:
        return State(status="running", node=node)
    if status in QUEUED:
        return State(status="queued", why="" if why == "None" else why)
    return State(status="ended", node=node, why=status.lower())


def _said(*words: str) -> str:
    """What a command of Slurm prints. A controller that starts again is waited for."""
    deadline = time.monotonic() + AWAY_S
    while True:
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout
        if AWAY not in done.stderr or time.monotonic() > deadline:
            raise InfrastructureError(f"{words[0]}: {done.stderr.strip()}", "the shards go on; type the command again")
        time.sleep(AGAIN_S)


def _user() -> str:
    import getpass

    return getpass.getuser()


def remedy(said: str) -> str:
    found = (what for words, what in REFUSED.items() if words in said.lower())
    return next(found, "see sbatch's message; options of sbatch: --sbatch NAME=VALUE")
