"""What a sweep proposes, measures and confirms, from made-up records; its page; and its options."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from harness.cli.main import main
from harness.cli.options import duration_s
from harness.config.kernels import Kernel
from harness.config.matrix import Matrix, load_matrix, parse_matrix
from harness.config.planner import plan_run
from harness.errors import InputError
from harness.schema.records import LaunchRecord
from harness.schema.run_records import Selection
from harness.schema.storage import load_record, save_record
from harness.schema.sweep_records import Setting, SettingTrial, SweepRecord, TimeRatio
from harness.search import sweep
from harness.search.times import read_medians
from harness.stats.medians import COLD, HOT
from reports.render.sweep import find_next_command, render_answer, render_page
from tests.unit.hand_made import launch, timing
from tests.unit.test_bisecting_subject import FACTS
from tests.unit.test_matrix import SMALL, refusal

KERNEL = "  - {name: mine, sources: {cpu: [mine.cpp]}}"
MANY = list(range(400))
OLD, NEW = "torch2.1.0-cu121-py311", "torch2.5.0-cu121-py311"
NASTY = "<script>alert(1)</script>"
COMMAND = ["nox", "-s", "sweep", "--", "--kernel", "mine", "--workload", "seed", "--budget", "1m"]


@pytest.fixture
def shipped(root: Path) -> Matrix:
    return load_matrix(root / "matrix.yaml")[0]


def kernel(**search: list[int | str]) -> Kernel:
    tunables = {name: values[0] for name, values in search.items()}
    return Kernel.model_validate(
        {"name": "mine", "sources": {"cpu": ["mine.cpp"]}, "tunables": tunables, "search": search}
    )


def ratio(value: float, low: float | None = None, high: float | None = None, environment: str = OLD) -> TimeRatio:
    return TimeRatio(
        environment=environment,
        workload="seed-fp16",
        mode="cold",
        incumbent_us=100,
        this_us=100 * value,
        ratio=value,
        low=low,
        high=high,
        replicates=6 if low else 1,
    )


def trial(setting: Setting, *ratios: TimeRatio, **changes: Any) -> SettingTrial:
    values: dict[str, Any] = {"setting": setting, "confirms": False, "run": "20260101-000000-aa"}
    return SettingTrial(**values | {"ratios": list(ratios)} | changes)


# -- what is proposed ----------------------------------------------------------------------------------------------


def test_every_setting_is_proposed_once_and_the_same_trials_propose_the_same() -> None:
    searched = kernel(A=[64, 16, 32], B=["x", "y"], C=[1, 2, 4])
    trials: list[SettingTrial] = []
    sizes = []
    while batch := sweep.propose(searched, trials, 4, len(trials)):
        assert batch == sweep.propose(searched, trials, 4, len(trials))
        sizes.append(len(batch))
        trials += [
            trial(setting, ratio(1.0)) if i else trial(setting, rejected="no") for i, setting in enumerate(batch)
        ]
    assert sum(sizes) == len({str(each.setting) for each in trials}) == 17 and max(sizes) == 4
    assert sweep.incumbent_of(searched) not in [each.setting for each in trials]


def test_it_learns_what_is_rejected_and_where_the_best_are() -> None:
    """Half of the settings are wrong, and it proposes fewer of them than chance would; it finds the best of 200."""
    searched = kernel(FAULT=["none", "wrong"], A=[5, *range(5), *range(6, 10)], B=[5, *range(5), *range(6, 10)])
    late: list[SettingTrial] = []
    for seed in (0, 1000, 2000):
        trials: list[SettingTrial] = []
        for number in range(10):
            for setting in sweep.propose(searched, trials, 4, seed + number):
                score = 1.0 + abs(int(setting["A"]) - 2) / 5 + abs(int(setting["B"]) - 7) / 5
                wrong = setting["FAULT"] == "wrong"
                trials.append(trial(setting, rejected="wrong") if wrong else trial(setting, ratio(score)))
        assert min(each.score for each in trials) <= 1.4, "as good are 13 of 100"
        late += trials[16:]
    assert sum(bool(each.rejected) for each in late) < 0.45 * len(late)


# -- what is measured ----------------------------------------------------------------------------------------------


def test_a_derived_matrix_holds_incumbent_and_settings_in_every_environment(shipped: Matrix) -> None:
    searched, _ = sweep.choose_kernel(shipped, "attention_scalar", Path(), "cpu")
    settings = sweep.propose(searched, [], 2, 0)
    selection = Selection(workloads=("tail239",), devices=("cpu",))
    search, final = (
        plan_run(sweep.derive_matrix(shipped, searched, settings, confirms=confirms), selection, FACTS)
        for confirms in (False, True)
    )
    assert len(search.kernels) == 3 and search.kernels[0].name == "attention_scalar" and searched.settings == 108
    assert {build.device for build in search.builds} == {"cpu"} and len(search.launches) == 3 * 2
    assert all(count <= 5 for workload in search.workloads for count in workload.trials.values())
    # What confirms has other inputs, all trials, and enough replicates.
    assert final.seed != search.seed and final.workloads[0].trials["independent"] == 20
    assert final.launches_each == max(shipped.launches, 6)


@pytest.mark.parametrize(
    ("capability", "own"),
    [("90", ["sm_90", "sm_90a"]), ("80", ["sm_80"]), ("120", ["sm_80", "sm_89", "sm_90", "sm_90a"])],
)
def test_a_search_compiles_for_the_gpus_here(capability: str, own: list[str]) -> None:
    every = kernel(A=[1, 2]).model_copy(update={"architectures": ["sm_80", "sm_89", "sm_90", "sm_90a"]})
    assert sweep.find_own_architectures(every, [("GPU", capability, "1")]) == own


def test_a_variant_is_named_by_its_setting_alone_and_the_incumbent_keeps_its_name() -> None:
    searched = kernel(A=[1, 2], B=["x", "y"])
    made = sweep.make_variant(searched, {"A": 2, "B": "x"})
    assert made.name.startswith("mine.") and made.tunables == {"A": 2, "B": "x"} and not made.search
    assert sweep.make_variant(searched, {"B": "x", "A": 2}).name == made.name
    assert sweep.make_variant(searched, sweep.incumbent_of(searched)).name == "mine"
    assert len(sweep.make_variant(searched.model_copy(update={"name": "a" * 64}), {"A": 2}).name) == 64


def launches(name: str, environment: str, *times: float, **changes: object) -> list[LaunchRecord]:
    timings = [timing(us, us, 9 * us, workload="seed-fp16", **changes) for us in times]
    return [launch(each, kernel=name, environment=environment, index=index) for index, each in enumerate(timings)]


def compare(*records: LaunchRecord) -> list[TimeRatio]:
    return sweep.compare_times(read_medians(records, "kernel", (COLD, HOT)), "mine", "mine.1", 0.95)


def test_a_setting_is_compared_with_the_incumbent_in_the_same_rounds_and_in_every_place() -> None:
    old = [*launches("mine", OLD, 100, 200, 100), *launches("mine.1", OLD, 80, 160)]
    new = [*launches("mine", NEW, 10, 10), *launches("mine.1", NEW, 9, 9, 1000)]
    found = compare(*old, *new)
    expected = [(OLD, pytest.approx(0.8), 2), (NEW, pytest.approx(0.9), 2)]
    assert [(each.environment, each.ratio, each.replicates) for each in found] == expected
    assert compare(*old, *launches("mine", NEW, 10)) == [], "a place without a time is not compared"


def test_a_gpu_is_compared_by_single_calls_and_by_replays() -> None:
    both = [*launches("mine", OLD, 100, hot_us=[50.0]), *launches("mine.1", OLD, 90, hot_us=[40.0])]
    assert {each.mode: each.ratio for each in compare(*both)} == pytest.approx({"cold": 0.9, "hot": 0.8})
    assert compare(both[0], *launches("mine.1", OLD, 90)) == []


@pytest.mark.parametrize(
    ("ratios", "score", "is_faster"),
    [
        ([ratio(0.5, 0.4, 0.6), ratio(0.9, 0.85, 0.95, NEW)], 0.45**0.5, True),
        ([ratio(0.5, 0.4, 0.6), ratio(0.9, 0.85, 1.0, NEW)], 0.45**0.5, False),  # not in one environment alone
        ([ratio(0.5)], 0.5, False),  # one replicate has no interval
        ([ratio(0.5, 0.4, float("nan"))], 0.5, False),
        ([], float("inf"), False),
    ],
)
def test_a_winner_is_faster_in_every_place_with_its_whole_interval(
    ratios: list[TimeRatio], score: float, is_faster: bool
) -> None:
    made = trial({"A": 1}, *ratios)
    assert (made.score, made.is_faster) == (pytest.approx(score), is_faster)


# -- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tunables", "said"),
    [
        ("tunables: {A: 1}, search: {B: [1, 2]}", "search.B: is none of the kernel's tunables (A)"),
        ("search: {A: [1, 2]}", "none of the kernel's tunables (there are none)"),
        ("tunables: {A: 1}, search: {A: [2, 3]}", "search.A: lacks 1, its value in tunables"),
        ("tunables: {A: 1}, search: {A: [1, 2, 2]}", "search.A: 2 stands twice"),
        ("tunables: {A: 1}, search: {A: 1}", "search.A: expected a list, got 1"),
        ("tunables: {A: 1}, search: {A: [1, true]}", "search.A[1]"),
        ("tunables: {A: 1}, search: {a: [1, 2]}", "search"),
        (f"tunables: {{A: 0, B: 0}}, search: {{A: {MANY}, B: {MANY}}}", "160000 settings, at most 100000"),
    ],
)
def test_a_search_that_makes_no_sense_is_refused_with_its_place(tunables: str, said: str) -> None:
    message = refusal(SMALL.replace(KERNEL, KERNEL[:-1] + f", {tunables}}}"))
    assert said in message and "kernels[0]" in message


def test_a_kernel_without_a_search_or_without_the_device_is_refused(shipped: Matrix) -> None:
    for matrix, name, device, said in (
        (parse_matrix(SMALL), "mine", "auto", "search: {BLOCK_M: [16, 32, 64]}"),
        (parse_matrix(SMALL), "other", "auto", "--kernel other: not in matrix"),
        (shipped, "attention_scalar", "cuda", "no source for a device here"),
    ):
        with pytest.raises(InputError) as caught:
            sweep.choose_kernel(matrix, name, Path(), device)
        assert said in str(caught.value)
    assert sweep.choose_kernel(shipped, "attention_scalar", Path(), "auto")[1] == "cpu"


def test_budgets() -> None:
    assert list(map(duration_s, ("90s", "10m", "2h", "0.5m"))) == [90, 600, 7200, 30]
    for text in ("", "10", "0m", "-1m", "ten m", "1d"):
        with pytest.raises(argparse.ArgumentTypeError, match="is no time such as"):
            duration_s(text)


# -- what is told --------------------------------------------------------------------------------------------------

SEARCHED = [trial({"A": 2}, ratio(0.8)), trial({"A": 3}, ratio(1.3)), trial({"A": 7}, rejected=f"build: {NASTY}")]
WINS = trial({"A": 2}, ratio(0.85, 0.8, 0.9), confirms=True, run="20260101-000000-cc")
FAILS = trial({"A": 2}, ratio(0.85, 0.8, 1.1), confirms=True)
REJECTED = trial({"A": 2}, confirms=True, rejected="poison in X: heap")


def swept(*trials: SettingTrial, finished: bool = True, settings: int = 5) -> SweepRecord:
    return SweepRecord(
        id="mine-cpu-0123",
        command=COMMAND,
        kernel="mine",
        workloads=["seed-fp32"],
        environments=[OLD, NEW],
        fallbacks=[],
        incumbent={"A": 1},
        settings=settings,
        budget_s=60,
        spent_s=61,
        trials=list(trials),
        finished_utc="2026-01-01T00:10:00+00:00" if finished else "",
    )


@pytest.mark.parametrize(
    ("record", "said", "command"),
    [
        (
            swept(*SEARCHED, WINS),
            "A=2 is 15.0% faster than A=1, confirmed",
            "report -- reports/runs/20260101-000000-cc",
        ),
        (swept(*SEARCHED, FAILS), "A=1 stays: A=2 looked fastest, and is not confirmed", "--budget=120s"),
        (swept(*SEARCHED, REJECTED), "rejected, poison in X: heap", "--budget=120s"),
        (swept(SEARCHED[1]), "A=1 stays: nothing was faster (1 of 4 other", "--budget=120s"),
        (swept(SEARCHED[1], settings=2), "A=1 stays: nothing was faster (1 of 1 other", "report -- reports/runs"),
        (swept(SEARCHED[2]), "none that was tried could be timed", "--budget=120s"),
        (swept(SEARCHED[0], finished=False), "the sweep is not finished", "--budget=120s"),
    ],
)
def test_what_was_found_is_told_by_the_confirmation_with_what_is_next(
    record: SweepRecord, said: str, command: str
) -> None:
    assert said in render_answer(record) and command in find_next_command(record)
    page = render_page(record)
    assert NASTY not in page and page.count("<script") == 1, "its own, which the policy admits by its digest"
    assert ("&lt;script&gt;" in page) == (SEARCHED[2] in record.trials)


def test_the_page_is_written_beside_its_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = swept(*SEARCHED, WINS)
    save_record(tmp_path / "sweep.json", record)
    assert load_record(tmp_path / "sweep.json", SweepRecord) == record
    assert main(["report", str(tmp_path)]) == 0
    assert "A=2 is 15.0% faster" in capsys.readouterr().out and "winner" in (tmp_path / "index.html").read_text()
