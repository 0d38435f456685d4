"""What a Python file chooses by itself: which of its lines ran in either environment, and what came of telling it the
other's PyTorch version. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from harness.schema.experiment_records import Line, ProfileRecord
from harness.worker import protocol
from reports.attribute.facts.cases import CaseFacts
from reports.attribute.facts.cells import CellFacts
from reports.attribute.facts.messages import asks_version
from reports.attribute.facts.swaps import VERSION, Crossed, crossed
from reports.model import Seen

LINES_SHOWN = 8


@dataclass(frozen=True, kw_only=True)
class LinesRun:
    """The lines of a Python file that ran in the baseline and here. `path`: where the latter are recorded."""

    cell: CellFacts
    base: ProfileRecord
    this: ProfileRecord
    path: str

    @property
    def alone(self) -> tuple[list[Line], list[Line]]:
        """The lines that ran in the baseline alone, and here alone."""
        known = [{line.number for line in record.lines} for record in (self.base, self.this)]
        gone = [line for line in self.base.lines if line.number not in known[1]]
        return gone, [line for line in self.this.lines if line.number not in known[0]]

    @property
    def seen(self) -> list[Seen]:
        """Which lines these are, in words."""
        return [
            Seen(
                text=f"lines of its file that ran only in {where}: {', '.join(map(_named, lines[:LINES_SHOWN]))}",
                record=self.path,
            )
            for where, lines in zip(self.cell.versions, self.alone, strict=True)
            if lines
        ]

    def asking(self, *, told: bool = False) -> Seen | None:
        """The lines that ask what they run on: what one of them chooses within itself, no coverage of lines shows.
        `told`: without those that ask for PyTorch's version alone."""
        found = [line for line in self.this.lines if asks_version(line.text, told=told)][:LINES_SHOWN]
        lines = "; ".join(f"{_named(line)}: {line.text}" for line in found)
        return Seen(text=f"its file asks for a version or an attribute ({lines})", record=self.path) if found else None


def _named(line: Line) -> str:
    return f"line {line.number}"


def lines_run(case: CaseFacts, cell: CellFacts) -> LinesRun | None:
    """None where lines were not recorded in both, or by another Python."""
    base, this = (cell.profile(name, whole=False) for name in case.environments)
    pythons = {stack.observed.python.rpartition(".")[0] for stack in case.stacks if stack and stack.observed}
    if base is None or this is None or not base[0].lines or not this[0].lines or len(pythons) != 1:
        return None  # which lines count as run is each Python's own
    return LinesRun(cell=cell, base=base[0], this=this[0], path=this[1])


def lines_seen(case: CaseFacts, cell: CellFacts) -> list[Seen]:
    """Beside an operator that came, or calls that multiplied: the lines that brought them."""
    found = lines_run(case, cell)
    return found.seen if found is not None else []


def told_versions(case: CaseFacts) -> tuple[CellFacts, Crossed] | None:
    """The first moved cell whose file was told either version in both environments, and was right and wrong there as in
    validation where it was told the true one."""
    torch = [stack.observed.torch if stack is not None and stack.observed is not None else "" for stack in case.stacks]
    whose = dict(zip(torch, case.environments, strict=True))
    for cell in case.moved:
        found = crossed(cell, VERSION, lambda each: whose.get(each.told, ""))
        home = [found.right(name, name) for name in case.environments]
        if found.follows is not None and home == [side.status == protocol.OK for side in cell.sides]:
            return cell, found
    return None
