"""A case: all that the records say of one kernel or reference on one device, in one environment against the baseline.
Rules read cases and nothing else. Pure: a fact is computed once, when a rule first asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from harness.schema.environment_records import BuildRecord, EnvironmentRecord
from harness.schema.experiment_records import ExperimentFactor
from harness.schema.run_records import WorkloadInfo
from harness.worker import protocol
from reports import model
from reports.attribute.cells import CellFacts
from reports.attribute.experiments import (
    CallOrder,
    Conditions,
    Detection,
    LengthTrials,
    Spread,
    findings,
    settled,
    settles,
    silent,
)
from reports.attribute.messages import build_flags, faulted, mistaken, outlived, own_error
from reports.attribute.trials import Exchange, Follows
from reports.attribute.wording import listed
from reports.compare.differences import PACKAGES, VARIABLE, Difference, differing
from reports.compare.factors import Factor, build_inputs, machine_code, native_code
from reports.compare.rows import KERNEL, OPERATOR
from reports.load.evidence import Evidence
from reports.model import Comparison, Seen
from reports.text import explain_command


@dataclass(frozen=True, eq=False)
class CaseFacts:
    evidence: Evidence
    rows: tuple[Comparison, ...]

    @cached_property
    def cells(self) -> tuple[CellFacts, ...]:
        return tuple(CellFacts(self.evidence, row) for row in self.rows)

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
    def is_operator(self) -> bool:
        return self.rows[0].kind == OPERATOR  # neither a kernel nor what one is compared with

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
    def environments(self) -> tuple[str, str]:
        return self.baseline, self.environment

    @property
    def alone(self) -> bool:
        """Whether the run has one environment: nothing can be compared then."""
        return self.rows[0].alone

    @property
    def subject(self) -> str:
        if self.is_operator:
            info = self.evidence.workload(self.rows[0].workload)
            if info is None:
                return self.rows[0].workload
            return str(info.problem) if info.operator else f"the Model of {info.problem}"
        return f"PyTorch's own {self.reference}" if self.reference else self.kernel

    @cached_property
    def stacks(self) -> tuple[EnvironmentRecord | None, EnvironmentRecord | None]:
        base, this = map(self.evidence.environments.get, self.environments)
        return base, this

    @property
    def versions(self) -> tuple[str, str]:
        """Both environments as sentences name them."""
        return self.cells[0].versions

    @cached_property
    def builds(self) -> tuple[BuildRecord | None, BuildRecord | None]:
        base, this = (self.evidence.builds.get((name, self.kernel, self.device)) for name in self.environments)
        return base, this

    @property
    def refused(self) -> list[BuildRecord]:
        """What is built already, in the environments that cannot load it."""
        return list({build.environment: build for build in self.builds if build and build.refused}.values())

    @cached_property
    def code(self) -> Factor:
        return machine_code(self.evidence, self.kernel, self.device, *self.environments)

    @cached_property
    def build_inputs(self) -> list[Seen]:
        """Compiler and flags, where they differ."""
        return build_inputs(self.evidence, self.kernel, self.device, *self.environments)

    @cached_property
    def build_differences(self) -> list[Seen]:
        """The same, else what differs in build.ninja, which has the flags of PyTorch's helper too."""
        base, this = self.builds
        one, two = build_flags(base), build_flags(this)
        if self.build_inputs or one == two or base is None or this is None:
            return self.build_inputs
        parts = (("new", two - one), ("dropped", one - two))
        text = ", ".join(f"{what} in build.ninja: {' '.join(sorted(flags))}" for what, flags in parts if flags)
        return [Seen(text=text, record=self.evidence.build_pointer(this.environment, self.kernel, self.device))]

    @cached_property
    def differences(self) -> list[Difference]:
        """What differs between the environments besides the version that was asked to differ."""
        base, this = self.stacks
        return differing(base, this, self.versions) if base is not None and this is not None else []

    @property
    def variables(self) -> list[Difference]:
        """Environment variables that differ."""
        return [each for each in self.differences if each.kind == VARIABLE]

    @cached_property
    def one_torch(self) -> bool:
        """Whether both environments hold the very same PyTorch: then it cannot be what moved."""
        base, this = (stack.observed if stack else None for stack in self.stacks)
        return base is not None and this is not None and (base.torch, base.torch_git) == (this.torch, this.torch_git)

    @cached_property
    def brings_code(self) -> bool:
        """Whether a Python file compiles or loads machine code by itself."""
        return any(native_code(self.evidence, self.kernel, self.device, side) for side in self.environments)

    @cached_property
    def is_python(self) -> bool:
        info = self.evidence.kernel(self.kernel) if self.is_kernel else None
        return info is not None and bool(info.sources) and all(name.endswith((".py", ".whl")) for name in info.sources)

    def dtypes(self, cells: Sequence[CellFacts]) -> str:
        infos = [self.evidence.workload(cell.workload) for cell in cells]
        return listed(info.dtype for info in infos if info is not None)

    def inputs_of(self, cells: Sequence[CellFacts]) -> str:
        """Return their dtypes, with what attentions have beyond plain ones, which may be what is refused."""
        infos = [info for cell in cells if (info := self.evidence.workload(cell.workload)) is not None]
        return listed(info.dtype + ("" if info.problem else _beyond(info)) for info in infos)

    def build_seen(self, build: BuildRecord) -> Seen:
        record = self.evidence.build_pointer(build.environment, self.kernel, self.device)
        return Seen(text=f"{build.environment}: {build.message or 'the build failed'}", record=record)

    def lengths_of(self, cells: Sequence[CellFacts]) -> list[LengthTrials]:
        return [each for cell in cells for each in cell.lengths[-1:] if each.right or each.wrong]

    def of(self, *experiments: str) -> list[tuple[CellFacts, Conditions]]:
        return [(cell, each) for cell in self.cells for name in experiments for each in cell.of(name)]

    # -- chance -----------------------------------------------------------------------------------------------

    @cached_property
    def unsteady(self) -> list[Seen]:
        """Observations of other bits from the same call on the same inputs."""
        return [seen for cell in self.cells for seen in cell.unsteady]

    @cached_property
    def order_of_sums(self) -> Seen | None:
        """That runs lie so near each other that another order of the same additions explains it: no further apart than
        an output may be from the truth. None: they repeat, they lie further apart, or nobody looked."""
        found = [(cell.apart_units, cell.limit("rounding"), cell) for cell in self.cells if cell.wavers]
        if not found or any(units is None or limit is None or not units <= limit for units, limit, _ in found):
            return None
        units, limit, cell = max(found, key=lambda each: each[0] or 0.0)
        atomics = max((function.atomics for build in self.builds if build for function in build.functions), default=0)
        code = f"; its machine code holds {atomics} atomic instructions" if atomics else ""
        text = f"runs of the same call lie at most {units:.3g} units apart (the rule allows {limit:g})"
        return cell.seen(f"{text}, which another order of the same additions would explain{code}")

    @cached_property
    def steady(self) -> Seen | None:
        """The same bits, again and again; validation's own second run included."""
        if self.unsteady:
            return None
        for cell in self.cells:
            for conditions in cell.of("repeat"):
                if settled(conditions.ran):
                    runs = sum(result.runs for result in conditions.ran)
                    return Seen(text=f"{runs} repeated runs gave the same bits", record=conditions.path)
            if cell.verdict not in (model.BROKEN, model.UNSUPPORTED) and cell.record:
                return Seen(text="each trial's second run gave the same bits", record=cell.record)
        return None

    # -- memory, and what is kept -----------------------------------------------------------------------------

    @cached_property
    def poison(self) -> list[tuple[CellFacts, Spread]]:
        return [(cell, spread) for cell in self.cells for spread in cell.poison]

    @cached_property
    def predecessors(self) -> list[tuple[CellFacts, Spread]]:
        return [(cell, spread) for cell in self.cells for spread in cell.predecessors]

    @property
    def follows_poison(self) -> bool:
        return any(spread.follows for _, spread in self.poison)

    @cached_property
    def remembered(self) -> list[tuple[CellFacts, CallOrder]]:
        """Sequences in which the calls before decide, unless the filling of memory does."""
        if self.follows_poison:
            return []
        return [(cell, order) for cell in self.cells for order in cell.call_orders if order.remembers]

    @cached_property
    def settling(self) -> list[tuple[CellFacts, Conditions]]:
        """Repeated calls of which the first alone gives other bits, unless the filling of memory does."""
        return [
            (cell, conditions)
            for cell, conditions in ([] if self.follows_poison else self.of("repeat"))
            if settles([result for result in conditions.ran if result.condition.load == "alone"])
        ]

    @property
    def keeps_state(self) -> bool:
        """Whether the calls before decide what a call gives, and chance does not."""
        return bool(self.remembered or self.settling)

    @property
    def sites(self) -> set[str]:
        """Where poison must have been put for memory to be ruled out."""
        return {"shared", "output"} if self.device == "cuda" else {"output", "heap"}

    @property
    def _no_effect(self) -> str:
        return "leaves every output within tolerance" if self.unsteady else "changes nothing"

    @cached_property
    def memory_clean(self) -> Seen | None:
        """Poison everywhere it matters, and outputs that did not notice. None: not tried, or it did matter."""
        sites = {spread.site for _, spread in self.poison}
        if not self.sites <= sites or any(spread.follows or not spread.clean for _, spread in self.poison):
            return None
        text = f"filling {', '.join(sorted(sites))} with other patterns {self._no_effect}"
        return Seen(text=text, record=self.poison[0][1].path)

    @cached_property
    def predecessor_clean(self) -> Seen | None:
        if not self.predecessors or any(not spread.clean for _, spread in self.predecessors):
            return None
        return Seen(text=f"another kernel or call just before {self._no_effect}", record=self.predecessors[0][1].path)

    @cached_property
    def own_errors(self) -> list[CellFacts]:
        """Cells that end on both sides with an exception of the kernel's own. Where it ran on some workload in some
        environment of the run, that is told by what differs there, but for a plain mistake."""
        if not self.is_kernel:
            return []
        own = mistaken if self.evidence.ever_ran(self.kernel, self.device) else own_error
        return [cell for cell in self.cells if all(map(own, cell.sides))]

    @cached_property
    def unbuilt(self) -> list[CellFacts]:
        """Cells of a kernel that builds on neither side. What is built already and does not load is not among them."""
        if self.refused:
            return []
        return [cell for cell in self.cells if {side.status for side in cell.sides} == {protocol.BUILD_FAILED}]

    def findings(self, kind: str) -> list[tuple[CellFacts, Detection]]:
        return [(cell, finding) for cell in self.cells for finding in findings(cell.checkers, kind)]

    @cached_property
    def faulted(self) -> list[CellFacts]:
        """Cells that ended by an access to memory that is not their own."""
        return [cell for cell in self.cells if any(map(faulted, cell.sides))]

    def silence_on(self, kind: str) -> Seen | None:
        """That a checker which was seen to work found nothing of this kind."""
        for cell in self.cells:
            if found := silent(cell.checkers, kind):
                tool, path = found
                control = "control: it did report a fault of this kind in a test kernel"
                planted = f" ({tool.control})" if tool.control else ""
                text = f"{tool.tool} reported nothing; {control}{planted}"
                return Seen(text=text, record=path)
        return None

    # -- what moved -------------------------------------------------------------------------------------------

    @cached_property
    def failing(self) -> list[CellFacts]:
        """Cells whose outputs are wrong in this environment, or were in the baseline."""
        return [cell for cell in self.cells if any(cell.wrong)]

    @cached_property
    def moved(self) -> list[CellFacts]:
        """Cells whose own verdict moved, by outputs."""
        return [cell for cell in self.cells if cell.verdict_moved and not self.alone]

    @cached_property
    def moved_by_itself(self) -> list[CellFacts]:
        """Whose verdict moved by their own bits; or whose process died on one side, as its object code did."""
        by_bits = [cell for cell in self.cells if cell.moved_by_own_bits]
        return by_bits + [cell for cell in self.cells if cell.dies_on_one_side]

    @cached_property
    def swap(self) -> tuple[CellFacts, Exchange] | None:
        """The first of the changed cells whose object code ran in both environments."""
        swaps = [(cell, cell.swap) for cell in self.moved_by_itself]
        return next(((c, swap) for c, swap in swaps if swap and swap.follows is not Follows.UNKNOWN), None)

    @cached_property
    def swap_follows(self) -> Follows:
        return self.swap[0].result_follows(self.swap[1]) if self.swap else Follows.UNKNOWN

    @cached_property
    def variable_trials(self) -> tuple[CellFacts, Exchange] | None:
        """The first cell whose kernel ran with both environments' variables in both. Where bits follow neither alone,
        they do not say which of the two moved the exactness."""
        for cell in self.cells:
            found = cell.exchange(ExperimentFactor.VARIABLES)
            if found and found.follows not in (Follows.UNKNOWN, *([Follows.BOTH] if found.by_bits else [])):
                return cell, found
        return None

    @property
    def variables_follow(self) -> Follows:
        """What right and wrong, or bits, follow where variables were tried both ways."""
        return self.variable_trials[1].follows if self.variable_trials else Follows.UNKNOWN

    @property
    def variables_matter(self) -> bool:
        """Whether the variables alone make it right or wrong, or give other bits where only its exactness moved."""
        follows = self.variables_follow in (Follows.FACTOR, Follows.BOTH)
        return follows and self.variable_trials is not None and self.variable_trials[1].decides_somewhere

    @cached_property
    def told(self) -> tuple[CellFacts, Exchange] | None:
        """The first moved cell whose file was told either version in both environments, and was right and wrong there
        as in validation where it was told the true one."""
        for cell in self.moved:
            found = cell.exchange(ExperimentFactor.VERSION)
            if found is None:
                continue
            unclear = (Follows.UNKNOWN, *([Follows.BOTH] if found.by_bits else []))
            home = [found.cells.get((name, name)) for name in self.environments]
            right = [each is not None and each.passed == each.runs for each in home]
            if found.follows not in unclear and right == [side.status == protocol.OK for side in cell.sides]:
                return cell, found
        return None

    @property
    def told_follows(self) -> Follows:
        return self.told[1].follows if self.told else Follows.UNKNOWN

    @property
    def fault_comes_with_variables(self) -> bool:
        """Whether a fault in memory does: all runs with one environment's are right and none with the other's, and
        where it is right by itself, filling the memory was tried and changed nothing. A kernel that reads what it has
        not written in either environment, and is right by luck in one, notices the filling there."""
        if self.variable_trials is None or not self.variables_matter or self.variables_follow is not Follows.FACTOR:
            return False
        trials = self.variable_trials[1]
        right = self.baseline if trials.cells[self.baseline, self.baseline].passed else self.environment
        spreads = [spread for _, spread in self.poison if spread.environment == right]
        unwritten = any(s.unwritten_trials for cell in self.cells for s in cell.sides if s.environment == right)
        clean = self.sites <= {s.site for s in spreads} and all(
            s.state is Follows.NEITHER and not s.marked for s in spreads
        )
        return trials.all_or_none and clean and not unwritten

    @cached_property
    def exchanged(self) -> list[tuple[CellFacts, Exchange, Follows]]:
        """The exchanges of packages on cells whose verdict moved, and what their results follow, in the direction in
        which they moved."""
        moved = [cell for cell in self.cells if cell.verdict in model.MOVED and not self.alone]
        return [(cell, each, cell.result_follows(each)) for cell in moved for each in cell.exchanges]

    def time_follows(self, exchange: Exchange) -> Follows:
        return exchange.time_follows(self.evidence.min_effect(self.device))

    def unmoved_packages(self, *, times: bool) -> dict[str, str]:
        """Packages that were exchanged both ways and changed nothing, each with its record's path."""
        if times:
            states = [(each, self.time_follows(each)) for cell in self.cells for each in cell.exchanges if each.timed]
        else:
            states = [(each, state) for _, each, state in self.exchanged]
        moving = {each.package for each, state in states if state is not Follows.PLACE}
        return {each.package: each.path for each, _ in states if each.package not in moving}

    @property
    def differences_left(self) -> list[Difference]:
        """What differs between the environments, without variables and packages that were found not to matter."""
        excluded = self.variables if self.variables_follow is Follows.PLACE else []
        unmoved = self.unmoved_packages(times=False)
        left = [each for each in self.differences if each not in excluded]
        return [each for each in left if not (each.kind in PACKAGES and (each.name or each.kind) in unmoved)]

    @property
    def accessed_what_outlived(self) -> bool:
        """Whether all that checkers name is memory that was there, and is no longer."""
        found = [finding.finding for _, finding in self.findings("out_of_bounds")]
        return bool(found) and all(map(outlived, found))

    def command(self, cells: Sequence[CellFacts]) -> str:
        return cells[0].row.command

    def explain(self, cells: Sequence[CellFacts]) -> str:
        """The command that makes the experiments on one cell."""
        row = cells[0].row
        kernel = self.kernel or row.latency.this.measured_with or row.correctness.this.measured_with
        return explain_command(self.evidence.run.command, kernel=kernel, workload=row.workload, device=row.device)


def cases(evidence: Evidence, rows: Sequence[Comparison]) -> list[CaseFacts]:
    grouped: dict[tuple[str, str, str, str], list[Comparison]] = {}
    for row in rows:
        grouped.setdefault((row.kind, row.target, row.device, row.environment), []).append(row)
    return [CaseFacts(evidence, tuple(group)) for group in grouped.values()]


def _beyond(info: WorkloadInfo) -> str:
    return " with gradients" if info.backward else " with options" if info.has_options else ""
