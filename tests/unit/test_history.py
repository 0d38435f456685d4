"""The history of runs: where times step, what the index holds, and what the page says of both."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.cli.main import main
from harness.schema.run_records import RunRecord
from harness.schema.storage import load_record, save_record
from reports.history.index import FILE, Point, update
from reports.history.steps import LEAST_RUNS, find_steps
from reports.render.history import History, render_history
from tests.unit.spec import NEXT, Case, Spec
from tests.unit.synthetic import write_run

NOISE = 0.01


def series(seed: int, runs: int, *steps: tuple[int, float]) -> list[float]:
    """Times with normal noise around 800 us, each step from its run on."""
    values = 800 * (1 + NOISE * np.random.default_rng(seed).standard_normal(runs))
    for at, ratio in steps:
        values[at:] *= ratio
    return list(values)


def test_a_step_of_3_percent_in_60_runs_is_found_within_one_run_of_its_place() -> None:
    found = [find_steps(series(seed, 60, (35, 1.03))) for seed in range(20)]
    assert all(len(steps) == 1 for steps in found)
    assert sum(abs(steps[0].at - 35) <= 1 for steps in found) >= 19
    assert all(1.02 < steps[0].ratio < 1.04 for steps in found)


def test_two_steps_are_two() -> None:
    steps = find_steps(series(1, 60, (20, 1.10), (40, 1 / 1.10)))
    assert [step.at for step in steps] == [20, 40]
    assert steps[0].ratio == pytest.approx(1.1, abs=0.02) and steps[1].ratio == pytest.approx(1 / 1.1, abs=0.02)


@pytest.mark.parametrize("runs", [LEAST_RUNS, 12, 60])
def test_noise_has_no_steps(runs: int) -> None:
    assert sum(bool(find_steps(series(seed, runs))) for seed in range(500)) <= 1


def test_one_slow_run_is_no_step() -> None:
    values = series(3, 40)
    values[17] *= 1.5
    assert find_steps(values) == []


def test_few_runs_are_not_searched_and_equal_ones_have_no_step() -> None:
    assert find_steps([800.0] * (LEAST_RUNS // 2 + 1) + [1600.0] * (LEAST_RUNS // 2 - 2)) == []
    assert find_steps([800.0] * 30) == []


# -- the index --------------------------------------------------------------------------------------------------


def add_run(reports: Path, number: int, spec: Spec, *, finished: bool = True) -> None:
    run = write_run(reports / "runs" / f"run-{number:02}", replace(spec, seed=number))
    record = load_record(run.run_path(), RunRecord)
    when = (datetime.datetime(2026, 1, 1) + datetime.timedelta(days=number)).isoformat()
    run.run_path().unlink()
    changed = {"created_utc": when, "finished_utc": when if finished else "", "commit": f"c{number:02}"}
    save_record(run.run_path(), record.model_copy(update=changed))


def small(us: float = 800, **more: object) -> Spec:
    spec = Spec(workloads=("seed-fp32",), references=("math",), launches=6, trials=2)
    return replace(spec, times_us={("kernel", "seed-fp32"): us}, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve runs: the kernel is slower from the eighth on, and wrong in one environment from the tenth."""
    folder = tmp_path_factory.mktemp("reports")
    wrong = {(NEXT, "kernel", "*"): Case(passed=0)}
    for number in range(12):
        add_run(folder, number, small(880 if number >= 7 else 800, cases=wrong if number >= 9 else {}))
    add_run(folder, 99, small(), finished=False)
    return folder


def test_every_target_of_every_finished_run_is_a_point(reports: Path) -> None:
    points, left_out = update(reports)
    assert not left_out and {point.run for point in points} == {f"run-{number:02}" for number in range(12)}
    assert len(points) == 12 * 2 * 2  # runs, environments, the kernel and a reference
    first = points[0]
    assert first.commit_id == "c00" and first.launches == 6 and first.machine.startswith("Example CPU")
    assert first.low_us is not None and first.median_us is not None and first.low_us <= first.median_us


def test_it_says_what_stepped_and_what_became_wrong_and_since_which_run(reports: Path) -> None:
    history = History(*update(reports))
    assert "12 runs: 2 steps in 4 series of times, and 1 change of correctness" in history.headline
    wrong, *slower = history.changes
    assert (wrong.word, wrong.point.run, wrong.before.run) == ("wrong", "run-09", "run-08")
    assert {(change.word, change.point.run) for change in slower} == {("slower", "run-07")}
    assert all("attention_scalar" in change.title for change in history.changes)


def test_the_index_follows_the_records(reports: Path, tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    for number in range(3):
        add_run(folder, number, small())
    before = update(folder)
    assert update(folder) == before
    (folder / FILE).write_bytes(b"no database" * 100)
    assert update(folder) == before, "it is made again"
    for path in (folder / "runs" / "run-01" / "launches").rglob("*.json"):
        path.write_text(path.read_text().replace("median", "mean").replace("0", "1"))
    points, left_out = update(folder)
    assert {point.run for point in points} == {"run-00", "run-02"} and len(left_out) == 1 and "run-01" in left_out[0]


def test_machines_are_not_joined() -> None:
    def point(machine: str, number: int) -> Point:
        return Point(
            run=f"r{number}",
            created=f"2026-01-{number + 1:02}",
            commit_id="",
            machine=machine,
            kind="kernel",
            subject="k",
            workload="w",
            device="cuda",
            environment="e",
            torch="2.5.0",
            wheels="",
            mode="cold",
            settings="",
            launched=str(number),
            status="ok",
            median_us=100.0 if machine == "A" else 200.0,
            low_us=None,
            high_us=None,
            launches=1,
        )

    history = History([point("A" if number < 10 else "B", number) for number in range(20)])
    assert [len(chart.series[0].points) for chart in history.charts] == [10, 10] and not history.changes


def test_launches_that_a_later_run_took_over_count_once(reports: Path) -> None:
    points, _ = update(reports)
    again = [point._replace(run="later", created="2026-02-01") for point in points if point.run == "run-11"]
    assert [len(chart.series[0].points) for chart in History([*points, *again]).charts] == [12, 12]


def test_another_shape_under_the_same_name_is_another_series(reports: Path) -> None:
    points, _ = update(reports)
    other = [point._replace(settings="other") if point.created > "2026-01-06" else point for point in points]
    assert not History(other).steps


def test_an_index_that_cannot_be_written_is_kept_in_memory(reports: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").symlink_to(reports / "runs")
    (tmp_path / FILE).mkdir()
    assert update(tmp_path) == update(reports)


def test_the_page_shows_them_and_runs_nothing(reports: Path) -> None:
    points, _ = update(reports)
    page = render_history(History([point._replace(workload="<script>x</script>") for point in points], ["a <b> c"]))
    assert page.count("<svg") == 2 and "<script" not in page and "a &lt;b&gt; c" in page
    assert "&lt;script&gt;" in page and "run-07" in page and "c07" in page


def test_the_command_writes_the_page(reports: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", str(reports)]) == 0
    said = capsys.readouterr().out
    assert "slower" in said and (reports / "history.html").is_file()
    assert main(["history", str(tmp_path)]) == 64
    assert "has no runs" in capsys.readouterr().err
