"""The faults: what is drawn, and how it is done to a command that runs."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from harness.executors.engine import OWNER
from tests.container.engines import OwnEngine
from tests.faults.random_faults import damage
from tests.faults.random_faults.subjects import Child, Subject
from tests.faults.test_disk import disk, remount

DAY_S = 86400
ROOM = 64 << 20
# Where a project stands when the faulty command begins: nothing there yet, environments and builds, some of the
# records, all of them.
NEW, MADE, HALF, FINISHED = "new", "made", "half", "finished"
RUNNING = (NEW, MADE, MADE, HALF)

# Kinds of faults: how often each is drawn, by executor, and where a project may stand.
WEIGHTS: dict[str, dict[str, int]] = {
    "scripted": {
        "kill -9 of the harness": 14,
        "kill -9 of the harness between two changes of files": 12,
        "kill -9 of a worker": 9,
        "SIGTERM to the harness": 3,
        "SIGSTOP of the harness": 4,
        "SIGSTOP of a worker": 4,
        "full disk under the records": 6,
        "full disk under the cache": 5,
        "full disk under the temporary folder": 2,
        "no inodes under the records": 2,
        "record truncated": 9,
        "record with bits flipped": 9,
        "record with zeros": 3,
        "record of a newer schema": 7,
        "record deleted": 3,
        "outputs damaged": 4,
        "cached file damaged": 6,
        "page damaged": 3,
        "cache deleted while in use": 6,
        "clock jumps": 4,
        "two runs at once": 4,
        "two runs at once, one killed": 4,
    },
    "venv": {
        "kill -9 of the harness": 4,
        "kill -9 of a worker": 4,
        "SIGTERM to the harness": 1,
        "SIGSTOP of the harness": 1,
        "SIGSTOP of a worker": 1,
        "record truncated": 2,
        "record with bits flipped": 2,
        "record of a newer schema": 1,
        "outputs damaged": 1,
        "cached file damaged": 1,
        "cache deleted while in use": 1,
        "two runs at once": 1,
        "two runs at once, one killed": 1,
    },
    "docker": {
        "kill -9 of the harness": 4,
        "kill -9 of a worker": 2,
        "kill -9 of a container": 4,
        "kill -9 of the engine": 4,
        "SIGSTOP of the harness": 1,
        "SIGSTOP of a worker": 1,
        "record truncated": 1,
        "record with bits flipped": 1,
        "record of a newer schema": 1,
        "two runs at once, one killed": 1,
    },
}
WEIGHTS["bundle"] = WEIGHTS["venv"]
ROOTS = ("full disk", "no inodes")  # faults that only root can make
AT_REST = ("record", "outputs", "cached file", "page")  # faults of a file


@dataclass(frozen=True)
class Fault:
    """One fault as it was drawn. `share`: of the records that are still to come, those after which it happens."""

    number: int
    executor: str
    kind: str
    state: str
    explained: bool
    share: float
    delay_s: float
    draw: random.Random = field(repr=False, compare=False)


@dataclass
class Done:
    """What was done, when, and the files that it was done to."""

    what: str = ""
    when: str = ""
    damaged: list[Path] = field(default_factory=list)
    codes: list[int | None] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)  # processes whose children are looked for
    killed: bool = False  # so that nobody was there to tidy up


def kinds_of(executor: str) -> dict[str, int]:
    known = WEIGHTS[executor]
    return {kind: weight for kind, weight in known.items() if os.geteuid() == 0 or not kind.startswith(ROOTS)}


def draw_fault(seed: int, number: int, executor: str) -> Fault:
    """The fault of this number, whatever is drawn for others."""
    draw = random.Random(f"{seed}-{executor}-{number}")
    weights = kinds_of(executor)
    [kind] = draw.choices(list(weights), list(weights.values()))
    state = draw.choice(RUNNING)
    if kind.startswith(AT_REST):
        state = draw.choice((HALF, FINISHED, FINISHED))
    if kind.startswith("cached file"):
        state = draw.choice((MADE, HALF))
    if kind.startswith("full disk under the cache"):
        state = draw.choice((NEW, MADE))
    if kind.startswith(("full disk under the records", "no inodes")):
        state = draw.choice((NEW, MADE))
    slow = 1.0 if executor == "scripted" else 8.0
    return Fault(
        number,
        executor,
        kind,
        state,
        explained=executor == "scripted" and draw.random() < 0.15,
        share=draw.random(),
        delay_s=round(draw.random() * 0.4 * slow, 3),
        draw=draw,
    )


def inject(fault: Fault, subject: Subject, whole: Subject, engine: OwnEngine | None, shim: Path | None) -> Done:
    """Start the command and disturb it. `whole`: an undisturbed one, for sizes and counts."""
    done = Done()
    kind = fault.kind
    if kind.startswith(AT_REST) and (fault.state == FINISHED or fault.draw.random() < 0.6):
        done.when = f"before the command, in a {fault.state} run"
        _damage(fault, subject, done)
        _end(subject.start(), subject, done)
    elif kind.startswith(ROOTS):
        _fill_a_disk(fault, subject, whole, done)
    elif kind.endswith("between two changes of files"):
        die = fault.draw.randint(1, 700)
        done.what = f"before change {die}"
        child = subject.start(die=die)
        _end(child, subject, done)
        done.when, done.killed = _phase(child), done.codes == [-9]
    elif kind == "clock jumps":
        _jump(fault, subject, done, shim)
    elif kind.startswith("two runs at once"):
        children = [subject.start() for _ in range(fault.draw.choice((2, 2, 3)))]
        if kind.endswith("killed"):
            _await_moment(fault, subject, whole, children[0], done)
            done.what, done.killed = f"1 of {len(children)} is killed", True
            children[fault.draw.randrange(len(children))].process.kill()
        for child in children:
            _end(child, subject, done)
    else:
        child = subject.start()
        _await_moment(fault, subject, whole, child, done)
        _disturb(fault, subject, child, done, engine)
        _end(child, subject, done)
    return done


def _end(child: Child, subject: Subject, done: Done) -> None:
    code = child.wait(subject.wait_s)
    if code is None:
        child.kill()
    done.codes.append(code)
    done.printed.append(child.printed)
    done.owners.append(child.pid)


def _phase(child: Child) -> str:
    lines = [line for line in child.printed.splitlines() if line.strip()]
    return f"after '{lines[-1].strip()[:60]}'" if lines else "before anything was said"


def _await_moment(fault: Fault, subject: Subject, whole: Subject, child: Child, done: Done) -> None:
    """Until so many records are written, and then some more time."""
    before = subject.records()
    wanted = before + int(fault.share * (whole.records() - before + 1))
    deadline = time.monotonic() + subject.wait_s
    while child.code() is None and subject.records() < wanted and time.monotonic() < deadline:
        time.sleep(0.005)
    child.wait(fault.delay_s)
    done.when = f"{subject.records()} of {whole.records()} records, {_phase(child)}"
    if child.code() is not None:
        done.when = "after its end"


def workers(child: Child) -> list[psutil.Process]:
    """The processes that a command has started, and theirs."""
    with contextlib.suppress(psutil.Error):
        return [p for p in psutil.Process(child.pid).children(recursive=True) if p.is_running()]
    return []


def _some_worker(child: Child, executor: str, draw: random.Random, wait_s: float) -> psutil.Process | None:
    """One of the processes that work for a command, once there is one. In a container it is another's child."""
    deadline = time.monotonic() + wait_s
    while child.code() is None and time.monotonic() < deadline:
        found = (
            [p for p in psutil.process_iter(["cmdline"]) if "/in/request.json" in (p.info["cmdline"] or [])]
            if (executor == "docker")
            else workers(child)
        )
        if found:
            return draw.choice(sorted(found, key=lambda p: p.pid))
        time.sleep(0.005)
    return None


def containers(docker: OwnEngine, owners: list[int]) -> list[str]:
    """Containers that these processes started."""
    form = '{{.ID}} {{.Label "' + OWNER + '"}}'
    lines = docker.docker("ps", "--all", "--format", form).stdout.splitlines()
    named = [line.split() for line in lines]
    return [words[0] for words in named if len(words) > 1 and words[1].split("/")[1] in map(str, owners)]


def _disturb(fault: Fault, subject: Subject, child: Child, done: Done, engine: OwnEngine | None) -> None:
    kind, draw = fault.kind, fault.draw
    if child.code() is not None and not kind.startswith(AT_REST):
        done.what = "it had ended before"
        return
    if kind.startswith(AT_REST):
        _damage(fault, subject, done)
    elif kind == "kill -9 of the harness":
        child.process.kill()
        done.killed = True
    elif kind == "SIGTERM to the harness":
        os.kill(child.pid, signal.SIGTERM)
    elif kind == "cache deleted while in use":
        names = [path.name for path in subject.cache.glob("*") if not path.is_symlink()]
        if not names:
            done.what = "there was none yet"
            return
        name = draw.choice(["", *sorted(names)]) if subject.executor == "scripted" else draw.choice(sorted(names))
        done.what = f"cache/{name}"
        place = subject.cache / name
        if place.is_dir():
            shutil.rmtree(place, ignore_errors=True)
        else:
            place.unlink(missing_ok=True)
    elif kind == "kill -9 of the engine":
        assert engine is not None
        engine.kill()
        away_s = round(draw.random() * 6, 2)
        done.what = f"away for {away_s} s"
        time.sleep(away_s)
        engine.start()
    elif kind == "kill -9 of a container":
        assert engine is not None
        deadline = time.monotonic() + 60
        while not (found := containers(engine, [child.pid])) and child.code() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        done.what = "killed" if found else "there was none"
        if found:
            engine.docker("kill", draw.choice(sorted(found)), check=False)
    else:
        _signal(fault, child, done)


def _signal(fault: Fault, child: Child, done: Done) -> None:
    process: psutil.Process | None = None
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(child.pid)
    if fault.kind.endswith("worker"):
        process = _some_worker(child, fault.executor, fault.draw, 60)
    if process is None:
        done.what = "there was none"
        return
    with contextlib.suppress(psutil.Error):
        words = process.cmdline()
        done.what = next((words[i + 2] for i, word in enumerate(words[:-2]) if word == "-m"), process.name())
        if fault.kind.startswith("kill"):
            process.kill()
            return
        stopped_s = round(0.1 + fault.draw.random() * 2, 2)
        done.what += f" for {stopped_s} s"
        process.suspend()
        time.sleep(stopped_s)
        process.resume()


def _damage(fault: Fault, subject: Subject, done: Done) -> None:
    draw = fault.draw
    folder, patterns = subject.cache, damage.CACHED
    way = draw.choice(("truncated", "bits flipped", "zeros"))
    if not fault.kind.startswith("cached"):
        if not subject.runs:
            done.what = "there was no run"
            return
        folder = subject.runs[-1]
    if fault.kind.startswith("outputs"):
        patterns = ("arrays/**/*.npz",)
    elif fault.kind.startswith("page"):
        patterns = damage.PAGES
    elif fault.kind.startswith("record"):
        patterns = damage.RECORDS
        way = fault.kind.removeprefix("record ").removeprefix("with ").removeprefix("of a ")
    path = damage.pick(folder, patterns, draw)
    if path is None:
        done.what = "there was no such file"
        return
    try:
        how = damage.WAYS[way](path, draw)
    except (OSError, ValueError) as error:  # it is being written just now
        done.what = f"{path.name} could not be damaged: {error}"
        return
    done.damaged.append(path)
    done.what = f"{path.relative_to(subject.folder)} {how}"


def _fill_a_disk(fault: Fault, subject: Subject, whole: Subject, done: Done) -> None:
    """The disk has some share of the room that an undisturbed run takes, so that it is full at one moment or another.
    Then it grows."""
    place, like = subject.root / "reports" / "runs", whole.root / "reports" / "runs"
    if fault.kind.endswith("cache"):
        place, like = subject.cache, whole.cache
    elif fault.kind.endswith("temporary folder"):
        place = subject.temporary
    pages = sum(-(-path.stat().st_size // 4096) for path in like.rglob("*") if path.is_file())
    held = subject.folder / "held"
    if place.exists():
        place.rename(held)
    with disk(place, ROOM):
        if held.exists():
            shutil.copytree(held, place, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(held)
        if fault.kind.startswith("no inodes"):
            count = fault.draw.randint(3, 45)
            remount(place, f"nr_inodes={count}")
            done.what = f"{count} inodes"
        else:
            taken = sum(-(-path.stat().st_size // 4096) for path in place.rglob("*") if path.is_file())
            size = (taken + max(1, int(fault.share * max(4, pages - taken)))) * 4096
            remount(place, f"size={size}")
            done.what = f"{size} bytes"
        child = subject.start()
        _end(child, subject, done)
        done.when = _phase(child)
        remount(place, f"size={ROOM},nr_inodes=100000")
        kept = subject.folder / "kept"
        shutil.copytree(place, kept, symlinks=True)
    if place.exists():
        place.rmdir()
    kept.rename(place)


def _jump(fault: Fault, subject: Subject, done: Done, shim: Path | None) -> None:
    """The wall clock goes back and forth while a command runs, as an administrator or NTP sets it."""
    assert shim is not None
    offset = subject.folder / "offset"
    jumps = [fault.draw.choice((-1, 1)) * fault.draw.choice((60, 3600, DAY_S, 365 * DAY_S)) for _ in range(4)]
    offset.write_text(str(jumps[0]))
    child = subject.start({"LD_PRELOAD": str(shim), "WALL_CLOCK_OFFSET": str(offset)})
    done.what, done.when = f"by {jumps} s", "all through"
    deadline, number = time.monotonic() + subject.wait_s, 0
    while child.code() is None and time.monotonic() < deadline:
        child.wait(0.05 + fault.delay_s)
        number += 1
        offset.write_text(str(jumps[number % len(jumps)]))
    _end(child, subject, done)


def build_shim(folder: Path) -> Path | None:
    """A library that moves the wall clock alone; None without a C compiler."""
    from tests.faults.test_clock import SHIM

    compiler = shutil.which("cc")
    if compiler is None:
        return None
    (folder / "clock.c").write_text(SHIM)
    library = folder / "clock.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-w", "-o", library, folder / "clock.c"], check=True)
    return library
