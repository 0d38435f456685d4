"""Which experiments the records of a run call for: a pure function of them.

A suspect is a kernel on a workload and device that changed between environments, or that is incorrect. Of a kernel's
suspects on a device the smallest workload is taken, because what is found there is nearly always what is wrong with the
others, unless the user says otherwise. Where nothing changed and nothing is incorrect, nothing is run.

This screens, and judges no cause. `reports` says what a cause is, from the records that the experiments leave.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest

from harness.schema.environment_records import BuildRecord, EnvironmentRecord
from harness.schema.experiment_records import ConditionsExperiment, ConditionsRecord, ExperimentFactor
from harness.schema.records import ENDED_BADLY, Device, RecipeResult, TargetResult, ValidationRecord
from harness.schema.run_records import Cell, RunRecord
from harness.stats.outputs import errors_moved
from harness.worker import protocol

EXPERIMENTS: tuple[ConditionsExperiment, ...] = ("poison", "predecessor", "inputs", "repeat")
UPCAST: tuple[ConditionsExperiment, ...] = ("wider",)  # of kernels in Python, which take what type they are given
LENGTHS: tuple[ConditionsExperiment, ...] = ("lengths",)  # of kernels that take any sequence length
TRIALS = 5
SEQUENCE_TRIALS, SEQUENCE_RECIPES = 4, 2  # of a sequence of calls, and how many sequences
CHANCE = 0.05  # at which an error that changed is worth a look; over the page, `reports` decides
CAN_RUN = (*protocol.RAN, *ENDED_BADLY)
Builds = Mapping[str, BuildRecord | None]  # of one kernel, by environment


@dataclass(frozen=True, kw_only=True)
class Focus:
    """What the user wants explained; empty: whatever the records call for."""

    kernels: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    torches: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()
    everything: bool = False

    def admits_environment(self, environment: str) -> bool:
        named = (environment == torch or environment.startswith(f"torch{torch}-") for torch in self.torches)
        return not self.torches or any(named)

    def admits(self, run: RunRecord, kernel: str, workload: str, device: Device) -> bool:
        names = {name for each in run.workloads if each.id == workload for name in (each.id, each.name)}
        wanted = (self.kernels, {kernel}), (self.workloads, names), (self.devices, {device})
        return all(not chosen or bool(known & set(chosen)) for chosen, known in wanted)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One suspect: what to run, where, and why."""

    kernel: str
    workload: str
    device: Device
    environments: tuple[str, ...]  # the baseline first
    reasons: tuple[str, ...]
    trials: dict[str, tuple[int, ...]]  # by recipe: those that failed, or whose bits changed, before others
    failing: dict[str, tuple[int, ...]] = field(default_factory=dict)  # by recipe: trials that fail somewhere
    factors: dict[str, tuple[ExperimentFactor, ...]] = field(
        default_factory=dict
    )  # by environment: in what the first differs
    experiments: tuple[ConditionsExperiment, ...] = EXPERIMENTS

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(
            Cell(environment=environment, kernel=self.kernel, workload=self.workload, device=self.device)
            for environment in self.environments
        )

    @property
    def id(self) -> str:
        return f"{self.kernel}/{self.workload}/{self.device}"

    @property
    def factor_cells(self) -> list[tuple[ExperimentFactor, Cell]]:
        """Return every factor to vary, with the cell that is compared with the first environment's."""
        return [(factor, cell) for cell in self.cells for factor in self.factors.get(cell.environment, ())]


@dataclass(frozen=True, kw_only=True)
class Planned:
    cases: tuple[Case, ...]
    notes: tuple[str, ...]  # what was left out, and why


def plan_experiments(
    run: RunRecord,
    validations: Sequence[ValidationRecord],
    builds: Sequence[BuildRecord],
    focus: Focus | None = None,
    environments: Sequence[EnvironmentRecord] = (),
) -> Planned:
    """Return the cases of a run's suspects, in the order of the run's kernels."""
    focus = focus or Focus()
    known = {(v.kernel, v.workload, v.device, v.environment): v for v in validations}
    built = {(b.kernel, b.device, b.environment): b for b in builds}
    stacks = {each.id: each for each in environments}
    suspects: dict[tuple[str, Device], list[Case]] = {}
    notes: list[str] = []
    for kernel, workload, device in dict.fromkeys((c.kernel, c.workload, c.device) for c in run.cells):
        if kernel in run.pytorch or not focus.admits(run, kernel, workload, device):
            continue
        rows = [known[key] for e in run.environments if (key := (kernel, workload, device, e)) in known]
        suspect = Suspect(
            baseline=run.baseline,
            rows=rows,
            codes={row.environment: built.get((kernel, device, row.environment)) for row in rows},
            stacks=stacks,
            focus=focus,
            is_python=workload in run.problems,
        )
        if problem := suspect.find_obstacle():
            notes.append(f"{kernel}/{workload}/{device}: {problem}")
        elif suspect.reasons:
            suspects.setdefault((kernel, device), []).append(suspect.make_case())
    flops = {w.id: math.inf if w.flops is None else w.flops for w in run.workloads}
    cases: list[Case] = []
    for (kernel, device), found in suspects.items():
        found.sort(key=lambda case: flops.get(case.workload, math.inf))  # stable: of equals the run's first
        if focus.everything or focus.workloads:
            cases += found
            continue
        cases.append(found[0])
        if left := ", ".join(case.workload for case in found[1:]):
            notes.append(
                f"{kernel}/{device}: {found[0].workload}, the smallest suspect, stands for {left} "
                "(--workload NAME or --all explains these too)"
            )
    return Planned(cases=tuple(cases), notes=tuple(notes))


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """One kernel on one workload and device: what its validations in all environments call for."""

    baseline: str
    rows: Sequence[ValidationRecord]
    codes: Builds
    stacks: Mapping[str, EnvironmentRecord]
    focus: Focus
    is_python: bool  # the kernel is a file in Python

    @cached_property
    def base(self) -> ValidationRecord | None:
        return next((row for row in self.rows if row.environment == self.baseline), None)

    @cached_property
    def reasons(self) -> dict[str, list[str]]:
        """Return what calls for experiments, by environment."""
        found = {}
        for row in self.rows:
            if row is self.base or self.focus.admits_environment(row.environment):
                faults = _find_faults(row)
                if self.base is not None and row is not self.base:
                    codes = self.codes[self.baseline], self.codes[row.environment]
                    faults += find_changes(self.base, row, *codes)
                if faults:
                    found[row.environment] = faults
        return found

    @property
    def chosen(self) -> list[ValidationRecord]:
        """Return the baseline's row, and those of environments in which something changed; of another one, if none
        did."""
        others = [row for row in self.rows if row is not self.base and self.focus.admits_environment(row.environment)]
        changed = [row for row in others if row.environment in self.reasons]
        return [*([self.base] if self.base else []), *(changed or others[:1])]

    def find_obstacle(self) -> str:
        """Return why no experiment can run; '' where one can, and where none is called for."""
        if self.reasons and not any(map(_loads, self.rows)):
            return "no experiment can run: the kernel loads in no environment"
        if not self.reasons or any(row.environment in self.reasons and row.status in CAN_RUN for row in self.chosen):
            return ""
        left = [row for row in self.chosen if row.status not in CAN_RUN]
        told = "; ".join(f"{row.environment}: {row.status.replace('_', ' ')}" for row in left)
        return f"no experiment can run where something moved ({told})"

    def make_case(self) -> Case:
        """Return the case of the rows that can run."""
        rows = [row for row in self.chosen if row.status in CAN_RUN]
        first = rows[0]
        failing = {recipe: trials for recipe in protocol.RECIPES if (trials := failing_somewhere(recipe, rows))}
        crashed = any(row.status == protocol.CRASHED for row in rows)
        more: tuple[ConditionsExperiment, ...] = ()
        if failing or (crashed and not self.is_python):
            more = UPCAST if self.is_python else LENGTHS
        chosen = {recipe: choose_trials(recipe, rows) for recipe in (*protocol.RECIPES, *protocol.EXTRA_RECIPES)}
        return Case(
            kernel=first.kernel,
            workload=first.workload,
            device=first.device,
            environments=tuple(row.environment for row in rows),
            reasons=tuple(f"{environment}: {'; '.join(faults)}" for environment, faults in self.reasons.items()),
            trials=chosen | dict.fromkeys(protocol.SCALED_RECIPES, chosen[protocol.RECIPES[0]]),
            failing=failing,
            factors={row.environment: self.find_factors(first.environment, row.environment) for row in rows[1:]},
            experiments=(*EXPERIMENTS, *more),
        )

    def find_factors(self, base: str, this: str) -> tuple[ExperimentFactor, ...]:
        """Return in which factors two environments differ that can be varied in both."""
        found = []
        if same_machine_code(self.codes[base], self.codes[this]) is False:
            found.append(ExperimentFactor.CODE)
        one, two = self.stacks.get(base), self.stacks.get(this)
        if one is not None and two is not None:
            if one.variables != two.variables:
                found.append(ExperimentFactor.VARIABLES)
            if self.is_python and one.observed and two.observed and one.observed.torch != two.observed.torch:
                found.append(ExperimentFactor.VERSION)
        return tuple(found)


def _loads(row: ValidationRecord) -> bool:
    """Return whether there was something to call: the kernel was built, and loading it did not fail."""
    return row.status != protocol.BUILD_FAILED and (row.loads or row.status != protocol.CRASHED)


def sequences(case: Case, inputs: ConditionsRecord | None) -> dict[str, tuple[int, ...]]:
    """Return, by recipe, the trials of a sequence of calls: what failed in validation, then in the experiment on
    inputs, else where something changed. The first is the one that is asked about: it is called before all others."""
    chosen = dict(case.failing)
    for result in inputs.results if inputs is not None else []:
        plain = result.condition.as_laid_out
        trials = case.trials.get(result.condition.recipe, ())
        bad = tuple(trial for trial, within in zip(trials, result.within, strict=False) if not all(within))
        if plain and bad and result.condition.recipe not in protocol.SCALED_RECIPES:
            chosen.setdefault(result.condition.recipe, bad)
    if not chosen:
        chosen = {protocol.RECIPES[0]: case.trials[protocol.RECIPES[0]]}
    return {
        recipe: tuple(dict.fromkeys((*trials, *case.trials[recipe])))[:SEQUENCE_TRIALS]
        for recipe, trials in list(chosen.items())[:SEQUENCE_RECIPES]
    }


def results_of(
    record: ValidationRecord, subject: str = protocol.KERNEL
) -> dict[str, tuple[RecipeResult, TargetResult]]:
    """Return a target's results, each with its recipe, by the recipe's name."""
    return {r.recipe: (r, result) for r in record.recipes for result in r.targets if result.target == subject}


def _find_faults(record: ValidationRecord) -> list[str]:
    """Return what is wrong with it on its own."""
    faults = []
    if record.status in (protocol.WRONG, *ENDED_BADLY):
        faults.append(record.status.replace("_", " "))
    results = [target for _, target in results_of(record).values()]
    if any(target.repeats_differ for target in results):
        faults.append("other bits when run again")
    if any(target.unwritten_trials for target in results):
        faults.append("output left unwritten")
    return faults


def find_changes(
    base: ValidationRecord,
    row: ValidationRecord,
    base_build: BuildRecord | None,
    build: BuildRecord | None,
    subject: str = protocol.KERNEL,
) -> list[str]:
    """Return what is not as in the baseline, of a kernel or, `model`, of an operator of PyTorch's."""
    changes: list[str] = []
    if protocol.NOT_RUN in (base.status, row.status):
        return changes
    if base.status != row.status:
        changes.append(f"verdict moved: {base.status.replace('_', ' ')} to {row.status.replace('_', ' ')}")
    ours, theirs = results_of(base, subject), results_of(row, subject)
    fallen: list[str] = []  # with whom fewer trials agree now, by any rule
    bits = unsteady = False
    for name in ours.keys() & theirs.keys():
        (before, one), (after, other) = ours[name], theirs[name]
        now = {agreement.against: agreement.passed for agreement in other.against}
        for agreement in one.against:
            passed = now.get(agreement.against, agreement.passed)
            if any(passed.get(rule, count) < count for rule, count in agreement.passed.items()):
                fallen.append(agreement.against)
        unsteady = unsteady or bool(one.repeats_differ or other.repeats_differ)
        same_inputs = bool(before.input_sha256) and before.input_sha256 == after.input_sha256
        bits = bits or (same_inputs and one.output_sha256 != other.output_sha256)
    if fallen:
        changes.append(f"fewer trials agree with {', '.join(dict.fromkeys(fallen))}")
    errors, p = errors_moved(ours.values(), theirs.values())
    if base.status == row.status == protocol.OK and errors is not None and (p is None or p <= CHANCE):
        changes.append(f"{errors.what} error {errors.ratio:.3g} times as large on {errors.recipe} inputs")
    if bits and not unsteady and same_machine_code(base_build, build):
        changes.append("output bits moved, and machine code did not")
    return changes


def same_machine_code(one: BuildRecord | None, other: BuildRecord | None) -> bool | None:
    """Return whether two builds hold the same instructions; None where that is not known, as of a Python kernel."""
    if one is None or other is None or not one.own_objects or not other.own_objects:
        return None
    return one.own_objects == other.own_objects


def failing_trials(record: ValidationRecord, recipe: str) -> list[int]:
    """Return the trials of a recipe in which the kernel's error is more than rounding costs."""
    result = results_of(record).get(recipe)
    return [
        trial
        for agreement in (result[1].against if result else [])
        if agreement.against == protocol.TRUTH
        for trial, units in enumerate(agreement.units_per_trial)
        if units is None or not units <= record.limits.get("rounding", math.inf)
    ]


def failing_somewhere(recipe: str, rows: Sequence[ValidationRecord]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(trial for row in rows for trial in failing_trials(row, recipe)))


def choose_trials(recipe: str, rows: Sequence[ValidationRecord], count: int = TRIALS) -> tuple[int, ...]:
    """Return `count` trials: those that fail somewhere first, then those whose bits differ, then from the first on."""
    results = [by_recipe[recipe] for row in rows if recipe in (by_recipe := results_of(row))]
    digests = zip_longest(*(target.output_sha256 for _, target in results))
    differing = [trial for trial, seen in enumerate(digests) if len({d for d in seen if d is not None}) > 1]
    return tuple(sorted(list(dict.fromkeys([*failing_somewhere(recipe, rows), *differing, *range(count)]))[:count]))
