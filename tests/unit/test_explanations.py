"""What is said of several subjects is said once, and the user's own kernels come first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from reports.attribute import attribute
from reports.attribute.causes import Figure, Kind
from reports.attribute.figures import rate_entry
from reports.compare.rows import compare
from reports.load.evidence import load_evidence
from reports.render.explanations import rows_shown
from reports.render.page import render_page
from reports.render.report import Report
from reports.render.summaries import render_summary_text
from tests.unit.experiments import FOLLOWS, poison
from tests.unit.reporting import evidence_of, report_of
from tests.unit.spec import BASE, HOST, NEXT, Case, Spec
from tests.unit.synthetic import write_run

REFUSED = Case(status="unsupported", message="no kernel for this type")


def test_kernels_that_moved_alike_share_a_card(tmp_path: Path) -> None:
    kernels = tuple(f"kernel{number}" for number in range(5))
    made = Spec(trials=5, kernels=kernels, cases={(NEXT, "kernel", "*"): Case(passed=1, bits="new")})
    told = report_of(tmp_path, made).explanations
    assert [each.lead.cause for each in told] == [Kind.UNDECIDED]
    assert told[0].subjects == list(kernels) and len(told[0].rows) == 10


def test_references_that_are_refused_alike_share_a_card(tmp_path: Path) -> None:
    made = Spec(trials=5, cases={(BASE, name, "seed-fp16"): REFUSED for name in ("flash", "math")})
    told = [each for each in report_of(tmp_path, made).explanations if each.lead.is_reference]
    assert [(each.lead.cause, each.subjects) for each in told] == [(Kind.UNSUPPORTED_COMBINATION, ["flash", "math"])]
    assert sum("no kernel for this type" in seen.text for seen in told[0].lead.evidence) == 2


def test_one_card_of_several_versions_names_them_all(tmp_path: Path) -> None:
    host = Case(passed=1, bits="new", units=30.0)
    cases = {(name, "math", "*"): host for name in (NEXT, HOST)}
    found = report_of(tmp_path, Spec(trials=5, environments=(BASE, NEXT, HOST), cases=cases)).explanations
    (lead,) = [each.lead for each in found if each.lead.is_reference]
    assert "is wrong in PyTorch 2.5.0 and PyTorch 2.11.0 and was right in PyTorch 2.1.0" in lead.statement


def test_a_replica_goes_by_its_id(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, Spec(trials=5))
    assert evidence.names == {BASE: "PyTorch 2.1.0", NEXT: "PyTorch 2.5.0"}
    again = replace(evidence.environments[BASE], id="again")
    run = replace(evidence.run, environments=[BASE, NEXT, "again"])
    names = replace(evidence, run=run, environments={**evidence.environments, "again": again}).names
    assert names == {BASE: "PyTorch 2.1.0", NEXT: "PyTorch 2.5.0", "again": "again"}
    other = replace(again, cuda="11.8")
    names = replace(evidence, run=run, environments={**evidence.environments, "again": other}).names
    assert names == {BASE: BASE, NEXT: "PyTorch 2.5.0", "again": "again"}


def test_a_long_table_shows_what_fails_and_says_how_much_it_leaves_out() -> None:
    rates = [(str(number), (rate_entry(0 if number in (3, 13) else 5, 5),)) for number in range(14)]
    rows, left = rows_shown(Figure(title="By length", columns=("Runs within tolerance",), rows=tuple(rates)))
    assert [label for label, _ in rows] == ["0", "1", "2", "3", "4", "5", "6", "7", "8", "13"]
    assert left == "4 more rows, all within tolerance, in summary.json"
    every = Figure(title="By length", columns=("Runs within tolerance",), rows=tuple(rates[:10]))
    assert rows_shown(every) == (rates[:10], "")


def test_a_kernel_that_a_reference_moved_under_stands_with_that_reference(tmp_path: Path) -> None:
    cases = {
        (BASE, "math", "*"): Case(passed=1, units=30.0),
        (NEXT, "math", "*"): Case(bits="new"),
        (BASE, "kernel", "*"): Case(agrees=1),
    }
    report = report_of(tmp_path, Spec(trials=5, cases=cases))
    moved = [each for each in report.explanations if each.lead.cause == Kind.REFERENCE_MOVED]
    assert len(moved) == 1 and moved[0].lead.reference == "math"
    assert {cause.kernel for cause in moved[0].under} == {"attention_scalar"}
    [answer] = report.answers.kernels
    assert answer.what.startswith("right in 2.1.0 and in 2.5.0") and not answer.why
    assert "PyTorch's own math changed" in answer.also[-1]
    assert answer.cards == (moved[0].number,)
    assert "same bits in both environments. PyTorch&#39;s own math changed" in render_page(report)


def test_the_users_kernels_come_first_and_what_is_well_last(tmp_path: Path) -> None:
    cases = {
        (NEXT, "math", "*"): Case(passed=1, units=30.0, bits="new"),
        (NEXT, "flash", "*"): Case(slowdown=1.5),
        (NEXT, "kernel", "seed-fp16"): Case(passed=1, bits="new"),
    }
    told = report_of(tmp_path, Spec(trials=5, cases=cases)).explanations
    assert told[0].lead.kernel and told[0].lead.cause == Kind.UNDECIDED
    assert [each.number for each in told] == list(range(1, len(told) + 1))
    healthy = report_of(tmp_path / "well", Spec(trials=5)).explanations
    assert [each.lead.cause for each in healthy] == [Kind.NOTHING_MOVED]


def test_what_a_kernel_suffers_from_comes_before_a_reference_that_moved_under_it_elsewhere(tmp_path: Path) -> None:
    cases = {
        (BASE, "math", "seed-fp32"): Case(passed=1, units=30.0),
        (NEXT, "math", "seed-fp32"): Case(bits="new"),
        (BASE, "kernel", "seed-fp32"): Case(agrees=1),
        **{(where, "kernel", "seed-fp16"): Case(passed=0, units=400.0) for where in (BASE, NEXT)},
    }
    evidence = evidence_of(tmp_path, Spec(trials=5, cases=cases))
    causes = attribute(evidence, compare(evidence))
    of_kernel = [(cause.cause, cause.workloads) for cause in causes if cause.kernel]
    assert of_kernel == [(Kind.WRONG_EVERYWHERE, ("seed-fp16",)), (Kind.REFERENCE_MOVED, ("seed-fp32",))]
    assert Report(evidence).explanations[0].lead.cause == Kind.WRONG_EVERYWHERE


def test_a_card_shows_the_figure_what_was_ruled_out_and_the_next_command(tmp_path: Path) -> None:
    run = write_run(tmp_path, Spec(trials=5, cases={(NEXT, "kernel", "seed-fp16"): Case(passed=1, bits="new")}))
    poison(run, {"output": FOLLOWS, "heap": FOLLOWS})
    report = Report(load_evidence(tmp_path))
    assert report.explanations[0].lead.cause == Kind.UNINITIALISED_HOST
    page = render_page(report)
    for text in ("Runs within tolerance", "output zero", "0/6", "a race</b>: with the memory", "nox -s explain -- "):
        assert text in page, text
    assert "experiments/torch2.5.0-cu121-py311/attention_scalar-cpu/seed-fp16/poison.json" in page
    assert 'href="#correctness/torch2.5.0-cu121-py311/attention_scalar/seed-fp16/cpu"' in page
    text = render_summary_text(report)
    assert "### Uninitialised host memory: attention\\_scalar (proven)" in text
    assert "| output zero | 6/6 | 1.1 | A |" in text and "- ruled out, chance or a race: " in text


def test_a_row_names_the_causes_that_it_belongs_to(tmp_path: Path) -> None:
    report = report_of(tmp_path, Spec(trials=5, cases={(NEXT, "kernel", "*"): Case(passed=1, bits="new")}))
    assert '<a href="#cause-1">undecided</a>' in render_page(report).partition("<main>")[2]


def test_many_causes_do_not_bury_the_page(tmp_path: Path) -> None:
    kernels = tuple(f"kernel{number:02d}" for number in range(15))
    cases = {(NEXT, "kernel", "*"): Case(status="crashed", message="it died")}
    report = report_of(tmp_path, Spec(trials=2, launches=2, kernels=kernels, cases=cases, hostile="<b>x</b>"))
    assert len(report.explanations) <= 3
    assert "<b>x</b>" not in render_page(report)
