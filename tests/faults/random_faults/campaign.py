"""One fault from its beginning to its end: a project, the disturbed command, what it left, the same command again."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from harness.errors import HarnessError
from harness.executors.process import MARK
from harness.schema.storage import Run
from harness.worker import protocol
from tests.container.engines import OwnEngine
from tests.faults.random_faults.faults import FINISHED, HALF, MADE, Done, Fault, build_shim, containers, inject
from tests.faults.random_faults.subjects import Subject, new_subject
from tests.faults.scripted import identities, litter

LOOK_S = 10.0  # after which nothing may run any more
OK = "ok"
# What may be found, the worst first. A row names the first, and all of them in `found`.
OUTCOMES = (
    "silently wrong",
    "lost",
    "doubled",
    "traceback",
    "hangs",
    "rerun refused",
    "page differs",
    "left running",
    "left lying",
    "unexplained end",
    OK,
)
TRIES = 5
REMEDIES = (
    re.compile(r"(?:error|cannot go on): (\S+?): (?:.|\n)*?remedy: delete the file"),
    re.compile(r"remedy: remove (/\S+) and start again"),
)


@dataclass
class Row:
    """What came of one fault."""

    number: int
    executor: str
    kind: str
    state: str
    what: str
    when: str
    outcome: str
    found: list[str] = field(default_factory=list)
    remedies: list[str] = field(default_factory=list)  # that the harness named, and that were followed
    codes: list[int | None] = field(default_factory=list)
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Campaign:
    """Projects to copy, and what an undisturbed run of each records and says."""

    def __init__(self, folder: Path, executor: str, seed: int, engine: OwnEngine | None = None) -> None:
        self.folder, self.executor, self.seed, self.engine = folder, executor, seed, engine
        folder.mkdir(parents=True, exist_ok=True)
        self.shim = build_shim(folder) if executor == "scripted" else None
        self.templates: dict[tuple[str, bool], Subject] = {}
        self.known: dict[bool, tuple[dict[str, Any], Any, dict[Path, Any]]] = {}
        for explained in (False, True)[: 1 + (executor == "scripted")]:
            self._prepare(explained)

    def _prepare(self, explained: bool) -> None:
        whole = new_subject(self.folder / f"whole-{explained}", self.executor, explained=explained)
        if self.engine is not None:
            whole.variables = {"DOCKER_HOST": self.engine.address}
        self._done(whole)
        half = new_subject(self.folder / f"half-{explained}", self.executor, explained=explained)
        half.variables = whole.variables
        wanted, child = max(1, whole.records() // 2), half.start()
        while child.code() is None and half.records() < wanted:
            time.sleep(0.002)
        child.kill()
        self.templates[FINISHED, explained], self.templates[HALF, explained] = whole, half
        run = whole.latest
        self.known[explained] = whole.contents(run), whole.page(run), whole.outputs(run)

    def _done(self, subject: Subject) -> None:
        child = subject.start()
        code = child.wait(subject.wait_s)
        if code != 0:
            child.kill()
            raise RuntimeError(f"an undisturbed run ended with {code}: {child.printed}")

    def subject(self, fault: Fault) -> Subject:
        folder, whole = self.folder / f"{fault.number:04d}", self.templates[FINISHED, fault.explained]
        if fault.state in (HALF, FINISHED):
            return self.templates[fault.state, fault.explained].copy(folder)
        fresh = new_subject(folder, self.executor, explained=fault.explained)
        fresh.variables = whole.variables
        if fault.state == MADE:
            shutil.rmtree(fresh.cache, ignore_errors=True)
            shutil.copytree(whole.cache, fresh.cache, symlinks=True)
        return fresh

    def run(self, fault: Fault) -> Row:
        """Disturb, look, run again, and compare. A fault of this program is an error of its own."""
        started = time.monotonic()
        subject = self.subject(fault)
        whole = self.templates[FINISHED, fault.explained]
        before, lay = self._kept(subject, fault), set(lying(subject))
        done = inject(fault, subject, whole, self.engine, self.shim)
        row = Row(fault.number, self.executor, fault.kind, fault.state, done.what, done.when, OK, codes=done.codes)
        found = row.found
        self._look_at_what_ended(fault, done, found)
        found += self._running(subject, done)
        if not done.killed:
            damaged = {str(path.parent.relative_to(subject.root)) for path in done.damaged if path.name == "run.json"}
            lay |= damaged  # which says that the folder is a run
            found += [f"left lying: {name} after the fault" for name in lying(subject) if name not in lay]
        kept = before | self._kept(subject, fault)
        for path in done.damaged:
            kept.pop(path, None)
        if self._again(subject, row, done):
            self._compare(subject, fault, kept, done, found)
            found += [f"left lying: {name} after the rerun" for name in lying(subject)]
        found += self._running(subject, done)
        row.outcome = next(name for name in OUTCOMES if name == OK or any(each.startswith(name) for each in found))
        row.seconds = round(time.monotonic() - started, 1)
        if row.outcome == OK:
            shutil.rmtree(subject.folder, ignore_errors=True)
        return row

    def _kept(self, subject: Subject, fault: Fault) -> dict[Path, tuple[int, int]]:
        """Records that stand there as an undisturbed run has them: none of them may be lost, or made again."""
        known, kept = self.known[fault.explained][0], {}
        for run in subject.runs:
            with contextlib.suppress(HarnessError, OSError):
                now = subject.contents(Run(run))
                right = {run / name for name, value in now.items() if known.get(name) == value}
                kept |= {path: mark for path, mark in identities(run.parent).items() if path in right}
        return kept

    def _look_at_what_ended(self, fault: Fault, done: Done, found: list[str]) -> None:
        for code, printed in zip(done.codes, done.printed, strict=True):
            if code is None:
                found.append(f"hangs: {printed[-300:]}")
            elif "Traceback" in printed:
                found.append(f"traceback: {printed[-1500:]}")
            elif (code not in (0, 30, 64) or (code and "remedy: " not in printed)) and not _was_asked_to(fault, code):
                found.append(f"unexplained end: {code}, {printed[-300:]}")

    def _running(self, subject: Subject, done: Done) -> list[str]:
        deadline = time.monotonic() + LOOK_S
        while (left := self._processes(subject, done)) and time.monotonic() < deadline:
            time.sleep(0.05)
        return [f"left running: {name}" for name in left]

    def _processes(self, subject: Subject, done: Done) -> list[str]:
        left = []
        for process in psutil.process_iter(["cmdline", "status"]):
            if process.info["status"] == psutil.STATUS_ZOMBIE:
                continue
            words = " ".join(process.info["cmdline"] or [])
            mark = ""
            with contextlib.suppress(psutil.Error, OSError):
                mark = process.environ().get(MARK, "")
            if str(subject.folder) in words or any(f"/{owner}/" in mark for owner in done.owners):
                left.append(words[:200])
        if self.engine is not None:
            left += [f"container {name}" for name in containers(self.engine, done.owners)]
        return left

    def _again(self, subject: Subject, row: Row, done: Done) -> bool:
        """The same command, until it is done; whatever remedy it names is followed."""
        for _ in range(TRIES):
            child = subject.start()
            done.owners.append(child.pid)
            code = child.wait(subject.wait_s)
            if code is None:
                child.kill()
                row.found.append(f"hangs: the rerun: {child.printed[-300:]}")
                return False
            printed = child.printed
            if "Traceback" in printed:
                row.found.append(f"traceback: the rerun: {printed[-1500:]}")
                return False
            if code == 0:
                return True
            if not self._follow(subject, printed, row):
                row.found.append(f"rerun refused: {code}, {printed[-500:]}")
                return False
        row.found.append(f"rerun refused: after {TRIES} remedies")
        return False

    def _follow(self, subject: Subject, printed: str, row: Row) -> bool:
        for remedy in REMEDIES:
            for name in remedy.findall(printed):
                path = Path(name)
                if not path.is_absolute():
                    path = subject.root / path
                if path.is_relative_to(subject.folder) and path.exists():
                    row.remedies.append(str(path.relative_to(subject.folder)))
                    if path.is_dir():
                        shutil.rmtree(path)
                    else:
                        path.unlink()
                    return True
        return False

    def _compare(self, subject: Subject, fault: Fault, kept: dict[Path, Any], done: Done, found: list[str]) -> None:
        known, page, outputs = self.known[fault.explained]
        now = identities(subject.root / "reports" / "runs")
        gone = [path for path in kept if path not in now]
        again = [path for path in kept if path in now and now[path] != kept[path]]
        found += [f"lost: {path.relative_to(subject.root)}" for path in gone]
        found += [f"lost: {path.relative_to(subject.root)} was made again" for path in again]
        runs = [run for run in subject.runs if not _is_broken(Run(run))]  # what broke is measured in a run of its own
        if len(runs) != 1:
            found.append(f"doubled: {len(runs)} runs")
        try:
            run = subject.latest
            records, said, kept_outputs = subject.contents(run), subject.page(run), subject.outputs(run)
        except (HarnessError, OSError) as error:
            found.append(f"silently wrong: the rerun ended well, and {error}")
            return
        except Exception:
            found.append(f"traceback: {traceback.format_exc()[-800:]}")
            return
        found += [f"doubled: {name}" for name in records.keys() - known.keys()]
        found += [f"lost: {name} is not there" for name in known.keys() - records.keys()]
        differing = [name for name in records.keys() & known.keys() if records[name] != known[name]]
        found += [f"{_judged(records[name], known[name])}: {name}" for name in differing]
        for name, output in outputs.items():
            now_there = kept_outputs.get(name)
            if now_there is None and run.folder / name not in done.damaged:
                found.append(f"lost: {name} cannot be read")
            elif now_there is not None and now_there != output:
                found.append(f"silently wrong: {name}")
        if said != page:
            found.append(f"page differs: {difference(page, said)}")


def _was_asked_to(fault: Fault, code: int) -> bool:
    """Whether a command may have ended like this because of what was done to it."""
    if fault.kind.startswith("SIGTERM"):
        return code in (130, -signal.SIGTERM)
    return code == -signal.SIGKILL and ("of the harness" in fault.kind or fault.kind.endswith("killed"))


def _is_broken(run: Run) -> bool:
    with contextlib.suppress(HarnessError):
        return any(environment.status == protocol.BROKEN for environment in run.environments())
    return False


def _judged(now: Any, known: Any) -> str:
    """A record that says that something failed is not silent."""
    if isinstance(now, dict) and isinstance(known, dict) and now.get("status") != known.get("status"):
        return "page differs"
    return "silently wrong"


def difference(one: Any, two: Any, place: str = "") -> str:
    """The first place where two JSON values differ, and what stands there."""
    if isinstance(one, dict) and isinstance(two, dict):
        for name in one.keys() | two.keys():
            if one.get(name) != two.get(name):
                return difference(one.get(name), two.get(name), f"{place}.{name}")
    if isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        for index, (left, right) in enumerate(zip(one, two, strict=True)):
            if left != right:
                return difference(left, right, f"{place}[{index}]")
    return f"{place}: {str(one)[:150]} | {str(two)[:150]}"


def lying(subject: Subject) -> list[str]:
    """What an ended command may not leave: parts of files, tasks' folders and messages, signatures at locks."""
    cache = subject.cache
    places = [
        *cache.glob("**/.*.part"),
        *cache.glob("asked/*"),
        *cache.glob("**/*.scratch"),
        *cache.glob("locks/*.holder"),
        *subject.temporary.iterdir(),
    ]
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    return [
        *litter(subject.root),
        *(str(path.relative_to(subject.folder)) for path in places if "environments" not in path.parts),
        *(name for name in mounts if name.startswith(f"{subject.folder}/")),
    ]
