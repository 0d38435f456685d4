"""All GPUs of this host at once, or those that CUDA_VISIBLE_DEVICES names, a shard on each; shards of the CPU one after
another, beside no other: a GPU's launches take processors too.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from harness.cluster.campaign import JobState, JobStatus
from harness.cluster.shards import Shard
from harness.errors import InfrastructureError
from harness.gpu import VISIBLE, gpus, named

SETPRIV = shutil.which("setpriv")  # ends a shard with this process; where there is none, it goes on by itself


@dataclass
class LocalJob:
    """A shard, and where and by what it is run once it is."""

    shard: Shard
    gpu: str = ""
    process: subprocess.Popen[bytes] | None = None

    @property
    def state(self) -> JobState:
        if self.process is None:
            return JobState(JobStatus.QUEUED)
        status = JobStatus.RUNNING if self.process.poll() is None else JobStatus.ENDED
        return JobState(status, node=self.gpu or "this host")


class Local:
    """A queue on this host. A shard ends with this process, also where that is killed, and goes on when the command is
    typed again. Whoever asks for states starts what has become possible."""

    name = "local"

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._jobs: dict[str, LocalJob] = {}
        self._models = {gpu.uuid: gpu.name.lower() for gpu in named(gpus(), os.environ.get(VISIBLE))}

    def submit(self, shard: Shard) -> str:
        if shard.device == "cuda" and not self._find_gpus(shard):
            what = f"GPU named {shard.gpu}" if shard.gpu else "GPU"
            raise InfrastructureError(f"{shard.name}: this host has no {what}", "choose --device cpu, or: --on slurm")
        job = str(next(self._numbers))
        self._jobs[job] = LocalJob(shard)
        return job

    def states(self, jobs: Collection[str]) -> Mapping[str, JobState]:
        states = {job: each.state for job, each in self._jobs.items()}
        running = [self._jobs[job] for job, state in states.items() if state.status is JobStatus.RUNNING]
        waiting = [self._jobs[job] for job, state in states.items() if state.status is JobStatus.QUEUED]
        for each in sorted(waiting, key=lambda job: job.shard.device == "cpu"):
            if self._may_start(each, running):
                self._start(each)
                running.append(each)
        return {job: self._jobs[job].state for job in jobs if job in self._jobs}

    def _find_gpus(self, shard: Shard) -> list[str]:
        return [uuid for uuid, name in self._models.items() if shard.gpu.lower() in name]

    def _may_start(self, job: LocalJob, running: Collection[LocalJob]) -> bool:
        """Return whether nothing that runs is in the way; of a shard for a GPU, choose that."""
        if job.shard.device == "cpu":
            is_any_left = any(each.process is None and each.shard.device == "cuda" for each in self._jobs.values())
            return not running and not is_any_left
        taken = {each.gpu for each in running}
        job.gpu = next((uuid for uuid in self._find_gpus(job.shard) if uuid not in taken), "")
        return bool(job.gpu) and all(each.shard.device == "cuda" for each in running)

    def _start(self, job: LocalJob) -> None:
        variables = {VISIBLE: job.gpu} if job.gpu else {}
        command = ["setpriv", "--pdeathsig", "TERM", *job.shard.command] if SETPRIV else job.shard.command
        with job.shard.log.open("ab") as log:
            job.process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **variables})
