"""Scripts that need nothing of this project: valid Python whatever records hold, and only where they can show it."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reports.model import Seen
from reports.render.commands import write_report
from reports.render.report import Report
from reports.render.reproduce import render_script
from tests.unit.reporting import evidence_of
from tests.unit.spec import BASE, NEXT, SEED_ONLY, Case, Spec

NINJA = "cflags = -I$ROOT/csrc -O3\nbuild attention.o: compile $ROOT/csrc/attention.cpp\n"


MOVED = {(NEXT, "math", "*"): Case(passed=1, units=30.0, bits="new")}
WRONG = {(name, "kernel", "*"): Case(passed=1, units=30.0) for name in (BASE, NEXT)}


def report_of(folder: Path, cases: dict[tuple[str, str, str], Case], **build: Any) -> Report:
    """`build`: what is recorded of every build."""
    evidence = evidence_of(folder, Spec(trials=3, launches=2, cases=cases, **SEED_ONLY))
    build = build or {"build_ninja": NINJA, "flags": ["cxx: -O3", "nvcc: -lineinfo", "ld: -pthread"]}
    return Report(replace(evidence, builds={k: replace(made, **build) for k, made in evidence.builds.items()}))


def settings_of(text: str) -> dict[str, Any]:
    [found] = [
        node.value
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "SETTINGS"
    ]
    return dict(ast.literal_eval(found))


def imported(text: str) -> set[str]:
    names: list[str] = []
    for node in ast.walk(ast.parse(text)):
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
    return {name.partition(".")[0] for name in names}


def test_a_moved_reference_is_shown_by_plain_pytorch(tmp_path: Path) -> None:
    report = report_of(tmp_path, MOVED)
    told = next(each for each in report.explanations if each.lead.is_reference)
    text = render_script(report.evidence, told)
    settings = settings_of(text)
    assert settings["references"] == ["math"] and settings["shape"] == [1, 8, 512, 64]
    assert settings["dtype"] == "float16" and not settings["latency"]
    assert not imported(text) & {"harness", "reports", "numpy"}
    assert told.lead.statement.partition(":")[0] in (ast.get_docstring(ast.parse(text)) or "").replace("\n", " ")


def test_a_kernel_is_built_from_the_recorded_sources_and_flags(tmp_path: Path) -> None:
    report = report_of(tmp_path, WRONG)
    settings = settings_of(render_script(report.evidence, report.explanations[0]))
    assert settings["sources"] == ["csrc/attention.cpp"] and settings["include"] == ["csrc"]
    assert (settings["cxx"], settings["nvcc"], settings["ld"]) == (["-O3"], ["-lineinfo"], ["-pthread"])


def test_what_is_well_needs_no_script(tmp_path: Path) -> None:
    report = report_of(tmp_path, {})
    assert [each.script for each in report.explanations] == [""]
    with pytest.raises(ValueError, match="plain PyTorch"):
        render_script(report.evidence, report.explanations[0])


def test_a_kernel_whose_sources_are_not_recorded_has_no_script(tmp_path: Path) -> None:
    assert [each.script for each in report_of(tmp_path, WRONG, build_ninja="").explanations] == [""]


@pytest.mark.parametrize("hostile", ['"""\nimport os', "\\", "\\N{BULLET} \\x", "'''\r\n\x00", "\u2028\ud7ff"])
def test_text_of_records_cannot_leave_the_docstring(hostile: str, tmp_path: Path) -> None:
    report = report_of(tmp_path, MOVED)
    told = next(each for each in report.explanations if each.lead.is_reference)
    lead = replace(told.lead, statement=hostile, evidence=(Seen(text=hostile * 3),))
    text = render_script(report.evidence, replace(told, lead=lead))
    assert imported(text) == imported(render_script(report.evidence, told))
    assert settings_of(text)["references"] == ["math"]


def test_scripts_stand_beside_the_page_and_old_ones_go(tmp_path: Path) -> None:
    report = report_of(tmp_path, MOVED)
    out = tmp_path / "out"
    out.mkdir()
    (out / "reproduce-9.py").write_text("of an earlier report")
    write_report(report, out)
    assert [path.name for path in sorted(out.glob("*.py"))] == ["reproduce-2.py"]
    assert 'href="reproduce-2.py"' in (out / "index.html").read_text()
    assert "python reproduce-2.py" in (out / "summary.md").read_text()
