"""Calls that need more memory, or less: what the records show of why, and where they show nothing, that alone. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reports import model
from reports.attribute import causes, thresholds
from reports.attribute.causes import DECISIVE, STRONG, SUGGESTIVE, UNDECIDED, Cause, combined
from reports.attribute.evidence import in_words, number
from reports.attribute.facts.cases import CaseFacts
from reports.attribute.facts.cells import CellFacts, operators_moved
from reports.attribute.facts.choices import lines_run
from reports.attribute.facts.components import COMPONENT, Exchange, Sole, package_text, sole_of
from reports.attribute.facts.times import CALLED
from reports.attribute.figures import memory_figure
from reports.attribute.rules.components import differ, fix_of, held_with, named, pinned, put_where
from reports.attribute.wording import make
from reports.compare.factors import DIFFERS, operators_seen
from reports.compare.memory import has_ratio, memory_text
from reports.model import Memory, Seen
from reports.text import apart, bytes_text, ratios_text


@dataclass(frozen=True, kw_only=True)
class MemoryChange:
    """The cells of one case whose peak was called more, or less; and how many other targets stood still. `cured`: the
    one package of which another version needs as much as the baseline, and the environment that has it."""

    case: CaseFacts
    verdict: str
    cells: tuple[CellFacts, ...]
    steady: int
    cured: tuple[Sole, str] | None = None

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
        return f"uses {ratios_text(ratios)} the memory of {self.case.versions[0]} ({where})"

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
                steady, cured = others.count(model.PASS), _cured(case, cells, cases)
                found.append(MemoryChange(case=case, verdict=verdict, cells=cells, steady=steady, cured=cured))
    return found


def _cured(case: CaseFacts, cells: Sequence[CellFacts], cases: Sequence[CaseFacts]) -> tuple[Sole, str] | None:
    """By environments of this one's PyTorch, with one package in another version, in which the same cells did not
    move."""
    wanted = {cell.workload for cell in cells}
    for other in cases:
        if (other.subject, other.device) == (case.subject, case.device) and other.environment != case.environment:
            sole = sole_of(case.stacks[1], other.stacks[1], case.device)
            still = {cell.workload for cell in other.cells if cell.row.memory.verdict == model.PASS}
            if sole is not None and wanted <= still:
                return sole, other.environment
    return None


def memory_causes(cases: Sequence[CaseFacts]) -> list[Cause]:
    """One for each group of a case's rows that were called in the same direction."""
    return [memory_cause(change) for change in memory_changes(cases)]


def memory_cause(change: MemoryChange) -> Cause:
    case, cells = change.case, change.cells
    if (found := _of_package(change)) is not None:
        return found
    if case.is_kernel:
        return _of_code(change) if case.code.state == DIFFERS else _of_file(change)
    sides = cells[0].sides
    known = all(side.operators for side in sides)
    if not known and not case.is_operator:
        return _made(change, UNDECIDED, "memory_unexplained")
    moved = known and any(operators_moved(*cell.sides) for cell in cells)
    sentence = "memory_operator" if moved else "memory_of_implementation"
    alike = not case.variables and not any(each.of_threads for each in case.differences)
    seen = [operators_seen(*sides, case.versions)] if known else []
    return _made(change, STRONG if moved or alike else SUGGESTIVE, sentence, *seen)


def _of_package(change: MemoryChange) -> Cause | None:
    """Memory that goes with a package, whichever PyTorch it is with; and where the run has environments of one PyTorch
    that differ in that package alone."""
    case = change.case
    sole = None if case.alone else sole_of(*case.stacks, case.device)
    if sole is not None:
        return _of(change, sole, DECISIVE, "memory_of_sole_package", differ(sole))
    kinds = [(cell, each) for cell in change.cells for each in cell.exchanges if each.timed]
    found = [(c, each) for c, each in kinds if each.memory_follows(case.evidence.run.thresholds.memory) == COMPONENT]
    if found:
        cell, exchange = found[0]
        sure = not exchange.one_way and len({each.package for _, each in found}) == 1
        seen = [cell.seen(put_where(exchange, case), exchange.path)]
        return _of(change, exchange, DECISIVE if sure else STRONG, "memory_of_package", seen, held=held_with(exchange))
    if change.cured is not None:
        sole, where = change.cured
        with_it = package_text(sole.package, sole.versions[1])
        text = f"with {with_it} in its place, in {where}, its calls need as much as before"
        fix = pinned(sole.package, sole.versions[1])
        worse = change.verdict == model.REGRESSED
        return _of(change, sole, STRONG, "memory_cured", [Seen(text=text), *differ(sole)], fix=fix if worse else "")
    return None


def _of(
    change: MemoryChange, package: Exchange | Sole, grade: str, sentence: str, seen: Sequence[Seen], **names: str
) -> Cause:
    grade = STRONG if isinstance(package, Sole) and package.others else grade
    names = {"fix": fix_of(package, change.verdict), **named(package), **names}
    return _made(change, grade, sentence, *seen, cause=causes.COMPONENT_MOVED, **names)


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
        case,
        cause,
        grade,
        sentence,
        cells,
        [*evidence, *seen],
        about=causes.OF_MEMORY,
        ratio=change.most.ratio or 1.0,
        command=f"{case.command(cells)} --fresh",
        figures=[memory_figure(case.versions, cells)],
        uses=change.uses,
        **names,
    )
