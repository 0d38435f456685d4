"""What is known of one workload of a case: its comparison with the baseline, and the records behind it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from harness.schema.experiment_records import ExperimentFactor, ProfileRecord
from harness.schema.records import Crossing, RecipeResult, TargetResult, ValidationRecord
from harness.schema.run_records import Cell
from harness.stats.shrink import own_sizes
from harness.worker import protocol
from reports import model
from reports.attribute import experiments
from reports.attribute.experiments import CallOrder, Checkers, Conditions, LengthTrials, Spread, fails, passes
from reports.attribute.messages import died
from reports.attribute.trials import Exchange, Follows, Varied, exchange_of
from reports.compare import correctness, factors
from reports.compare.compiled import Compiled, pair
from reports.compare.correctness import FAILED, target_of
from reports.compare.factors import SAME, Factor
from reports.compare.properties import differs_though_right
from reports.compare.rows import KERNEL, OPERATOR, SUBJECTS, measured_as
from reports.load.evidence import Evidence
from reports.model import Comparison, CorrectnessSide, Rate, Seen

Stored = TypeVar("Stored")
INDEPENDENT, SHARED, LARGE = "independent", "shared_qkv", "large_logits"
SDPA = "_scaled_dot_product_"


def backends(side: CorrectnessSide) -> list[str]:
    """The backends that ran, by attention's own operators: efficient_attention, attention_math."""
    names = sorted(name for name in factors.operator_names(side.operators) if name.startswith("aten::"))
    chosen = [name for name in names if SDPA in name] or names
    return [name.removeprefix("aten::").removeprefix(SDPA) for name in chosen]


def operators_moved(base: CorrectnessSide, this: CorrectnessSide) -> bool:
    """Another operator, not the same one under another name. Device functions are an operator's own affair."""
    one, two = backends(base), backends(this)
    return bool(one and two and one != two)


@dataclass(frozen=True, kw_only=True)
class PlainCall:
    """`moved`: it ends otherwise, or, of a compiled call that is only more or less exact, it has other bits. `seen`
    says that it did neither."""

    moved: bool
    seen: Seen | None


def plain_call(evidence: Evidence, row: Comparison, workload: str) -> PlainCall | None:
    """None where not both environments have it."""
    of = {
        record.environment: record
        for record in evidence.validations.values()
        if (record.workload, record.device) == (workload, row.device) and record.kernel in evidence.run.pytorch
    }
    base, this = of.get(row.baseline), of.get(row.environment)
    if base is None or this is None or not {base.status, this.status} <= {*protocol.RAN}:
        return None
    bits = correctness.compare_bits(base, this, protocol.MODEL)
    same_bits, same_end = bits.word == "identical", base.status == this.status
    by_bits = row.correctness.verdict in model.EXACTNESS
    unmoved = same_bits or (same_end and not by_bits and not bits.unsteady)
    how = "gives the same bits in both environments" if same_bits else f"is {this.status} in both environments"
    path = evidence.validation_pointer(this)
    seen = Seen(text=f"{workload}: the same call without torch.compile {how}", record=path) if unmoved else None
    return PlainCall(moved=not same_end or (by_bits and bits.word == "differ"), seen=seen)


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A reference with which a kernel's agreement moved: its own outputs, and its own results on both sides."""

    name: str
    bits: Factor
    base: CorrectnessSide
    this: CorrectnessSide
    agreed: tuple[Rate | None, Rate | None]

    @property
    def operators_moved(self) -> bool:
        return operators_moved(self.base, self.this)

    @property
    def fell(self) -> bool:
        one, two = self.agreed
        return one is not None and two is not None and two.share < one.share


@dataclass(frozen=True, eq=False)
class CellFacts:
    evidence: Evidence
    row: Comparison

    @property
    def workload(self) -> str:
        return self.row.workload

    @property
    def target(self) -> str:
        return measured_as(self.row.kind, self.row.target)

    @property
    def kernel(self) -> str:
        """The kernel in whose record it stands."""
        base, this = self.sides
        return this.measured_with or base.measured_with or self.row.target

    @property
    def timed_with(self) -> str:
        """The kernel in whose launches it was timed."""
        latency = self.row.latency
        return latency.this.measured_with or latency.baseline.measured_with or self.kernel

    @property
    def environments(self) -> tuple[str, str]:
        return self.row.baseline, self.row.environment

    @property
    def versions(self) -> tuple[str, str]:
        """Both environments as sentences name them."""
        return self.evidence.names[self.row.baseline], self.evidence.names[self.row.environment]

    @cached_property
    def validations(self) -> tuple[ValidationRecord | None, ValidationRecord | None]:
        base, this = (self.evidence.validations.get(self.cell(name).id) for name in self.environments)
        return base, this

    @cached_property
    def inputs(self) -> Factor:
        return factors.inputs(self.evidence, self.row)

    @cached_property
    def yardstick(self) -> Factor:
        return factors.yardstick(self.evidence, self.row)

    @cached_property
    def bits(self) -> Factor:
        return factors.output(self.row.correctness.bits, self.evidence, self.row, self.target, self.verdict_moved)

    @property
    def verdict(self) -> str:
        return self.row.correctness.verdict

    @property
    def sides(self) -> tuple[CorrectnessSide, CorrectnessSide]:
        return self.row.correctness.baseline, self.row.correctness.this

    @property
    def record(self) -> str | None:
        return self.row.correctness.this.record or self.row.correctness.baseline.record

    @property
    def verdict_moved(self) -> bool:
        return self.verdict in (model.REGRESSED, model.FIXED, *model.EXACTNESS)

    @property
    def wrong(self) -> tuple[bool, bool]:
        """Of the baseline, and here: outputs that fail the rule, or that nobody may have. Not being bit-repeatable is
        a cause of its own (`differs_though_right`)."""
        base, this = (s.status == "wrong" and not self.differs_though_right(n) for n, s in enumerate(self.sides))
        return base, this

    @property
    def is_defined(self) -> bool:
        """Whether outputs are judged by a definition in the problem file, and not by a version's own float64 result."""
        return any(recipe.defined for record in self.validations if record for recipe in record.recipes)

    @property
    def always_wrong(self) -> bool:
        return all(self.wrong)

    @property
    def stops_everywhere(self) -> bool:
        return all(side.status in FAILED and side.status != "broken" for side in self.sides)

    @cached_property
    def units(self) -> tuple[float | None, float | None]:
        base, this = self.sides
        return base.max_units, this.max_units

    def limit(self, rule: str) -> float | None:
        return next((record.limits.get(rule) for record in self.validations if record is not None), None)

    def results(self, side: int) -> Iterator[tuple[RecipeResult, TargetResult]]:
        """This target's recipes: of the baseline (0) or of this environment (1)."""
        record = self.validations[side]
        for recipe in record.recipes if record else []:
            result = target_of(recipe, self.target)
            if result is not None:
                yield recipe, result

    def passing(self, recipe: str, side: int) -> Rate | None:
        """Of one recipe, by the deciding rule against what decides."""
        shown = next((each for each in self.sides[side].recipes if each.recipe == recipe), None)
        whole = self.sides[side].rate
        if shown is None or whole is None:
            return None
        return next((rate for rate in shown.rates if (rate.rule, rate.against) == (whole.rule, whole.against)), None)

    def fails_on(self, recipe: str) -> bool | None:
        """Whether trials of a recipe fail on either side; None where it was not tried."""
        known = [rate for side in (0, 1) if (rate := self.passing(recipe, side)) is not None]
        return any(rate.passed < rate.trials for rate in known) if known else None

    # -- references -------------------------------------------------------------------------------------------

    @cached_property
    def references(self) -> list[Reference]:
        """Those whose agreement with this kernel moved, or that decide its verdict where there is no truth."""
        if self.row.kind != KERNEL:
            return []
        base, this = self.sides
        decides = this.rate.against if this.rate and this.rate.against != protocol.TRUTH else ""
        found = []
        for name in filter(None, dict.fromkeys([*this.agreement, decides])):
            one, two = base.agreement.get(name), this.agreement.get(name)
            if name == decides:
                one, two = base.rate, this.rate
            elif one is None or two is None or (one.passed, one.trials) == (two.passed, two.trials):
                continue
            found.append(self.reference(name, (one, two)))
        return found

    def cell(self, environment: str) -> Cell:
        return Cell(environment=environment, kernel=self.kernel, workload=self.workload, device=self.row.device)

    def reference(self, name: str, agreed: tuple[Rate | None, Rate | None] = (None, None)) -> Reference:
        base, this = (
            correctness.side(self.evidence, self.cell(environment), name) for environment in self.environments
        )
        bits = correctness.compare_bits(*self.validations, name)
        moved = base.status != this.status
        factor = factors.output(bits, self.evidence, self.row, name, moved)
        return Reference(name=name, bits=factor, base=base, this=this, agreed=agreed)

    def twins(self, side: int) -> set[str]:
        """References whose every output is the kernel's, bit for bit, in the baseline (0) or here (1)."""
        same = [
            {
                other.target
                for other in recipe.targets
                if other.target != self.target and result.output_sha256 and other.output_sha256 == result.output_sha256
            }
            for recipe, result in self.results(side)
        ]
        return set.intersection(*same) if same else set()

    @cached_property
    def pairs(self) -> list[Crossing]:
        found = factors.crossing_record(self.evidence, self.row)
        return found.pairs if found else []

    # -- experiments ------------------------------------------------------------------------------------------

    def _recorded(self, stored: dict[tuple[str, ...], list[tuple[Stored, str]]]) -> list[tuple[Stored, str]]:
        if self.row.kind != KERNEL:
            return []
        keys = ((name, self.kernel, self.workload, self.row.device) for name in dict.fromkeys(self.environments))
        return [each for key in keys for each in stored.get(key, [])]

    @cached_property
    def experiments(self) -> list[Conditions]:
        """Every experiment that ran the kernel under changed conditions."""
        return [Conditions(record=record, path=path) for record, path in self._recorded(self.evidence.conditions)]

    def of(self, experiment: str) -> list[Conditions]:
        return [each for each in self.experiments if each.record.experiment == experiment]

    @cached_property
    def checkers(self) -> list[Checkers]:
        return self._recorded(self.evidence.checkers)

    @cached_property
    def unsteady(self) -> list[Seen]:
        """Observations of other bits from the same call on the same inputs."""
        text = "a second run gave other bits in {} trials in {}"
        differ = [side for side in self.sides if side.repeats_differ > side.inputs_mutated]
        found = [self.seen(text.format(side.repeats_differ, side.environment), side.record) for side in differ]
        for conditions in self.of("repeat"):
            if conditions.loose:
                labels = ", ".join(each.condition.label for each in conditions.loose[:3])
                text = f"repeated calls gave other bits ({labels})"
                found.append(self.seen_in(conditions.environment, text, conditions.path))
        return found

    @property
    def wavers(self) -> bool:
        return bool(self.unsteady)

    @cached_property
    def apart_units(self) -> float | None:
        """How far runs of the same call lie apart at most; None where that was not recorded of all that differ."""
        apart = [side.repeats_max_units for side in self.sides if side.repeats_differ]
        apart += [each.apart_units for conditions in self.of("repeat") for each in conditions.loose]
        known = [units for units in apart if units is not None]
        return max(known) if known and len(known) == len(apart) else None

    def differs_though_right(self, number: int) -> bool:
        """Whether all that is wrong in the baseline (0) or here (1) is that runs give other bits: each is right. In
        records of before both runs were judged, that was a failure, and the second one may be wrong."""
        side, record = self.sides[number], self.validations[number]
        if record is None or not record.deterministic:
            return False
        return side.status == "wrong" and differs_though_right(side)

    @cached_property
    def poison(self) -> list[Spread]:
        return experiments.spreads(self.of("poison"), Varied.FILLING, self.wavers)

    @cached_property
    def predecessors(self) -> list[Spread]:
        return experiments.spreads(self.of("predecessor"), Varied.CALLS_BEFORE, self.wavers)

    @cached_property
    def call_orders(self) -> list[CallOrder]:
        others = [each for name in ("inputs", "repeat", "predecessor") for each in self.of(name)]
        return experiments.call_orders(self.of("history"), others)

    def first_right(self, recipe: str) -> bool | None:
        """Whether a call on inputs of this recipe that are wrong after other calls is right where it is a process's
        first one; None where none was made."""
        orders = [order for order in self.call_orders if order.recipe == recipe]
        if any(order.first_right and order.wrong_later for order in orders):
            return True
        return None if all(order.first_right for order in orders) else False

    @property
    def lengths(self) -> list[LengthTrials]:
        own = own_sizes(self.evidence.workload(self.workload))
        return [LengthTrials(conditions=each, own=own) for each in self.of("lengths")]

    # -- a factor with the value of either environment in either --------------------------------------------------

    @property
    def by_bits(self) -> bool:
        """Whether it is right everywhere, and only its exactness changed."""
        return self.verdict in model.EXACTNESS

    def exchanges_of(self, factor: ExperimentFactor, kernel: str) -> list[Exchange]:
        """Return the experiments of a factor in which this target ran."""
        found = self.evidence.factors.get((self.row.environment, kernel, self.workload, self.row.device), [])
        return [
            exchange_of(record, path, self.target, self.by_bits)
            for record, path in found
            if record.factor is factor and record.baseline == self.row.baseline
        ]

    def exchange(self, factor: ExperimentFactor) -> Exchange | None:
        """Return the experiment of a factor of which there is one."""
        return next(iter(self.exchanges_of(factor, self.kernel)), None)

    @cached_property
    def swap(self) -> Exchange | None:
        return self.exchange(ExperimentFactor.CODE) if self.row.kind == KERNEL else None

    @cached_property
    def exchanges(self) -> list[Exchange]:
        """Packages that were exchanged between both environments while this target ran."""
        kernels = dict.fromkeys((self.kernel, self.timed_with))
        found = (self.exchanges_of(ExperimentFactor.PACKAGE, kernel) for kernel in kernels)
        return next((each for each in found if each), [])

    def result_follows(self, exchange: Exchange) -> Follows:
        """Return what right and wrong follow, or bits where only exactness changed. What did not fail as it did in
        validation shows nothing of why it failed, and follows neither."""
        if self.by_bits:
            return exchange.follows
        if exchange.factor is Varied.PACKAGE:
            worse = self.verdict not in (model.FIXED, model.NEWLY_SUPPORTED)
            if any((name, name) not in exchange.cells for name in self.environments):
                return Follows.UNKNOWN
        else:
            worse = self.verdict == model.REGRESSED or died(self.sides[1])
        return exchange.follows if exchange.as_changed(worse) else Follows.NEITHER

    @cached_property
    def compiled(self) -> Compiled | None:
        """What was generated for it at run time, in both environments."""
        rest = self.kernel, self.workload, self.row.device
        base, this = (self.evidence.compiled.get((name, *rest)) for name in self.environments)
        return pair(base[0], *this) if base and this and self.row.kind in SUBJECTS else None

    @cached_property
    def plain(self) -> PlainCall | None:
        """The same call of an operator without torch.compile, where both environments made it."""
        info = self.evidence.workload(self.workload)
        if self.row.kind != OPERATOR or info is None or not info.compiled:
            return None
        return plain_call(self.evidence, self.row, self.workload.replace(protocol.COMPILED, "", 1))

    @property
    def dies_on_one_side(self) -> bool:
        """As its object code was seen to do when each ran in both."""
        swapped = self.swap is not None and self.swap.follows is not Follows.UNKNOWN
        if not swapped or protocol.NOT_RUN in (side.status for side in self.sides):
            return False
        return [died(side) for side in self.sides].count(True) == 1 and self.inputs.state != factors.DIFFERS

    @property
    def moved_by_own_bits(self) -> bool:
        """Its verdict moved by other bits than the baseline's, on the same inputs and under the same yardstick."""
        same = self.inputs.state == SAME == self.yardstick.state
        return self.verdict_moved and not self.row.alone and same and self.bits.state == factors.DIFFERS

    def profile(self, environment: str, *, whole: bool = True) -> tuple[ProfileRecord, str] | None:
        """`whole` false: also of a call that ended with an exception, what ran before that."""
        for kernel in dict.fromkeys((self.timed_with, self.kernel)):
            found = self.evidence.profiles.get((environment, kernel, self.workload, self.row.device, self.target))
            if found is not None and (found[0].status == protocol.OK or not whole) and found[0].operators:
                return found
        return None

    # -- what inputs show -------------------------------------------------------------------------------------

    @property
    def finite(self) -> bool:
        """On ordinary inputs and smaller ones; where experiments did not try them, in validation."""
        results = [
            each
            for conditions in self.experiments
            for each in conditions.on(INDEPENDENT, *protocol.SCALED_RECIPES)
            if not each.condition.seq_len
        ]
        if any(each.nonfinite for each in results):
            return False
        return bool(results) or not any(side.nonfinite_trials for side in self.sides)

    @property
    def offset_matters(self) -> Conditions | None:
        """The experiment that shows the same elements right at an allocation's beginning, and wrong behind it."""
        for conditions in self.of("inputs"):
            plain = {result.condition.recipe for result in conditions.as_laid_out if passes(result)}
            failing = (each.condition for each in conditions.ran if fails(each))
            if any(each.layout == "offset" and each.recipe in plain for each in failing):
                return conditions
        return None

    # -- sentences --------------------------------------------------------------------------------------------

    def seen(self, text: str, record: str | None = None) -> Seen:
        return Seen(text=f"{self.workload}: {text}", record=record or self.record)

    def seen_in(self, environment: str, text: str, record: str | None = None) -> Seen:
        return Seen(text=f"{self.workload} in {environment}: {text}", record=record)

    @property
    def why(self) -> Seen:
        return self.seen(self.row.correctness.why)


def hidden(cells: Iterable[CellFacts]) -> list[Seen]:
    """Return inputs on which a kernel that is wrong on independent ones is right: a test that has no others passes."""
    found = []
    for cell in cells:
        for conditions in cell.of("inputs"):
            tested = conditions.as_laid_out
            failing = any(fails(result) for result in tested if result.condition.recipe == INDEPENDENT)
            passing = [result.condition.label for result in tested if passes(result)]
            if failing and passing:
                text = f"these inputs hide it: {', '.join(passing)}; do not test with them alone"
                found.append(cell.seen_in(conditions.environment, text, conditions.path))
    return found[-1:]
