"""Two runs as one page: what is compared, what is left out, and what is said of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness import errors
from harness.cli.main import main
from harness.schema.run_records import RunRecord
from harness.schema.storage import Run, load_record, save_record
from reports.load.evidence import load_evidence
from reports.render.report import Report
from tests.unit.spec import BASE, NEXT, Case, Spec
from tests.unit.synthetic import write_run

SLOWER = Spec(cases={(NEXT, "kernel", "*"): Case(slowdown=1.3)}, seed=2)


def write(folder: Path, spec: Spec, **changes: object) -> Path:
    """A run whose run.json has these fields changed."""
    path = write_run(folder, spec).run_path()
    save_record(path, replace(load_record(path, RunRecord), run_id=folder.name, **changes))
    return folder


@pytest.fixture
def a(tmp_path: Path) -> Path:
    return write(tmp_path / "runs" / "one", Spec(), commit="1234567")


def test_each_environment_of_two_runs_has_a_page(a: Path, capsys: pytest.CaptureFixture[str]) -> None:
    b = write(a.with_name("two"), SLOWER, commit="89abcde")
    assert main(["compare", str(a), str(b), "--fail-on", "latency"]) == errors.LATENCY_REGRESSED
    printed = capsys.readouterr().out
    assert "30% slower" in printed and "in B" in printed
    folder = a.parents[1] / "compared" / "one-two"
    reports = {id: Report(load_evidence(folder / id)) for id in (BASE, NEXT)}
    assert {row.latency.verdict for row in reports[BASE].rows} <= {"pass", "undecided"}
    kernels = [row for row in reports[NEXT].rows if row.kind == "kernel"]
    assert {row.latency.verdict for row in kernels} == {"regressed"} and not any(row.control for row in kernels)
    said = [each.statement for each in reports[NEXT].confounders]
    assert "A is one of" in said[0] and "not measured in turns" in said[0]
    assert said[1] == "it was at commit 1234567 in A, and at 89abcde in B"
    page = (folder / NEXT / "index.html").read_text()
    assert f"<b>A</b> is {NEXT} in run one, of commit 1234567" in page and "different machines" not in page
    assert json.loads((folder / NEXT / "summary.json").read_text())["baseline"] == "A"


def test_the_page_is_made_again_and_nothing_else_is_replaced(a: Path, tmp_path: Path) -> None:
    command = ["compare", str(a), str(a), "--torch", "2.5.0", "--out"]
    assert [main([*command, str(tmp_path / "page")]) for _ in range(2)] == [0, 0]
    (tmp_path / "other" / NEXT).mkdir(parents=True)
    (tmp_path / "other" / NEXT / "mine").touch()
    assert main([*command, str(tmp_path / "other")]) == errors.BAD_INPUT
    assert (tmp_path / "other" / NEXT / "mine").is_file()


def test_what_one_alone_has_is_left_out_and_said(a: Path, tmp_path: Path) -> None:
    spec = Spec(kernels=("attention_scalar", "another"), workloads=("seed-fp16", "causal-fp16"), trials=7)
    b = write(a.with_name("two"), spec)
    assert main(["compare", str(a), str(b), "--torch=2.5.0", f"--out={tmp_path / 'page'}"]) == 0
    report = Report(load_evidence(tmp_path / "page" / NEXT))
    kernels = {(row.target, row.workload) for row in report.rows if row.kind == "kernel"}
    assert kernels == {("attention_scalar", "seed-fp16")}
    said = {each.statement: each.subject for each in report.confounders}
    assert "another/seed-fp16/cpu" in said["wanted both runs, got B alone: it is not compared"]
    assert said["wanted both runs, got A alone: it is not compared"] == "attention_scalar/seed-fp32/cpu"


def test_a_kernel_whose_sources_differ_has_no_other_cause(a: Path, tmp_path: Path) -> None:
    b = write(a.with_name("two"), SLOWER, sources_sha256={"csrc/attention_scalar.cpp": "edited"})
    assert main(["compare", str(a), str(b), "--torch=2.5.0", f"--out={tmp_path / 'page'}"]) == 0
    [answer] = Report(load_evidence(tmp_path / "page" / NEXT)).answers.kernels
    assert answer.why == ("its sources differ between the two runs: csrc/attention_scalar.cpp",)


def test_a_run_that_ended_early_is_compared_in_what_it_has(a: Path, tmp_path: Path) -> None:
    b = write(a.with_name("two"), Spec())
    Run(b).environment_path(NEXT).unlink()
    assert main(["compare", str(a), str(b), f"--out={tmp_path / 'page'}"]) == 0
    assert [path.name for path in (tmp_path / "page").iterdir()] == [BASE]


def test_runs_of_two_machines_are_compared_on_request(
    a: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    b = write(a.with_name("two"), Spec(), host={"cpu": "Another CPU", "machine": "m"})
    command = ["compare", str(a), str(b), "--torch=2.5.0", f"--out={tmp_path / 'page'}"]
    assert main(command) == errors.BAD_INPUT
    assert "different machines: Example CPU of machine" in capsys.readouterr().err
    assert main([*command, "--other-machine"]) == 0
    assert '<p class="wrong"><b>A</b> is' in (tmp_path / "page" / NEXT / "index.html").read_text()


def test_runs_that_have_nothing_in_common_are_refused(a: Path, capsys: pytest.CaptureFixture[str]) -> None:
    b = write(a.with_name("two"), replace(Spec(), kernels=("another",)))
    assert main(["compare", str(a), str(b)]) == errors.BAD_INPUT
    assert "no kernel on the same workload" in capsys.readouterr().err
    assert main(["compare", str(a), str(a), "--torch=2.6.0"]) == errors.BAD_INPUT
    assert "2.1.0, 2.5.0" in capsys.readouterr().err
