"""Whatever happens to runs of a project, the same command then ends as if nothing had, and redoes nothing it has."""

from __future__ import annotations

import functools
import json
import os
import random
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from harness.schema.storage import Run
from harness.worker import protocol
from tests.faults.world import VERSIONS, Act, Fault, World, contents

pytestmark = [pytest.mark.process, pytest.mark.timeout(1500)]

# Of the examples of each test; the default takes about two minutes on two cores.
EXAMPLES = int(os.environ.get("KERNEL_MATRIX_FAULTS", "16"))
MOST_CHANGES = 700  # of the file system, in a run from nothing
DAY_S = 86400
ENDS = {Act.KILL: (-9,), Act.INTERRUPT: (130,), Act.TERMINATE: (130,), Act.FILL_DISK: (30,), Act.LOSE_CACHE: (30,)}
REMEDIES = (
    re.compile(r"(?:error|cannot go on): (\S+?): (?:.|\n)*?remedy: delete the file"),
    re.compile(r"remedy: remove (/\S+) and start again"),
)
moments = st.integers(1, MOST_CHANGES)


# -- damage -----------------------------------------------------------------------------------------------------------

Way = Callable[[bytes, random.Random], bytes]


def truncate(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.choice((0, draw.randrange(len(data) or 1)))]


def flip_a_bit(data: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(data) * 8 or 1)
    return bytes(byte ^ (1 << place % 8 if number == place // 8 else 0) for number, byte in enumerate(data))


def zero_a_block(data: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(data) or 1)
    return data[:start] + bytes(len(data[start : start + 512])) + data[start + 512 :]


def renew_schema(data: bytes, draw: random.Random) -> bytes:
    """Make the record one that the next version may have written: its digest is right."""
    try:
        value = json.loads(data)
        value["body"]["a_key_of_tomorrow"] = 1
    except (ValueError, LookupError, TypeError):
        return data[:-1]
    digest = protocol.digest(value["body"])
    return json.dumps({**value, "digest": digest, "schema_version": protocol.SCHEMA_VERSION + 1}).encode()


WAYS: tuple[Way | None, ...] = (
    truncate,
    flip_a_bit,
    zero_a_block,
    renew_schema,
    None,  # the file is deleted
)
RECORDS = tuple(
    f"project/reports/runs/*/{kind}"
    for kind in (
        "run.json",
        "environments/*.json",
        "builds/*/*.json",
        "validations/*/*/*.json",
        "launches/*/*/*.json",
        "crossings/*/*.json",
        "experiments/**/*.json",
    )
)
CACHED = ("builds/*/build.json", "builds/*/out/*.so", "probes/*/*.json", "probes/*/out/*")
FILES = (*RECORDS, "project/reports/runs/*/arrays/**/*.npz", *(f"cache/{pattern}" for pattern in CACHED))


@pytest.mark.parametrize("way", [way for way in WAYS if way is not None])
def test_damage_is_damage(way: Way) -> None:
    """Else the damaged files below would show nothing."""
    data = b'{"schema_version": 1, "kind": "run", "digest": "", "body": {"a": "' + b"x" * 600 + b'"}}'
    assert all(way(data, random.Random(seed)) != data for seed in range(20))


# -- the model --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class State:
    """What of a project its records depend on."""

    source: int = 0
    launches: int = 3

    def apply(self, world: World) -> None:
        world.edit_source(f"version {self.source}")
        text = world.matrix.read_text()
        world.matrix.write_text(re.sub(r"(\n(?:most_)?launches): \d", rf"\1: {self.launches}", text))


STATES = (State(), State(launches=2), State(source=1))


@functools.cache
def undisturbed(state: State) -> tuple[str, dict[str, Any]]:
    """Return the plan's digest, as a run's name has it, and what a run records to which nothing happens."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        state.apply(world)
        world.done()
        assert not world.litter()
        return world.latest.folder.name.rpartition("-")[2], contents(world.latest)


def find_right(world: World) -> dict[Path, tuple[int, int]]:
    """Return the identity of every record that can be read: none of them may be made again. AssertionError where one
    is not as an undisturbed run has it."""
    found = {}
    for folder in world.runs:
        run, digest = Run(folder), folder.name.rpartition("-")[2]
        known = next(known for state in STATES for name, known in (undisturbed(state),) if name == digest)
        records = contents(run, skip_damaged=True)
        if any(value["status"] == "broken" for place, value in records.items() if place.startswith("environments/")):
            continue
        for place, value in records.items():
            assert place == "run.json" or value == known[place], f"{folder.name}/{place} is not true"
        places = {folder / place for place in records}
        found.update({path: identity for path, identity in world.kept.items() if path in places})
    return found


def finish(world: World, state: State, kept: Mapping[Path, tuple[int, int]]) -> None:
    """Start the same command until it is done, following the remedies that it names."""
    for _ in range(8):
        code, printed = world.run(), world.text
        if code == 0:
            break
        named = [Path(name) for remedy in REMEDIES for name in remedy.findall(printed)]
        assert named and named[0].is_relative_to(world.root.parent), f"{code}: {printed}"
        shutil.rmtree(named[0]) if named[0].is_dir() else named[0].unlink()
    assert code == 0, printed
    now = world.kept
    assert {path: now.get(path) for path in kept} == kept, "what was recorded was made again, or is lost"
    assert contents(world.latest) == undisturbed(state)[1]
    assert not world.litter()


class Disturbed(RuleBasedStateMachine):
    """Faults in any order. After each of them nothing false is recorded; at last the same command ends well."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.world, self.state = World(Path(self.folder.name), staged=True), STATES[0]
        self.state.apply(self.world)
        self.kept: dict[Path, tuple[int, int]] = {}
        self.damaged = False  # whether a file is, so that a command may end with what is to be done about it

    @invariant()
    def nothing_is_false_or_lost(self) -> None:
        now = self.world.kept
        assert {path: now.get(path) for path in self.kept} == self.kept, "what was recorded was made again, or is lost"
        self.kept = find_right(self.world)

    @rule(act=st.sampled_from(Act), at=moments)
    def disturb(self, act: Act, at: int) -> None:
        code, printed = self.world.run(fault=Fault(act, at)), self.world.text
        assert code in (0, *ENDS[act]) or self.damaged, printed
        if act is Act.FILL_DISK and code == 30 and not self.damaged:
            assert "No space left on device" in printed and "remedy: free some space" in printed, printed
        if act is not Act.KILL and not self.damaged:
            assert not self.world.litter()

    @rule(at=st.integers(1, 40))
    def lose_a_worker(self, at: int) -> None:
        """One that was killed from outside is started again: its kernel did not crash."""
        self.world.tasks.write_text("")
        self.world.lost_worker = at
        code = self.world.run()
        self.world.lost_worker = 0
        assert code == 0 or self.damaged, self.world.text

    @rule(version=st.sampled_from(VERSIONS))
    def break_an_environment(self, version: str) -> None:
        self.world.broken = {version}
        code = self.world.run()
        self.world.broken = set()
        assert code in (0, 30) or self.damaged, self.world.text

    @rule(killed=st.lists(st.none() | moments, min_size=2, max_size=3))
    def run_at_once(self, killed: list[int | None]) -> None:
        """The same command several times; some of them are killed."""
        faults = [None if at is None else Fault(Act.KILL, at) for at in killed]
        printed = [self.world.root.parent / f"printed-{number}" for number in range(len(faults))]
        started = [self.world.start(fault=fault, printed=to) for fault, to in zip(faults, printed, strict=True)]
        codes = [self.world.end(child) for child in started]
        for code, fault, to in zip(codes, faults, printed, strict=True):
            assert "Traceback" not in to.read_text(), to.read_text()
            assert code == 0 or (fault is not None and code == -9) or self.damaged, to.read_text()

    @rule(days=st.integers(-800, 800))
    def set_the_clock(self, days: int) -> None:
        self.world.clock_s = days * DAY_S

    @rule(state=st.sampled_from(STATES))
    def edit(self, state: State) -> None:
        self.state = state
        self.state.apply(self.world)

    @precondition(lambda self: self.world.runs)
    @rule(pattern=st.sampled_from(FILES), way=st.sampled_from(WAYS), seed=st.integers(0, 999))
    def damage(self, pattern: str, way: Way | None, seed: int) -> None:
        draw = random.Random(seed)
        found = sorted(path for path in self.world.root.parent.glob(pattern) if path.is_file())
        if found:
            path = draw.choice(found)
            path.unlink() if way is None else path.write_bytes(way(path.read_bytes(), draw))
            self.damaged = True
            # Outputs that are gone are computed again, with the validation that has them.
            record = Path(str(path).replace("/arrays/", "/validations/")).with_suffix(".json")
            self.kept = {each: known for each, known in self.kept.items() if each not in (path, record)}

    @rule()
    def end_well(self) -> None:
        finish(self.world, self.state, self.kept)
        self.damaged = False

    def teardown(self) -> None:
        try:
            self.end_well()
        finally:
            self.folder.cleanup()


def test_whatever_happens_the_same_command_ends_well() -> None:
    run_state_machine_as_test(
        Disturbed, settings=settings(max_examples=EXAMPLES, stateful_step_count=6, derandomize=True)
    )


@given(st.integers(1, MOST_CHANGES + 300))
@settings(max_examples=2 * EXAMPLES, derandomize=True)
def test_a_first_run_that_is_killed_is_finished_by_the_next(at: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        STATES[0].apply(world)
        code = world.run(fault=Fault(Act.KILL, at))
        assert code in (-9, 0)
        finish(world, STATES[0], find_right(world))
        assert len(world.runs) == 1
