"""`judge`: outputs against the truth and the references. Never loads the candidate; reads its bytes.

The main thread runs the references trial by trial; a few threads judge (numpy releases the interpreter's lock), each
a whole trial, so that memory stays bounded and all processors work.
"""

from __future__ import annotations

import collections
import concurrent.futures
import functools
import io
from typing import TYPE_CHECKING, Mapping, Union

import numpy as np
import torch

from . import agreement, power, protocol, wire
from .judging import (
    Fresh,
    Outputs,
    ReferenceRun,
    TargetOutput,
    failure_of,
    is_possible,
    judged_as,
    left_by_candidate,
    main_name,
    main_of,
    other_bits,
    read_output,
    would_pass,
)
from .subjects import WorkloadTrial, parse_workload
from .truth import Cache, Exact
from .verdict import JudgedTarget, TrialRow, describe_validation, look, summarise_target
from .wire import Failed

if TYPE_CHECKING:
    from .dtypes import Array
    from .inputs import Shape
    from .subjects import Workload

MANY_BYTES = 1 << 30  # of a trial's tensors: the next one's are made when these are judged


class CandidateRun:
    """The candidate's stored outputs: untrusted files, and a result that its process may have written itself."""

    name = protocol.KERNEL
    operators = ()

    def __init__(self, result: wire.CandidateResult, folder: str, workload: Workload) -> None:
        self.result, self.folder, self.workload = result, folder, workload

    def output(self, recipe: str, trial: WorkloadTrial, _fresh: Fresh, expected: tuple[Shape, str] | None) -> Outputs:
        failed = failure_of(self.result)
        if failed is not None:
            raise failed
        rows = self.result.recipes.get(recipe, [])
        number = trial.number
        row = rows[number] if number < len(rows) else None
        # A problem whose model cannot run says nothing of its output.
        shape, dtype = expected or (tuple(row.shape) if row else (), row.dtype if row else "")
        if row is None or not is_possible(shape, dtype):
            raise Failed(protocol.CRASHED, f"no output of trial {number} of {recipe}")
        if (row.shape, row.dtype) != (list(shape), dtype) or not self.workload.fits(shape, dtype):
            message = f"returned {tuple(row.shape)} {row.dtype}; expected {tuple(shape)} {dtype}"
            raise Failed(protocol.WRONG, message, failure=protocol.FailureKind.OTHER_TYPE)
        file = f"{recipe}/{number}.bin"
        arrays = self.workload.split(read_output(self.folder, file, dtype, shape))
        second: Mapping[str, Array | None] = dict.fromkeys(arrays)
        if not row.repeats:
            second = self.workload.split(read_output(self.folder, f"{recipe}/{number}.repeat.bin", dtype, shape))
        mutated = not set(row.written) <= set(self.workload.writes)
        found = {
            name: TargetOutput(array, dtype, other_bits(array, second[name]), mutated, row.unwritten)
            for name, array in arrays.items()
        }
        return {**found, **left_by_candidate(trial, row, self.folder, file)}


Target = Union[CandidateRun, ReferenceRun]


def judge(request: wire.JudgeRequest) -> wire.JudgeResult:
    torch.set_num_threads(request.threads)
    with concurrent.futures.ThreadPoolExecutor(max(1, request.threads)) as parts:
        judging = WorkloadJudge(request, Cache(request.truth_dir, parts.map))
        workload = judging.workload
        recipes = [judging.judge_recipe(recipe, trials) for recipe, trials in workload.recipes.items()]
    if request.arrays:
        buffer = io.BytesIO()
        np.savez(buffer, **judging.kept)  # type: ignore[arg-type]
        protocol.write_atomically(request.arrays, buffer.getvalue())
    outcome = describe_validation(recipes, request.decides, workload.no_truth, request.subject)
    return wire.JudgeResult(
        **vars(outcome),
        recipes=recipes,
        precision=judged_as(request, workload, protocol.KERNEL),
        reference_precision=judged_as(request, workload, ""),
    )


class WorkloadJudge:
    """All targets on one workload."""

    def __init__(self, request: wire.JudgeRequest, cache: Cache) -> None:
        self.request, self.cache = request, cache
        self.workload = parse_workload(request.workload)
        references = self.workload.references(request.references, request.device)
        self.targets: list[Target] = [ReferenceRun(each) for each in references]
        if request.candidate is not None:
            self.targets.append(CandidateRun(request.candidate, request.candidate_out, self.workload))
        self.kept: dict[str, Array] = {}

    def judge_recipe(self, recipe: str, trials: int) -> wire.RecipeResult:
        request, workload = self.request, self.workload
        failures: dict[str, Failed] = {}
        rows, instead = self._judge_trials(recipe, trials, failures)
        arrays = workload.arrays(recipe, 0, request.seed) if rows else []
        costs = [row.costs for row in rows if row.costs]
        result = wire.RecipeResult(
            recipe=recipe,
            trials=trials,
            input_sha256=[row.input_sha256 for row in rows],
            truth_sha256=[row.truth_sha256 for row in rows if row.truth_sha256],
            rounding_cost=[cost["largest"] for cost in costs],
            costs=costs,
            defined=workload.definition is not None,
            gradients=workload.gradients_agree(arrays) if rows else {},
            formulas=workload.formula_agrees(arrays) if rows else {},
            targets=[],
        )
        if request.power:
            rule = power.DecidingRule(request.limits, request.decides, judged_as(request, workload, protocol.KERNEL))
            first = WorkloadTrial(workload, recipe, 0, request.seed, self.cache)
            result.power = power.prove(first, rule, instead)
        result.draws_numbers = workload.draws_numbers
        result.targets = [self._describe(target, failures.get(target.name), rows, trials) for target in self.targets]
        return result

    def _judge_trials(
        self, recipe: str, trials: int, failures: dict[str, Failed]
    ) -> tuple[list[TrialRow], TargetOutput | None]:
        """Run and judge all trials. Return their rows, and what the problem's own model gave on the first. `failures`
        gets what each failing target failed with."""
        rows: list[TrialRow] = []
        pending: collections.deque[concurrent.futures.Future[TrialRow]] = collections.deque()
        instead = None
        threads = max(1, self.request.threads)
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            for number in range(trials):
                trial = WorkloadTrial(self.workload, recipe, number, self.request.seed, self.cache)
                outputs = self._run_targets(recipe, trial, failures)
                if number == 0 and protocol.MODEL in outputs:
                    instead = main_of(outputs[protocol.MODEL])
                made = [output.array for found in outputs.values() for output in found.values()]
                size_bytes = sum(array.nbytes for array in [*trial.arrays, *made])
                while len(pending) > (threads if size_bytes <= MANY_BYTES else 0):
                    rows.append(pending.popleft().result())
                pending.append(pool.submit(self._judge_trial, trial, outputs, recipe))
                del trial, outputs, made
            rows.extend(job.result() for job in pending)
        return rows, instead

    def _run_targets(self, recipe: str, trial: WorkloadTrial, failures: dict[str, Failed]) -> dict[str, Outputs]:
        """Return the outputs of every target that has not failed yet."""
        fresh = functools.partial(self.workload.arguments, trial.arrays, self.request.device)
        if self.workload.problem is None:  # backends of attention write to none of them
            fresh = functools.partial(list, fresh())
        found: dict[str, Outputs] = {}
        expected = self.workload.expected_output()
        for target in self.targets:
            if target.name in failures:
                continue
            try:
                found[target.name] = target.output(recipe, trial, fresh, expected)
            except Failed as error:
                failures[target.name] = error
                continue
            if expected is None:  # a problem's shape is known once its model has run
                output = main_of(found[target.name])
                expected = output.array.shape, output.dtype
        return found

    def _describe(self, target: Target, failed: Failed | None, rows: list[TrialRow], trials: int) -> wire.TargetResult:
        if self.workload.contradicts:  # its output has another shape than its definition's
            return wire.TargetResult(protocol.WRONG, self.workload.contradicts, target=target.name)
        ran = list(target.operators or ())
        precision = self.precision(target.name) if ran else []
        result = wire.TargetResult(protocol.OK, target=target.name, operators=ran, precision=precision)
        if failed:  # trials before a failure are not a pass rate
            result.fail(failed)
            return result
        return summarise_target(result, rows, trials, self.request)

    def precision(self, target: str) -> list[str]:
        """Return how a target is judged, by what it was seen to run."""
        ran = next((each.operators for each in self.targets if each.name == target), None)
        return judged_as(self.request, self.workload, target, ran or ())

    def truth(self, trial: WorkloadTrial, outputs: Mapping[str, Outputs], target: str, part: str) -> Exact | None:
        """Return the truth of one output, as that target is judged; of the shape that Model gave on these inputs."""
        model = outputs.get(protocol.MODEL, {}).get(part)
        like = None if model is None else (model.array.shape, model.dtype)
        return trial.truth(self.precision(target), part, like)

    def _judge_trial(self, trial: WorkloadTrial, outputs: Mapping[str, Outputs], recipe: str) -> TrialRow:
        """Do everything that needs the trial's arrays."""
        limits = self.request.limits
        exact = self.truth(trial, outputs, protocol.KERNEL, main_name(next(iter(outputs.values()), {})))
        repeats = all(o.again is None for found in outputs.values() for o in found.values()) or trial.truth_repeats
        if not repeats:
            self.workload.no_truth = "its float64 result is not the same from call to call"
        seen: dict[str, JudgedTarget] = {}
        pairs: dict[tuple[str, str], agreement.Compared] = {}
        for name, found in outputs.items():
            parts = {}
            for part, output in found.items():
                own = self.truth(trial, outputs, name, part) if repeats else None
                parts[part] = look(output, own, trial, limits)
            some = list(found.values())
            seen[name] = JudgedTarget(parts, any(each.mutated for each in some), any(each.unwritten for each in some))
            compared = [part.truth for part in parts.values() if part.truth is not None]
            if len(compared) == len(parts):
                pairs[name, protocol.TRUTH] = agreement.worst(compared)
        pairs.update(compare_with_kernel(outputs, limits))
        self._keep(trial, outputs, recipe, exact)
        judged = pairs.get((protocol.KERNEL, protocol.TRUTH))
        would: list[str] = []
        if trial.number == 0 and judged is not None and not judged.passed["rounding"]:
            would = would_pass(trial, outputs[protocol.KERNEL], limits, self.precision(protocol.KERNEL))
        truth_sha256, costs = ("", {}) if exact is None else (exact.sha256, exact.error_scale.costs)
        return TrialRow(trial.sha256, pairs, seen, truth_sha256, costs, would)

    def _keep(self, trial: WorkloadTrial, outputs: Mapping[str, Outputs], recipe: str, exact: Exact | None) -> None:
        """Keep the outputs of the first trials, and their truths, while there is room: they are compared with those of
        other environments."""
        request = self.request
        if not request.arrays or trial.number >= request.array_trials:
            return
        of_model = outputs.get(protocol.MODEL, {})
        mains = {name: main_of(found) for name, found in outputs.items()}
        truths = list(of_model.values()) or list(mains.values())[:1]
        size_bytes = sum(output.array.nbytes for output in mains.values()) + 8 * sum(o.array.size for o in truths)
        if request.array_bytes is not None and size_bytes * (trial.number + 1) > request.array_bytes:
            return
        place = f"{recipe}/{trial.number}/"
        self.kept.update({place + name: main.array for name, main in mains.items()})
        if exact is not None:
            self.kept[place + protocol.TRUTH] = exact.values
        for part in of_model.keys() - {main_name(of_model)}:
            own = self.truth(trial, outputs, protocol.MODEL, part)
            if own is not None:
                self.kept[f"{place}{protocol.OF_OUTPUT}{part}"] = own.values


def compare_with_kernel(
    outputs: Mapping[str, Outputs], limits: Mapping[str, float]
) -> dict[tuple[str, str], agreement.Compared]:
    """Compare the kernel's main output with that of each reference that has the same shape."""
    mains = {name: main_of(found) for name, found in outputs.items()}
    kernel = mains.pop(protocol.KERNEL, None)
    if kernel is None:
        return {}
    return {
        (protocol.KERNEL, name): agreement.compare_both(kernel.values, kernel.values_again, main.values, limits)
        for name, main in mains.items()
        if main.array.shape == kernel.array.shape
    }
