"""The first screen: what is said of each kernel, in one text for the page, the summaries and the terminal."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape

from harness.cli.main import main
from harness.schema.storage import save_record
from reports.attribute.causes import Kind
from reports.load.evidence import load_evidence
from reports.render.answers import MOST, SubjectSummary
from reports.render.page import render_page
from reports.render.report import Report
from reports.text import markdown as markdown_of
from tests.unit.attributed import TIMED, of_both, spec
from tests.unit.reporting import report_of
from tests.unit.spec import BASE, NEXT, Case, Spec
from tests.unit.synthetic import write_run

THIRD = "torch2.11.0-cu121-py311"
WRONG = Case(passed=2, units=400.0)


def only(folder: Path, made: Spec) -> SubjectSummary:
    [answer] = report_of(folder, made).answers.kernels
    return answer


def test_since_is_said_only_of_what_stayed_so_on_every_workload(tmp_path: Path) -> None:
    cases = {(NEXT, "kernel", "seed-fp16"): Case(slowdown=1.3), (THIRD, "kernel", "seed-fp32"): Case(slowdown=1.3)}
    both = {"environments": (BASE, NEXT, THIRD), "trials": 10, **TIMED}
    apart = only(tmp_path / "apart", Spec(cases=cases, **both))
    assert "since" not in apart.line and "slower" in apart.line
    stayed = {(name, "kernel", "*"): Case(slowdown=1.3) for name in (NEXT, THIRD)}
    assert "since 2.5.0" in only(tmp_path / "stayed", Spec(cases=stayed, **both)).line


def test_kernels_that_were_planned_nowhere_are_named_with_the_reason(tmp_path: Path) -> None:
    run = write_run(tmp_path, spec(**TIMED))
    record = run.load()
    gpu = replace(record.kernels[0], name="for_gpu", devices=["cuda"])
    both_devices = replace(record.kernels[0], devices=["cpu", "cuda"])
    save_record(run.run_path(), replace(record, kernels=[both_devices, gpu]))
    answers = Report(load_evidence(tmp_path)).answers
    left, ran = answers.kernels
    assert left.subjects == ("for_gpu",) and left.state == "not run" and "no GPU" in left.what
    assert ran.state == "fine" and any(text.startswith("on cuda: not run") for text in ran.open)
    assert answers.title == "PyTorch 2.1.0 to 2.5.0, 2 kernels: 1 not run, 1 fine"


@pytest.mark.parametrize("changes", [{}, {"variables": {NEXT: {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}}}])
def test_what_moved_a_reference_alone_is_no_why_of_a_kernel_that_is_right(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    moved = (BASE, "math", Case(passed=6, units=30.0, bits="old")), (BASE, "kernel", Case(agrees=6))
    report = report_of(tmp_path, spec(*moved, **changes))
    [answer] = report.answers.kernels
    assert answer.why == () and answer.do[0].startswith("nothing in the kernel; in your tests, compare with a float64")
    told = [text for text in answer.also if "changed: " in text]
    assert told and told[0].endswith("6 of 10 trials agreed with it in PyTorch 2.1.0, all 10 do in PyTorch 2.5.0.")
    assert not any("ALLOC_CONF" in text for text in answer.also)
    [own] = [each for each in report.explanations if "math" in each.subjects]
    assert own.under and (Kind.ENVIRONMENT_CONFOUNDER in own.lead.causes) == bool(changes)
    [well] = [each.lead for each in report.explanations if each.lead.cause == Kind.NOTHING_MOVED]
    assert answer.run.endswith("--launches 10") and well.next_command == answer.run


@pytest.mark.parametrize("launches", [1, 10])
def test_the_smallest_change_is_spoken_of_only_where_one_is_known(launches: int, tmp_path: Path) -> None:
    page = render_page(report_of(tmp_path, spec(launches=launches, spread=0.001)))
    assert ("shows the smallest change that this run could have detected" in page) == (launches == 10)


def test_one_text_is_on_the_page_in_the_summaries_and_in_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path, spec((NEXT, "kernel", WRONG), (NEXT, "math", Case(slowdown=1.5)), busy=0.45, **TIMED))
    answers = Report(load_evidence(tmp_path)).answers
    assert main(["report", str(tmp_path)]) == 0
    *lines, page = capsys.readouterr().out.splitlines()
    assert lines == answers.lines and page.endswith("index.html")
    html, markdown = (run.folder / "index.html").read_text(), (run.folder / "summary.md").read_text()
    held = json.loads((run.folder / "summary.json").read_text())
    assert held["verdict"] == answers.title and markdown.startswith(f"**{markdown_of(answers.title)}**")
    [answer] = answers.kernels
    [kept] = held["answers"]["kernels"]
    for text in (answer.what, *answer.why, *answer.do, *answer.open, answers.of_references, answers.deviations):
        assert text and str(escape(text)) in html and markdown_of(text) in markdown
    assert (kept["what"], kept["why"], kept["run"]) == (answer.what, list(answer.why), answer.run)


def test_references_are_folded_below_kernels_each_with_a_line(tmp_path: Path) -> None:
    report = report_of(tmp_path, spec((NEXT, "kernel", WRONG), (NEXT, "math", Case(slowdown=1.5)), **TIMED))
    assert [each.subjects for each in report.answers.references] == [("math",)]
    assert report.answers.of_references == "PyTorch itself, 2 references: 1 slower, 1 fine"
    assert [each.lead.is_reference for each in report.explanations] == [False, True]
    page = render_page(report)
    before, fold, after = page.partition('<details class="fold" id="references">')
    assert "broke in 2.5.0" in before and "PyTorch&#39;s own math" not in before
    references, _, rest = after.partition("<main>")
    assert 'id="cause-2"' in references and 'id="cause-1"' in rest and fold


def test_a_message_of_several_lines_makes_no_line_of_its_own(tmp_path: Path) -> None:
    lines = report_of(tmp_path, of_both(Case(status="crashed", message="x\nother (cpu): fine"))).answers.lines
    assert any("x other (cpu): fine" in line for line in lines) and not any("\n" in line for line in lines)


def test_many_answers_are_counted_and_not_all_written_out(tmp_path: Path) -> None:
    report = report_of(tmp_path, spec(**TIMED))
    [answer] = report.answers.kernels
    many = replace(report.answers, kernels=[answer] * (MOST + 5))
    assert "and 5 more lines: see the page" in many.lines


def test_what_is_alike_in_all_environments_is_counted_and_not_listed(tmp_path: Path) -> None:
    report = report_of(tmp_path, spec())
    page = render_page(report)
    same = [item for item in report.environment_items if item.same]
    section = page.partition('<section id="environment">')[2].partition("</section>")[0]
    assert same and f"{len(same)} properties are the same in every environment" in section
    assert not any(f"{item.group}</span> {item.name}<" in section for item in same)
