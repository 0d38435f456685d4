"""Which experiments the records of a run call for: a pure function of them.

A suspect is a kernel on a workload and device of which something moved between environments, or is wrong. Of a
kernel's suspects on a device the smallest workload is taken, since what is found there is nearly always what is wrong
with the others, unless the user says otherwise. Where nothing moved and nothing is wrong, nothing is run.

This screens; it judges no cause. What a cause is, `reports` says, from the records that the experiments leave.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from harness.schema.environment_records import BuildRecord, EnvironmentRecord
from harness.schema.experiment_records import ConditionsExperiment, ConditionsRecord
from harness.schema.records import ENDED_BADLY, Device, RecipeResult, TargetResult, ValidationRecord
from harness.schema.run_records import Cell, RunRecord
from harness.stats.outputs import errors_moved
from harness.worker import protocol

EXPERIMENTS: tuple[ConditionsExperiment, ...] = ("poison", "predecessor", "inputs", "repeat")
UPCAST: tuple[ConditionsExperiment, ...] = ("wider",)  # of kernels in Python, which take what type they are given
LENGTHS: tuple[ConditionsExperiment, ...] = ("lengths",)  # of kernels that take any sequence length
TRIALS = 5
SEQUENCE_TRIALS, SEQUENCE_RECIPES = 4, 2  # of a sequence of calls, and how many sequences
CHANCE = 0.05  # at which an error that moved is worth a look; over the page, `reports` decides
# Of a validation's message, which may begin with the recipe; and a name, a module or a colon that is not there.
NEVER_LOADED = re.compile(
    rf"^(\w+: )?({protocol.LOADING}\S+|{protocol.CONSTRUCTING}|{protocol.MAKING}\S+) raised "
    r"|is missing the required \"forward\" function"
    r"|raised (ModuleNotFoundError|ImportError|NameError|UnboundLocalError|SyntaxError|IndentationError|TabError): "
)
CAN_RUN = (*protocol.RAN, *ENDED_BADLY)


@dataclass(frozen=True, kw_only=True)
class Focus:
    """What the user wants explained; empty: whatever the records call for."""

    kernels: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    torches: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()
    everything: bool = False


@dataclass(frozen=True, kw_only=True)
class Case:
    """One suspect: what to run, where, and why."""

    kernel: str
    workload: str
    device: Device
    environments: tuple[str, ...]  # the baseline first
    reasons: tuple[str, ...]
    trials: dict[str, tuple[int, ...]]  # by recipe: those that failed, or whose bits moved, before others
    machine_code_moved: bool | None  # None: it is not known
    failing: dict[str, tuple[int, ...]] = field(default_factory=dict)  # by recipe: trials that fail somewhere
    # Of each environment: whose variables are tried there; and which versions its kernel in Python is told, the true
    # one first.
    others: dict[ConditionsExperiment, dict[str, tuple[str, ...]]] = field(default_factory=dict)
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

    def others_in(self, environment: str) -> dict[ConditionsExperiment, tuple[str, ...]]:
        return {name: found for name, others in self.others.items() if (found := others.get(environment))}


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
    """The cases of a run's suspects, in the order of the run's kernels."""
    focus = focus or Focus()
    known = {(v.kernel, v.workload, v.device, v.environment): v for v in validations}
    built = {(b.kernel, b.device, b.environment): b for b in builds}
    groups: dict[tuple[str, Device], list[Case]] = {}
    notes: list[str] = []
    for kernel, workload, device in dict.fromkeys((c.kernel, c.workload, c.device) for c in run.cells):
        if kernel in run.pytorch or not is_wanted(run, focus, kernel, workload, device):
            continue
        rows = [known[key] for e in run.environments if (key := (kernel, workload, device, e)) in known]
        codes = {r.environment: built.get((kernel, device, r.environment)) for r in rows}
        case, note = _case(run.baseline, rows, codes, focus)
        if case is not None:
            case = replace(case, others=_others(case.environments, environments, python=workload in run.problems))
            crashed = any(row.status == protocol.CRASHED and row.environment in case.environments for row in rows)
            if case.failing or (crashed and workload not in run.problems):
                more = UPCAST if workload in run.problems else LENGTHS
                case = replace(case, experiments=(*case.experiments, *more))
            groups.setdefault((kernel, device), []).append(case)
        if note:
            notes.append(f"{kernel}/{workload}/{device}: {note}")
    flops = {w.id: math.inf if w.flops is None else w.flops for w in run.workloads}
    cases: list[Case] = []
    for (kernel, device), suspects in groups.items():
        suspects.sort(key=lambda case: flops.get(case.workload, math.inf))  # stable: of equals the run's first
        every = focus.everything or bool(focus.workloads)
        cases += suspects if every else suspects[:1]
        if not every and suspects[1:]:
            left = ", ".join(case.workload for case in suspects[1:])
            notes.append(
                f"{kernel}/{device}: {suspects[0].workload}, the smallest suspect, stands for {left} "
                "(--workload NAME or --all explains these too)"
            )
    return Planned(cases=tuple(cases), notes=tuple(notes))


def is_wanted(run: RunRecord, focus: Focus, kernel: str, workload: str, device: Device) -> bool:
    names = next({w.id, w.name} for w in run.workloads if w.id == workload)
    asked = (focus.kernels, {kernel}), (focus.workloads, names), (focus.devices, {device})
    return all(not wanted or bool(found & set(wanted)) for wanted, found in asked)


def _case(
    baseline: str, rows: list[ValidationRecord], codes: dict[str, BuildRecord | None], focus: Focus
) -> tuple[Case | None, str]:
    """The case of one kernel, workload and device, or why there is none ('' where nothing calls for one)."""
    base = next((row for row in rows if row.environment == baseline), None)
    others = [row for row in rows if row is not base and is_one_of(row.environment, focus.torches)]
    reasons: dict[str, list[str]] = {}
    for row in [*([base] if base else []), *others]:
        faults = _faults(row)
        if base is not None and row is not base:
            faults += moves(base, row, codes[baseline], codes[row.environment])
        if faults:
            reasons[row.environment] = faults
    if not reasons:
        return None, ""
    if not any(map(_loads, rows)):
        return None, "no experiment can run: the kernel loads in no environment"
    moved = [row for row in others if row.environment in reasons] or others[:1]
    asked = [*([base] if base else []), *moved]
    chosen = [row for row in asked if row.status in CAN_RUN]
    if not any(row.environment in reasons for row in chosen):
        statuses = "; ".join(f"{row.environment}: {row.status.replace('_', ' ')}" for row in asked if row not in chosen)
        return None, f"no experiment can run where something moved ({statuses})"
    first = chosen[0]
    machine = [same_machine_code(codes[first.environment], codes[row.environment]) for row in chosen[1:]]
    case = Case(
        kernel=first.kernel,
        workload=first.workload,
        device=first.device,
        environments=tuple(row.environment for row in chosen),
        reasons=tuple(f"{environment}: {'; '.join(faults)}" for environment, faults in reasons.items()),
        trials={
            **{recipe: choose_trials(recipe, chosen) for recipe in (*protocol.RECIPES, *protocol.EXTRA_RECIPES)},
            **dict.fromkeys(protocol.SCALED_RECIPES, choose_trials(protocol.RECIPES[0], chosen)),
        },
        failing={recipe: trials for recipe in protocol.RECIPES if (trials := failing_somewhere(recipe, chosen))},
        machine_code_moved=None if None in machine or not machine else not all(machine),
    )
    return case, ""


def _loads(row: ValidationRecord) -> bool:
    """Whether there was something to call: it was built, and loading it did not fail."""
    return row.status != protocol.BUILD_FAILED and not (
        row.status == protocol.CRASHED and NEVER_LOADED.search(row.message)
    )


def _others(
    environments: Sequence[str], records: Sequence[EnvironmentRecord], *, python: bool
) -> dict[ConditionsExperiment, dict[str, tuple[str, ...]]]:
    variables = _that_differ(environments, {each.id: each.variables for each in records})
    torch = {each.id: each.observed.torch for each in records if each.observed is not None}
    versions = _that_differ(environments, torch) if python and set(environments) <= set(torch) else {}
    told = {name: tuple(torch[each] for each in (name, *others)) for name, others in versions.items() if others}
    return {"variables": variables, "version": told}


def _that_differ(environments: Sequence[str], what: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """Of the baseline all others that have another one, of those the baseline."""
    base, *others = environments
    differ = [each for each in others if what.get(each) != what.get(base)]
    return {base: tuple(differ), **{each: (base,) for each in differ}}


def sequences(case: Case, inputs: ConditionsRecord | None) -> dict[str, tuple[int, ...]]:
    """By recipe, the trials of a sequence of calls: what failed in validation, then in the experiment on inputs, else
    where something moved. The first is the one that is asked about: it is called before all others."""
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


def is_one_of(environment: str, torches: tuple[str, ...]) -> bool:
    return not torches or any(environment == t or environment.startswith(f"torch{t}-") for t in torches)


def results_of(
    record: ValidationRecord, subject: str = protocol.KERNEL
) -> dict[str, tuple[RecipeResult, TargetResult]]:
    """A target's results, each with its recipe, by the recipe's name."""
    return {r.recipe: (r, result) for r in record.recipes for result in r.targets if result.target == subject}


def _faults(record: ValidationRecord) -> list[str]:
    """What is wrong with it on its own."""
    faults = []
    if record.status in (protocol.WRONG, *ENDED_BADLY):
        faults.append(record.status.replace("_", " "))
    results = [target for _, target in results_of(record).values()]
    if any(target.repeats_differ for target in results):
        faults.append("other bits when run again")
    if any(target.unwritten_trials for target in results):
        faults.append("output left unwritten")
    return faults


def moves(
    base: ValidationRecord,
    row: ValidationRecord,
    base_build: BuildRecord | None,
    build: BuildRecord | None,
    subject: str = protocol.KERNEL,
) -> list[str]:
    """What is not as in the baseline, of a kernel or, `model`, of an operator of PyTorch's."""
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
        fallen += [
            agreement.against
            for agreement in one.against
            if any(now.get(agreement.against, {}).get(rule, n) < n for rule, n in agreement.passed.items())
        ]
        unsteady = unsteady or bool(one.repeats_differ or other.repeats_differ)
        same_inputs = bool(before.input_sha256) and before.input_sha256 == after.input_sha256
        bits = bits or (same_inputs and one.output_sha256 != other.output_sha256)
    if fallen:
        changes.append(f"fewer trials agree with {', '.join(dict.fromkeys(fallen))}")
    errors, p = errors_moved(ours.values(), theirs.values())
    if base.status == row.status == protocol.OK and errors is not None and (p is None or p <= CHANCE):
        changes.append(f"{errors.what} error {errors.ratio:.3g} times as large on {errors.recipe} inputs")
    if bits and not unsteady and base_build is not None and build is not None and same_machine_code(base_build, build):
        changes.append("output bits moved, and machine code did not")
    return changes


def same_machine_code(one: BuildRecord | None, other: BuildRecord | None) -> bool | None:
    """Whether two builds hold the same instructions; None where that is not known, as of a Python kernel."""
    if one is None or other is None or not one.own_objects or not other.own_objects:
        return None
    return one.own_objects == other.own_objects


def failing_trials(record: ValidationRecord, recipe: str) -> list[int]:
    """Trials of a recipe in which the kernel's error is more than rounding costs."""
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
    """`count` trials: those that fail somewhere first, then those whose bits differ, then from the first on."""
    results = [by_recipe[recipe] for row in rows if recipe in (by_recipe := results_of(row))]
    digests = zip_longest(*(target.output_sha256 for _, target in results))
    differing = [trial for trial, seen in enumerate(digests) if len({d for d in seen if d is not None}) > 1]
    return tuple(sorted(list(dict.fromkeys([*failing_somewhere(recipe, rows), *differing, *range(count)]))[:count]))
