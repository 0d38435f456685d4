"""A cell of a case: one workload's comparison with the baseline, and what the records hold behind it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import get_args

from harness.schema.experiment_records import ConditionsExperiment, ProfileRecord
from harness.schema.records import Crossing, RecipeResult, TargetResult, ValidationRecord
from harness.worker import protocol
from reports import model
from reports.attribute import observed
from reports.attribute.history import History, histories, wrong_elsewhere
from reports.compare import correctness
from reports.compare.correctness import target_of
from reports.compare.factors import Factor, crossing_record, inputs, operator_names, output, yardstick
from reports.compare.rows import KERNEL
from reports.load.evidence import Evidence
from reports.model import Comparison, CorrectnessSide, Rate


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

    @property
    def judged_otherwise(self) -> bool:
        return (self.base.status == "ok") != (self.this.status == "ok")


SDPA = "_scaled_dot_product_"


def backends(side: CorrectnessSide) -> list[str]:
    """What attention's own operators say of the backend that ran: efficient_attention, attention_math."""
    names = sorted(name for name in operator_names(side.operators) if name.startswith("aten::"))
    chosen = [name for name in names if SDPA in name] or names
    return [name.removeprefix("aten::").removeprefix(SDPA) for name in chosen]


def operators_moved(base: CorrectnessSide, this: CorrectnessSide) -> bool:
    """Another operator, not the same one under another name. Device functions are an operator's own affair."""
    one, two = backends(base), backends(this)
    return bool(one and two and one != two)


@dataclass(frozen=True, eq=False)
class Cell:
    """One workload of a case: its comparison, and what lies behind it."""

    evidence: Evidence
    row: Comparison

    @property
    def workload(self) -> str:
        return self.row.workload

    @property
    def target(self) -> str:
        return protocol.KERNEL if self.row.kind == KERNEL else self.row.target

    @property
    def kernel(self) -> str:
        """The kernel in whose record it stands."""
        row = self.row
        return row.correctness.this.measured_with or row.correctness.baseline.measured_with or row.target

    @cached_property
    def validations(self) -> tuple[ValidationRecord | None, ValidationRecord | None]:
        base, this = (
            self.evidence.validation(name, self.kernel, self.workload, self.row.device)
            for name in (self.row.baseline, self.row.environment)
        )
        return base, this

    @cached_property
    def inputs(self) -> Factor:
        return inputs(self.evidence, self.row)

    @cached_property
    def yardstick(self) -> Factor:
        return yardstick(self.evidence, self.row)

    @cached_property
    def bits(self) -> Factor:
        return output(self.row.correctness.bits, self.evidence, self.row, self.target, self.verdict_moved)

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
        told apart (`refuses_bits_alone`)."""
        base, this = (side.status == "wrong" and not self.refuses_bits_alone(n) for n, side in enumerate(self.sides))
        return base, this

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

    @cached_property
    def references(self) -> list[Reference]:
        """Those whose agreement with this kernel moved, or that decide its verdict where there is no truth."""
        if self.row.kind != KERNEL:
            return []
        base, this = self.sides
        decides = this.rate.against if this.rate and this.rate.against != protocol.TRUTH else ""
        found = []
        for name in dict.fromkeys([*this.agreement, decides]):
            one, two = base.agreement.get(name), this.agreement.get(name)
            if name and name == decides:
                one, two = base.rate, this.rate
            elif one is None or two is None or (one.passed, one.trials) == (two.passed, two.trials):
                continue
            if name:
                found.append(self.reference(name, (one, two)))
        return found

    def reference(self, name: str, agreed: tuple[Rate | None, Rate | None] = (None, None)) -> Reference:
        row = self.row
        sides = [
            correctness.side(self.evidence, environment, self.kernel, self.workload, row.device, name)
            for environment in (row.baseline, row.environment)
        ]
        bits = correctness.compare_bits(*self.validations, name)
        return Reference(
            name=name,
            bits=output(bits, self.evidence, row, name, sides[0].status != sides[1].status),
            base=sides[0],
            this=sides[1],
            agreed=agreed,
        )

    def twins(self, side: int) -> set[str]:
        """References whose every output is the kernel's, bit for bit, in the baseline (0) or here (1)."""
        record = self.validations[side]
        found: set[str] | None = None
        for recipe, result in self.results(side):
            same = {
                other.target
                for other in recipe.targets
                if other.target != self.target and result.output_sha256 and other.output_sha256 == result.output_sha256
            }
            found = same if found is None else found & same
        return found or set() if record is not None else set()

    @cached_property
    def pairs(self) -> list[Crossing]:
        found = crossing_record(self.evidence, self.row)
        return found.pairs if found else []

    def _of(self, kind: str, experiment: str) -> list[observed.Conditions]:
        return [
            observed.Conditions(record=record, path=path)
            for name in dict.fromkeys((self.row.baseline, self.row.environment))
            for record, path in self.evidence.conditions.get((name, self.kernel, self.workload, self.row.device), [])
            if record.experiment == experiment and kind == KERNEL
        ]

    @property
    def conditions(self) -> list[observed.Conditions]:
        """Every experiment that ran the kernel under changed conditions."""
        return [each for name in get_args(ConditionsExperiment) for each in self._of(self.row.kind, name)]

    @cached_property
    def repeats(self) -> list[observed.Conditions]:
        return self._of(self.row.kind, "repeat")

    @cached_property
    def wavers(self) -> bool:
        """Whether the same call on the same inputs was seen to give other bits."""
        loose = any(observed.settled([result]) is False for each in self.repeats for result in each.ran)
        return loose or any(side.repeats_differ > side.inputs_mutated for side in self.sides)

    @cached_property
    def apart_units(self) -> float | None:
        """How far runs of the same call lie apart at most; None where that was not recorded of all that differ."""
        sides = [side.repeats_max_units for side in self.sides if side.repeats_differ]
        loose = [each for seen in self.repeats for each in seen.ran if observed.settled([each]) is False]
        known = [*sides, *(each.apart_units for each in loose)]
        told = [units for units in known if units is not None]
        return max(told) if told and len(told) == len(known) else None

    def refuses_bits_alone(self, number: int) -> bool:
        """Whether all that is wrong in the baseline (0) or here (1) is that runs give other bits: each is right. In
        records of before both runs were judged, that was a failure, and the second one may be wrong."""
        side, record = self.sides[number], self.validations[number]
        if record is None or not record.deterministic:
            return False
        whole = side.rate is not None and side.rate.passed == side.rate.trials
        other = side.inputs_mutated or side.unwritten_trials
        return side.status == "wrong" and whole and side.repeats_differ > 0 and not other

    @cached_property
    def poison(self) -> list[observed.Spread]:
        return observed.poison(self._of(self.row.kind, "poison"), self.wavers)

    @cached_property
    def predecessors(self) -> list[observed.Spread]:
        return observed.predecessors(self._of(self.row.kind, "predecessor"), self.wavers)

    @cached_property
    def histories(self) -> list[History]:
        others = [each for name in ("inputs", "repeat", "predecessor") for each in self._of(self.row.kind, name)]
        return histories(self._of(self.row.kind, "history"), wrong_elsewhere(others))

    def first_right(self, recipe: str) -> bool | None:
        """Whether a call on inputs of this recipe that are wrong after other calls is right where it is a process's
        first one; None where none was made."""
        told = [history for history in self.histories if history.recipe == recipe]
        if any(history.first_right and history.elsewhere for history in told):
            return True
        return None if all(history.first_right for history in told) else False

    @cached_property
    def variables(self) -> list[observed.Conditions]:
        return self._of(self.row.kind, "variables")

    @property
    def off_stream(self) -> tuple[bool, bool]:
        """Whether launches saw its calls on another stream than theirs, in the baseline and here."""
        base, this = self.sides
        return base.off_stream, this.off_stream

    @cached_property
    def masks(self) -> list[observed.Conditions]:
        return self._of(self.row.kind, "inputs")

    @cached_property
    def wider(self) -> list[observed.Conditions]:
        return self._of(self.row.kind, "wider")

    @cached_property
    def places(self) -> list[observed.Conditions]:
        return self._of(self.row.kind, "places")

    @cached_property
    def lengths(self) -> list[observed.Conditions]:
        return self._of(self.row.kind, "lengths")

    @cached_property
    def checkers(self) -> list[observed.Checkers]:
        if self.row.kind != KERNEL:
            return []
        return [
            observed.Checkers(record=record, path=path)
            for name in dict.fromkeys((self.row.baseline, self.row.environment))
            for record, path in self.evidence.checkers.get((name, self.kernel, self.workload, self.row.device), [])
        ]

    @cached_property
    def swap(self) -> observed.Swap | None:
        found = self.evidence.swaps.get((self.kernel, self.workload, self.row.device))
        if found is None or self.row.kind != KERNEL:
            return None
        return observed.swap_between(*found, self.row.baseline, self.row.environment)

    def profile(self, environment: str, *, whole: bool = True) -> tuple[ProfileRecord, str] | None:
        """`whole` false: also of a call that ended with an exception, what ran before that."""
        timed = self.row.latency.this.measured_with or self.row.latency.baseline.measured_with or self.kernel
        for kernel in dict.fromkeys((timed, self.kernel)):
            found = self.evidence.profiles.get((environment, kernel, self.workload, self.row.device, self.target))
            if found is not None and (found[0].status == "ok" or not whole) and found[0].operators:
                return found
        return None
