"""Forward, backward and both: what a page says of their times, and that neither is taken for the other."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest

from harness.stats.screen import moved_targets
from harness.worker import protocol
from reports.compare.exit_codes import exit_codes
from reports.compare.rows import leading_time
from reports.model import Comparison
from reports.render.page import render_page
from reports.render.report import Report
from reports.render.summaries import render_summary, render_timings
from tests.unit.reporting import report_of
from tests.unit.spec import NEXT, Case, Spec

FORWARD, STEP = "seed-fp32", "seed.backward-fp32"
PASS = "math.backward"
SAME = Case()


def spec(forward: Case = SAME, step: Case = SAME, backward: Case = SAME, **changes: object) -> Spec:
    """What `math` does in the newer environment."""
    cases = {(NEXT, "math", FORWARD): forward, (NEXT, "math", STEP): step, (NEXT, PASS, STEP): backward}
    values = {"workloads": (FORWARD, STEP), "references": ("math",), "spread": 0.002, "cases": cases} | changes
    return Spec(**values)  # type: ignore[arg-type]


def row_of(report: Report, target: str = "math", workload: str = STEP) -> Comparison:
    return next(row for row in report.rows if (row.target, row.workload) == (target, workload))


def slower(by: float) -> Case:
    return Case(slowdown=by)


def said(report: Report) -> str:
    return " ".join([report.answers.title, *(each.what for each in report.answers.references)])


def texts(report: Report, row: Comparison) -> list[str]:
    causes = [cause for _, cause in report.by_row[row.id]]
    return [text for cause in causes for text in (cause.statement, *(seen.text for seen in cause.evidence))]


@pytest.mark.parametrize(
    ("forward", "backward", "parts"),
    [
        (1.0, 1.4, r"forward: the same time; backward: 1\.40\N{MULTIPLICATION SIGN} \[1\.\d+, 1\.\d+\] the time"),
        (1.4, 1.0, r"forward: 1\.40\N{MULTIPLICATION SIGN} \[1\.\d+, 1\.\d+\] the time; backward: the same time"),
    ],
)
def test_a_slow_pass_is_told_as_its_own(tmp_path: Path, forward: float, backward: float, parts: str) -> None:
    report = report_of(tmp_path, spec(slower(forward), slower(1.25), slower(backward)))
    row = row_of(report)
    assert row.backward is not None and re.fullmatch(parts, row.parts)
    assert (row.latency.verdict, row.backward.verdict) == ("regressed", "pass" if backward == 1 else "regressed")
    assert any(re.search(parts, text) for text in texts(report, row)), "the cause of the step's time says it"
    assert re.search(parts, said(report)) and re.search(parts.replace("forward", "Forward", 1), render_page(report))


def test_a_slow_backward_in_a_step_that_takes_as_long_moved_and_is_called_by_its_name(tmp_path: Path) -> None:
    report = report_of(tmp_path, spec(backward=slower(1.4)))
    row = row_of(report)
    assert report.moved == [row] and leading_time(row)[0] == "backward"
    assert "backward alone 40% slower" in said(report)
    assert any("math is slower in its backward pass: 1.40" in text for text in texts(report, row))
    assert exit_codes(report.evidence, report.rows, frozenset({"latency"})) == [11]
    assert report.counts["backward_latency"] == {"regressed": 1} and report.counts["latency"] == {"pass": 4}
    assert "Latency, backward" in render_page(report)


def test_where_nothing_moved_a_page_has_both_times_and_no_cause(tmp_path: Path) -> None:
    report = report_of(tmp_path, spec())
    row = row_of(report)
    assert row.parts == "forward: the same time; backward: the same time" and not report.moved
    page = render_page(report)
    assert '<span class="mode">step</span>' in page and '<span class="mode">backward</span>' in page
    assert row_of(report, workload=FORWARD).backward is None
    kernel = row_of(report, "attention_scalar")
    assert kernel.backward is None and not kernel.parts, "its one function does both"


@pytest.mark.parametrize("environments", [(NEXT,), ("torch2.1.0-cu121-py311", NEXT)])
def test_a_graph_that_serves_once_has_no_time_and_its_reason(tmp_path: Path, environments: tuple[str, ...]) -> None:
    message = "backward cannot be called a second time on the same graph: buffers were donated"
    made = spec()
    once = {(name, PASS, STEP): Case(status=protocol.NOT_RUN, message=message) for name in environments}
    report = report_of(tmp_path, spec(cases=made.cases | once))
    row = row_of(report)
    assert row.backward is not None and row.backward.verdict == "no_data" and message in row.backward.why
    assert row.parts == "forward: the same time; backward: not timed" and message in render_page(report)
    assert row.timed == [row.latency] and not report.moved, "it neither moved nor is it undecided"
    assert exit_codes(report.evidence, report.rows, frozenset({"latency"}), strict=True) == []


def test_times_and_counts_are_in_the_files_beside_the_page(tmp_path: Path) -> None:
    report = report_of(tmp_path, spec(backward=slower(1.4)))
    lines = list(csv.DictReader(io.StringIO(render_timings(report))))
    known = {(line["target"], line["workload"], line["environment"]): line["backward_us"] for line in lines}
    assert float(known["math", STEP, NEXT]) == pytest.approx(1120, rel=0.02) and not known["math", FORWARD, NEXT]
    assert json.loads(render_summary(report))["counts"]["backward_latency"] == {"regressed": 1}


def test_on_a_gpu_it_stands_beside_cold_and_hot_times_of_the_step(tmp_path: Path) -> None:
    report = report_of(tmp_path, spec(backward=slower(1.4), device="cuda"))
    row = row_of(report)
    assert list(row.modes) == ["cold", "hot", "backward"] and leading_time(row)[0] == "backward"
    page = render_page(report)
    for mode in ("step, cold", "step, hot", "backward"):
        assert f'<span class="mode">{mode}</span>' in page
    assert row.backward is not None and row.backward.this.rates.tflops is None, "operations are those of a step"


def test_a_slow_backward_calls_for_a_profile_of_its_step(tmp_path: Path) -> None:
    evidence = report_of(tmp_path, spec(backward=slower(1.4))).evidence
    launches = [launch for group in evidence.launch_records.values() for launch in group]
    assert [(each.target, each.workload) for each in moved_targets(evidence.run, launches)] == [("math", STEP)]
