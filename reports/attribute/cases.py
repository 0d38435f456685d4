"""A case: everything that the records tell of one kernel or reference on one device, one environment against the
baseline. Rules read cases and nothing else. Pure: what a case derives is computed once, when a rule asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from harness.schema.records import BuildRecord, EnvironmentRecord
from reports import model
from reports.attribute import observed
from reports.attribute.cells import Cell
from reports.attribute.history import History
from reports.compare.differences import VARIABLE, Difference, differing
from reports.compare.factors import Factor, build_inputs, machine_code, native_code
from reports.compare.rows import KERNEL
from reports.load.evidence import Evidence
from reports.model import Comparison, Seen


@dataclass(frozen=True, eq=False)
class Case:
    evidence: Evidence
    rows: tuple[Comparison, ...]

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(Cell(self.evidence, row) for row in self.rows)

    @property
    def kernel(self) -> str:
        return self.rows[0].target if self.is_kernel else ""

    @property
    def reference(self) -> str:
        return "" if self.is_kernel else self.rows[0].target

    @property
    def is_kernel(self) -> bool:
        return self.rows[0].kind == KERNEL

    @property
    def device(self) -> str:
        return self.rows[0].device

    @property
    def environment(self) -> str:
        return self.rows[0].environment

    @property
    def baseline(self) -> str:
        return self.rows[0].baseline

    @property
    def alone(self) -> bool:
        """One environment: what needs a second one to be said is not said."""
        return self.rows[0].alone

    @property
    def subject(self) -> str:
        return f"PyTorch's own {self.reference}" if self.reference else self.kernel

    @cached_property
    def stacks(self) -> tuple[EnvironmentRecord | None, EnvironmentRecord | None]:
        known = self.evidence.environments
        return known.get(self.baseline), known.get(self.environment)

    @cached_property
    def builds(self) -> tuple[BuildRecord | None, BuildRecord | None]:
        known = self.evidence.builds
        return (
            known.get((self.baseline, self.kernel, self.device)),
            known.get((self.environment, self.kernel, self.device)),
        )

    @cached_property
    def code(self) -> Factor:
        return machine_code(self.evidence, self.kernel, self.device, self.baseline, self.environment)

    @cached_property
    def build_inputs(self) -> list[Seen]:
        """Compiler and flags, where they differ."""
        return build_inputs(self.evidence, self.kernel, self.device, self.baseline, self.environment)

    @cached_property
    def differences(self) -> list[Difference]:
        """What differs between the environments besides the version that was asked to differ."""
        base, this = self.stacks
        return differing(base, this) if base is not None and this is not None else []

    @property
    def variables(self) -> list[Difference]:
        """Environment variables that differ."""
        return [each for each in self.differences if each.kind == VARIABLE]

    @cached_property
    def one_torch(self) -> bool:
        """Whether both environments hold the very same PyTorch: then it cannot be what moved."""
        base, this = (stack.observed if stack else None for stack in self.stacks)
        return base is not None and this is not None and (base.torch, base.torch_git) == (this.torch, this.torch_git)

    # -- what speaks of chance, and of memory ------------------------------------------------------------------

    @cached_property
    def unsteady(self) -> list[Seen]:
        """Observations of other bits from the same call on the same inputs."""
        found = []
        for cell in self.cells:
            for side in cell.sides:
                if side.repeats_differ and side.repeats_differ > side.inputs_mutated:
                    text = f"{cell.workload}: the second run gave other bits in {side.repeats_differ} trials"
                    found.append(Seen(text=text, record=side.record))
            for conditions in cell.repeats:
                loose = [result for result in conditions.ran if observed.settled([result]) is False]
                if loose:
                    labels = ", ".join(result.condition.label for result in loose[:3])
                    text = f"{cell.workload}: repeated calls gave other bits ({labels})"
                    found.append(Seen(text=text, record=conditions.path))
        return found

    @cached_property
    def order_of_sums(self) -> Seen | None:
        """That runs lie so near each other that another order of the same additions explains it: no further apart than
        an output may be from the truth. None: they repeat, they lie further apart, or nobody looked."""
        cells = [cell for cell in self.cells if cell.wavers]
        found = [(cell.apart_units, cell.limit("rounding"), cell) for cell in cells]
        if not found or any(units is None or limit is None or not units <= limit for units, limit, _ in found):
            return None
        units, limit, cell = max(found, key=lambda each: each[0] or 0.0)
        atomics = max((function.atomics for build in self.builds if build for function in build.functions), default=0)
        code = f"; its machine code holds {atomics} atomic instructions" if atomics else ""
        text = f"{cell.workload}: runs of the same call lie at most {units:.3g} units apart (the rule allows {limit:g})"
        return Seen(text=f"{text}, as sums do that are added in another order{code}", record=cell.record)

    @cached_property
    def steady(self) -> list[Seen]:
        """Observations of the same bits, again and again; validation's own second run included."""
        if self.unsteady:
            return []
        found = []
        for cell in self.cells:
            for conditions in cell.repeats:
                if observed.settled(conditions.ran):
                    runs = sum(result.runs for result in conditions.ran)
                    found.append(Seen(text=f"the same bits in {runs} repeated runs", record=conditions.path))
            if cell.verdict not in (model.BROKEN, model.UNSUPPORTED) and cell.record and not found:
                found.append(Seen(text="each trial's second run gave the same bits", record=cell.record))
        return found[:1]

    @cached_property
    def poison(self) -> list[tuple[Cell, observed.Spread]]:
        return [(cell, spread) for cell in self.cells for spread in cell.poison]

    @cached_property
    def predecessors(self) -> list[tuple[Cell, observed.Spread]]:
        return [(cell, spread) for cell in self.cells for spread in cell.predecessors]

    @property
    def follows_poison(self) -> bool:
        return any(spread.follows for _, spread in self.poison)

    @cached_property
    def remembered(self) -> list[tuple[Cell, History]]:
        """Histories in which the calls before decide, unless the filling of memory does."""
        if self.follows_poison:
            return []
        return [(cell, each) for cell in self.cells for each in cell.histories if each.remembers]

    @cached_property
    def settling(self) -> list[tuple[Cell, observed.Conditions]]:
        """Repeated calls of which the first alone gives other bits, unless the filling of memory does."""
        if self.follows_poison:
            return []
        return [
            (cell, conditions)
            for cell in self.cells
            for conditions in cell.repeats
            if observed.settles([result for result in conditions.ran if result.condition.load == "alone"])
        ]

    @property
    def keeps_state(self) -> bool:
        """Whether the calls before decide what a call gives, and chance does not."""
        return bool(self.remembered or self.settling)

    @property
    def sites(self) -> set[str]:
        """Where poison must have been put for memory to be ruled out."""
        return {"shared", "output"} if self.device == "cuda" else {"output", "heap"}

    @cached_property
    def memory_clean(self) -> Seen | None:
        """Poison everywhere it matters, and outputs that did not notice. None: not tried, or it did matter."""
        if any(spread.follows or not spread.clean for _, spread in self.poison):
            return None
        tried = {spread.site for _, spread in self.poison}
        if not self.sites <= tried:
            return None
        names = ", ".join(sorted(tried))
        said = "leaves every output within the rule" if self.unsteady else "changes nothing"
        return Seen(text=f"filling {names} with other patterns {said}", record=self.poison[0][1].path)

    @cached_property
    def brings_code(self) -> bool:
        """Whether a Python file compiles or loads machine code by itself."""
        sides = (self.baseline, self.environment)
        return any(native_code(self.evidence, self.kernel, self.device, side) for side in sides)

    @cached_property
    def of_operators(self) -> bool:
        """Whether it is a Python file that has no machine code of its own."""
        info = self.evidence.kernel(self.kernel) if self.is_kernel else None
        python = info is not None and bool(info.sources) and all(name.endswith(".py") for name in info.sources)
        return python and not self.brings_code

    @cached_property
    def predecessor_clean(self) -> Seen | None:
        if not self.predecessors or any(not spread.clean for _, spread in self.predecessors):
            return None
        said = "leaves every output within the rule" if self.unsteady else "changes nothing"
        return Seen(text=f"what ran just before {said}", record=self.predecessors[0][1].path)

    @cached_property
    def failing(self) -> list[Cell]:
        """Cells whose outputs are wrong in this environment, or were in the baseline."""
        return [cell for cell in self.cells if any(cell.wrong)]

    @cached_property
    def moved(self) -> list[Cell]:
        """Cells whose own verdict moved, by outputs."""
        return [cell for cell in self.cells if cell.verdict_moved and not self.alone]

    def command(self, cells: Sequence[Cell]) -> str:
        return cells[0].row.command

    def explain(self, cells: Sequence[Cell]) -> str:
        """The command that makes the experiments on one cell."""
        return cells[0].row.command.replace("nox -s matrix", "nox -s explain", 1)


def cases(evidence: Evidence, rows: Sequence[Comparison]) -> list[Case]:
    grouped: dict[tuple[str, str, str, str], list[Comparison]] = {}
    for row in rows:
        grouped.setdefault((row.kind, row.target, row.device, row.environment), []).append(row)
    return [Case(evidence, tuple(group)) for group in grouped.values()]
