"""A matrix on many machines: seal, queue, wait, gather. Whatever is interrupted goes on when the command is typed
again: shards are found by the digest of what they are sealed with, and jobs by what was written down.
"""

from __future__ import annotations

import enum
import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol

from pydantic import TypeAdapter

from harness.cluster.collect import LostShard, collect, describe_lost
from harness.cluster.shards import Shard, seal
from harness.config.matrix import Matrix
from harness.errors import HarnessError, InfrastructureError
from harness.run.folders import find_run, held, new_run, point_latest
from harness.schema.run_records import Selection
from harness.schema.storage import Run
from harness.tools import cache_folder, lock_file
from harness.worker import protocol

ATTEMPTS = 3  # of a shard whose job ended without a finished run, and got no further
POLL_S = 2.0
JOB = "job.json"
ASKED = "asked.json"  # beside the shards
Say = Callable[[str, str], None]


class JobStatus(str, enum.Enum):
    """Where a job is. It has ENDED once it is not in the queue any more, however it went: what it left tells that."""

    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True)
class JobState:
    """What a queue says of a job."""

    status: JobStatus
    node: str = ""
    why: str = ""  # it is still queued

    def __str__(self) -> str:
        return self.status.value + (f" on {self.node}" if self.node else f" ({self.why})" if self.why else "")


class JobQueue(Protocol):
    """What runs shards: `slurm` and `local` are two; another one is a file."""

    name: str

    def submit(self, shard: Shard) -> str:
        """Queue a shard's command; return the job's id. InfrastructureError where it is refused."""

    def states(self, jobs: Collection[str]) -> Mapping[str, JobState]:
        """Return the states of these jobs by id; of those that nobody knows any more, none."""


@dataclass
class ShardJob:
    """What the queue calls the job of a shard, and how often it was queued since it last got further."""

    id: str = ""
    engine: str = ""
    attempts: int = 0
    records: int = 0  # that the shard had when it was last queued

    @classmethod
    def load(cls, shard: Shard) -> ShardJob:
        path = shard.folder / JOB
        return cls(**protocol.read_json(str(path))) if path.is_file() else cls()


@dataclass(frozen=True, kw_only=True)
class CampaignRequest:
    """What one command asked for, and its shards. `digest`: of all that they are sealed with."""

    command: tuple[str, ...]
    selection: Selection
    digest: str
    shards: tuple[Shard, ...]

    @classmethod
    def load(cls, folder: Path) -> CampaignRequest | None:
        """Return what was asked for in a folder of shards; None where nothing was yet."""
        path = folder / ASKED
        if not path.is_file():
            return None
        asked = ADAPTER.validate_json(path.read_bytes())
        return replace(asked, shards=tuple(replace(each, folder=folder / each.folder) for each in asked.shards))

    def save(self, folder: Path) -> None:
        """Write it beside the shards, which are named relative to the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        shards = tuple(replace(each, folder=Path(each.name)) for each in self.shards)
        value = ADAPTER.dump_python(replace(self, shards=shards), mode="json")
        protocol.write_json(str(folder / ASKED), value)


ADAPTER = TypeAdapter(CampaignRequest)


class Campaign:
    """All shards of one command, in one queue."""

    def __init__(self, matrix: Matrix, text: str, root: Path, shards: Sequence[Shard], engine: JobQueue) -> None:
        self.matrix, self.text, self.root, self.shards, self.engine = matrix, text, root, shards, engine
        self.jobs = {shard.name: ShardJob.load(shard) for shard in shards}
        self.open = list(shards)  # those that were not finished when they were looked at last
        self.told: dict[str, str] = {}

    def queue(self) -> None:
        """Queue every shard that is neither finished nor queued already."""
        due = [shard for shard, state in self._look() if state is None or state.status is JobStatus.ENDED]
        for shard in due:
            seal(shard, self.matrix, self.text, self.root)
        for shard in due:
            self.jobs[shard.name] = ShardJob()  # another command is another chance
            self._submit(shard)

    def wait(self, say: Say) -> None:
        """Wait until every shard is finished, or was tried often enough. `say` gets each one's name and new state."""

        def tell(shard: Shard, text: str) -> None:
            if self.told.get(shard.name) != text:
                self.told[shard.name] = text
                say(shard.name, text)

        waiting = True
        while waiting:
            waiting = False
            unfinished = self._look()
            for shard in self.shards:
                if shard not in self.open:
                    tell(shard, "finished")
            for shard, state in unfinished:
                if state is None or state.status is JobStatus.ENDED:
                    waiting |= self._try_again(shard, state, tell)
                else:
                    tell(shard, str(state))
                    waiting = True
            if waiting:
                time.sleep(POLL_S)

    def list_lost(self, selection: Selection) -> list[LostShard]:
        """Return the shards without a result, with why."""
        return [describe_lost(shard, selection, self.jobs[shard.name].attempts) for shard, _ in self._look()]

    def _look(self) -> list[tuple[Shard, JobState | None]]:
        """Return the shards that are not finished, with what the queue says of their jobs."""
        own = [job.id for job in self.jobs.values() if job.id and job.engine == self.engine.name]
        states = self.engine.states(own)  # first: what ends between the two looks has finished by the second
        self.open = [shard for shard in self.open if shard.run() is None]
        return [(shard, states.get(self.jobs[shard.name].id)) for shard in self.open]

    def _submit(self, shard: Shard) -> None:
        job = self.jobs[shard.name]
        job.records = shard.count_records()
        job.id = self.engine.submit(shard)
        job.engine = self.engine.name
        job.attempts += 1
        protocol.write_json(str(shard.folder / JOB), asdict(job))

    def _try_again(self, shard: Shard, state: JobState | None, tell: Callable[[Shard, str], None]) -> bool:
        """Queue a shard again whose job ended without a finished run; return whether it was."""
        job = self.jobs[shard.name]
        if not job.id:
            return False  # given up
        where = f" on {state.node}" if state and state.node else ""
        further = shard.count_records() - job.records
        if further > 0:  # a limit of time, or a node that died: the next job goes on from there
            job.attempts = 0
        tell(shard, (f"ended after {further} more steps" if further > 0 else "ended without a result") + where)
        if job.attempts < ATTEMPTS:
            self._submit(shard)
        else:
            job.id = ""
        return bool(job.id)


def describe_unfinished(shard: Shard, states: Mapping[str, JobState]) -> str:
    """Return how a shard without a result stands, by what its queue says of jobs."""
    job = ShardJob.load(shard)
    state = states.get(job.id)
    what = "not known to be queued or running; the command that queued it goes on with it"
    if state is not None and state.status is not JobStatus.ENDED:
        what = f"{state}, job {job.id}"
    return f"{what}; {shard.count_records()} records so far"


def gather(root: Path, asked: CampaignRequest, shards: Sequence[Shard], lost: Sequence[LostShard] = ()) -> Run:
    """Return the run of those of these shards that finished; that of before, with what was deleted of it, where nothing
    new has finished. What is lost has rows that say why. InfrastructureError where no shard has finished."""
    finished = [(shard, run) for shard in shards if (run := shard.run()) is not None]
    if not finished:
        remedy = f"what the first one's job printed lies in {shards[0].folder}"
        raise InfrastructureError(f"none of {len(shards)} shards has finished", remedy)
    ran = [str(run.folder) for _, run in finished]
    own = protocol.digest([asked.digest, ran, [[each.shard.name, each.why] for each in lost]])
    lock = lock_file(cache_folder(), f"run-{own[:16]}")
    with held(lock, "another process collects these very shards; waiting for it"):
        known = find_run(root, own) or new_run(root, own)
        try:
            collect(finished, known, asked.command, asked.selection, own, lost)
        except HarnessError:
            if not known.run_path().exists():  # the next command may collect other runs of these shards
                shutil.rmtree(known.folder)
            raise
    point_latest(root, known)
    return known
