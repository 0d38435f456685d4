"""One round: a matrix on the nodes, its faults one by one, the command typed until it is done, and the checks."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.cluster.campaign.checks import Known, check
from tests.cluster.campaign.faults import LATE, SILENT, Done, Fault, inject, shard_finished
from tests.cluster.campaign.nodes import Nodes
from tests.cluster.campaign.subjects import Subject
from tests.faults.random_faults.campaign import REMEDIES

TRIES = 12  # of the command in a round, beside those that a fault ended
STILL_S = 180.0  # without a new record, or the end of a command
TICK_S = 0.25


@dataclass
class Row:
    """What came of one fault. `found`: what its round's checks found that can be its doing."""

    seed: int
    number: int
    round: int
    mode: str
    kind: str
    what: str
    when: str
    shard: str
    met: bool
    outcome: str
    found: list[str] = field(default_factory=list)
    remedies: list[str] = field(default_factory=list)
    typed: int = 0
    round_s: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Round:
    def __init__(self, nodes: Nodes, subject: Subject, faults: Sequence[Fault]) -> None:
        self.nodes, self.subject, self.faults = nodes, subject, faults
        self.command: subprocess.Popen[bytes] | None = None
        self.beside: list[subprocess.Popen[bytes]] = []
        self.started = self.tries = 0
        self.ended = False  # the command was done: its exit code was 0
        self.known: dict[Path, str] = {}  # digest of each launch's record when it was seen first
        self.where: dict[Path, str] = {}  # the node that its shard's job had then
        self.damaged: set[Path] = set()
        self.found: list[tuple[str, str]] = []  # (shard or nothing, what)
        self.remedies: list[str] = []
        self.wounded = False  # a signal of ours is why the command ends
        self._due: list[tuple[float, Callable[[], Any]]] = []
        self._moved = time.monotonic()

    # -- the command ---------------------------------------------------------------------------------------

    def type(self) -> None:
        self.started += 1
        self.ended, self.wounded, self._moved = False, False, time.monotonic()
        self.command = self.subject.start(self.started, self.nodes)

    def type_beside(self) -> None:
        self.started += 1
        self.beside.append(self.subject.start(self.started, self.nodes))

    def last_line(self) -> str:
        lines = self.subject.printed(self.started).read_text(errors="replace").splitlines()
        return f"after '{lines[-1].strip()[:70]}'" if lines else SILENT

    def signal_command(self, number: int) -> bool:
        if self.command is None or self.command.poll() is not None:
            return False
        self.wounded = True
        self.command.send_signal(number)
        return True

    def tick(self) -> None:
        """Whatever is due: repairs, what is new on the disk, and the command again where it ended."""
        now = time.monotonic()
        for each in [due for due in self._due if due[0] <= now]:
            self._due.remove(each)
            each[1]()
        self._look()
        if self.command is not None and self.command.poll() is not None:
            self._command_ended(self.command.returncode)
        elif self.command is not None and now - self._moved > STILL_S:
            self.found.append(("", f"hangs: {self.subject.printed(self.started).read_text()[-400:]}"))
            self.tries += 2
            self.signal_command(signal.SIGKILL)
            self._moved = now
        time.sleep(TICK_S)

    def later(self, seconds: float, act: Callable[[], Any]) -> None:
        self._due.append((time.monotonic() + seconds, act))

    def _command_ended(self, code: int) -> None:
        printed = self.subject.printed(self.started).read_text(errors="replace")
        self.command, self._moved = None, time.monotonic()
        wounded = self.wounded and code in (130, -signal.SIGKILL, -signal.SIGINT)
        if "Traceback" in printed:
            self.found.append(("", f"traceback: {printed[-1500:]}"))
        elif code == 0:
            self.ended = True
            return
        elif not wounded and code not in (30, 64):
            self.found.append(("", f"unexplained end: {code}, {printed[-400:]}"))
        followed = self._follow(printed)
        self.tries += not wounded
        if self.tries >= TRIES:
            self.found.append(("", f"rerun refused: {code} after {self.tries} tries, {printed[-600:]}"))
            return
        deadline = max([at for at, _ in self._due], default=0.0)
        if not wounded and not followed and deadline > time.monotonic():
            self.later(deadline - time.monotonic() + 0.5, self.type)  # who reads the message mends it first
        else:
            self.type()

    def _follow(self, printed: str) -> bool:
        """The remedies that the command, or a job of a shard that gave no result, names."""
        texts = [printed]
        for shard in self.subject.shards:
            outputs = sorted(shard.folder.glob("slurm/*.out"), key=lambda path: path.stat().st_mtime)
            texts += [path.read_text(errors="replace") for path in outputs[-1:] if f"shard {shard.name}:" in printed]
        followed = False
        for text in texts:
            for name in (name for remedy in REMEDIES for name in remedy.findall(text)):
                path = Path(name)
                found = [path] if path.is_absolute() else list(self.subject.root.glob(f"**/{name}"))
                for each in found:
                    if each.is_relative_to(self.subject.root) and each.exists() and not each.is_symlink():
                        self.remedies.append(str(each.relative_to(self.subject.root)))
                        shutil.rmtree(each) if each.is_dir() else each.unlink()
                        followed = True
        return followed

    def _look(self) -> None:
        """Digests of launches that are new."""
        nodes: dict[str, str] | None = None
        for path in self.subject.launch_records():
            if path not in self.known and path not in self.damaged:
                try:
                    self.known[path] = hashlib.sha256(path.read_bytes()).hexdigest()
                    self._moved = time.monotonic()
                    if nodes is None:
                        nodes = {shard: node for shard, state, node in self.nodes.jobs().values() if state == "RUNNING"}
                    shard = path.relative_to(self.subject.root / "reports" / "shards").parts[1]
                    self.where[path] = nodes.get(shard, "")
                except OSError:  # just removed
                    continue

    def same_file(self, path: Path) -> set[Path]:
        """The other names of a record: the merged run links the shards'."""
        inode = path.stat().st_ino
        return {each for each in self.subject.root.glob("reports/**/*.json") if each.stat().st_ino == inode}

    # -- the round -----------------------------------------------------------------------------------------

    def run(self, known: Known, seed: int, number: int) -> list[Row]:
        started = time.monotonic()
        self.subject.make().mount()
        outcomes: list[tuple[Fault, Done]] = []
        try:
            self.type()
            for fault in sorted(self.faults, key=lambda each: each.share):
                self._await(fault)
                outcomes.append((fault, inject(fault, self)))
                if fault.kind == LATE and outcomes[-1][1].met:
                    self.type()
            self._finish()
            self._time_limits(outcomes)
            self._clocks(outcomes)
            if self.ended:
                self.found += check(self, known)
            if self.found:
                self.subject.keep()
        finally:
            for child in (self.command, *self.beside):
                if child is not None and child.poll() is None:
                    child.kill()
            self.nodes.slurm("scancel", "--user=root", check=False)
            self.nodes.repair()
            self.subject.unmount()
        took = round(time.monotonic() - started, 1)
        rows = [self._row(fault, done, outcomes, seed, number, took) for fault, done in outcomes]
        if not self.found:
            shutil.rmtree(self.subject.folder)
        return sorted(rows, key=lambda row: row.number)

    def _await(self, fault: Fault) -> None:
        wanted, deadline = int(fault.share * self.subject.launches), time.monotonic() + 600
        while not self.ended and len(self.known) < wanted and time.monotonic() < deadline and self.tries < TRIES:
            self.tick()
        if fault.kind.endswith("is finished"):  # one has to be
            while not self.ended and self.tries < TRIES and time.monotonic() < deadline:
                runs = [list(each.project.glob("reports/runs/*/run.json")) for each in self.subject.shards]
                if any(map(shard_finished, runs)):
                    break
                self.tick()
        until = time.monotonic() + fault.delay_s
        while time.monotonic() < until or (fault.kind == LATE and not self.ended and self.tries < TRIES):
            self.tick()

    def _finish(self) -> None:
        """All is mended, and the command is typed until it is done."""
        while self._due:
            self.tick()
        self.nodes.repair()
        deadline = time.monotonic() + 900
        while not (self.ended and self.command is None) and self.tries < TRIES and time.monotonic() < deadline:
            if self.command is None and not self._due:
                self.type()
            self.tick()
        for child in self.beside:
            try:
                code = child.wait(300)
            except subprocess.TimeoutExpired:
                self.found.append(("", "hangs: the command that was typed beside it"))
                continue
            if code not in (0, 30, 64):
                self.found.append(("", f"unexplained end: {code} of the command that was typed beside it"))
        if not self.ended:
            self.found.append(("", f"not done after {self.started} commands"))
        else:  # once more, after everything: nothing is left to do
            self.type()
            while self.command is not None and self.tries < TRIES:
                self.tick()

    def _time_limits(self, outcomes: Sequence[tuple[Fault, Done]]) -> None:
        """Slurm looks at limits twice a minute: which of the jobs ended by it."""
        for fault, done in outcomes:
            if fault.kind == "time limit hit" and done.job:
                told = self.nodes.slurm("scontrol", "show", "job", done.job, check=False)
                done.met = "JobState=TIMEOUT" in told
                state = re.search(r"JobState=(\w+)", told)
                done.what += f": {state.group(1).lower() if state else 'not known'}"

    def _clocks(self, outcomes: Sequence[tuple[Fault, Done]]) -> None:
        """Which clocks are seen in records: those that are off by as much as the clock was."""
        off_s = [_said_s(path) - path.stat().st_mtime for path in self.known if path.exists()]
        for _, done in outcomes:
            if done.clock_s:
                seen = sum(abs(each - done.clock_s) < 900 for each in off_s)
                done.met = seen > 0
                done.what += f"; {seen} launches say so"

    def _row(
        self, fault: Fault, done: Done, outcomes: Sequence[tuple[Fault, Done]], seed: int, number: int, took: float
    ) -> Row:
        shards = {each.shard for _, each in outcomes if each.shard}
        own = [what for shard, what in self.found if not shard or shard == done.shard or shard not in shards]
        outcome = own[0].partition(":")[0] if own else "ok"
        row = Row(
            seed,
            fault.number,
            number,
            self.subject.mode,
            fault.kind,
            done.what,
            done.when,
            done.shard,
            done.met,
            outcome,
        )
        row.found, row.remedies, row.typed, row.round_s = own, self.remedies, self.started, took
        return row


def _said_s(record: Path) -> float:
    """When it says that it was begun, in seconds of the epoch; now, where it is damaged."""
    try:
        return datetime.fromisoformat(json.loads(record.read_bytes())["body"]["started_utc"]).timestamp()
    except (ValueError, KeyError):
        return record.stat().st_mtime


def save(rows: Sequence[Row], place: Path) -> None:
    with place.open("a") as file:
        for row in rows:
            file.write(json.dumps(row.as_json()) + "\n")
