"""The machine-readable and the pasted forms."""

import itertools
import json
from pathlib import Path
from xml.etree import ElementTree

from harness.schema.records import Outcome
from harness.schema.run_records import Fallback
from reports.render.summaries import SCHEMA_VERSION, render_comment, render_junit, render_summary, render_summary_text
from tests.unit.reporting import report_of
from tests.unit.spec import BASE, NEXT, Case, Spec
from tests.unit.synthetic import cells

MOVED = Spec(
    cases={
        (NEXT, "kernel", "seed-fp16"): Case(passed=19, bits="new"),
        (NEXT, "flash", "seed-fp16"): Case(status="unsupported", message="refused"),
        (NEXT, "math", "*"): Case(slowdown=1.3),
    }
)


def test_summary_names_versions_as_observed_and_every_planned_cell(tmp_path: Path) -> None:
    value = json.loads(render_summary(report_of(tmp_path, MOVED)))
    assert value["schema_version"] == SCHEMA_VERSION
    assert [version["torch"] for version in value["environments"]] == ["2.1.0+cu121", "2.5.0+cu121"]
    assert [cell["id"] for cell in value["cells"]] == [cell.id for cell in cells(MOVED)]
    assert {cell["status"] for cell in value["cells"]} == {"ok", "wrong"}
    first = next(row for row in value["comparisons"] if row["id"] == value["moved"][0])
    assert first["correctness"]["verdict"] == "regressed"
    assert first["correctness"]["this"]["rate"]["passed"] == 19
    assert len(first["latency"]["this"]["medians_us"]) == 10
    lead = value["causes"][0]["lead"]
    assert first["id"] in lead["rows"] and lead["evidence"] and lead["figures"][0]["rows"]


def test_unobserved_versions_are_null(tmp_path: Path) -> None:
    value = json.loads(render_summary(report_of(tmp_path, Spec(stacks={NEXT: Outcome(status="broken")}))))
    assert value["environments"][1]["torch"] is None
    assert {cell["status"] for cell in value["cells"] if cell["environment"] == NEXT} == {"broken"}


def test_markdown_of_hostile_names_is_text(tmp_path: Path) -> None:
    hostile = "`|<img src=x> @everyone\n# heading"
    fallback = Fallback(subject=hostile, wanted=hostile, got=hostile, reason=hostile)
    stacks = {NEXT: Outcome(status="broken", message=hostile)}
    text = render_summary_text(report_of(tmp_path, Spec(fallbacks=(fallback,), stacks=stacks)))
    assert "\n# heading" not in text
    assert r"\<img src=x\> \@everyone" in text
    columns = [line.replace("\\|", "").count("|") if line.startswith("| ") else 0 for line in text.splitlines()]
    assert any(columns) and all(one == two or 0 in (one, two) for one, two in itertools.pairwise(columns))


def test_junit_counts_what_it_holds(tmp_path: Path) -> None:
    report = report_of(tmp_path, MOVED)
    root = ElementTree.fromstring(render_junit(report))
    for suite in root.iter("testsuite"):
        assert int(suite.get("tests", "")) == len(suite.findall("testcase")) == len(report.rows)
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.get(name, "")) == len(suite.findall(f"testcase/{tag}"))
    failed = [case.get("name") for case in root.iter("testcase") if case.find("failure") is not None]
    assert "seed-fp16 correctness" in failed and "seed-fp16 latency" in failed


def test_junit_is_well_formed_whatever_a_log_holds(tmp_path: Path) -> None:
    message = "bell \x07, escape \x1b[31m, </testcase>, \ufffe"
    spec = Spec(stacks={NEXT: Outcome(status="broken", message=message)})
    root = ElementTree.fromstring(render_junit(report_of(tmp_path, spec)))
    errors = list(root.iter("error"))
    assert errors and "</testcase>" in errors[0].get("message", "")


def test_reports_of_equal_records_are_equal(tmp_path: Path) -> None:
    one, two = (report_of(tmp_path / name, MOVED) for name in "ab")
    assert render_summary(one) == render_summary(two)
    assert BASE in render_summary(one)


def test_a_comment_has_the_answers_in_sixty_lines_at_most(tmp_path: Path) -> None:
    few = report_of(tmp_path / "few", Spec())
    assert render_comment(few).strip() in render_summary_text(few), "written once"
    many = report_of(tmp_path / "many", Spec(kernels=tuple(f"kernel_{number}" for number in range(40)), launches=3))
    text = render_comment(many)
    assert len(text.splitlines()) <= 60 and text.endswith("The rest is on the page.\n")
