"""From what was measured to the answer: verdicts, sentence, next command, page and CSV."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest

from harness.cli.main import main
from harness.schema.storage import load_record, save_record
from harness.schema.sweep_records import BatchRecord, Compared, Confirmation, SweepQuestion, SweepRecord, Trial
from harness.search.sweep.answer import answer, next_command, print_table, verdict_of
from harness.search.sweep.measure import score
from reports.render.sweep import leaderboard, render_leaderboard, render_page

X = "\N{MULTIPLICATION SIGN}"
NASTY = "<script>alert(1)</script>"
PLACES = ("torch2.1.0-cu121-py311", "torch2.5.0-cu121-py311")
COMMAND = ["nox", "-s", "sweep", "--", "--kernel", "mine", "--workload", "seed", "--budget", "1m"]


def compared(ratio: float, launches: int, width: float = 0.02) -> list[Compared]:
    interval = launches >= 4
    return [
        Compared(
            environment=place,
            workload="seed-fp32",
            mode="cold",
            incumbent_us=[100.0 + i for i in range(launches)],
            this_us=[ratio * (100.0 + i) for i in range(launches)],
            ratio=ratio,
            low=ratio - width if interval else None,
            high=ratio + width if interval else None,
        )
        for place in PLACES
    ]


def trial(value: int, ratio: float, launches: int = 1) -> Trial:
    each = compared(ratio, launches)
    return Trial(setting={"A": value}, kernel=f"mine.{value}", status="ok", compared=each, score=score(each))


REJECTED = [
    Trial(
        setting={"A": 7},
        kernel="mine.7",
        stage="build",
        environment=PLACES[1],
        status="build_failed",
        message=f"error: {NASTY}",
        log_excerpt=NASTY,
    ),
    Trial(setting={"A": 8}, kernel="mine.8", stage="poison", environment=PLACES[0], status="wrong", message="heap"),
]


def sweep(confirmed: bool | None = True, final: float = 0.82, trials: list[Trial] | None = None) -> SweepRecord:
    question = SweepQuestion(
        id="mine-cpu-0123",
        created_utc="2026-01-01T00:00:00+00:00",
        kernel="mine",
        device="cpu",
        workloads=["seed-fp32"],
        environments=list(PLACES),
        search={"A": [1, 2, 3, 7, 8]},
        incumbent={"A": 1},
        settings=5,
        executor="venv",
        seed=0,
        batch=4,
        level=0.05,
        search_trials=5,
        search_launches=1,
        final_launches=6,
        confirming_launches=10,
        finalists=4,
    )
    tried = [trial(2, 0.8), trial(3, 1.3), *REJECTED] if trials is None else trials
    batch = BatchRecord(
        number=0,
        run="20260101-000000-aa",
        trials=tried,
        untried=[f"shared: NaN: {NASTY}"],
        started_utc="2026-01-01T00:00:00+00:00",
        duration_s=61.0,
    )
    finals = [trial(2, final, 6), trial(3, 1.2, 6)] if trials is None else []
    confirmation = None
    if confirmed is not None:
        confirmation = Confirmation(
            run="20260101-000000-cc", trial=trial(2, 0.85, 10), confirmed=confirmed, why="the intervals say so"
        )
    verdict = verdict_of(finals, confirmation)
    return SweepRecord(
        question=question,
        command=COMMAND,
        budget_s=60,
        spent_s=61,
        exhausted=False,
        batches=[batch],
        finals=finals,
        finals_run="20260101-000000-bb",
        confirmation=confirmation,
        verdict=verdict,
        winner=confirmation.trial.setting if confirmation else None,
        answer=answer(question, tried, verdict, confirmation),
        next_command=next_command(COMMAND, verdict, 60, exhausted=False, run="20260101-000000-cc", written=False),
        finished_utc="2026-01-01T00:10:00+00:00",
    )


@pytest.mark.parametrize(
    ("given", "verdict", "told", "command"),
    [
        (
            {},
            "confirmed",
            "A=2 is 15.0% faster than the incumbent, confirmed in every environment (4 of 4 ",
            "nox -s sweep -- --kernel mine --workload seed --budget 1m --write",
        ),
        (
            {"confirmed": False},
            "not_confirmed",
            "A=1 stays: A=2 looked fastest, and is not",
            "nox -s sweep -- --kernel mine --workload seed --budget=120s",
        ),
        ({"confirmed": None, "final": 1.1}, "none_faster", "A=1 stays: ", None),
        (
            {"confirmed": None, "trials": REJECTED},
            "none_admitted",
            "A=1 stays: none that was tried could be timed",
            None,
        ),
    ],
)
def test_what_was_found_is_told_by_the_confirmation_with_what_is_next(
    given: dict[str, Any], verdict: str, told: str, command: str | None
) -> None:
    record = sweep(**given)
    assert record.verdict == verdict and record.answer.startswith(told)
    assert command in (None, record.next_command)


def test_what_is_next_when_all_was_tried_or_written() -> None:
    reported = next_command(COMMAND, "none_faster", 60, exhausted=True, run="r", written=False)
    assert reported == "nox -s report -- reports/runs/r"
    written = next_command([*COMMAND, "--write"], "confirmed", 60, exhausted=True, run="r", written=True)
    assert written == "nox -s matrix"


def test_the_leaderboard_has_finals_first_and_the_incumbent_where_its_one_puts_it() -> None:
    rows = leaderboard(sweep())
    assert [(row["rank"], row["setting"], row["searched"], row["again"]) for row in rows] == [
        ("1", "A=2", f"0.800{X}", f"0.820{X}"),
        ("\N{EN DASH}", "A=1", f"1{X}", f"1{X}"),
        ("2", "A=3", f"1.300{X}", f"1.200{X}"),
    ]
    first = rows[0]["places"][0]
    assert first["time"] == "84.05 \N{MICRO SIGN}s [82.00, 86.10]", "six launches: an interval of the median"
    assert first["ratio"] == f"0.820{X} [0.800, 0.840]"
    assert [row["setting"] for row in leaderboard(sweep(None, final=1.1))] == ["A=1", "A=2", "A=3"]
    assert leaderboard(sweep(None, trials=REJECTED)) == []


def test_a_page_says_what_matters_and_nothing_of_a_candidate_runs() -> None:
    page = render_page(sweep())
    assert NASTY not in page and "&lt;script&gt;" in page
    assert page.count("<script") == 1, "its own, which the policy admits by its digest"
    for said in (
        "winner's curse",
        "geometric mean",
        "did not compile",
        "not clean under poison",
        f"0.850{X}",
        f"Quote 0.850{X}, the geometric mean of these ratios, not the search&#39;s 0.800{X}",
        "leaderboard.csv",
        "prefers-color-scheme: dark",
        "nothing is known about it: shared: NaN",
    ):
        assert said in page, said
    assert "not confirmed" in render_page(sweep(confirmed=False))
    for record in (sweep(None, final=1.1), sweep(None, trials=REJECTED)):
        assert "nothing to confirm" in render_page(record)


def test_cells_of_a_narrow_page_carry_their_column_s_name() -> None:
    rows = re.findall(r"<tr class=\"row\">.*?</tr>", render_page(sweep()), re.S)
    assert rows and all(
        cell in ("name",) or "data-label" in cell or "name" in cell
        for row in rows
        for cell in re.findall(r"<td[^>]*>", row)
    )


def test_the_csv_has_every_setting_with_its_figures_or_its_reason() -> None:
    rows = list(csv.DictReader(io.StringIO(render_leaderboard(sweep()))))
    assert [row["phase"] for row in rows] == ["search"] * 6 + ["final"] * 4 + ["confirmation"] * 2
    assert rows[0]["A"] == "2" and rows[0]["median_us"] == "80.0" and rows[0]["ratio_low"] == ""
    assert {row["rejected"] for row in rows} == {"", "build", "poison"}
    assert float(rows[-1]["ratio_high"]) < 1 and rows[-1]["launches"] == "10"


def test_the_table_is_printed_with_what_is_next(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(sweep())
    printed = capsys.readouterr().out
    assert "A=2" in printed and "rejected: 1 did not compile, 1 not clean under poison" in printed
    assert "next: nox -s sweep" in printed


def test_files_are_written_when_it_is_finished(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_record(tmp_path / "question.json", sweep().question)
    assert main(["report", str(tmp_path)]) == 64 and "not finished" in capsys.readouterr().err
    save_record(tmp_path / "sweep.json", sweep())
    assert load_record(tmp_path / "sweep.json", SweepRecord) == sweep()
    assert main(["report", str(tmp_path)]) == 0
    assert sweep().answer in capsys.readouterr().out
    assert (tmp_path / "index.html").is_file() and (tmp_path / "leaderboard.csv").is_file()
