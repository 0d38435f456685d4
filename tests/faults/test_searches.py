"""`bisect` and `sweep` as a whole: the answer, what it costs, what it leaves, and how they go on when killed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.schema.bisection_records import BisectionRecord, ProbeVerdict
from harness.schema.storage import load_record
from harness.schema.sweep_records import SweepRecord
from reports.render.bisection import find_next_command, render_page, render_summary_text
from tests.faults.world import MATRIX, NIGHTLIES, RELEASES, Act, Fault, World

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]


def survives_kills(new: Callable[[int], World], verb: str, options: Sequence[str], *, rounds: int) -> list[World]:
    """Return worlds in each of which a search was killed twice, then went on to its end. What was recorded was neither
    measured again nor lost, and nothing is left behind."""
    draw, worlds, landed = random.Random(verb), [new(number) for number in range(rounds)], 0
    for world in worlds:
        kept: dict[Path, tuple[int, int]] = {}
        for at in (draw.randint(1, 300), draw.randint(200, 900), 0):
            code = world.run(*options, verb=verb, fault=Fault(Act.KILL, at) if at else None)
            assert code == 0 or (at and code == -9), world.text
            landed += code == -9
            now = world.kept
            assert {path: now.get(path) for path in kept} == kept, "what was recorded was measured again, or is lost"
            kept = now
        assert not world.litter()
    assert landed >= rounds, f"only {landed} searches were killed before they were done"
    return worlds


# -- bisect -----------------------------------------------------------------------------------------------------------

ENDS = ("--good=2.1.0", "--bad=2.5.0", "--workload=first", "--device=cpu")
TEN = (*ENDS, "--trials=10")
KEPT = ["torch2.1.0", "torch2.5.0"]  # matrix.yaml names them
WRONG = ("2.3.0", {"passes": 0.0})


def versions(folder: Path, *changes: tuple[str, dict[str, Any]], of: Sequence[str] = RELEASES) -> World:
    """Return a project whose versions behave as told from the named version on."""
    world, told = World(folder, of, staged=True), {}
    current: dict[str, Any] = {"passes": 1.0, "times": 1.0, "builds": True}
    for version in of:
        current = current | dict(changes).get(version, {})
        told[version] = current
    world.stories = told
    return world


def bisect(world: World, *options: str, code: int = 0) -> tuple[BisectionRecord, str]:
    """Return the record, and what was printed, of a bisection that ends with this code."""
    printed = world.done(*(options or TEN), verb="bisect", code=code)
    [path] = world.root.glob("reports/bisections/*/bisection.json")
    return load_record(path, BisectionRecord), printed


def steps(record: BisectionRecord) -> list[tuple[str, str]]:
    return [(step.before, step.after) for step in record.steps]


def environments(world: World) -> list[str]:
    return sorted(path.name.split("-")[0] for path in (world.cache / "environments").iterdir())


def test_one_step_is_found_within_the_bound_and_only_the_ends_are_left(tmp_path: Path) -> None:
    world = versions(tmp_path, WRONG)
    record, printed = bisect(world)
    assert steps(record) == [("2.2.2", "2.3.0")] and record.monotonic
    assert len(record.probes) <= record.most_environments == 6
    assert "2.3.2: no wheel for Python 3.11" in printed and "2.2.9" not in printed and "rc1" not in printed
    assert environments(world) == KEPT
    assert not (world.root / "reports" / "latest").exists(), "a step of a bisection is not the latest report"
    # What the answer names next can be done.
    assert (world.root / find_next_command(record).rpartition(" ")[2] / "run.json").is_file()
    # The same command again redoes nothing.
    before = world.kept
    assert "nothing changed" in bisect(world)[1]
    assert world.kept == before and environments(world) == KEPT


def test_a_bisection_by_date_tells_the_commits_between_the_two_wheels(tmp_path: Path) -> None:
    first, last = NIGHTLIES[0], NIGHTLIES[-1]
    world = versions(tmp_path, (NIGHTLIES[3], {"passes": 0.0}), of=NIGHTLIES)
    record, _ = bisect(world, f"--good={first}", f"--bad={last}", "--workload=first", "--trials=10", "--device=cpu")
    assert steps(record) == [(NIGHTLIES[2], NIGHTLIES[3])]
    assert [release.version for release in record.question.releases] == list(NIGHTLIES)
    commits = "...".join(world.commit_of(version) for version in NIGHTLIES[2:4])
    assert f"/compare/{commits}" in render_page(record) and f"/compare/{commits}" in render_summary_text(record)


@pytest.mark.parametrize(
    ("options", "left"),
    [((*TEN, "--keep"), None), (("--good=2.1.1", "--bad=2.4.1", *TEN[2:]), 0)],
    ids=["kept where asked for", "an end that the matrix does not name"],
)
def test_environments_are_removed_but_for_those_of_the_matrix(
    tmp_path: Path, options: tuple[str, ...], left: int | None
) -> None:
    world = versions(tmp_path, WRONG)
    record, _ = bisect(world, *options)
    assert steps(record) == [("2.2.2", "2.3.0")]
    assert len(environments(world)) == (len(record.probes) if left is None else left)


def test_a_version_that_cannot_be_made_is_skipped_with_its_reason(tmp_path: Path) -> None:
    world = versions(tmp_path, WRONG)
    world.broken = {"2.2.2", "2.3.0"}
    record, _ = bisect(world)
    [step] = record.steps
    assert (step.before, step.after, step.unknown) == ("2.2.1", "2.3.1", ["2.2.2", "2.3.0"])
    skipped = next(probe for probe in record.probes if probe.version == "2.2.2")
    assert skipped.verdict is ProbeVerdict.SKIPPED and "the index cannot be reached" in skipped.reason
    assert environments(world) == KEPT, "half an environment is left behind"


@pytest.mark.parametrize("bad_builds", [True, False])
def test_a_build_that_fails_is_a_step_only_where_an_end_has_it(tmp_path: Path, bad_builds: bool) -> None:
    again = [("2.3.1", {"builds": True})] if bad_builds else []
    record, printed = bisect(versions(tmp_path, ("2.3.0", {"builds": False, "passes": 0.0}), *again))
    assert steps(record) == ([("2.2.2", "2.3.1")] if bad_builds else [("2.2.2", "2.3.0")])
    assert ("the build fails: " in printed) == bad_builds


def test_an_end_that_cannot_be_made_stops_it_and_the_same_command_goes_on(tmp_path: Path) -> None:
    world = versions(tmp_path, WRONG)
    world.broken = {"2.5.0"}
    world.done(*TEN, verb="bisect", code=30)
    world.broken = set()
    assert steps(bisect(world)[0]) == [("2.2.2", "2.3.0")]


def test_a_version_that_cannot_be_decided_is_inconclusive_and_strict_tells_it_by_its_code(tmp_path: Path) -> None:
    world = versions(tmp_path, ("2.1.1", {"passes": 0.9}), ("2.5.0", {"passes": 0.6}))
    record, _ = bisect(world, *ENDS, "--trials=20", "--strict", code=40)
    assert {probe.verdict for probe in record.probes} >= {ProbeVerdict.GOOD, ProbeVerdict.INCONCLUSIVE}


def test_latency_is_bisected(tmp_path: Path) -> None:
    record, _ = bisect(versions(tmp_path, ("2.4.0", {"times": 2.0})), *ENDS, "--what=latency", "--target=math")
    assert steps(record) == [("2.3.1", "2.4.0")]
    assert all(probe.cells[0].replicates == 12 for probe in record.probes)


@pytest.mark.parametrize("what", ["correctness", "latency"])
def test_a_bisection_that_is_killed_goes_on_and_redoes_nothing(tmp_path: Path, what: str) -> None:
    def new(number: int) -> World:
        return versions(tmp_path / str(number), ("2.2.1", {"passes": 0.0, "times": 2.0}))

    options = (*TEN, f"--what={what}")
    for world in survives_kills(new, "bisect", options, rounds=3):
        assert steps(bisect(world, *options)[0]) == [("2.2.0", "2.2.1")]
        assert environments(world) == KEPT and not (world.cache / "bisecting-wheels").exists()


# -- sweep ------------------------------------------------------------------------------------------------------------

SWEEP = ("--kernel=made_up", "--workload=first", "--device=cpu", "--budget=1h")
PLAIN = "{name: made_up, sources: {cpu: [csrc/made_up.cpp]}, binding: own}"
FAULTS = {"build": "build", "wrong": "correctness", "repeat": "repeat", "poison": "poison"}


def settings(folder: Path, tunables: str, search: str) -> World:
    """Return a project whose kernel takes TIME per cent of its time, and has FAULT."""
    kernel = f"name: made_up\n    sources: {{cpu: [csrc/made_up.cpp]}}\n    binding: own\n    tunables: {tunables}"
    return World(folder, matrix=MATRIX.replace(PLAIN, f"{kernel}\n    search: {search}"), staged=True)


def sweep(world: World, *options: str, code: int = 0) -> tuple[SweepRecord, str]:
    """Return the record, and what was printed, of a sweep that ends with this code."""
    printed = world.done(*(options or SWEEP), verb="sweep", code=code)
    [path] = world.root.glob("reports/sweeps/*/sweep.json")
    return load_record(path, SweepRecord), printed


def searched(record: SweepRecord) -> list[tuple[object, ...]]:
    return [(trial.setting, trial.rejected, trial.score) for trial in record.trials if not trial.confirms]


def test_the_fastest_correct_setting_wins_and_is_confirmed(tmp_path: Path) -> None:
    search = "{TIME: [100, 80, 60], FAULT: [none, build, wrong, repeat, poison]}"
    world = settings(tmp_path, "{TIME: 100, FAULT: none}", search)
    record, _ = sweep(world)
    trials = [trial for trial in record.trials if not trial.confirms]
    assert len(trials) == 14 == len({str(trial.setting) for trial in trials})
    for trial in trials:
        stage = FAULTS.get(str(trial.setting["FAULT"]), "")
        assert trial.rejected.startswith(stage) and bool(trial.rejected) == bool(stage), trial
    assert record.winner is not None and record.winner.setting == {"TIME": 60, "FAULT": "none"}
    assert len(record.winner.ratios) == 2
    assert all(each.high is not None and each.high < 0.65 and each.replicates == 6 for each in record.winner.ratios)
    # Nothing that was rejected was timed.
    timed = {line.split()[2].split("-")[1] for line in world.tasks.read_text().splitlines() if line.startswith("time")}
    assert len(timed) == 1 + sum(not trial.rejected for trial in trials)
    assert not (world.root / "reports" / "latest").exists()
    # The same command again redoes nothing.
    before = world.kept
    again, _ = sweep(world)
    assert world.kept == before and again.trials == record.trials


@pytest.mark.parametrize(
    ("tunables", "search", "told"),
    [
        ("{TIME: 100}", "{TIME: [100, 150, 200]}", "TIME=100 stays"),
        # Half the time in one and one and a half times it in the other: a geometric mean of 0.87.
        ("{TIME: '100'}", "{TIME: ['100', 50/150, '130']}", "torch2.5.0-cu121-py311, first-fp32, cold: 1.5"),
    ],
    ids=["nothing faster", "faster in one environment only"],
)
def test_where_nothing_is_confirmed_the_incumbent_stays(tmp_path: Path, tunables: str, search: str, told: str) -> None:
    record, printed = sweep(settings(tmp_path, tunables, search), *SWEEP, "--strict", code=40)
    assert record.winner is None and "TIME=100 stays" in printed and told in printed


def test_an_incumbent_that_is_rejected_itself_stops_it(tmp_path: Path) -> None:
    world = settings(tmp_path, "{TIME: 100, FAULT: poison}", "{TIME: [100, 90], FAULT: [none, poison]}")
    assert "TIME=100 FAULT=poison, is rejected itself: poison" in world.done(*SWEEP, verb="sweep", code=64)


def test_an_environment_that_cannot_be_made_stops_a_sweep_and_the_same_command_goes_on(tmp_path: Path) -> None:
    world = settings(tmp_path, "{TIME: 100}", "{TIME: [100, 60]}")
    world.broken = {"2.5.0"}
    world.done(*SWEEP, verb="sweep", code=30)
    world.broken = set()
    assert sweep(world)[0].winner


def test_a_budget_ends_the_search_and_a_larger_one_goes_on(tmp_path: Path) -> None:
    world = settings(tmp_path, "{TIME: 100}", f"{{TIME: {[100, *range(120, 150)]}}}")
    record, _ = sweep(world, *SWEEP[:3], "--budget=0.01s")
    count = len(record.trials)
    assert count < 30 and record.spent_s > 0.01
    again, _ = sweep(world, *SWEEP[:3], f"--budget={record.spent_s + 0.01:.2f}s")
    assert len(again.trials) > count and again.trials[:count] == record.trials


def test_a_sweep_that_is_killed_proposes_what_it_would_have_proposed(tmp_path: Path) -> None:
    def new(number: int) -> World:
        return settings(
            tmp_path / str(number), "{TIME: 100, FAULT: none}", "{TIME: [100, 80, 60], FAULT: [none, wrong]}"
        )

    wanted, _ = sweep(new(99))
    for world in survives_kills(new, "sweep", SWEEP, rounds=3):
        record, _ = sweep(world)
        assert searched(record) == searched(wanted)
        assert record.winner and record.winner.setting == {"TIME": 60, "FAULT": "none"}
