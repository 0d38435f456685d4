"""What a report says of a GPU: cold and hot, rates and ceilings, clocks, who else was there, and what ran."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from harness.schema.records import Outcome
from reports.compare.exit_codes import exit_codes
from reports.render.page import render_page
from reports.render.report import Report
from reports.render.summaries import render_junit, render_summary, render_summary_text, render_timings
from tests.unit.reporting import kernel_row, report_of
from tests.unit.spec import BASE, GBPS, HOST, NEXT, TFLOPS, UUID, Case, Spec, gpu_spec
from tests.unit.test_page import HOSTILE, assert_harmless

SEED = "seed-fp16"


def small(**changes: object) -> Spec:
    values = {"device": "cuda", "workloads": (SEED,), "references": ("flash",), "spread": 0.002} | changes
    return Spec(**values)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return report_of(tmp_path_factory.mktemp("gpu"), gpu_spec())


def test_a_cpu_has_no_hot_times(tmp_path: Path) -> None:
    report = report_of(tmp_path, Spec())
    assert all(row.hot is None for row in report.rows)
    assert not report.counts["hot_latency"] and not report.cards
    page = render_page(report)
    assert "hot" not in page.partition("<main>")[0] and 'id="rates"' not in page


@pytest.mark.parametrize(
    ("case", "cold", "hot"),
    [
        (Case(), "pass", "pass"),
        (Case(slowdown=1.05), "regressed", "regressed"),
        (Case(slowdown=1.05, hot_slowdown=1.0), "regressed", "pass"),
        (Case(hot_slowdown=1.05), "pass", "regressed"),
        (Case(hot_slowdown=0.9), "pass", "improved"),
        (Case(hot_message="cannot be captured"), "pass", "undecided"),
        (Case(status="unsupported", message="refused"), "no_longer_supported", "no_longer_supported"),
    ],
)
def test_hot_is_judged_as_cold_is(tmp_path: Path, case: Case, cold: str, hot: str) -> None:
    row = kernel_row(report_of(tmp_path, small(cases={(NEXT, "kernel", SEED): case})))
    assert row.hot is not None
    assert (row.latency.verdict, row.hot.verdict) == (cold, hot)
    assert row.latency.why and row.hot.why


def test_a_kernel_that_is_slower_hot_alone_moved_and_says_so(tmp_path: Path) -> None:
    report = report_of(tmp_path, small(cases={(NEXT, "kernel", SEED): Case(hot_slowdown=1.05)}))
    assert [row.target for row in report.moved] == ["attention_scalar"]
    assert "4.9% slower [" in report.answers.title and "(replayed as a CUDA graph)" in report.answers.title
    texts = [seen.text for _, cause in report.by_row[report.moved[0].id] for seen in cause.evidence]
    assert any("only replays changed" in text for text in texts)
    assert "hot: regressed" in render_summary_text(report)
    assert exit_codes(report.evidence, report.rows, frozenset({"latency"})) == [11]
    assert 'failures="1"' in render_junit(report)


def test_replays_that_are_missing_are_undecided_with_their_reason(tmp_path: Path) -> None:
    report = report_of(tmp_path, small(cases={(NEXT, "kernel", SEED): Case(hot_message="cannot be captured")}))
    row = kernel_row(report)
    assert row.hot is not None and row.hot.why == "no times: cannot be captured"
    assert row.hot.this.median_us is None and row.latency.this.median_us is not None
    assert {row.latency.verdict for row in report.rows} == {"pass"}
    assert exit_codes(report.evidence, report.rows, frozenset({"latency"}), strict=True) == [40]
    assert not exit_codes(report.evidence, report.rows, frozenset({"correctness"}), strict=True)
    page = render_page(report)
    assert "none: cannot be captured" in page
    assert "all 3 rows together say" in page, "one false-discovery rate over the kernel cold and flash cold and hot"


def test_one_environment_alone_is_not_tallied_as_undecided(tmp_path: Path) -> None:
    report = report_of(tmp_path, small(environments=(BASE,)))
    nothing = "nothing to compare with"
    correct = [("kernels", {"pass": 1}), ("references", {"pass": 1})]
    assert dict(report.tallied) == {"correctness": correct, "latency": [], "hot latency": []}
    assert f"- latency: {nothing}\n- hot latency: {nothing}\n" in render_summary_text(report)
    page = render_page(report)
    assert page.count(f'<dd class="dim">{nothing}</dd>') == 2
    assert "There is only one environment" in page and "changed significantly" not in page
    assert "not compared" in page and "v-undecided" not in page.partition("<body>")[2]
    crashed = {(BASE, "kernel", SEED): Case(status="crashed", message="it ended")}
    broken = report_of(tmp_path / "broken", small(environments=(BASE,), cases=crashed))
    assert dict(broken.tallied)["latency"] == [("kernels", {"broken": 1})]


def test_rates_are_shares_of_what_this_gpu_reached(tmp_path: Path) -> None:
    row = kernel_row(report_of(tmp_path, small()))
    for side in (row.latency.baseline, row.hot.baseline if row.hot else None):
        assert side is not None and side.median_us is not None
        flops, size = 4 * 8 * 512**2 * 64, 4 * 8 * 512 * 64 * 2
        assert side.rates.tflops == pytest.approx(flops / side.median_us / 1e6)
        assert side.rates.gbps == pytest.approx(size / side.median_us / 1e3)
        assert side.rates.tflops_share == pytest.approx(side.rates.tflops / TFLOPS["float16"])
        assert side.rates.gbps_share == pytest.approx(side.rates.gbps / GBPS)
        assert side.low_us is not None and side.low_us <= side.median_us <= side.high_us  # type: ignore[operator]


@pytest.mark.parametrize(
    ("ceilings", "reason"),
    [
        (None, f"this run has no measured peaks of {UUID}"),
        (Outcome(status="timed_out", message="not within 60 s"), "measured peaks timed out: not within 60 s"),
    ],
)
def test_shares_that_are_missing_have_their_reason(tmp_path: Path, ceilings: Outcome | None, reason: str) -> None:
    report = report_of(tmp_path, small(ceilings=ceilings))
    found = kernel_row(report).latency.this.rates
    assert found.tflops is not None and found.tflops_share is None and found.message == reason
    page = render_page(report)
    assert "No shares for NVIDIA H200" in page and reason.removeprefix("measured peaks ") in page


def test_throttling_and_other_processes_are_confounders(whole: Report) -> None:
    said = {item.subject: item.statement for item in whole.confounders}
    assert "throttled (sw_power_cap): " in said["GPU clock"] and said["GPU clock"].endswith("in 2 of 30 launches")
    assert said["GPU"] == "1 other process used the GPU during 1 of 30 launches"
    assert "17 throttled, discarded" in render_page(whole)


def test_another_clock_is_a_confounder_and_evidence(tmp_path: Path) -> None:
    cases = {(NEXT, "kernel", SEED): Case(slowdown=1.05)}
    report = report_of(tmp_path, small(cases=cases, sm_mhz={BASE: 1980.0, NEXT: 1755.0}))
    assert any("1980 MHz in PyTorch 2.1.0, 1755 in PyTorch 2.5.0" in item.statement for item in report.confounders)
    texts = [seen.text for _, cause in report.by_row[kernel_row(report).id] for seen in cause.evidence]
    assert "SM clock while sampled: 1980 MHz in PyTorch 2.1.0, 1755 in PyTorch 2.5.0" in texts
    quiet = report_of(tmp_path / "quiet", small(sm_mhz={BASE: 1980.0, NEXT: 1975.0}))
    assert not any("SM clock" in item.statement for item in quiet.confounders)


def test_what_ran_is_told_for_each_reference_and_environment(whole: Report) -> None:
    found = {(ran.environment, ran.target): ran for ran in whole.ran}
    assert found[HOST, "default"].operators == ["aten::_scaled_dot_product_cudnn_attention"]
    assert len(found[HOST, "default"].workloads) == 6
    assert not found[BASE, "cudnn"].operators and "not a backend" in found[BASE, "cudnn"].message


def test_drift_is_against_the_baseline_or_where_it_has_none_the_one_before(whole: Report) -> None:
    drift = render_page(whole).partition('id="drift"')[2].partition('id="environment"')[0]
    assert "in 31% of elements" in drift
    assert "unsupported in PyTorch 2.1.0" in drift and f"against {NEXT}: ≠ other bits 3/3" in drift


def test_the_host_environment_is_a_column_with_a_command_of_its_own(whole: Report) -> None:
    row = next(row for row in whole.rows if row.environment == HOST)
    assert row.eval_command.startswith("nox -s \"eval(torch='host')\"")
    assert [version.torch for version in whole.versions][-1] == "2.11.0+cu130"


def test_a_bundle_says_what_it_leaves_out(tmp_path: Path) -> None:
    report = report_of(tmp_path, small(bundle={"manifest": "sha256:abc", "left out": "code for other architectures"}))
    method = render_page(report).partition('id="method"')[2]
    assert "Bundle: left out" in method and "code for other architectures" in method
    assert json.loads(render_summary(report))["run"]["bundle"]["manifest"] == "sha256:abc"


def csv_of(report: Report) -> dict[tuple[str, str, str], dict[str, str]]:
    lines = csv.DictReader(io.StringIO(render_timings(report)))
    return {(line["environment"], line["target"], line["workload"]): line for line in lines}


def test_the_csv_holds_every_target_in_every_environment(whole: Report) -> None:
    lines = csv_of(whole)
    assert len(lines) == 3 * 6 * 6
    math, cudnn = lines[HOST, "math", SEED], lines[BASE, "cudnn", SEED]
    assert math["cold_us"] and not math["hot_us"] and "cannot be captured" in math["no_hot_because"]
    assert cudnn["status"] == "unsupported" and not cudnn["cold_us"] and "not a backend" in cudnn["message"]


def test_no_cell_of_the_csv_is_a_formula(tmp_path: Path) -> None:
    cases = {(NEXT, "kernel", SEED): Case(status="crashed", message='=HYPERLINK("https://x.example")')}
    line = csv_of(report_of(tmp_path, small(cases=cases)))[NEXT, "attention_scalar", SEED]
    assert line["message"].startswith("'=")


def test_hostile_words_on_a_gpu_stay_text(tmp_path: Path) -> None:
    cases = {
        (NEXT, "kernel", SEED): Case(hot_message=HOSTILE),
        (NEXT, "flash", SEED): Case(operators=("aten::_attention" + HOSTILE, HOSTILE)),
    }
    crashed = Outcome(status="crashed", message=HOSTILE)
    spec = small(
        cases=cases, references=("flash", "default"), hostile=HOSTILE, bundle={HOSTILE: HOSTILE}, ceilings=crashed
    )
    page = render_page(report_of(tmp_path, spec))
    assert_harmless(page)
    assert "&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;" in page
