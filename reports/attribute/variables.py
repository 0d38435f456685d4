"""Environment variables as a rival of all else that differs: whether a result goes with them, or with the place that
has them. The kernel ran in both environments with the variables of either: two by two, like swapped object code. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from reports.attribute import thresholds
from reports.attribute.cases import Case
from reports.attribute.cells import Cell
from reports.attribute.figures import rate_entry
from reports.attribute.making import listed, make
from reports.attribute.messages import died
from reports.attribute.model import DECISIVE, ENVIRONMENT_CONFOUNDER, STRONG, SUGGESTIVE, Cause, Figure, Ruled
from reports.attribute.observed import MIXED, NEITHER, PLACE
from reports.compare.differences import Difference
from reports.model import Seen

VARIABLES = "variables"


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A cell's runs by (where, whose variables): how many were right, of how many. `follows`: what right and wrong go
    with; None where not all four were made. `died`: where no run was left, for the first ended the process."""

    cell: Cell
    runs: dict[tuple[str, str], tuple[int, int]]
    died: set[tuple[str, str]]
    path: str

    @property
    def follows(self) -> str | None:
        base, this = self.cell.row.baseline, self.cell.row.environment
        places = [(base, base), (base, this), (this, base), (this, this)]
        if any(place not in self.runs for place in places):
            return None
        home, lent, borrowed, away = (self.runs[place][0] == self.runs[place][1] for place in places)
        if home == lent == borrowed == away:
            return NEITHER
        if home == borrowed and lent == away:
            return VARIABLES
        if home == lent and borrowed == away:
            return PLACE
        return MIXED

    @property
    def alone(self) -> bool:
        """Whether, in the environment that is wrong, the variables alone make it so."""
        base, this = self.cell.row.baseline, self.cell.row.environment
        return any(
            (where, base) in self.runs
            and (where, this) in self.runs
            and len({passed == runs for passed, runs in (self.runs[where, base], self.runs[where, this])}) > 1
            for where in (base, this)
        )


def tried(case: Case) -> Tried | None:
    """The first cell whose kernel ran with both environments' variables in both."""
    for cell in case.cells:
        runs: dict[tuple[str, str], tuple[int, int]] = {}
        ended: set[tuple[str, str]] = set()
        path = ""
        for conditions in cell.variables:
            where = conditions.record.environment
            for result in conditions.record.results:
                whose = result.condition.variables_of or where
                if result.runs or result.status in ("crashed", "unsupported", "timed_out", "killed"):
                    passed, runs_ = runs.get((where, whose), (0, 0))
                    runs[where, whose] = passed + result.passed, runs_ + (result.runs or 1)
                    if died(result):
                        ended.add((where, whose))
                    path = conditions.path
        found = Tried(cell=cell, runs=runs, died=ended, path=path)
        if found.follows is not None:
            return found
    return None


def matter(case: Case) -> bool:
    """Whether one environment's variables make the kernel wrong, and the other's right, with nothing else changed."""
    found = tried(case)
    return case.is_kernel and found is not None and found.follows in (VARIABLES, MIXED) and found.alone


def bring(case: Case) -> bool:
    """Whether a fault in memory comes with the variables: all runs with one environment's are right and none with the
    other's, and where it is right by itself, filling the memory was tried and changed nothing. A kernel that reads what
    it has not written in either environment, and is right by luck in one, notices the filling there."""
    found = tried(case)
    if not matter(case) or found is None or found.follows != VARIABLES:
        return False
    if any(
        passed not in (0, runs) or (runs < thresholds.FEWEST_RUNS and place not in found.died)
        for place, (passed, runs) in found.runs.items()
    ):
        return False
    base, this = case.baseline, case.environment
    right = base if found.runs[base, base][0] else this
    spreads = [spread for _, spread in case.poison if spread.environment == right]
    unwritten = any(s.unwritten_trials for cell in case.cells for s in cell.sides if s.environment == right)
    clean = case.sites <= {s.site for s in spreads} and all(s.moves is False and not s.marked for s in spreads)
    return clean and not unwritten


def left(case: Case) -> list[Difference]:
    """What differs between the environments, without variables that were found not to matter."""
    found = tried(case)
    excluded = case.variables if found is not None and found.follows == PLACE else []
    return [each for each in case.differences if each not in excluded]


def variables_decide(case: Case) -> Cause | None:
    """The result goes with the variables, in both environments or in one of them."""
    found = tried(case)
    if found is None or not matter(case):
        return None
    names, cell = [each.text for each in case.variables], found.cell
    follows = found.follows == VARIABLES
    said = "in both environments, whichever PyTorch and code they have" if follows else "in one of the environments"
    cells = [each for each in case.cells if any(each.wrong)] or [cell]
    return make(
        case,
        ENVIRONMENT_CONFOUNDER,
        (DECISIVE if follows else STRONG) if not case.unsteady else STRONG if bring(case) else SUGGESTIVE,
        f"{case.kernel}'s result goes with the variables of its process {said}: {listed(names)}.",
        cells,
        [
            Seen(text=f"{cell.workload}: {cell.row.correctness.why}", record=cell.record),
            *(Seen(text=text) for text in names),
            Seen(text=f"{cell.workload}: runs within tolerance: {_told(found)}", record=found.path),
        ],
        ruled=[
            Ruled(
                rival="the kernel's code, the build and PyTorch's version",
                how="the same binary in the same environment is right with the one, wrong with the other",
                record=found.path,
            )
        ],
        command=case.explain([cell]),
        figures=[_figure(found)],
    )


def _told(found: Tried) -> str:
    rates = found.runs.items()
    return ", ".join(
        f"in {where} with the variables of {whose} {right}/{runs}" for (where, whose), (right, runs) in rates
    )


def _figure(found: Tried) -> Figure:
    places = found.cell.row.baseline, found.cell.row.environment
    return Figure(
        title="The same binary with the other environment's variables: runs within tolerance",
        columns=tuple(f"variables of {whose}" for whose in places),
        rows=tuple(
            (f"run in {where}", tuple(rate_entry(*found.runs[where, whose]) for whose in places)) for where in places
        ),
        record=found.path,
    )


def decide(case: Case) -> bool:
    """Whether right and wrong were found to go with the variables, in whichever environment and by whichever code."""
    found = tried(case) if case.is_kernel else None
    return found is not None and found.follows == VARIABLES
