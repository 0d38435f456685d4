"""What is run again after an edit or a loss between two runs: only what depends on it, counted task by task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.schema.storage import Run
from reports.load.evidence import load_evidence
from tests.faults.world import HEALTHY, Act, Fault, World, contents

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]
WORKLOADS, VERSIONS, LAUNCHES = 2, 2, 3
CELLS = WORKLOADS * VERSIONS
BUILT = {"build": VERSIONS}
VALIDATED = {"candidate": CELLS, "judge": CELLS}
TIMED = {"time": VERSIONS * LAUNCHES}
QUIET = "--explain=never"
PLANNED = "\nlaunches: 3\n"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, matrix=HEALTHY)


def begin(world: World) -> dict[str, Any]:
    assert world.count(QUIET) == {**BUILT, **VALIDATED, **TIMED}
    return contents(world.latest)


def launches(run: Run) -> dict[str, Any]:
    """Return every launch by its place, down to when it was made."""
    return {f"{each.environment}/{each.device}/{each.index}": each for each in run.launches()}


def test_edited_thresholds_run_nothing_and_make_another_page(world: World) -> None:
    world.edit("most_launches: 3", "most_launches: 6")
    before, first = begin(world), world.latest
    world.edit("references: [math]", "references: [math]\nthresholds: {min_effect_cpu: 0.0001}")
    assert world.count(QUIET) == {} and "nothing changed" in world.text and world.latest.folder == first.folder
    assert load_evidence(world.latest.folder).min_effect("cpu") == 0.0001
    after = contents(world.latest)
    assert [path for path in after if before[path] != after[path]] == ["run.json"]


def test_a_record_that_is_gone_is_made_again_and_nothing_else(world: World) -> None:
    before = begin(world)
    for place, counts in {
        "run.json": {},
        "environments/*.json": {},
        "builds/*/*.json": {},
        "crossings/*/*.json": {},
        "validations/*/*/*.json": {"candidate": 1, "judge": 1},
        "launches/*/*/*.json": {"time": 1},
    }.items():
        sorted(world.latest.folder.glob(place))[0].unlink()
        assert world.count(QUIET) == counts, place
        assert contents(world.latest) == before, place


EDITS: dict[str, tuple[tuple[str, str], dict[str, int]]] = {
    "another baseline takes everything again": (('baseline: "2.1.0"', 'baseline: "2.5.0"'), {}),
    "more launches are added": ((PLANNED + "most_launches: 3", "\nlaunches: 4\nmost_launches: 4"), {"time": VERSIONS}),
    "fewer launches are taken": ((PLANNED + "most_launches: 3", "\nlaunches: 2\nmost_launches: 2"), {}),
    "flags of an environment": (
        ('{torch: "2.5.0", cuda: "12.1"', '{torch: "2.5.0", flags: {cxx: [-O1]}, cuda: "12.1"'),
        {"build": 1, "candidate": WORKLOADS, "judge": WORKLOADS, **TIMED},
    ),
    "longer timing": ((PLANNED, PLANNED + "timing: {target_s: 1.0}\n"), TIMED),
    "tolerances": ((PLANNED, PLANNED + "tolerances: {rounding_units: 8}\n"), {**VALIDATED, **TIMED}),
    "another reference": (("references: [math]", "references: [math, flash]"), {**VALIDATED, **TIMED}),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_of_the_matrix(world: World, name: str) -> None:
    """What is taken again is the same record."""
    begin(world)
    before, (change, counts) = launches(world.latest), EDITS[name]
    world.edit(*change)
    assert world.count(QUIET) == counts
    assert len(world.runs) == 2
    if counts.get("time", 0) <= VERSIONS:
        after = launches(world.latest)
        assert {place: before[place] for place in before.keys() & after.keys()}.items() <= after.items()
    assert world.count(QUIET) == {}


def test_an_edited_source_makes_again_all_that_is_compared_with_it(world: World) -> None:
    begin(world)
    world.edit_source("edited")
    assert world.count(QUIET) == {**BUILT, **VALIDATED, **TIMED}


def test_everything_is_measured_anew_where_that_is_asked_for(world: World) -> None:
    begin(world)
    assert world.count(QUIET, "--fresh") == {**VALIDATED, **TIMED}


def test_another_limit_measures_the_round_again_in_which_something_ended_there(world: World) -> None:
    """It is measured once, also where that is interrupted."""
    world.edit(PLANNED, PLANNED + "limits: {launch_s: 6}\n")
    world.late = {2}
    begin(world)
    before = launches(world.latest)
    [late] = [place for place, record in before.items() if record.status == "timed_out"]
    world.edit("launch_s: 6", "launch_s: 100")
    assert world.run(QUIET, fault=Fault(Act.KILL, 60)) == -9
    world.tasks.write_text("")
    assert world.count(QUIET).keys() <= {"time"}
    after = launches(world.latest)
    assert after[late].status == "ok"
    again = {place.rpartition("/")[2] for place in before if before[place] != after[place]}
    assert again == {late.rpartition("/")[2]}
    assert world.count(QUIET) == {}


def test_a_round_is_never_made_of_two_runs(world: World) -> None:
    """No launch of a round is taken from a run that lacks one of them."""
    begin(world)
    sorted(world.latest.folder.glob("launches/*/*/001.json"))[0].unlink()
    world.edit('baseline: "2.1.0"', 'baseline: "2.5.0"')
    assert world.count(QUIET) == {"time": VERSIONS}


GPU = {
    "uuid": "GPU-1",
    "name": "H200",
    "driver": "550",
    "memory_bytes": 1,
    "ecc": True,
    "mig": False,
    "power_limit_w": 700.0,
    "max_sm_mhz": 1980,
}


@pytest.mark.parametrize("change", [{"uuid": "GPU-2"}, {"power_limit_w": 350.0}, {"driver": "560"}])
def test_another_gpu_makes_again_what_ran_on_it(world: World, change: dict[str, Any]) -> None:
    (world.root / "csrc" / "made_up.cu").write_text("// made up\n")
    text = HEALTHY.replace("cpu: [csrc/made_up.cpp]", "cpu: [csrc/made_up.cpp], cuda: [csrc/made_up.cu]")
    world.matrix.write_text(text.replace("{cpu: [float32]}", "{cpu: [float32], cuda: [float32]}"))
    world.gpu = GPU
    world.done(QUIET)

    def records() -> dict[str, Any]:
        validations = {f"{each.workload}/{each.device}": each for each in world.latest.validations()}
        return launches(world.latest) | validations

    before = records()
    assert world.count(QUIET) == {}
    world.gpu = {**GPU, **change}
    assert world.count(QUIET) == {**VALIDATED, **TIMED, "ceilings": 1}
    after = records()
    assert [place for place in before if before[place] == after[place]] == [place for place in before if "cpu" in place]


def test_eval_takes_the_baseline_that_the_matrix_validated(world: World) -> None:
    begin(world)
    assert world.count(QUIET, "--torch=2.5.0", verb="eval") == {"time": LAUNCHES}
    validations = world.latest.validations()
    assert len(validations) == CELLS and {each.status for each in validations} == {"ok"}


def test_a_baseline_that_was_validated_since_is_taken(world: World) -> None:
    assert world.count(QUIET, "--torch=2.5.0", verb="eval")["time"] == LAUNCHES
    assert [each.status for each in world.latest.validations()].count("not_run") == WORKLOADS
    assert world.count(QUIET, "--torch=2.5.0", verb="eval") == {}, "there is none yet"
    world.done(QUIET)
    assert world.count(QUIET, "--torch=2.5.0", verb="eval") == {}
    assert {each.status for each in world.latest.validations()} == {"ok"}


def test_a_mended_environment_is_measured_by_the_same_command(world: World) -> None:
    """While it is broken it is tried again each time. What was broken stays in its own run, also when the clock went
    back meanwhile: the newest run is the one that was made last."""
    world.broken, world.clock_s = {"2.5.0"}, 400 * 86400
    for number in (1, 2):
        assert "the index cannot be reached" in world.done(QUIET, code=30)
        assert len(world.runs) == number
        run = world.latest
        assert {each.torch: each.status for each in run.environments()} == {"2.1.0": "ok", "2.5.0": "broken"}
        assert {each.status for each in run.validations() if "2.5.0" in each.environment} == {"broken"}
        assert {each.status for each in run.launches() if "2.1.0" in each.environment} == {"ok"}
    broken, before = contents(world.latest), world.latest
    world.broken, world.clock_s = set(), -86400
    assert "nothing changed" not in world.done(QUIET)
    assert world.latest.folder != before.folder and contents(before) == broken
    assert {each.status for each in world.latest.launches()} == {"ok"}
    for days in (0, -2, 400):
        world.clock_s = days * 86400
        assert "nothing changed" in world.done(QUIET)


def test_damaged_outputs_are_not_compared(world: World) -> None:
    before = begin(world)
    damaged = sorted(world.latest.folder.glob("arrays/*/*/first-fp32.npz"))[0]
    damaged.write_bytes(damaged.read_bytes()[:-20] + b"\0" * 10)
    for crossing in world.latest.folder.glob("crossings/*/*.json"):
        crossing.unlink()
    printed = world.done(QUIET, code=64)
    assert str(damaged) in printed and "remedy: delete the file" in printed
    damaged.unlink()
    world.done(QUIET)
    assert contents(world.latest) == before
