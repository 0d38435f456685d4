"""Rules for calls that need more memory, or less: what the records show of why, and where they show nothing, that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reports import model
from reports.attribute import thresholds
from reports.attribute.cards import Shown, card
from reports.attribute.cases import CaseFacts
from reports.attribute.causes import About, Cause, Figure, Kind, combined
from reports.attribute.cells import CellFacts, operators_moved
from reports.attribute.changes import of_package, others_too, pinned, put_where, sole, sole_of
from reports.attribute.costs import code_text
from reports.attribute.evidence import number
from reports.attribute.figures import memory_figure, package_text
from reports.attribute.profiles import lines_run
from reports.attribute.times import CALLED
from reports.attribute.trials import Exchange, Follows
from reports.attribute.words import Says
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
    cured: tuple[Exchange, str] | None = None

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


def memory_causes(cases: Sequence[CaseFacts]) -> list[Cause]:
    """One for each group of a case's rows that were called in the same direction."""
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
                change = MemoryChange(case=case, verdict=verdict, cells=cells, steady=steady, cured=cured)
                found.append(_of_package(change) or _memory_cause(change))
    return found


def _cured(case: CaseFacts, cells: Sequence[CellFacts], cases: Sequence[CaseFacts]) -> tuple[Exchange, str] | None:
    """By environments of this one's PyTorch, with one package in another version, in which the same cells did not
    move."""
    wanted = {cell.workload for cell in cells}
    for other in cases:
        if (other.subject, other.device) == (case.subject, case.device) and other.environment != case.environment:
            package = sole_of(case.stacks[1], other.stacks[1], case.device)
            still = {cell.workload for cell in other.cells if cell.row.memory.verdict == model.PASS}
            if package is not None and wanted <= still:
                return package, other.environment
    return None


def _memory_cause(change: MemoryChange) -> Cause:
    case, cells = change.case, change.cells
    if case.is_kernel:
        return _of_code(change) if case.code.state == DIFFERS else _of_file(change)
    sides = cells[0].sides
    known = all(side.operators for side in sides)
    if not known and not case.is_operator:
        return _of_memory(change, Shown.NOT, Says.MEMORY_UNEXPLAINED)
    moved = known and any(operators_moved(*cell.sides) for cell in cells)
    says = Says.MEMORY_OPERATOR if moved else Says.MEMORY_OF_IMPLEMENTATION
    alike = not case.variables and not any(each.of_threads for each in case.differences)
    seen = [operators_seen(*sides, case.versions)] if known else []
    return _of_memory(change, Shown.TOGETHER, says, *seen, needs={"variables and threads": moved or alike})


def _of_package(change: MemoryChange) -> Cause | None:
    """Memory that goes with a package, whichever PyTorch it is with; and where the run has environments of one PyTorch
    that differ in that package only."""
    case = change.case
    package = sole(case)
    if package is not None:
        needs = others_too(package)
        return _with_package(change, package, Shown.FOLLOWED, Says.MEMORY_OF_SOLE_PACKAGE, [], needs)
    timed = [(cell, each) for cell in change.cells for each in cell.exchanges if each.timed]
    least = case.evidence.run.thresholds.memory
    found = [(cell, each) for cell, each in timed if each.memory_follows(least) is Follows.FACTOR]
    if found:
        cell, exchange = found[0]
        one: dict[str, object] = {
            "another package": not exchange.is_one_way and len({each.package for _, each in found}) == 1
        }
        seen = [cell.seen(put_where(exchange, case), exchange.path)]
        return _with_package(change, exchange, Shown.FOLLOWED, Says.MEMORY_OF_PACKAGE, seen, one)
    if change.cured is None:
        return None
    package, where = change.cured
    with_it = package_text(package.package, package.versions[1])
    text = f"with {with_it} in its place, in {where}, its calls need as much as before"
    fix = pinned(package.package, package.versions[1]) if change.verdict == model.REGRESSED else ""
    return _with_package(change, package, Shown.TOGETHER, Says.MEMORY_CURED, [Seen(text=text)], {}, fix=fix)


def _with_package(
    change: MemoryChange,
    package: Exchange,
    shown: Shown,
    says: Says,
    seen: Sequence[Seen],
    needs: dict[str, object],
    **names: str,
) -> Cause:
    named = {**of_package(change.case, package, change.cells[0], "latency", change.verdict), **names, "command": ""}
    return _of_memory(change, shown, says, *seen, kind=Kind.COMPONENT_MOVED, needs=needs, **named)


def _of_file(change: MemoryChange) -> Cause:
    """A kernel whose machine code stayed, or that has none: a Python file may do otherwise by its own choice, which
    shows where other lines of it ran, or call operators of PyTorch's that do."""
    case = change.case
    lines = next((found for cell in change.cells if (found := lines_run(case, cell)) is not None), None)
    if lines is None or (not any(lines.alone) and lines.asking() is not None):
        return _of_memory(change, Shown.NOT, Says.MEMORY_UNEXPLAINED)
    says = Says.MEMORY_OF_LINES if any(lines.alone) else Says.MEMORY_OF_OPERATORS
    return _of_memory(change, Shown.TOGETHER, says, *lines.seen, needs={"variables": not case.variables})


def _of_code(change: MemoryChange) -> Cause:
    """A kernel's machine code moved too. Where other targets of the same launches need what they did, it is not what
    all of them run in."""
    case = change.case
    needs: dict[str, object] = {"what all targets run in": change.steady, "variables": not case.variables}
    seen, how = [case.code.seen, *case.build_differences], code_text(case)
    lead = _of_memory(change, Shown.TOGETHER, Says.MEMORY_OF_CODE, *seen, needs=needs, how=how)
    if not case.build_differences:
        return lead
    of_build = _of_memory(change, Shown.TOGETHER, Says.MEMORY_OF_CODE, kind=Kind.BUILD_MOVED, needs=needs, how=how)
    return combined(lead, of_build)


def _of_memory(
    change: MemoryChange, shown: Shown, says: Says, *seen: Seen, kind: Kind = Kind.MEMORY_USE, **names: Any
) -> Cause:
    case, cells = change.case, change.cells
    evidence = [cell.seen(cell.row.memory.why, cell.row.memory.this.record) for cell in cells[:3]]
    base, this = change.most.baseline, change.most.this
    for read, what in (
        ("kept_bytes", "kept when the calls were over"),
        ("reserved_bytes", "reserved by PyTorch's allocator"),
        ("outside_bytes", "taken outside of it"),
    ):
        one, two = getattr(base, read), getattr(this, read)
        if one is not None and two is not None:
            text = f"{what}: {apart(case.versions, bytes_text(one), bytes_text(two))}"
            evidence.append(cells[0].seen(text, this.record))
    if change.steady:
        evidence.append(Seen(text=f"as much memory as before: {number(change.steady, 'row')} of other targets"))
    drawn: list[Figure | None] = [memory_figure(case.versions, cells)]
    return card(
        case,
        kind,
        shown,
        says,
        cells,
        [*evidence, *seen],
        about=About.MEMORY,
        ratio=change.most.ratio or 1.0,
        drawn=drawn,
        uses=change.uses,
        **{**names, "command": f"{case.command(cells)} --fresh"},
    )
