"""`sweep` with scripted kernels: what is rejected, what wins, what is written, and kill -9 at any moment."""

from __future__ import annotations

import csv
import os
import random
import signal
from pathlib import Path

import pytest

from harness.cli.main import main
from harness.schema.storage import load_record
from harness.schema.sweep_records import BatchRecord, SweepRecord
from tests.faults.scripted import BROKEN, MATRIX, Scripted, check_search_survives_kills, litter, wait_until

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


def folder_of(scripted: Scripted) -> Path:
    [folder] = (scripted.root / "reports" / "sweeps").glob("*")
    return folder


def result(scripted: Scripted) -> SweepRecord:
    return load_record(folder_of(scripted) / "sweep.json", SweepRecord)


def sweep(scripted: Scripted, *options: str, code: int = 0) -> tuple[SweepRecord, str]:
    """(the record, what was printed) of a sweep that ends with this code."""
    printed = scripted.done(*OPTIONS, *options, verb="sweep", code=code)
    return result(scripted), printed


def told(record: SweepRecord) -> list[tuple[object, ...]]:
    return [
        (trial.setting, trial.stage, trial.score, trial.environment)
        for batch in record.batches
        for trial in batch.trials
    ]


def test_the_fastest_right_setting_wins_is_confirmed_and_written(tmp_path: Path) -> None:
    search = "{TIME: [100, 80, 60], FAULT: [none, build, wrong, repeat, poison]}"
    scripted = project(tmp_path, "{TIME: 100, FAULT: none}", search)
    text = (scripted.root / "matrix.yaml").read_text()
    record, _ = sweep(scripted)
    trials = [trial for batch in record.batches for trial in batch.trials]
    assert record.exhausted and len(trials) == 14 and len({str(trial.setting) for trial in trials}) == 14
    for trial in trials:
        assert trial.stage == FAULTS.get(str(trial.setting["FAULT"])), trial
        assert (trial.score is None) == (trial.stage is not None)
    assert record.verdict == "confirmed" and record.winner == {"TIME": 60, "FAULT": "none"}
    assert record.confirmation is not None and len(record.confirmation.trial.compared) == 2
    for each in record.confirmation.trial.compared:
        assert each.high is not None and each.high < 0.65 and len(each.this_us) == 4
    # Nothing that was rejected was launched, and nobody's latest report was touched.
    rejected = {trial.kernel for trial in trials if trial.stage}
    launched = {path.name.split("-")[1] for path in scripted.root.glob("reports/runs/*/logs/*/launch-*")}
    assert launched == {"scripted", *(trial.kernel for trial in trials)} - rejected
    assert not (scripted.root / "reports" / "latest").exists()
    assert (scripted.root / "matrix.yaml").read_text() == text, "nobody asked for it to be written"
    assert record.next_command.endswith("--write")
    # The same command again asks nobody and redoes nothing; with --write it writes.
    before = scripted.kept
    assert "going on: 14 settings recorded before" in sweep(scripted, "--write")[1]
    assert scripted.kept == before
    assert (scripted.root / "matrix.yaml").read_text() == text.replace(
        "{TIME: 100, FAULT: none}  #", "{TIME: 60, FAULT: none}  #"
    )
    assert main(["report", str(folder_of(scripted))]) == 0
    rows = list(csv.DictReader((folder_of(scripted) / "leaderboard.csv").open()))
    assert {row["rejected"] for row in rows} == {"", *FAULTS.values()}


def test_where_nothing_is_faster_the_incumbent_stays(tmp_path: Path) -> None:
    scripted = project(tmp_path, "{TIME: 100}", "{TIME: [100, 150, 200]}")
    text = (scripted.root / "matrix.yaml").read_text()
    record, printed = sweep(scripted, "--write", "--strict", code=40)
    assert record.verdict == "none_faster" and record.confirmation is None, printed
    assert "TIME=100 stays" in record.answer and "stays as it is" in printed
    assert (scripted.root / "matrix.yaml").read_text() == text


def test_a_winner_in_one_environment_alone_is_not_confirmed(tmp_path: Path) -> None:
    # Half the time in one and one and a half times it in the other: a geometric mean of 0.87.
    scripted = project(tmp_path, "{TIME: '100'}", "{TIME: ['100', 50/150, '130']}")
    text = (scripted.root / "matrix.yaml").read_text()
    record, printed = sweep(scripted, "--write")
    assert record.verdict == "not_confirmed" and record.winner == {"TIME": "50/150"}, printed
    assert record.confirmation is not None and not record.confirmation.confirmed
    assert record.confirmation.trial.score == pytest.approx(0.75**0.5, rel=0.02)
    assert "torch2.5.0-cu121-py311, first-fp32, cold: 1.5" in record.answer and "TIME=100 stays" in record.answer
    assert (scripted.root / "matrix.yaml").read_text() == text


def test_an_incumbent_that_is_rejected_itself_stops_it(tmp_path: Path) -> None:
    scripted = project(tmp_path, "{TIME: 100, FAULT: poison}", "{TIME: [100, 90], FAULT: [none, poison]}")
    printed = scripted.done(*OPTIONS, verb="sweep", code=64)
    assert "the incumbent, TIME=100 FAULT=poison, is rejected itself: not clean under poison" in printed
    assert main(["report", str(folder_of(scripted))]) == 64  # nothing to render yet


def test_an_environment_that_cannot_be_made_stops_it_and_the_same_command_goes_on(tmp_path: Path) -> None:
    scripted = project(tmp_path, "{TIME: 100}", "{TIME: [100, 60]}")
    (scripted.root / BROKEN).write_text("2.5.0")
    assert "must be right in every environment" in scripted.done(*OPTIONS, verb="sweep", code=30)
    (scripted.root / BROKEN).unlink()
    assert sweep(scripted)[0].verdict == "confirmed"


def test_a_budget_ends_the_search_and_a_larger_one_goes_on(tmp_path: Path) -> None:
    values = [100, *range(120, 150)]
    scripted = project(tmp_path, "{TIME: 100}", f"{{TIME: {values}}}")
    first = ("--kernel=scripted", "--workload=first", "--budget=0.1s")
    scripted.done(*first, verb="sweep")
    record = result(scripted)
    assert len(record.batches) == 1 and not record.exhausted
    assert record.spent_s > 0.1 and record.next_command.endswith("--budget=0.2s")
    batch = folder_of(scripted) / "batches" / "000.json"
    written = batch.stat().st_ino
    more = (*first[:2], f"--budget={record.spent_s + 0.1:.1f}s")
    scripted.done(*more, verb="sweep")
    again = result(scripted)
    assert len(again.batches) == 2 and again.batches[0] == record.batches[0]
    assert batch.stat().st_ino == written


def test_what_nobody_has_is_refused(tmp_path: Path) -> None:
    scripted = project(tmp_path, "{TIME: 100}", "{TIME: [100, 90]}")
    for options, said in (
        (("--kernel=other", "--workload=first"), "choose from: scripted"),
        (("--kernel=scripted", "--workload=other"), "--workload other: not in matrix.yaml"),
        (("--kernel=scripted", "--workload=first", "--device=cuda"), "has no source for it"),
        (("--kernel=scripted", "--workload=first", "--budget=soon"), "is no time such as"),
        (("--kernel=scripted",), "--workload"),
    ):
        assert said in scripted.done(*options, verb="sweep", code=64)
    printed = scripted.done(*OPTIONS, "--list", verb="sweep")
    assert "2 settings" in printed and "incumbent: TIME=100" in printed
    assert not (scripted.root / "reports" / "sweeps").exists()


def test_interrupted_it_says_so_and_goes_on(tmp_path: Path) -> None:
    scripted = project(tmp_path, "{TIME: 100}", "{TIME: [100, 90, 80]}")
    process = scripted.start(*OPTIONS, verb="sweep")
    assert wait_until(lambda: scripted.printed.exists() and "validate" in scripted.printed.read_text())
    os.kill(process.pid or 0, signal.SIGINT)
    process.join(60)
    assert process.exitcode == 130 and "the same command goes on" in scripted.printed.read_text()
    assert sweep(scripted)[0].verdict == "confirmed"
    assert not litter(scripted.root)


def test_killed_at_any_moment_it_goes_on_and_redoes_nothing_that_was_recorded(tmp_path: Path) -> None:
    search = "{TIME: [100, 80, 60], FAULT: [none, wrong]}"
    wanted, _ = sweep(project(tmp_path / "whole", "{TIME: 100, FAULT: none}", search))

    def check(scripted: Scripted) -> None:
        record = result(scripted)
        assert told(record) == told(wanted), "it asked for other settings than an undisturbed sweep"
        assert record.winner == wanted.winner == {"TIME": 60, "FAULT": "none"}

    check_search_survives_kills(
        random.Random("sweep"),
        lambda number: project(tmp_path / str(number), "{TIME: 100, FAULT: none}", search),
        "sweep",
        OPTIONS,
        "reports/sweeps/*/batches/*.json",
        kind=BatchRecord,
        rounds=3,
        kills=2,
        check=check,
    )
