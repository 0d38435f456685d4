"""Marks on lines in a pull request: which line, and what GitHub reads of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.cli.main import main
from harness.schema.records import Outcome
from harness.source_marks import Mark, for_github, for_gitlab
from reports.load.evidence import load_evidence
from reports.render.marks import marks
from reports.render.report import Report
from tests.unit.experiments import checkers
from tests.unit.spec import NEXT, Case, Spec
from tests.unit.synthetic import write_run

WRONG = Spec(cases={(NEXT, "kernel", "*"): Case(passed=0)})


def found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(folder))
    evidence = load_evidence(folder)
    return [for_github(each) for each in marks(evidence, Report(evidence).answers, folder / "project")]


def test_what_is_written_is_what_github_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    made = Mark("csrc/a,b.cu:12:5", "k: wrong", "100% wrong\nin 2.5.0", tmp_path / "project")
    assert for_github(made) == "::error file=project/csrc/a%2Cb.cu,line=12,title=k%3A wrong::100%25 wrong%0Ain 2.5.0"
    assert "file=matrix.yaml,line=1," in for_github(Mark("matrix.yaml", "t", "x", tmp_path))


def test_a_code_quality_report_is_written_in_gitlab_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(tmp_path, WRONG).folder
    for value in ("", "true"):
        monkeypatch.setenv("GITLAB_CI", value)
        monkeypatch.setenv("CI_PROJECT_DIR", str(Path.cwd()))
        assert main(["report", str(folder)]) == 0
        assert (folder / "codequality.json").exists() == bool(value)
    [entry] = json.loads((folder / "codequality.json").read_text())
    assert entry["location"] == {"path": "csrc/attention_scalar.cpp", "lines": {"begin": 1}}
    assert entry["severity"] == "major" and "broke in 2.5.0" in entry["description"] and len(entry["fingerprint"]) == 64
    assert for_gitlab([]) == "[]\n"


def test_a_kernel_that_is_fine_has_no_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(write_run(tmp_path).folder, monkeypatch) == []


def test_a_wrong_kernel_is_marked_at_its_first_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [made] = found(write_run(tmp_path, WRONG).folder, monkeypatch)
    assert made.startswith("::error file=project/csrc/attention_scalar.cpp,line=1,title=attention_scalar%3A ")
    assert "broke in 2.5.0" in made and "\n" not in made


def test_the_line_that_a_checker_named_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path, WRONG)
    checkers(run, "address", "out_of_bounds", where="/in/csrc/attention_scalar.cpp:93")
    [made] = found(tmp_path, monkeypatch)
    assert "attention_scalar.cpp,line=93," in made


@pytest.mark.parametrize(
    "said", ["csrc/attention_scalar.cpp:41:7: error: no", "csrc/attention_scalar.cpp(41): error: no"]
)
def test_the_line_that_a_compiler_named_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    failed = Outcome(status="build_failed", message="it does not compile", log_excerpt=f"ninja: x\n{said}\n")
    write_run(tmp_path, Spec(builds={NEXT: failed}))
    [made] = found(tmp_path, monkeypatch)
    assert "attention_scalar.cpp,line=41," in made


def test_they_are_printed_in_github_actions_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_run(tmp_path, WRONG).folder
    for value, printed in (("", False), ("true", True)):
        monkeypatch.setenv("GITHUB_ACTIONS", value)
        assert main(["report", str(folder)]) == 0
        assert ("::error file=" in capsys.readouterr().out) == printed
