"""Rules for calls that need more memory, or less: what the records show of why, and where they show nothing, that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from reports import model
from reports.attribute import thresholds
from reports.attribute.cases import CaseFacts
from reports.attribute.causes import Kind
from reports.attribute.cells import CellFacts, operators_moved
from reports.attribute.changes import FOLLOWS, SOLE, others_too, package_finding, sole_of
from reports.attribute.finding import Finding, Shown
from reports.attribute.profiles import lines_run
from reports.attribute.times import CALLED
from reports.attribute.trials import Exchange, Follows
from reports.compare.factors import DIFFERS, operators_seen
from reports.compare.memory import has_ratio, memory_text
from reports.model import Memory, Seen
from reports.text import ratios_text


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


def memory_changes(cases: Sequence[CaseFacts]) -> list[MemoryChange]:
    """Return one for each group of a case's rows that were called in the same direction."""
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


def _cured(case: CaseFacts, cells: Sequence[CellFacts], cases: Sequence[CaseFacts]) -> tuple[Exchange, str] | None:
    """Return the package of which another version, with this environment's PyTorch, leaves the same cells unmoved, and
    the environment that has it."""
    wanted = {cell.workload for cell in cells}
    for other in cases:
        if (other.subject, other.device) == (case.subject, case.device) and other.environment != case.environment:
            package = sole_of(case.stacks[1], other.stacks[1], case.device)
            still = {cell.workload for cell in other.cells if cell.row.memory.verdict == model.PASS}
            if package is not None and wanted <= still:
                return package, other.environment
    return None


def memory_finding(change: MemoryChange) -> Finding:
    """Return what the records show of a change: a package, the kernel's code, the lines of its file, an operator; or
    nothing."""
    case = change.case
    found = _of_package(change)
    if found is not None:
        return found
    if case.is_kernel:
        return _of_code(change) if case.code.state == DIFFERS else _of_file(change)
    sides = change.cells[0].sides
    known = all(side.operators for side in sides)
    if not known and not case.is_operator:
        return Finding(cells=change.cells, shown=Shown.NOT, words={"how": ""})
    moved = known and any(operators_moved(*cell.sides) for cell in change.cells)
    alike = not case.variables and not any(each.of_threads for each in case.differences)
    return Finding(
        cells=change.cells,
        shown=Shown.TOGETHER,
        needs={"variables and threads": moved or alike},
        seen=[operators_seen(*sides, case.versions)] if known else [],
        words={"how": "another operator" if moved else "operator"},
    )


def _of_package(change: MemoryChange) -> Finding | None:
    """Memory that goes with a package, whichever PyTorch it is with; and where the run has environments of one PyTorch
    that differ in that package only."""
    case, cells, worse = change.case, list(change.cells), change.verdict == model.REGRESSED
    package = sole_of(*case.stacks, case.device)
    if package is not None:
        return package_finding((cells[0], package), "memory", SOLE, others_too(package), cells, pinned=worse)
    timed = [(cell, each) for cell in cells for each in cell.exchanges if each.timed]
    least = case.evidence.run.thresholds.memory
    found = [(cell, each) for cell, each in timed if each.memory_follows(least) is Follows.FACTOR]
    if found:
        alone = not found[0][1].is_one_way and len({each.package for _, each in found}) == 1
        return package_finding(found[0], "memory", FOLLOWS, {"another package": alone}, cells, pinned=worse)
    if change.cured is None:
        return None
    package, where = change.cured
    two = package.versions[1]
    return Finding(
        cells=cells,
        shown=Shown.TOGETHER,
        kind=Kind.COMPONENT_MOVED,
        fix=f"pin {package.package}=={two} (packages, in matrix.yaml)" if two and worse else "",
        seen=[Seen(text=f"with {two or 'none'} in its place, in {where}, its calls need as much as before")],
        words={"how": "cured", "what": "memory", "versions": (package.package, *package.versions)},
        details={"package": package, "is_one_way": False},
    )


def _of_file(change: MemoryChange) -> Finding:
    """A kernel whose machine code stayed, or that has none: a Python file may do otherwise by its own choice, which
    shows where other lines of it ran, or call operators of PyTorch's that do."""
    lines = next((found for cell in change.cells if (found := lines_run(change.case, cell)) is not None), None)
    if lines is None or (not any(lines.alone) and lines.asking() is not None):
        return Finding(cells=change.cells, shown=Shown.NOT, words={"how": ""})
    return Finding(
        cells=change.cells,
        shown=Shown.TOGETHER,
        needs={"variables": not change.case.variables},
        lines=lines,
        words={"how": "lines" if any(lines.alone) else "called"},
    )


def _of_code(change: MemoryChange) -> Finding:
    """A kernel's machine code moved too. Where other targets of the same launches need what they did, it is not what
    all of them run in."""
    needs: dict[str, object] = {"what all targets run in": change.steady, "variables": not change.case.variables}
    lead = Finding(cells=change.cells, shown=Shown.TOGETHER, needs=needs, code=True, words={"how": "code"})
    if not change.case.build_differences:
        return lead
    build = replace(lead, kind=Kind.BUILD_MOVED, words={"how": "memory"})
    return replace(lead, also=build)
