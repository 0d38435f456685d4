"""Memory as a verdict: what counts as more or less, and what is said of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness import errors
from reports import model
from reports.attribute import explained
from reports.attribute.causes import Grade, Kind
from reports.attribute.memory_use import MemoryChange
from reports.compare.exit_codes import exit_codes, memory_unseen_text
from reports.render.page import render_page
from reports.render.report import Report
from reports.render.summaries import render_summary, render_summary_text, render_timings
from reports.text import TIMES, bytes_text
from tests.unit.attributed import TIMED
from tests.unit.reporting import kernel_row, report_of
from tests.unit.spec import BASE, NEXT, SEED_ONLY, Spec
from tests.unit.synthetic import write_run

MIB = 1 << 20
FAIL_ON = frozenset({"memory"})


def used(folder: Path, before: int, here: int, *, kept: tuple[int, int] = (0, 0), **changes: object) -> Report:
    """The report of a kernel whose calls need so many bytes; all references need 4 MiB."""
    peaks = {(BASE, "kernel"): (before, kept[0]), (NEXT, "kernel"): (here, kept[1])}
    made = {**SEED_ONLY, **TIMED, "peak_bytes": 4 * MIB, "peaks_bytes": peaks, **changes}
    return report_of(folder, Spec(**made))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "here", "verdict"),
    [
        (40 * MIB, 80 * MIB, model.REGRESSED),
        (80 * MIB, 40 * MIB, model.IMPROVED),
        (40 * MIB, 40 * MIB, model.PASS),
        (100 * MIB, 104 * MIB, model.PASS),  # 4%
        (100 * MIB, 107 * MIB, model.REGRESSED),  # 7%
        (2 * MIB, 2 * MIB + 900 * 1024, model.PASS),  # 44%, and less than 1 MiB
        (100 * 1024, 900 * 1024, model.PASS),  # nine times, and less than 1 MiB
        (0, 3 * MIB, model.REGRESSED),
    ],
)
def test_a_change_counts_by_its_share_and_by_its_bytes(before: int, here: int, verdict: str, tmp_path: Path) -> None:
    report = used(tmp_path, before, here)
    row = kernel_row(report)
    assert row.memory.verdict == verdict
    others = [each.memory.verdict for each in report.rows if each is not row]
    assert others and set(others) == {model.PASS}


def test_more_memory_is_told_and_nothing_else_is(tmp_path: Path) -> None:
    report = used(tmp_path, 40 * MIB, 84 * MIB, machine_code={NEXT: "other"})
    [answer] = report.answers.kernels
    assert answer.state == "more memory"
    uses, right = answer.what.split("; ")
    assert uses == f"uses 2.10{TIMES} the memory since 2.5.0 (40 MiB to 84 MiB)" and right.startswith("right in 2.1.0")
    [cause] = [each.lead for each in report.explanations if each.lead.cause != Kind.NOTHING_MOVED]
    assert (cause.cause, cause.grade, cause.about) == (Kind.MEMORY_USE, Grade.LIKELY, "memory")
    assert "given back after each call" in cause.statement and "other machine code" in cause.statement
    assert kernel_row(report).latency.verdict == kernel_row(report).correctness.verdict == model.PASS
    assert f"2.10{TIMES} the memory" in render_page(report) and "40 MiB to 84 MiB" in render_summary_text(report)
    assert '"memory":{"regressed":1,"pass":2}' in render_summary(report)
    assert "peak_bytes" in render_timings(report).splitlines()[0]


def test_what_is_kept_between_calls_is_named(tmp_path: Path) -> None:
    report = used(tmp_path, 8 * MIB, 16 * MIB, kept=(0, 8 * MIB))
    [cause] = [each.lead for each in report.explanations if each.lead.about == "memory"]
    assert "kept between calls" in cause.statement


def test_another_build_is_named_and_the_version_is_not_blamed(tmp_path: Path) -> None:
    report = used(tmp_path, 8 * MIB, 16 * MIB, machine_code={NEXT: "other"}, flags={NEXT: ("-DBUFFERS=2",)})
    [cause] = [each.lead for each in report.explanations if each.lead.about == "memory"]
    assert Kind.BUILD_MOVED in cause.causes
    assert "since 2.5.0" not in report.answers.kernels[0].what


@pytest.mark.parametrize(
    ("before", "here", "launches", "code"),
    [
        (40 * MIB, 80 * MIB, 10, errors.MEMORY_REGRESSED),
        (80 * MIB, 40 * MIB, 10, None),
        (40 * MIB, 40 * MIB, 10, None),
        (40 * MIB, 40 * MIB, 1, errors.UNDECIDED),  # of one launch nobody knows the spread
    ],
)
def test_a_gate_on_memory(before: int, here: int, launches: int, code: int | None, tmp_path: Path) -> None:
    report = used(tmp_path, before, here, launches=launches)
    assert exit_codes(report.evidence, report.rows, FAIL_ON) == ([] if code is None else [code])
    assert errors.MEMORY_REGRESSED not in exit_codes(report.evidence, report.rows, frozenset({"latency"}))


def test_records_from_before_it_was_measured_still_render(tmp_path: Path) -> None:
    report = report_of(tmp_path, Spec(**SEED_ONLY))
    assert {row.memory.verdict for row in report.rows} == {model.NO_DATA}
    assert kernel_row(report).memory.why == "memory was not measured"
    assert "Memory was not measured in this run" in render_page(report)
    assert exit_codes(report.evidence, report.rows, FAIL_ON) == [errors.UNDECIDED]
    assert "the memory gate cannot pass" in memory_unseen_text(report.rows)


def test_of_little_memory_the_difference_is_told_and_no_ratio(tmp_path: Path) -> None:
    report = used(tmp_path, 4096, 8 * MIB)
    [cause] = [each.lead for each in report.explanations if each.lead.about == "memory"]
    assert "uses 8 MiB more memory" in cause.statement and TIMES not in cause.statement
    assert "uses 8 MiB more memory" in report.answers.kernels[0].what


def test_ratios_are_told_of_cells_that_are_large_enough_for_one() -> None:
    def cell(before: int, here: int, ratio: float) -> Any:
        base, this = (model.MemorySide(environment="", status="ok", peak_bytes=float(peak)) for peak in (before, here))
        memory = model.Memory(verdict="", why="", baseline=base, this=this, min_effect=0.05, ratio=ratio)
        return SimpleNamespace(row=SimpleNamespace(memory=memory))

    case: Any = SimpleNamespace(versions=("2.1.0", "2.5.0"))
    small, large = cell(MIB // 2, 3 * MIB, 3.0), cell(2 * MIB, 20 * MIB, 10.0)
    change = MemoryChange(case=case, verdict=model.REGRESSED, cells=(small, large), steady=0)
    assert change.uses == f"uses 10.00{TIMES} the memory of 2.1.0 (given back after each call)"


@pytest.mark.parametrize(
    ("size_bytes", "said"), [(1000, "1000 bytes"), (1020 << 10, "1020 KiB"), (1 << 20, "1 MiB"), (4730000, "4.51 MiB")]
)
def test_sizes_have_three_digits_and_no_exponent(size_bytes: int, said: str) -> None:
    assert bytes_text(size_bytes) == said


def test_environments_that_differ_in_one_package_tell_whose_memory_it_is(tmp_path: Path) -> None:
    other = f"{NEXT}-numpy-2.0.2"
    peaks = {(BASE, "kernel"): (8 * MIB, 0), (NEXT, "kernel"): (16 * MIB, 0), (other, "kernel"): (8 * MIB, 0)}
    environments = {"environments": (BASE, NEXT, other), "packages": {other: {"numpy": "2.0.2"}}}
    made = {**SEED_ONLY, **TIMED, **environments, "peak_bytes": 4 * MIB, "peaks_bytes": peaks}
    write_run(tmp_path, Spec(**made))  # type: ignore[arg-type]
    [found] = [each for each in explained(tmp_path) if each.about == "memory"]
    assert (found.cause, found.grade) == (Kind.COMPONENT_MOVED, Grade.LIKELY)
    assert "With numpy 2.0.2 in its place it uses as much as in PyTorch 2.1.0" in found.statement
    assert found.fix == "pin numpy==2.0.2 (packages, in matrix.yaml)"


def test_of_one_pytorch_the_package_that_differs_is_why(tmp_path: Path) -> None:
    other = f"{BASE}-numpy-2.0.2"
    peaks = {(BASE, "kernel"): (8 * MIB, 0), (other, "kernel"): (16 * MIB, 0)}
    environments = {"environments": (BASE, other), "packages": {other: {"numpy": "2.0.2"}}}
    made = {**SEED_ONLY, **TIMED, **environments, "peak_bytes": 4 * MIB, "peaks_bytes": peaks}
    write_run(tmp_path, Spec(**made))  # type: ignore[arg-type]
    [found] = [each for each in explained(tmp_path) if each.about == "memory"]
    assert (found.cause, found.grade) == (Kind.COMPONENT_MOVED, Grade.PROVEN), found.statement


def test_a_difference_of_one_launch_is_shown_and_called_undecided(tmp_path: Path) -> None:
    report = used(tmp_path, 8 * MIB, 64 * MIB, launches=1)
    [kernel] = report.answers.kernels
    assert f"whether its memory changed on seed-fp16: 8.00{TIMES} the memory, 1 + 1 launches" in "\n".join(kernel.open)
    assert f"8.00{TIMES} the memory: undecided" in render_page(report)
    still = used(tmp_path / "still", 8 * MIB, 8 * MIB, launches=1)
    assert "its memory changed" not in "\n".join(still.answers.kernels[0].open)
