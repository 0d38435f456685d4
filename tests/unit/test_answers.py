"""The first screen: what is said of each kernel, in one text for the page, the summaries and the terminal."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape

from harness.cli.main import main
from harness.schema.records import Outcome
from harness.schema.storage import save_record
from reports.attribute.causes import FIXES, Kind
from reports.attribute.ranges import TO_LARGE
from reports.load.evidence import load_evidence
from reports.render.answers import MOST, Answer
from reports.render.page import render_page
from reports.render.report import Report
from reports.render.summaries import render_comment
from reports.text import TIMES
from reports.text import markdown as markdown_of
from tests.unit.attributed import RECIPES, TIMED, here, of_both, spec
from tests.unit.experiments import checkers, conditions, result
from tests.unit.reporting import report_of
from tests.unit.spec import BASE, NEXT, Case, Spec
from tests.unit.synthetic import write_run

THIRD = "torch2.11.0-cu121-py311"
WRONG = Case(passed=2, units=400.0)


def only(folder: Path, made: Spec) -> Answer:
    [answer] = report_of(folder, made).answers.kernels
    return answer


@pytest.mark.parametrize(
    ("made", "state", "what"),
    [
        (spec(**TIMED), "fine", "fine: right in 2.1.0 and in 2.5.0, and as fast"),
        (here(WRONG), "broke", "broke in 2.5.0: right in 2.1.0, wrong in 2.5.0"),
        (of_both(WRONG), "wrong", "wrong in 2.1.0 and in 2.5.0: the upgrade did not cause it"),
        (spec((BASE, "kernel", WRONG)), "fixed", "fixed in 2.5.0: wrong in 2.1.0, right in 2.5.0"),
        (here(Case(status="crashed", message="x")), "broke", "broke in 2.5.0: right in 2.1.0, crashes in 2.5.0"),
        (
            here(Case(status="unsupported", message="x")),
            "broke",
            "no longer supported in 2.5.0: right in 2.1.0, refused in 2.5.0",
        ),
        (of_both(Case(status="unsupported", message="x")), "refused", "refused in 2.1.0 and in 2.5.0"),
        (
            spec((BASE, "kernel", Case(status="unsupported"))),
            "newly supported",
            "newly supported in 2.5.0: refused in 2.1.0, right in 2.5.0",
        ),
        (
            spec((BASE, "kernel", Case(status="unsupported")), (NEXT, "kernel", WRONG)),
            "wrong",
            "refused in 2.1.0, wrong in 2.5.0",
        ),
        (
            spec((BASE, "kernel", Case(status="crashed")), (NEXT, "kernel", WRONG)),
            "wrong",
            "crashes in 2.1.0, wrong in 2.5.0",
        ),
        (of_both(WRONG, environments=(BASE, NEXT, THIRD)), "wrong", "wrong in 2.1.0 and in 2.5.0, right in 2.11.0"),
        (
            here(WRONG, environments=(BASE, NEXT, THIRD)),
            "broke",
            "broke in 2.5.0: right in 2.1.0 and in 2.11.0, wrong in 2.5.0",
        ),
        (spec(environments=(BASE,)), "right", "right in 2.1.0"),
        (spec((BASE, "kernel", WRONG), environments=(BASE,)), "wrong", "wrong in 2.1.0"),
    ],
)
def test_what_is_told_of_outputs(made: Spec, state: str, what: str, tmp_path: Path) -> None:
    answer = only(tmp_path, made)
    assert answer.state == state and answer.what.partition("; ")[0] == what


def test_what_must_repeat_and_only_does_not_is_not_called_wrong_by_its_elements(tmp_path: Path) -> None:
    loose = Case(repeats_differ=7, deterministic=True)
    answer = only(tmp_path, spec((BASE, "kernel", loose), (NEXT, "kernel", loose)))
    assert answer.state == "not repeatable"
    assert answer.what.startswith("not repeatable in 2.1.0 and in 2.5.0: the upgrade did not cause it")
    assert any("every output is within tolerance" in text for text in answer.also)
    assert not any("got" in text for text in answer.do)


def test_a_failure_that_chance_explains_is_wrong_and_not_blamed_on_the_upgrade(tmp_path: Path) -> None:
    answer = only(tmp_path, here(Case(passed=9, units=400.0, repeats_differ=7)))
    assert answer.state == "wrong" and "undecided whether the upgrade or chance did it" in answer.what


@pytest.mark.parametrize(
    ("slowdown", "state", "what"),
    [(1.34, "slower", "34% slower ["), (3.6, "slower", f"3.60{TIMES} the time ["), (0.7, "faster", "30% less time [")],
)
def test_a_time_that_moved_has_its_interval_and_its_version(
    slowdown: float, state: str, what: str, tmp_path: Path
) -> None:
    answer = only(tmp_path, here(Case(slowdown=slowdown), **TIMED))
    assert answer.state == state and what in answer.what and "] since 2.5.0" in answer.what
    assert "right in 2.1.0 and in 2.5.0" in answer.what


def test_a_time_of_a_wrong_output_is_no_news(tmp_path: Path) -> None:
    answer = only(tmp_path, here(replace(WRONG, slowdown=1.34), **TIMED))
    assert answer.state == "broke" and "slower" not in answer.line
    assert "of a wrong output" in answer.grid["attention_scalar"][1].time


UNBUILT = Outcome(status="build_failed", message="x.cpp:1: error: no")


@pytest.mark.parametrize(
    ("made", "state", "what"),
    [
        (
            of_both(Case(timed_wrong=True), **TIMED),
            "wrong",
            "wrong when timed in 2.1.0 and in 2.5.0: the upgrade did not cause it",
        ),
        (
            here(Case(timed_wrong=True), **TIMED),
            "wrong",
            "right in 2.1.0, wrong when timed in 2.5.0: it is undecided whether the upgrade or chance did it",
        ),
        (spec(builds={BASE: UNBUILT}), "fixed", "builds in 2.5.0: does not build in 2.1.0, right in 2.5.0"),
        (
            spec(builds={BASE: UNBUILT, NEXT: UNBUILT}),
            "does not run",
            "does not build in 2.1.0 and in 2.5.0: the upgrade did not cause it",
        ),
        (
            spec((BASE, "kernel", Case(status="crashed")), builds={NEXT: UNBUILT}),
            "does not run",
            "crashes in 2.1.0, does not build in 2.5.0",
        ),
    ],
)
def test_what_was_right_only_until_it_was_timed_or_did_not_build(
    made: Spec, state: str, what: str, tmp_path: Path
) -> None:
    answer = only(tmp_path, made)
    assert answer.state == state and answer.what.partition("; ")[0] == what


def test_a_slower_replay_is_told_beside_a_faster_call(tmp_path: Path) -> None:
    answer = only(tmp_path, here(Case(slowdown=0.9, hot_slowdown=1.3), device="cuda", **TIMED))
    assert answer.state == "slower"
    assert "30% slower" in answer.line and "CUDA graph" in answer.line and "10% less time" in " ".join(answer.also)
    assert answer.grid["attention_scalar"][1].time_verdict == "regressed"


def test_since_is_said_only_of_what_stayed_so_on_every_workload(tmp_path: Path) -> None:
    cases = {(NEXT, "kernel", "seed-fp16"): Case(slowdown=1.3), (THIRD, "kernel", "seed-fp32"): Case(slowdown=1.3)}
    both = {"environments": (BASE, NEXT, THIRD), "trials": 10, **TIMED}
    apart = only(tmp_path / "apart", Spec(cases=cases, **both))
    assert "since" not in apart.line and "slower" in apart.line
    stayed = {(name, "kernel", "*"): Case(slowdown=1.3) for name in (NEXT, THIRD)}
    assert "since 2.5.0" in only(tmp_path / "stayed", Spec(cases=stayed, **both)).line


def test_kernels_of_one_line_keep_it_in_the_comment(tmp_path: Path) -> None:
    text = render_comment(report_of(tmp_path, spec(kernels=("one", "three"), **TIMED)))
    assert "one, three (cpu): fine: right in 2.1.0 and in 2.5.0, and as fast" in text


STOPPED: list[tuple[dict[str, Any], str]] = [
    ({"stacks": {NEXT: Outcome(status="broken", message="another torch")}}, "skipped"),
    ({"cases": {(NEXT, "kernel", "seed-fp16"): Case(missing=True)}}, "not run"),
]


@pytest.mark.parametrize(("changes", "word"), STOPPED)
def test_what_did_not_run_is_neither_fine_nor_undecided(changes: dict[str, Any], word: str, tmp_path: Path) -> None:
    answer = only(tmp_path, spec(**(TIMED | changes)))
    assert answer.state == "not run" and f"right in 2.1.0, {word} in 2.5.0" in answer.what
    assert any(text.startswith(f"{word}: ") and "in 2.5.0" in text for text in answer.open)
    assert answer.grid["attention_scalar"][1].outputs == word


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


def test_kernels_of_which_the_same_is_said_share_a_line(tmp_path: Path) -> None:
    answer = only(tmp_path, spec(kernels=("one", "three"), **TIMED))
    assert answer.subjects == ("one", "three") and answer.line.startswith("one, three (cpu): fine")
    assert list(answer.grid) == ["one", "three"]


def test_why_what_to_do_and_the_line_that_a_checker_named(tmp_path: Path) -> None:
    run = write_run(tmp_path, of_both(WRONG))
    checkers(run, "address", "out_of_bounds")
    [answer] = Report(load_evidence(tmp_path)).answers.kernels
    assert answer.why[0].startswith("out of bounds (") and "attention_scalar reads or writes" in answer.why[0]
    assert answer.do[0] == "look at attention.cpp:41: address reports out_of_bounds in forward"
    assert FIXES[Kind.OUT_OF_BOUNDS] not in answer.do, "it is not shown to be the cause"
    assert any("seed-fp16" in text and "the smallest workload that fails" in text for text in answer.do)
    assert answer.run.startswith("nox -s explain -- --kernel attention_scalar --workload seed-fp16")
    assert answer.cards == (1,)


def test_the_shortest_failing_length_is_named_and_no_other_length_is_missed(tmp_path: Path) -> None:
    run = write_run(tmp_path, of_both(WRONG))
    lengths = [result("A", 0.0 if keys % 64 else 1.0, seq_len=keys) for keys in (64, 65, 128, 129, 192, 224, 66)]
    conditions(run, "lengths", lengths)
    [answer] = Report(load_evidence(tmp_path)).answers.kernels
    [text] = [text for text in answer.do if "at sequence length 65, the smallest tried that fails" in text]
    assert text.endswith("(seed-fp16): wrong at 65, 66, 129, 224; right at 3 of 7 lengths tried")
    assert not any("keys only" in text for text in answer.open)


def test_what_large_logits_alone_show_is_reproduced_and_tested_with_them(tmp_path: Path) -> None:
    run = write_run(tmp_path, of_both(Case(recipes={"large_logits": (0, 400.0)}), recipes=RECIPES))
    steep = [result(each, 0.0, recipe=name) for each, name in (("C", "offset_logits"), ("D", "steep_logits"))]
    conditions(run, "inputs", [result("AA"), result("BB", 0.0, recipe="large_logits"), *steep])
    [answer] = Report(load_evidence(tmp_path)).answers.kernels
    assert [text for text in answer.do if "test with" in text] == [TO_LARGE]
    [text] = [text for text in answer.do if "the smallest workload that fails" in text]
    assert text.endswith("; large logits inputs, trial 3, element [0, 2, 100, 7]: got 0.51, want 0.5")
    assert "and nothing becomes infinite" in answer.why[1] and "exceeds" not in " ".join(answer.why)


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


def test_agreement_that_rose_and_fell_is_told_by_workload(tmp_path: Path) -> None:
    cases = {
        (BASE, "math", "seed-fp16"): Case(passed=6, units=30.0, bits="old"),
        (NEXT, "math", "seed-fp32"): Case(passed=0, units=30.0, bits="new"),
        (BASE, "kernel", "seed-fp16"): Case(agrees=6),
        (NEXT, "kernel", "seed-fp32"): Case(agrees=0),
    }
    found = report_of(tmp_path, Spec(trials=10, launches=1, cases=cases))
    told = " ".join(text for each in found.answers.kernels for text in (*each.also, *each.why))
    assert "6 of 10 trials agreed with it in PyTorch 2.1.0, all 10 do in PyTorch 2.5.0 on seed-fp16; " in told
    assert "all 10 trials agreed with it in PyTorch 2.1.0, none of 10 do in PyTorch 2.5.0 on seed-fp32." in told


@pytest.mark.parametrize("launches", [1, 10])
def test_the_smallest_change_is_spoken_of_only_where_one_is_known(launches: int, tmp_path: Path) -> None:
    page = render_page(report_of(tmp_path, spec(launches=launches, spread=0.001)))
    assert ("shows the smallest change that this run could have detected" in page) == (launches == 10)


def test_an_undecided_time_has_the_command_that_decides_it(tmp_path: Path) -> None:
    answer = only(tmp_path, spec(launches=10, spread=0.02))
    assert answer.state == "right but time undecided" and "whether its time changed is undecided" in answer.what
    [text] = [text for text in answer.open if text.startswith("whether its time changed")]
    launches = re.search(r"about (\d+) launches", text)
    assert launches and answer.run.endswith(f"--launches {launches[1]}")


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
