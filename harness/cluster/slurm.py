"""Slurm, by submitit, which writes the batch script and keeps each job's output; squeue says what became of a job.

sacct is not asked: a cluster without an accounting database has none. The project's folder must lie where nodes see it.
"""

from __future__ import annotations

import getpass
import shutil
import subprocess
import time
from collections.abc import Collection, Mapping

from harness.cluster.campaign import JobState, JobStatus
from harness.cluster.shards import Shard
from harness.errors import InfrastructureError, InputError

Option = str | int | bool
QUEUED = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "RESIZING", "SPECIAL_EXIT", "SUSPENDED")
RUNNING = ("RUNNING", "COMPLETING", "SIGNALING", "STAGE_OUT", "STOPPED")
TIME = "sinfo shows the partition's limit; --time chooses a shorter one"
PARTITION = "sinfo lists the partitions; --partition chooses one"
ACCOUNT = "sacctmgr show associations lists your accounts; --sbatch account=NAME"
QOS = "sacctmgr show qos lists them; --sbatch qos=NAME"
MEMORY = "sinfo --format '%N %m' lists the memory of nodes in MiB; --sbatch mem=SIZE"
NODES = "sinfo --format '%N %G %m %f' lists what nodes have; --gpu and --sbatch choose among it"
OPTION = "sbatch --help lists its options"
IN_THE_FILE = "; `slurm` in matrix.yaml holds such options, too"
# What sbatch says when it refuses a job, and for what reasons one that it took waits for ever.
REFUSED = {
    "unrecognized option": OPTION,
    "qos": QOS,
    "partition": PARTITION,
    "account": ACCOUNT,
    "time limit": TIME,
    "memory": MEMORY,
    "node configuration": NODES,
}
NEVER = {
    "PartitionTimeLimit": TIME,
    "PartitionNodeLimit": PARTITION,
    "BadConstraints": NODES,
    "InvalidAccount": ACCOUNT,
    "InvalidQOS": QOS,
}
PROCESSORS = 4  # beside a GPU
AWAY, AWAY_S, AGAIN_S = "Unable to contact slurm controller", 60.0, 3.0
HELD = "launch failed requeued held"  # a node could not start it, and Slurm holds it until somebody comes
OURS = ("array", "output", "error", "open-mode", "wrap")  # a shard is one job, and its messages have their place


class Slurm:
    """`options`: of sbatch, by their long names; one that is false is not passed on, whatever a shard would ask for.
    InfrastructureError where there is no Slurm here, InputError of an option that is not the user's."""

    name = "slurm"
    programs: tuple[str, ...] = ("sbatch", "squeue", "scancel")

    def __init__(self, options: Mapping[str, Option]) -> None:
        missing = [name for name in self.programs if shutil.which(name) is None]
        if missing:
            raise InfrastructureError(
                f"--on slurm: there is no {missing[0]} on the PATH", "run it where sbatch works, or: --on local"
            )
        self.options = {name.replace("_", "-"): value for name, value in options.items()}
        if taken := [name for name in OURS if name in self.options]:
            raise InputError(f"the option {taken[0]} of sbatch: a shard has its own", "leave it out")

    def submit(self, shard: Shard) -> str:
        import submitit
        from submitit.core.utils import FailedJobError

        # By submitit's own names, with underscores: an option stands once. Its limit of five minutes is unset.
        options = {name.replace("-", "_"): value for name, value in self.list_options(shard).items()}
        executor = submitit.SlurmExecutor(folder=shard.folder / "slurm")
        executor.update_parameters(
            job_name=f"km-{shard.name}",
            use_srun=False,
            stderr_to_stdout=True,
            time=None,
            wckey=None,
            additional_parameters=options,
        )
        try:
            job = executor.submit(submitit.helpers.CommandFunction(shard.command, verbose=False))
        except FailedJobError as error:
            said = str(error).strip()[-400:]
            raise InfrastructureError(f"Slurm refused the shard {shard.name}: {said}", remedy(said)) from None
        return str(job.job_id)

    def list_options(self, shard: Shard) -> dict[str, Option]:
        """Return the options of sbatch for a shard: the user's win."""
        return {name: value for name, value in (place(shard) | self.options).items() if value is not False}

    def states(self, jobs: Collection[str]) -> Mapping[str, JobState]:
        """Return what squeue says of them; take back jobs that would never start."""
        found = self.look(jobs)
        waiting = {job: state.why for job, state in found.items() if state.status is JobStatus.QUEUED}
        hopeless = [why for why in waiting.values() if why in NEVER]
        if hopeless:
            _said("scancel", *waiting)
            raise InfrastructureError(
                f"Slurm would never start {len(hopeless)} of the jobs: {hopeless[0]}", NEVER[hopeless[0]]
            )
        if held := [job for job, why in waiting.items() if why == HELD]:  # taken back, and queued anew
            _said("scancel", *held)
            found |= {job: JobState(JobStatus.ENDED, why=HELD) for job in held}
        return found

    def look(self, jobs: Collection[str]) -> dict[str, JobState]:
        """Return what squeue says of them."""
        listed = _said("squeue", "--noheader", "--states=all", "--format=%i|%T|%N|%r", f"--user={getpass.getuser()}")
        rows = (line.strip().split("|", 3) for line in listed.splitlines())
        return {job: _state(status, node, why) for job, status, node, why in rows if job in jobs}


def place(shard: Shard) -> dict[str, Option]:
    """Return what a shard asks Slurm for: a GPU, and processors for what starts and feeds it; on the CPU the whole
    node."""
    if shard.device == "cpu":
        return {"exclusive": True}
    return {"gres": ":".join(["gpu", *filter(None, [shard.gpu]), "1"]), "cpus-per-task": PROCESSORS}


def _state(status: str, node: str, why: str) -> JobState:
    if status in RUNNING:
        return JobState(JobStatus.RUNNING, node=node)
    if status in QUEUED:
        return JobState(JobStatus.QUEUED, why="" if why == "None" else why)
    return JobState(JobStatus.ENDED, node=node, why=status.lower())


def _said(*words: str) -> str:
    """Return what a command of Slurm prints. A controller that starts again is waited for."""
    deadline = time.monotonic() + AWAY_S
    while True:
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout
        if AWAY not in done.stderr or time.monotonic() > deadline:
            raise InfrastructureError(f"{words[0]}: {done.stderr.strip()}", "the shards go on; type the command again")
        time.sleep(AGAIN_S)


def remedy(said: str) -> str:
    found = (what for words, what in REFUSED.items() if words in said.lower())
    return next(found, "see sbatch's message; options of sbatch: --sbatch NAME=VALUE") + IN_THE_FILE
