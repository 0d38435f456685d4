"""Facts of profiles in both environments: where a call's time went, and which lines of a Python file ran. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from harness.schema.experiment_records import Line, ProfileRecord
from reports.attribute import thresholds
from reports.attribute.cases import CaseFacts
from reports.attribute.cells import SDPA, CellFacts
from reports.attribute.messages import asks_version
from reports.compare.factors import operator_names
from reports.model import Seen
from reports.text import apart

PUBLIC = "aten::scaled_dot_product_attention"


@dataclass(frozen=True, kw_only=True)
class OperatorChange:
    """One operator or device function in both environments, per call of the target. None: it did not run."""

    name: str
    before_us: float | None
    after_us: float | None
    calls: tuple[float, float]

    @property
    def delta_us(self) -> float:
        return (self.after_us or 0.0) - (self.before_us or 0.0)

    @property
    def moved_calls(self) -> int:
        """1 where it is called clearly more often than in the baseline, -1 where less often, else 0."""
        base, this = self.calls
        return (this > base * thresholds.CALLED_MORE) - (this * thresholds.CALLED_MORE < base)

    @property
    def alike(self) -> bool:
        """Whether it ran in both, about as often."""
        return self.before_us is not None and self.after_us is not None and not self.moved_calls

    @property
    def word(self) -> str:
        if self.before_us is None:
            return "appeared"
        if self.after_us is None:
            return "vanished"
        if self.moved_calls:
            return "runs more often" if self.moved_calls > 0 else "runs less often"
        return "slowed" if self.delta_us > 0 else "got faster"


def profile_changes(base: ProfileRecord, this: ProfileRecord) -> list[OperatorChange]:
    """Largest change first. On a GPU its functions hold the time; operators above them are not counted again."""
    kind = "device_function" if any(each.kind == "device_function" for each in this.operators) else "operator"

    def by_name(record: ProfileRecord) -> tuple[dict[str, float], dict[str, float]]:
        times_us: dict[str, float] = {}
        calls: dict[str, float] = {}
        for each in record.operators:
            if each.kind == kind:
                (name,) = operator_names([each.name])
                times_us[name] = times_us.get(name, 0.0) + each.self_us
                calls[name] = calls.get(name, 0) + each.calls
        return times_us, calls

    (before_us, before), (after_us, after) = by_name(base), by_name(this)
    changes = [
        OperatorChange(
            name=name,
            before_us=before_us.get(name),
            after_us=after_us.get(name),
            calls=(before.get(name, 0), after.get(name, 0)),
        )
        for name in before.keys() | after.keys()
    ]
    return sorted(changes, key=lambda change: (-abs(change.delta_us), change.name))


OUTSIDE = "outside operators"  # a profile's name for what is no operator: the code under test itself
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")


def own(case: CaseFacts, change: OperatorChange) -> bool:
    """Whether the time is that of the code under test: outside all operators, or in a device function that its build
    made. A profile tells these by their C++ names, a build by the linker's, in which each part has its length before
    it (Itanium C++ ABI, "Mangling")."""
    plain = re.sub(r"<.*|\(anonymous namespace\)::|\(.*", "", change.name)
    words = IDENTIFIER.findall(plain)
    built = {function.name for build in case.builds if build is not None for function in build.functions}
    mangled = "".join(f"{len(word)}{word}" for word in words[-1:])
    return change.name == OUTSIDE or (bool(words) and any(name == words[-1] or mangled in name for name in built))


@dataclass(frozen=True, kw_only=True)
class Profiles:
    """Of one cell in both environments: what changed between them."""

    cell: CellFacts
    changes: list[OperatorChange]
    path: str


def profiles(case: CaseFacts, cells: Iterable[CellFacts]) -> Profiles | None:
    """Of the first cell that has a profile of both."""
    for cell in cells:
        base, this = (cell.profile(name) for name in case.environments)
        if base is not None and this is not None:
            return Profiles(cell=cell, changes=profile_changes(base[0], this[0]), path=this[1])
    return None


@dataclass(frozen=True, kw_only=True)
class Backends:
    """What attention ran as, by the profiles of one cell in both environments."""

    cell: CellFacts
    before: str
    here: str
    record: str

    @property
    def text(self) -> str:
        return f"{self.cell.workload}: {apart(self.cell.versions, self.before, self.here)}"


def another_backend(case: CaseFacts, cell: CellFacts) -> Backends | None:
    """Whoever calls attention by its public name leaves the choice to PyTorch: another backend under it is a choice."""
    base, this = (cell.profile(name, whole=False) for name in case.environments)
    if base is None or this is None or case.one_torch:
        return None
    names = [operator_names([each.name for each in record.operators]) for record, _ in (base, this)]
    one, two = ({name for name in each if SDPA in name} for each in names)
    if not (one and two) or one == two or not all(PUBLIC in each for each in names):
        return None
    before, here = (", ".join(sorted(each)).replace("aten::", "").replace(SDPA, "") for each in (one, two))
    return Backends(cell=cell, before=before, here=here, record=this[1])


# -- the lines that ran -------------------------------------------------------------------------------------

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
