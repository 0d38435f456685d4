"""Calls that need more memory, or less: what the records show of why, and where they show nothing, that alone. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reports import model
from reports.attribute import causes, thresholds
from reports.attribute.causes import STRONG, SUGGESTIVE, UNDECIDED, Cause, combined
from reports.attribute.evidence import in_words, number
from reports.attribute.facts.cases import CaseFacts
from reports.attribute.facts.cells import CellFacts, operators_moved
from reports.attribute.facts.choices import lines_run
from reports.attribute.facts.times import CALLED
from reports.attribute.figures import memory_figure
from reports.attribute.wording import make
from reports.compare.factors import DIFFERS, operators_seen
from reports.compare.memory import has_ratio, memory_text
from reports.model import Memory, Seen
from reports.text import TIMES, apart, bytes_text


@dataclass(frozen=True, kw_only=True)
class MemoryChange:
    """The cells of one case whose peak was called more, or less; and how many other targets stood still."""

    case: CaseFacts
    verdict: str
    cells: tuple[CellFacts, ...]
    steady: int

    @property
    def most(self) -> Memory:
        """That of the cell which moved farthest."""
        pick = max if self.verdict == model.REGRESSED else min
        return pick((cell.row.memory for cell in self.cells), key=lambda memory: memory.ratio or 1.0)

    @property
    def uses(self) -> str:
        """Such as "uses 2.00x the memory of PyTorch 2.1.0 (given back after each call)"."""
        where = "kept between calls" if self.is_kept else "given back after each call"
        if not has_ratio(self.most):
            return f"uses {memory_text(self.most)} ({where}) than in {self.case.versions[0]}"
        ratios = [cell.row.memory.ratio or 1.0 for cell in self.cells if has_ratio(cell.row.memory)]
        low, high = min(ratios), max(ratios)
        shown = f"{low:.2f} to {high:.2f}" if high / low > 1.02 else f"{low:.2f}"
        return f"uses {shown}{TIMES} the memory of {self.case.versions[0]} ({where})"

    @property
    def is_kept(self) -> bool:
        base, this = self.most.baseline, self.most.this
        peaks = (this.peak_bytes or 0.0) - (base.peak_bytes or 0.0)
        return ((this.kept_bytes or 0.0) - (base.kept_bytes or 0.0)) / peaks >= thresholds.MOST if peaks else False


def memory_changes(cases: Sequence[CaseFacts]) -> list[MemoryChange]:
    found = []
    for case in cases:
        if case.alone or case.rows[0].control:
            continue
        others = [
            cell.row.memory.verdict
            for other in cases
            for cell in other.cells
            if other.subject != case.subject and (other.environment, other.device) == (case.environment, case.device)
        ]
        for verdict in CALLED:
            cells = tuple(cell for cell in case.cells if cell.row.memory.verdict == verdict)
            if cells:
                found.append(
                    MemoryChange(case=case, verdict=verdict, cells=cells, steady=others.count(model.PASS))
                )
    return found


def memory_causes(cases: Sequence[CaseFacts]) -> list[Cause]:
    """One for each group of a case's rows that were called in the same direction."""
    return [memory_cause(change) for change in memory_changes(cases)]


def memory_cause(change: MemoryChange) -> Cause:
    case, cells = change.case, change.cells
    if case.is_kernel:
        return _of_code(change) if case.code.state == DIFFERS else _of_file(change)
    sides = cells[0].sides
    if not all(side.operators for side in sides):
        return _made(change, UNDECIDED, "memory_unexplained")
    moved = any(operators_moved(*cell.sides) for cell in cells)
    sentence = "memory_operator" if moved else "memory_of_implementation"
    alike = not case.variables and not any(each.of_threads for each in case.differences)
    return _made(change, STRONG if moved or alike else SUGGESTIVE, sentence, operators_seen(*sides, case.versions))


def _of_file(change: MemoryChange) -> Cause:
    """A kernel whose machine code stayed, or that has none: a Python file may do otherwise by its own choice, which
    shows where other lines of it ran, or call operators of PyTorch's that do."""
    case = change.case
    lines = next((found for cell in change.cells if (found := lines_run(case, cell)) is not None), None)
    if lines is None or (not any(lines.alone) and lines.asking() is not None):
        return _made(change, UNDECIDED, "memory_unexplained")
    sentence = "memory_of_lines" if any(lines.alone) else "memory_of_operators"
    return _made(change, SUGGESTIVE if case.variables else STRONG, sentence, *lines.seen)


def _of_code(change: MemoryChange) -> Cause:
    """A kernel's machine code moved too. Where other targets of the same launches need what they did, it is not what
    all of them run in."""
    case = change.case
    grade = STRONG if change.steady and not case.variables else SUGGESTIVE
    how = f"its source compiles to other machine code in {case.versions[1]}"
    if case.build_differences:
        how = f"its build changed ({in_words(case.build_differences)})"
    lead = _made(change, grade, "memory_of_code", case.code.seen, *case.build_differences, how=how)
    if not case.build_differences:
        return lead
    return combined(lead, _made(change, grade, "memory_of_code", cause=causes.BUILD_MOVED, how=how))


def _made(
    change: MemoryChange, grade: str, sentence: str, *seen: Seen, cause: str = causes.MEMORY_USE, **names: Any
) -> Cause:
    case, cells = change.case, change.cells
    evidence = [cell.seen(cell.row.memory.why, cell.row.memory.this.record) for cell in cells[:3]]
    base, this = change.most.baseline, change.most.this
    kept = apart(case.versions, bytes_text(base.kept_bytes), bytes_text(this.kept_bytes))
    evidence.append(cells[0].seen(f"kept when the calls were over: {kept}", this.record))
    for read, what in (("reserved_bytes", "reserved by PyTorch's allocator"), ("outside_bytes", "taken outside of it")):
        one, two = getattr(base, read), getattr(this, read)
        if one is not None and two is not None:
            text = f"{what}: {apart(case.versions, bytes_text(one), bytes_text(two))}"
            evidence.append(cells[0].seen(text, this.record))
    if change.steady:
        evidence.append(Seen(text=f"as much memory as before: {number(change.steady, 'row')} of other targets"))
    return make(
        case, cause, grade, sentence, cells, [*evidence, *seen],
        about=causes.OF_MEMORY, ratio=change.most.ratio or 1.0, command=f"{case.command(cells)} --fresh",
        figures=[memory_figure(case.versions, cells)], uses=change.uses, **names,
    )  # fmt: skip
