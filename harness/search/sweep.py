"""A sweep: Optuna proposes settings of a kernel's tunables until the budget is used, and the best are confirmed.

Each batch of settings is an ordinary run of the incumbent and these, in every environment of the matrix. Settings that
are not correct, repeatable and clean are refused before they are timed (`harness.experiments.admission`).
"""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import TrialState, create_trial

from harness.config.kernels import Kernel
from harness.config.matrix import Matrix, load_matrix
from harness.config.planner import kernel_sources, pick
from harness.errors import INFRASTRUCTURE, InfrastructureError, InputError
from harness.experiments.admission import find_refusals
from harness.gpu import gpus, models
from harness.run.folders import held, now_utc
from harness.run.prepare import RunOptions, folder_files, make_plan
from harness.schema.records import Device
from harness.schema.run_records import Selection
from harness.schema.storage import save_record
from harness.schema.sweep_records import Setting, SettingTrial, SweepRecord, TimeRatio, describe
from harness.search.times import Place, Rounds, compare_rounds, read_medians
from harness.stats.medians import COLD, HOT
from harness.tools import cache_folder, lock_file
from harness.worker import protocol
from harness.workflow.matrix import run_matrix

ERROR_RATE = 0.05  # of all finalists together
SEARCH_TRIALS, FINAL_REPLICATES, FINALISTS = 5, 6, 4
NAME_LENGTH = 55  # of a kernel's name, of which 64 characters are accepted
PATIENCE = 20  # settings known already that the sampler may name, for each that it is asked for


def incumbent_of(kernel: Kernel) -> Setting:
    """Return the values in matrix.yaml of what is searched."""
    return {name: kernel.tunables[name] for name in kernel.search}


def make_variant(kernel: Kernel, setting: Setting) -> Kernel:
    """Return the kernel at a setting, under a name that depends on nothing else; the incumbent keeps its own."""
    changes: dict[str, object] = {"search": {}}
    if setting != incumbent_of(kernel):
        changes["name"] = f"{kernel.name[:NAME_LENGTH]}.{protocol.digest(setting)[:8]}"
        changes["tunables"] = {**kernel.tunables, **setting}
    return kernel.model_copy(update=changes)


def propose(kernel: Kernel, trials: Sequence[SettingTrial], count: int, seed: int) -> list[Setting]:
    """Return up to `count` settings that were not tried; none where all were. The study is made anew from the trials,
    so a sweep that goes on proposes what it would have proposed."""
    tried = [(incumbent_of(kernel), 1.0), *((trial.setting, trial.score) for trial in trials)]
    known = {str(setting) for setting, _ in tried}
    every = (dict(zip(kernel.search, values, strict=True)) for values in itertools.product(*kernel.search.values()))
    left = [setting for setting in every if str(setting) not in known]
    if len(left) <= count:
        return left
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    choices: dict[str, BaseDistribution] = {
        name: CategoricalDistribution(values) for name, values in kernel.search.items()
    }
    for setting, score in tried:  # the sampler keeps away from what is pruned
        value, state = (score, TrialState.COMPLETE) if score < math.inf else (None, TrialState.PRUNED)
        study.add_trial(create_trial(params=setting, distributions=choices, value=value, state=state))
    found: dict[str, Setting] = {}
    for _ in range(count * PATIENCE):
        params = study.ask(choices).params
        setting = {name: params[name] for name in kernel.search}
        if str(setting) not in known and len(found) < count:
            found[str(setting)] = setting
    return list(found.values()) or left[:count]


def find_own_architectures(kernel: Kernel, found: Sequence[tuple[str, str, str]]) -> list[str]:
    """Return those that the GPUs here run; all where none is for them. `found`: as `harness.gpu.models` has them."""
    here = {capability for _, capability, _ in found}
    return [each for each in kernel.architectures if each.strip("sm_a") in here] or kernel.architectures


def derive_matrix(matrix: Matrix, kernel: Kernel, settings: Sequence[Setting], *, confirms: bool) -> Matrix:
    """Return the matrix of the incumbent and `settings`, in every environment, without references: a kernel is judged
    by ground truth, and compared with the incumbent. What confirms has other inputs, all trials and more replicates."""
    if not confirms:  # a search need not compile for other GPUs
        kernel = kernel.model_copy(update={"architectures": find_own_architectures(kernel, models())})
    most = {} if confirms else {"trials": SEARCH_TRIALS, "extra_trials": SEARCH_TRIALS}
    replicates = max(matrix.launches, FINAL_REPLICATES) if confirms else 1
    changes = {
        "kernels": [make_variant(kernel, setting) for setting in (incumbent_of(kernel), *settings)],
        "workloads": [
            workload.model_copy(update={name: min(getattr(workload, name), count) for name, count in most.items()})
            for workload in matrix.workloads
        ],
        "references": [],
        "references_cuda": None,
        "launches": replicates,
        "most_launches": replicates,
        "seed": (matrix.seed + confirms) % 2**63,
    }
    return matrix.model_copy(update=changes)


def compare_times(times: Mapping[Place, Rounds], incumbent: str, name: str, confidence: float) -> list[TimeRatio]:
    """Return the ratio of every place where the incumbent has times; none where one of them is missing."""
    found = []
    for place, base in times.items():
        if place.kernel == incumbent:
            this = times.get(place._replace(kernel=name), {})
            estimate = compare_rounds(base, this, confidence)
            if estimate is None:
                return []
            ratio = TimeRatio(
                environment=place.environment,
                workload=place.workload,
                mode=place.mode,
                incumbent_us=median(base.values()),
                this_us=median(this.values()),
                ratio=estimate.ratio,
                low=estimate.low,
                high=estimate.high,
                replicates=estimate.blocks,
            )
            found.append(ratio)
    return found


@dataclass(kw_only=True)
class Sweep:
    """One sweep. `kernel` has the sources of one device alone; `record` is what is asked."""

    kernel: Kernel
    selection: Selection
    options: RunOptions
    matrix: Matrix
    path: Path
    record: SweepRecord

    def run(self) -> SweepRecord:
        """Search until the budget is used, then measure the best again. What was measured before is found again."""
        batch = max(4, min(8, os.cpu_count() or 1))  # enough for the machine, few enough to be done soon
        trials, started, spent_s = list[SettingTrial](), time.monotonic(), 0.0
        while not trials or spent_s < self.record.budget_s:
            settings = propose(self.kernel, trials, batch, self.matrix.seed + len(trials))
            if not settings:
                break
            print(f"{spent_s:.0f} s of {self.record.budget_s:.0f} s used", flush=True)
            trials += self._measure(settings, confirms=False)
            spent_s = time.monotonic() - started
        best = [trial.setting for trial in sorted(trials, key=lambda trial: trial.score) if trial.score < 1]
        if best:
            print("confirming the best in fresh replicates, on other inputs", flush=True)
            trials += self._measure(best[:FINALISTS], confirms=True)
        record = replace(self.record, trials=trials, spent_s=spent_s, finished_utc=now_utc())
        save_record(self.path, record)
        return record

    def _measure(self, settings: Sequence[Setting], *, confirms: bool) -> list[SettingTrial]:
        """Measure the incumbent and these settings in one run. HarnessError where that shows nothing of them."""
        derived = derive_matrix(self.matrix, self.kernel, settings, confirms=confirms)
        run, codes = run_matrix(replace(self.options, derived=derived, explain=False, admit=True), self.selection)
        if INFRASTRUCTURE in codes:
            remedy = "a setting must be correct in every environment: mend it; the same command then goes on"
            broken = [each for each in run.environments() if each.status != protocol.OK]
            raise InfrastructureError("; ".join(f"{each.id}: {each.message}" for each in broken), remedy)
        refused, times = find_refusals(run), read_medians(run.launches(), protocol.KERNEL, (COLD, HOT))
        incumbent = self.kernel.name
        if incumbent in refused:
            problem = f"the incumbent, {describe(self.record.incumbent)}, is rejected itself: {refused[incumbent]}"
            raise InputError(problem, "set tunables in matrix.yaml that are correct in every environment")
        trials = []
        for setting in settings:
            name, ratios = make_variant(self.kernel, setting).name, list[TimeRatio]()
            why = refused.get(name, "")
            if not why:
                ratios = compare_times(times, incumbent, name, 1 - ERROR_RATE / (FINALISTS if confirms else 1))
                why = "" if ratios else "time: it has none in some place where the incumbent has one"
            trial = SettingTrial(setting=setting, confirms=confirms, run=run.folder.name, rejected=why, ratios=ratios)
            print(f"{describe(setting)}: {why or f'{trial.score:.3f} of the time of the incumbent'}", flush=True)
            trials.append(trial)
        return trials


def choose_kernel(matrix: Matrix, name: str, root: Path, wanted: str) -> tuple[Kernel, Device]:
    """Return the kernel with the sources of one device, and that device. InputError where one of them is missing."""
    pick("kernel", [name], [kernel.name for kernel in matrix.kernels])
    kernel = matrix.kernel(name)
    if kernel.settings < 2:
        example = next(iter(kernel.tunables), "BLOCK_M")
        remedy = f"say which beside its tunables, such as: search: {{{example}: [16, 32, 64]}}"
        raise InputError(f"--kernel {name}: matrix.yaml names no values to search", remedy)
    known = kernel_sources(kernel, folder_files(matrix, root))
    device: Device = "cuda" if "cuda" in known and gpus() and wanted != "cpu" else "cpu"
    if device not in known or wanted not in (device, "auto"):
        raise InputError(f"--device {wanted}: kernel {name} has no source for a device here", "give another --device")
    return kernel.on_devices([device]), device


def run_sweep(
    options: RunOptions, name: str, workloads: Sequence[str], wanted: str, *, budget_s: float, list_only: bool = False
) -> tuple[Path, SweepRecord] | None:
    """Sweep, or go on with what was begun. The folder of the record, and the record; None with `list_only`."""
    matrix, _ = load_matrix(options.matrix_path, options.base_image)
    kernel, device = choose_kernel(matrix, name, options.root, wanted)
    selection = Selection(workloads=tuple(workloads), devices=(device,))
    derived = derive_matrix(matrix, kernel, [], confirms=False)
    plan = make_plan(replace(options, derived=derived), selection, write_pins=not list_only).plan
    record = SweepRecord(
        id=f"{name}-{device}-{protocol.digest([plan.digest, kernel.search, matrix.launches])[:12]}",
        command=list(options.command),
        kernel=name,
        workloads=[workload.id for workload in plan.workloads],
        environments=list(plan.measured),
        fallbacks=list(plan.fallbacks),
        incumbent=incumbent_of(kernel),
        settings=kernel.settings,
        budget_s=budget_s,
    )
    print(f"{kernel.settings} settings of {name} on {', '.join(record.workloads)} ({device})")
    print(f"incumbent: {describe(record.incumbent)}; environments: {', '.join(record.environments)}")
    if list_only:
        return None
    path = options.root / "reports" / "sweeps" / record.id / "sweep.json"
    lock = lock_file(cache_folder(), f"sweep-{record.id}")
    with held(lock, "another process is working on this very sweep; waiting for it"):
        sweep = Sweep(kernel=kernel, selection=selection, options=options, matrix=matrix, path=path, record=record)
        return path.parent, sweep.run()
