"""The workflow of a matrix on many machines: cut, seal, queue, wait, collect. Whatever is interrupted goes on when the
command is typed again: shards are found by the digest of what they are sealed with, and jobs by what was written down.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.cluster.collect import collect
from harness.cluster.engine import Engine, State
from harness.cluster.lost import Lost, given_up, lost
from harness.cluster.shards import Shard, seal
from harness.config.matrix import Matrix
from harness.errors import HarnessError, InfrastructureError
from harness.run.folders import find_run, held, new_run, point_latest
from harness.schema.run_records import Selection
from harness.schema.storage import Run, from_json_value, to_json
from harness.tools import cache_folder, lock_file
from harness.worker import protocol

ATTEMPTS = 3  # of a shard whose job ended without a finished run, and got no further
POLL_S = 2.0
JOB = "job.json"
ASKED = "asked.json"  # beside the shards
UNFINISHED = "it had not finished when this was collected"
Say = Callable[[str, str], None]


@dataclass
class Job:
    """Of a shard: what the engine calls it, and how often it was queued since it last got further. `records`: how many
    it had when it was last queued."""

    id: str = ""
    engine: str = ""
    attempts: int = 0
    records: int = 0


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What one command asked for, and its shards as they were cut then, whatever their times are by now. `digest`: of
    all that they are sealed with."""

    command: tuple[str, ...]
    selection: Selection
    digest: str
    shards: tuple[Shard, ...]

    @classmethod
    def load(cls, folder: Path) -> Asked | None:
        """Of a folder of shards; None where nothing was asked there yet."""
        path = folder / ASKED
        if not path.is_file():
            return None
        held = protocol.read_json(str(path))
        shards = [{**each, "folder": folder / each["folder"]} for each in held["shards"]]
        listed = ("workloads", "words")
        return cls(
            command=tuple(held["command"]),
            selection=from_json_value(Selection, held["selection"]),
            digest=held["digest"],
            shards=tuple(Shard(**each | {name: tuple(each[name]) for name in listed}) for each in shards),
        )

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        held = [{**vars(shard), "folder": shard.name} for shard in self.shards]
        shards = [{name: value for name, value in each.items() if name != "_finished"} for each in held]
        protocol.write_json(
            str(folder / ASKED),
            {
                "command": list(self.command),
                "selection": to_json(self.selection),
                "digest": self.digest,
                "shards": shards,
            },
        )


class Campaign:
    """All shards of one command, on one engine."""

    def __init__(self, matrix: Matrix, text: str, root: Path, shards: Sequence[Shard], engine: Engine) -> None:
        self.matrix, self.text, self.root, self.shards, self.engine = matrix, text, root, shards, engine
        self.jobs = {shard.name: job_of(shard) for shard in shards}
        self.told: dict[str, str] = {}

    def queue(self) -> None:
        """Every shard that is neither finished nor queued already."""
        states = self._states()
        due = [each for each in self.shards if each.run() is None and not _goes_on(states.get(self.jobs[each.name].id))]
        for shard in due:
            seal(shard, self.matrix, self.text, self.root)
        for shard in due:
            self.jobs[shard.name] = Job()  # another command is another chance
            self._submit(shard)

    def wait(self, say: Say) -> None:
        """Until every shard is finished, or was tried often enough. `say` gets each one's name and its new state."""
        while self._look(say):
            time.sleep(POLL_S)

    def _look(self, say: Say) -> bool:
        """Whether a shard is still queued or running, or was queued again."""
        states, left = self._states(), False
        for shard in self.shards:
            state = states.get(self.jobs[shard.name].id)
            if shard.run() is not None:
                self._say(shard, "finished", say)
            elif state is not None and _goes_on(state):
                self._tell(shard, state, say)
                left = True
            else:
                left |= self._again(shard, state, say)
        return left

    def lost(self, selection: Selection) -> list[Lost]:
        """Of shards without a result, rows that say why."""
        without = [(shard, self.jobs[shard.name]) for shard in self.shards if shard.run() is None]
        return [lost(shard, selection, given_up(shard, job.attempts)) for shard, job in without]

    def _states(self) -> dict[str, State]:
        own = [job.id for job in self.jobs.values() if job.id and job.engine == self.engine.name]
        return dict(self.engine.states(own))

    def _submit(self, shard: Shard) -> None:
        job = self.jobs[shard.name]
        job.records = shard.records()
        job.id = self.engine.submit(shard)
        job.engine = self.engine.name
        job.attempts += 1
        protocol.write_json(str(shard.folder / JOB), vars(job))

    def _again(self, shard: Shard, state: State | None, say: Say) -> bool:
        """Queue a shard again whose job ended without a finished run. Whether it was."""
        job = self.jobs[shard.name]
        if not job.id:
            return False  # given up
        where = state.node if state else ""
        further = shard.records() - job.records
        if further > 0:  # a limit of time, or a node that died: the next job goes on from there
            job.attempts = 0
        what = f"ended after {further} more steps" if further > 0 else "ended without a result"
        self._say(shard, f"{what}{f' on {where}' if where else ''}", say)
        if job.attempts < ATTEMPTS:
            self._submit(shard)
        else:
            job.id = ""
        return bool(job.id)

    def _tell(self, shard: Shard, state: State, say: Say) -> None:
        where = f" on {state.node}" if state.node else f" ({state.why})" if state.why else ""
        self._say(shard, f"{state.status}{where}", say)

    def _say(self, shard: Shard, text: str, say: Say) -> None:
        if self.told.get(shard.name) != text:
            self.told[shard.name] = text
            say(shard.name, text)


def _goes_on(state: State | None) -> bool:
    return state is not None and state.status != "ended"


def unfinished(shard: Shard, states: Mapping[str, State]) -> str:
    """How a shard without a result stands, by what its engine says of jobs."""
    job = job_of(shard)
    state = states.get(job.id)
    what = "not known to be queued or running; the command that queued it goes on with it"
    if state is not None and _goes_on(state):
        about = f" on {state.node}" if state.node else f" ({state.why})" if state.why else ""
        what = f"{state.status}{about}, job {job.id}"
    return f"{what}; {shard.records()} records so far"


def job_of(shard: Shard) -> Job:
    path = shard.folder / JOB
    return Job(**protocol.read_json(str(path))) if path.is_file() else Job()


def gather(
    root: Path,
    shards: Sequence[Shard],
    command: Sequence[str],
    selection: Selection,
    digest: str,
    lost: Sequence[Lost] = (),
) -> Run:
    """The run of all finished shards; that of before, with what was deleted of it, where nothing new has finished. What
    is lost has rows that say why. InfrastructureError where no shard has finished."""
    finished = [shard for shard in shards if shard.run() is not None]
    if not finished:
        raise InfrastructureError(
            f"none of {len(shards)} shards has finished", f"what the first one's job printed lies in {shards[0].folder}"
        )
    ran = [str(run.folder) for shard in finished if (run := shard.run())]
    own = protocol.digest([digest, ran, [[each.shard.name, each.why] for each in lost]])
    lock = lock_file(cache_folder(), f"run-{own[:16]}")
    with held(lock, "another process collects these very shards; waiting for it"):
        known = find_run(root, own) or new_run(root, own)
        try:
            collect(finished, known, command, selection, own, lost)
        except HarnessError:
            if not known.run_path().exists():  # the next command may collect other runs of these shards
                shutil.rmtree(known.folder)
            raise
    point_latest(root, known)
    return known
