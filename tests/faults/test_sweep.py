"""`sweep` with scripted kernels: what is rejected, what wins, and kill -9 at any moment."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from harness.schema.storage import load_record
from harness.schema.sweep_records import SweepRecord
from tests.faults.scripted import BROKEN, MATRIX, Scripted, check_search_survives_kills

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]
OPTIONS = ("--kernel=scripted", "--workload=first", "--budget=1h")
PLAIN = "{name: scripted, sources: {cpu: [csrc/scripted.cpp]}, binding: own}"
FAULTS = {"build": "build", "wrong": "correctness", "repeat": "repeat", "poison": "poison"}


def project(folder: Path, tunables: str, search: str) -> Scripted:
    """A kernel that takes TIME per cent of its time, and has FAULT."""
    scripted = Scripted(folder)
    kernel = f"""name: scripted
    sources: {{cpu: [csrc/scripted.cpp]}}
    binding: own
    tunables: {tunables}  # in use
    search: {search}"""
    (scripted.root / "matrix.yaml").write_text(MATRIX.replace(PLAIN, kernel))
    return scripted


def sweep(scripted: Scripted, *options: str, code: int = 0) -> tuple[SweepRecord, str]:
    """(the record, what was printed) of a sweep that ends with this code."""
    printed = scripted.done(*(options or OPTIONS), verb="sweep", code=code)
    [path] = scripted.root.glob("reports/sweeps/*/sweep.json")
    return load_record(path, SweepRecord), printed


def searched(record: SweepRecord) -> list[tuple[object, ...]]:
    return [(trial.setting, trial.rejected, trial.score) for trial in record.trials if not trial.confirms]


def test_the_fastest_correct_setting_wins_and_is_confirmed(tmp_path: Path) -> None:
    search = "{TIME: [100, 80, 60], FAULT: [none, build, wrong, repeat, poison]}"
    scripted = project(tmp_path, "{TIME: 100, FAULT: none}", search)
    record, printed = sweep(scripted)
    trials = [trial for trial in record.trials if not trial.confirms]
    assert len(trials) == 14 == len({str(trial.setting) for trial in trials})
    for trial in trials:
        stage = FAULTS.get(str(trial.setting["FAULT"]), "")
        assert trial.rejected.startswith(stage) and bool(trial.rejected) == bool(stage), trial
    assert record.winner is not None and record.winner.setting == {"TIME": 60, "FAULT": "none"}
    assert "TIME=60 FAULT=none is 40." in printed and len(record.winner.ratios) == 2
    for each in record.winner.ratios:
        assert each.high is not None and each.high < 0.65 and each.replicates == 6
    # Nothing that was rejected was launched, and nobody's latest report was touched.
    launched = {path.name.split("-")[1] for path in scripted.root.glob("reports/runs/*/logs/*/launch-*")}
    assert len(launched) == 1 + sum(not trial.rejected for trial in trials)
    assert not (scripted.root / "reports" / "latest").exists()
    # The same command again redoes nothing.
    before = scripted.kept
    again, printed = sweep(scripted)
    assert "going on: 14 settings recorded before" in printed and scripted.kept == before
    assert again.trials == record.trials


@pytest.mark.parametrize(
    ("tunables", "search", "said"),
    [
        ("{TIME: 100}", "{TIME: [100, 150, 200]}", "TIME=100 stays: nothing was faster"),
        # Half the time in one and one and a half times it in the other: a geometric mean of 0.87.
        ("{TIME: '100'}", "{TIME: ['100', 50/150, '130']}", "torch2.5.0-cu121-py311, first-fp32, cold: 1.5"),
    ],
    ids=["nothing faster", "faster in one environment alone"],
)
def test_where_nothing_is_confirmed_the_incumbent_stays(tmp_path: Path, tunables: str, search: str, said: str) -> None:
    record, printed = sweep(project(tmp_path, tunables, search), *OPTIONS, "--strict", code=40)
    assert record.winner is None and "TIME=100 stays" in printed and said in printed


def test_an_incumbent_that_is_rejected_itself_stops_it(tmp_path: Path) -> None:
    scripted = project(tmp_path, "{TIME: 100, FAULT: poison}", "{TIME: [100, 90], FAULT: [none, poison]}")
    printed = scripted.done(*OPTIONS, verb="sweep", code=64)
    assert "the incumbent, TIME=100 FAULT=poison, is rejected itself: poison in " in printed


def test_an_environment_that_cannot_be_made_stops_it_and_the_same_command_goes_on(tmp_path: Path) -> None:
    scripted = project(tmp_path, "{TIME: 100}", "{TIME: [100, 60]}")
    (scripted.root / BROKEN).write_text("2.5.0")
    assert "must be correct in every environment" in scripted.done(*OPTIONS, verb="sweep", code=30)
    (scripted.root / BROKEN).unlink()
    assert sweep(scripted)[0].winner


def test_a_budget_ends_the_search_and_a_larger_one_goes_on(tmp_path: Path) -> None:
    values = [100, *range(120, 150)]
    scripted = project(tmp_path, "{TIME: 100}", f"{{TIME: {values}}}")
    first = ("--kernel=scripted", "--workload=first")
    record, _ = sweep(scripted, *first, "--budget=0.1s")
    count = len(record.trials)
    assert count < 30 and record.spent_s > 0.1
    again, _ = sweep(scripted, *first, f"--budget={record.spent_s + 0.1:.1f}s")
    assert len(again.trials) == 2 * count and again.trials[:count] == record.trials


def test_what_nobody_has_is_refused(tmp_path: Path) -> None:
    scripted = project(tmp_path, "{TIME: 100}", "{TIME: [100, 90]}")
    for options, said in (
        (("--kernel=other", "--workload=first"), "choose from: scripted"),
        (("--kernel=scripted", "--workload=other"), "--workload other: not in matrix.yaml"),
        (("--kernel=scripted", "--workload=first", "--device=cuda"), "no source for a device here"),
        (("--kernel=scripted", "--workload=first", "--budget=soon"), "is no time such as"),
        (("--kernel=scripted",), "--workload"),
    ):
        assert said in scripted.done(*options, verb="sweep", code=64)
    printed = scripted.done(*OPTIONS, "--list", verb="sweep")
    assert "2 settings" in printed and "incumbent: TIME=100" in printed
    assert not (scripted.root / "reports" / "sweeps").exists()


def test_killed_at_any_moment_it_goes_on_and_redoes_nothing_that_was_recorded(tmp_path: Path) -> None:
    search = "{TIME: [100, 80, 60], FAULT: [none, wrong]}"
    wanted, _ = sweep(project(tmp_path / "whole", "{TIME: 100, FAULT: none}", search))

    def check(scripted: Scripted) -> None:
        record, _ = sweep(scripted)
        assert searched(record) == searched(wanted), "it proposed other settings than an undisturbed sweep"
        assert record.winner and record.winner.setting == {"TIME": 60, "FAULT": "none"}

    check_search_survives_kills(
        random.Random("sweep"),
        lambda number: project(tmp_path / str(number), "{TIME: 100, FAULT: none}", search),
        "sweep",
        OPTIONS,
        rounds=3,
        kills=2,
        check=check,
    )
