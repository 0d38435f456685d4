"""The faults: what is drawn, and how it is done to jobs, nodes, the controller, disks, records and the command."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from harness.worker import protocol
from tests.cluster.campaign.nodes import fill, free
from tests.faults.random_faults import damage

if TYPE_CHECKING:
    from tests.cluster.campaign.rounds import Round

IN, BETWEEN = "in a launch", "between launches"
# How often each kind is drawn.
WEIGHTS = {
    f"slurmd killed {IN}": 4,
    f"slurmd killed {BETWEEN}": 3,
    f"node loses its power {IN}": 3,
    f"node loses its power {BETWEEN}": 3,
    "job cancelled": 4,
    "job requeued": 4,
    "controller killed": 4,
    "node drained": 2,
    "node set down": 2,
    "time limit hit": 3,
    "disk of a node full": 3,
    "disk of the project full": 3,
    "record truncated, shard runs": 3,
    "record truncated, shard is finished": 3,
    "record truncated, merged run": 2,
    "command killed": 5,
    "command interrupted": 2,
    "command typed twice": 2,
}
# Found later: drawn where they are asked for, so that what was drawn before is drawn again.
CLOCK, TWICE, ALTERED = "clock of a node off", "record delivered twice", "record delivered twice, altered"
ADDED = {CLOCK: 3, TWICE: 2, ALTERED: 2}
LATE = "record truncated, merged run"  # after the command was done
AWAY = {"scripted": 4, "real": 20}  # times as long as what is broken stays so, a clock is off: launches take longer
RUN = "reports/runs/*/run.json"
FIRST_S = 400.0  # for the first launch of a round
WAIT_S = 40.0  # for the moment that was drawn
SILENT = "before anything was said"
LAUNCHES = ("launches/**/*.json",)


@dataclass(frozen=True)
class Fault:
    """As it was drawn. `share`: of the round's launches, those after which it happens; `away_s`: for how long what was
    broken stays so."""

    number: int
    kind: str
    share: float
    delay_s: float
    away_s: float
    draw: random.Random = field(repr=False, compare=False)

    @property
    def phase(self) -> str:
        return next((phase for phase in (IN, BETWEEN) if self.kind.endswith(phase)), "")


@dataclass
class Done:
    """What was done, when, and to which shard; `met`: whether there was something to do it to; `clock_s`: by how much a
    clock was off."""

    what: str = ""
    when: str = ""
    shard: str = ""
    met: bool = True
    job: str = ""
    clock_s: int = 0


def draw_fault(seed: int, number: int, kinds: Mapping[str, int] = WEIGHTS) -> Fault:
    """The fault of this number, whatever is drawn for others. `kinds`: how often each is drawn."""
    draw = random.Random(f"{seed}-cluster-{number}")
    [kind] = draw.choices(list(kinds), list(kinds.values()))
    # Slurm looks at limits twice a minute only.
    share = 1.0 if kind == LATE else draw.random() * (0.3 if kind == "time limit hit" else 0.9)
    return Fault(number, kind, share, round(draw.random() * 2, 2), round(draw.random() * 14, 1), draw)


def inject(fault: Fault, at: Round) -> Done:
    done = Done(when=f"{len(at.known)} of {at.subject.launches} launches")
    if fault.kind in (TWICE, ALTERED):
        _when_there_is_one(fault, at, done, _deliver_again)
    elif fault.kind.startswith("record"):
        _when_there_is_one(fault, at, done, _truncate_one)
    elif fault.kind.startswith("command"):
        _end_command(fault, at, done)
    elif fault.kind == "controller killed":
        done.what = f"away for {fault.away_s} s"
        at.nodes.kill_controller()
        at.later(fault.away_s, at.nodes.start_controller)
    elif fault.kind == "disk of the project full":
        done.what = f"for {fault.away_s} s"
        reports = at.subject.root / "reports"
        fill(reports)
        at.later(fault.away_s, lambda: free(reports))
    else:
        _to_a_job(fault, at, done)
    return done


def _to_a_job(fault: Fault, at: Round, done: Done) -> None:
    """To a job that runs, or to its node."""
    found = _some_job(fault, at)
    if found is None:
        done.met, done.what = False, "no job ran"
        return
    job, shard, node, phase = found
    done.shard, done.what, done.job, nodes = shard, f"job {job} on {node}", job, at.nodes
    done.when += f", {phase}"
    done.met = not fault.phase or phase == fault.phase
    if fault.kind.startswith("slurmd killed"):
        done.what += f", away for {fault.away_s} s"
        nodes.kill_daemon(node)
        at.later(fault.away_s, lambda: nodes.start_daemon(node))
    elif fault.kind.startswith("node loses"):
        done.what += f", away for {fault.away_s} s"
        nodes.power_off(node)
        at.later(fault.away_s, lambda: nodes.start_daemon(node))
    elif fault.kind == CLOCK:
        hours = fault.draw.choice((-1, 1)) * round(1 + 23 * fault.draw.random(), 2)
        away_s = AWAY[at.subject.mode] * fault.away_s
        done.what += f", by {hours:+} h for {away_s:.0f} s"
        clock = nodes.clock(node)
        done.clock_s = int(3600 * hours)
        clock.write_text(str(done.clock_s))
        at.later(away_s, lambda: clock.unlink(missing_ok=True))
    elif fault.kind == "job cancelled":
        nodes.slurm("scancel", job, check=False)
    elif fault.kind == "job requeued":
        nodes.slurm("scontrol", "requeue", job, check=False)
    elif fault.kind == "time limit hit":
        nodes.slurm("scontrol", "update", f"jobid={job}", "EndTime=now", check=False)
    elif fault.kind == "disk of a node full":
        done.what += f", for {fault.away_s} s"
        fill(nodes.disk(node))
        at.later(fault.away_s, lambda: free(nodes.disk(node)))
        at.later(fault.away_s + 1, lambda: nodes.resume(node))
    else:
        state = "drain" if fault.kind == "node drained" else "down"
        nodes.slurm("scontrol", "update", f"nodename={node}", f"state={state}", "reason=campaign", check=False)
        at.later(fault.away_s, lambda: nodes.resume(node))


def _some_job(fault: Fault, at: Round) -> tuple[str, str, str, str] | None:
    """(id, shard, node, what it does just now) of a job that runs, if one does in time, at the moment that was drawn if
    that comes."""
    deadline, any_moment = time.monotonic() + WAIT_S, None
    while time.monotonic() < deadline:
        jobs = [(job, shard, node) for job, (shard, state, node) in at.nodes.jobs().items() if state == "RUNNING"]
        fault.draw.shuffle(jobs)
        for job, shard, node in jobs:
            phase = phase_of(at, node)
            if phase and (not fault.phase or phase == fault.phase):
                return job, shard, node, phase
            any_moment = any_moment or ((job, shard, node, phase or "as it starts") if not fault.phase else None)
        if any_moment is not None or (at.ended and not jobs):
            break
        at.tick()
    return any_moment


def phase_of(at: Round, node: str) -> str:
    """What the run on this node does just now; nothing where there is none."""
    lines = [" ".join(_words(process)) for process in at.nodes.processes(node)]
    if any(" -m worker time " in line for line in lines):
        return IN
    return BETWEEN if any(f"{at.subject.root}/reports/shards" in line for line in lines) else ""


def _words(process: object) -> list[str]:
    try:
        return process.cmdline()  # type: ignore[attr-defined, no-any-return]
    except Exception:  # it has ended
        return []


def _end_command(fault: Fault, at: Round, done: Done) -> None:
    if fault.kind == "command typed twice":
        done.what, done.met = f"beside it for {fault.away_s} s at least", not at.ended
        at.type_beside()
        return
    silent, deadline = fault.draw.random() < 0.3, time.monotonic() + WAIT_S  # most have begun to wait by then
    while not silent and not at.ended and at.last_line() == SILENT and time.monotonic() < deadline:
        at.tick()
    done.what = at.last_line()
    done.met = at.signal_command(signal.SIGKILL if fault.kind == "command killed" else signal.SIGINT)


def _when_there_is_one(fault: Fault, at: Round, done: Done, do: Callable[[Fault, Round, Done], bool]) -> None:
    """To a launch, or any other record of a run."""
    deadline = time.monotonic() + (WAIT_S if fault.kind.startswith("record truncated") else FIRST_S)
    while not do(fault, at, done):
        if at.ended or time.monotonic() > deadline:
            done.met, done.what = False, "there was no such record"
            return
        at.tick()


def _truncate_one(fault: Fault, at: Round, done: Done) -> bool:
    finished = fault.kind.endswith("is finished")
    places: list[tuple[str, Path]] = []
    if fault.kind == LATE:
        places = [("", at.subject.latest.folder)] if at.ended else []
    else:
        for shard in at.subject.shards:
            runs = list(shard.project.glob(RUN))
            if bool(shard_finished(runs)) == finished:
                places += [(shard.name, path.parent) for path in runs]
    fault.draw.shuffle(places)
    for name, folder in places:
        patterns = LAUNCHES if fault.draw.random() < 0.5 else damage.RECORDS
        path = damage.pick(folder, patterns, fault.draw)
        if path is not None:
            done.shard = name
            at.damaged.add(path)
            at.damaged |= at.same_file(path)
            done.what = f"{path.relative_to(at.subject.root / 'reports')}: {damage.truncate(path, fault.draw)}"
            return True
    return False


def _deliver_again(fault: Fault, at: Round, done: Done) -> bool:
    """A launch's record comes once more: to its own place, or under another name, as a tool that mends conflicts gives
    it, or as if it were a launch that is not made yet. `altered`: as one that crashed, which the page would show; with
    its digest of before, or under another name with one that is right."""
    places = [(shard.name, path.parent) for shard in at.subject.shards for path in shard.project.glob(RUN)]
    fault.draw.shuffle(places)
    for name, folder in places:
        path = damage.pick(folder, LAUNCHES, fault.draw)
        if path is None or path in at.damaged:
            continue
        index = int(path.stem)
        names = [path.name, f"{path.stem}-conflict.json", f"{index + 1:03d}.json", f"{index + 100:03d}.json"]
        place = path.with_name(fault.draw.choice(names))
        place = path if place != path and place.exists() else place
        value = json.loads(path.read_bytes())
        done.what = f"{path.relative_to(at.subject.root / 'reports')} again, as {place.name}"
        if fault.kind == ALTERED:
            value["body"] |= {"status": protocol.CRASHED, "message": "altered"}
            if place != path and fault.draw.random() < 0.5:
                value["digest"] = protocol.digest(value["body"])
                done.what += ", with a right digest"
            at.damaged.add(path) if place == path else None
        at.damaged |= {place} - {path}  # nothing of the run
        protocol.write_json(str(place), value)
        done.shard = name
        return True
    return False


def shard_finished(runs: list[Path]) -> bool:
    return any('"finished_utc":"2' in path.read_text(errors="replace").replace(" ", "") for path in runs)
