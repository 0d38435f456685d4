"""`judge`: outputs against the truth and the references. Never loads the candidate; reads its bytes.

The main thread runs the references trial by trial; a few threads judge (numpy releases the interpreter's lock), each
a whole trial, whose heads and comparisons others share, so that memory stays bounded and all processors work.
"""

from __future__ import annotations

import collections
import concurrent.futures
import functools
import io
from typing import TYPE_CHECKING, Mapping, NamedTuple, Union

import numpy as np
import torch

from . import agreement, dtypes, power, protocol, truth, wire
from . import workload as workloads
from .judging import (
    Fresh,
    Output,
    Outputs,
    Reference,
    failure_of,
    is_possible,
    judged_as,
    main_name,
    main_of,
    other_bits,
    read_output,
    would_pass,
)
from .outputs import WRITTEN
from .parts import Seen, look, output_result
from .rounding import Norms
from .verdict import describe_target, describe_validation, find_fault, nearer, spelled
from .wire import Failed
from .written import left_by_candidate

if TYPE_CHECKING:
    from .dtypes import Array
    from .inputs import Shape

MANY_BYTES = 1 << 30  # of a trial's tensors: the next one's are made when these are judged


class Row(NamedTuple):
    """Everything about one trial: numbers and digests alone."""

    input_sha256: str
    pairs: dict[tuple[str, str], agreement.Compared]
    seen: dict[str, Seen]
    truth_sha256: str
    costs: Norms
    would_pass: list[str]  # the precision at which a failing output would pass


class Candidate:
    """The candidate's stored outputs: untrusted files, and a result that its process may have written itself."""

    name = protocol.KERNEL
    operators = ()

    def __init__(self, result: wire.CandidateResult, folder: str, workload: workloads.Workload) -> None:
        self.result, self.folder, self.workload = result, folder, workload

    def output(self, recipe: str, trial: workloads.Trial, _fresh: Fresh, expected: tuple[Shape, str] | None) -> Outputs:
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
            raise Failed(protocol.WRONG, f"returned {tuple(row.shape)} {row.dtype}; expected {tuple(shape)} {dtype}")
        file = f"{recipe}/{number}.bin"
        arrays = self.workload.split(read_output(self.folder, file, dtype, shape))
        second: Mapping[str, Array | None] = dict.fromkeys(arrays)
        if not row.repeats:
            second = self.workload.split(read_output(self.folder, f"{recipe}/{number}.repeat.bin", dtype, shape))
        mutated = not set(row.written) <= set(self.workload.writes)
        found = {
            name: Output(array, dtype, other_bits(array, second[name]), mutated, row.unwritten)
            for name, array in arrays.items()
        }
        return {**found, **left_by_candidate(trial, row, self.folder, file)}


Target = Union[Candidate, Reference]


def judge(request: wire.JudgeRequest) -> wire.JudgeResult:
    torch.set_num_threads(request.threads)
    workload = workloads.parse_workload(request.workload)
    references = workload.references(request.references, request.device)
    targets: list[Target] = [Reference(reference) for reference in references]
    if request.candidate is not None:
        targets.append(Candidate(request.candidate, request.candidate_out, workload))
    kept: dict[str, Array] = {}
    threads = max(1, request.threads)
    # Trials, and what is done within one: a few large ones alone would leave processors idle.
    with concurrent.futures.ThreadPoolExecutor(threads) as pool, concurrent.futures.ThreadPoolExecutor(
        threads
    ) as within:
        judging = Judging(request, workload, targets, truth.Cache(request.truth_dir, within.map), pool, within, kept)
        recipes = [judging.recipe(recipe, trials) for recipe, trials in workload.recipes.items()]
    if request.arrays:
        buffer = io.BytesIO()
        np.savez(buffer, **kept)  # type: ignore[arg-type]
        protocol.write_atomically(request.arrays, buffer.getvalue())
    status, message = describe_validation(recipes, request.decides, workload.no_truth, request.subject)
    return wire.JudgeResult(
        status,
        message,
        fault=find_fault(recipes, request.subject),
        recipes=recipes,
        precision=judged_as(request, workload, protocol.KERNEL),
        reference_precision=judged_as(request, workload, ""),
    )


class Judging(NamedTuple):
    request: wire.JudgeRequest
    workload: workloads.Workload
    targets: list[Target]
    cache: truth.Cache
    pool: concurrent.futures.Executor  # of trials
    within: concurrent.futures.Executor  # of what is done for one
    kept: dict[str, Array]

    def recipe(self, recipe: str, trials: int) -> wire.RecipeResult:
        request, workload = self.request, self.workload
        failures: dict[str, Failed] = {}
        rows: list[Row] = []
        pending: collections.deque[concurrent.futures.Future[Row]] = collections.deque()
        models = None
        for number in range(trials):
            trial = workloads.Trial(workload, recipe, number, request.seed, self.cache)
            fresh = functools.partial(workload.arguments, trial.arrays, request.device)
            if workload.problem is None:  # backends of attention write to none of them
                fresh = functools.partial(list, fresh())
            outputs: dict[str, Outputs] = {}
            expected = workload.expected_output()
            for target in self.targets:
                if target.name in failures:
                    continue
                try:
                    found = outputs[target.name] = target.output(recipe, trial, fresh, expected)
                except Failed as error:
                    failures[target.name] = error
                    continue
                output = main_of(found)
                if target.name == protocol.MODEL and number == 0:
                    models = dtypes.decode(output.array, output.dtype), output.dtype
                if expected is None:  # a problem's shape is known once its model has run
                    expected = output.array.shape, output.dtype
            made = [output.array for found in outputs.values() for output in found.values()]
            size_bytes = sum(array.nbytes for array in [*trial.arrays, *made])
            keep = bool(request.arrays) and _is_kept(request, number, outputs)
            while len(pending) > request.threads:
                rows.append(pending.popleft().result())
            pending.append(self.pool.submit(self.trial, trial, outputs, recipe, keep))
            del trial, fresh, outputs, made
            if size_bytes > MANY_BYTES:
                rows.extend(job.result() for job in pending)
                pending.clear()
        rows.extend(job.result() for job in pending)
        arrays = workload.arrays(recipe, 0, request.seed) if rows else []
        gradients = workload.gradients_agree(arrays) if rows else {}
        formulas = workload.formula_agrees(arrays) if rows else {}
        proven = []
        if request.power:
            precision = judged_as(request, workload, protocol.KERNEL)
            rule = power.Rule(request.limits, request.decides, precision)
            proven = power.prove(workload, recipe, trials, request.seed, self.cache, rule, models)
        return wire.RecipeResult(
            recipe=recipe,
            trials=trials,
            input_sha256=[row.input_sha256 for row in rows],
            truth_sha256=[row.truth_sha256 for row in rows if row.truth_sha256],
            rounding_cost=[row.costs["largest"] for row in rows if row.costs],
            costs=[row.costs for row in rows if row.costs],
            power=proven,
            draws_numbers=workload.draws_numbers,
            defined=workload.definition is not None,
            gradients=gradients,
            formulas=formulas,
            targets=[
                _target_result(target, failures.get(target.name), rows, trials, request, self.precision(target.name))
                if not workload.contradicts
                else _contradicting(target, workload.contradicts)
                for target in self.targets
            ],
        )

    def precision(self, target: str) -> list[str]:
        """How one is judged, by what it was seen to run."""
        ran = next((each.operators for each in self.targets if each.name == target), None)
        return judged_as(self.request, self.workload, target, ran or ())

    def truth(
        self, trial: workloads.Trial, outputs: Mapping[str, Outputs], target: str, part: str
    ) -> truth.Exact | None:
        """Of one output, as that target is judged; of the shape that Model gave on these inputs."""
        model = outputs.get(protocol.MODEL, {}).get(part)
        like = None if model is None else (model.array.shape, model.dtype)
        return trial.truth(self.precision(target), part, like)

    def trial(self, trial: workloads.Trial, outputs: Mapping[str, Outputs], recipe: str, keep: bool) -> Row:
        """Everything that needs the trial's arrays."""
        limits = self.request.limits
        exact = self.truth(trial, outputs, protocol.KERNEL, main_name(next(iter(outputs.values()), {})))
        mains = {name: main_of(found) for name, found in outputs.items()}
        values = {name: dtypes.decode(output.array, output.dtype) for name, output in mains.items()}
        again = {name: None if o.again is None else dtypes.decode(o.again, o.dtype) for name, o in mains.items()}
        repeats = all(o.again is None for found in outputs.values() for o in found.values()) or trial.truth_repeats
        if not repeats:
            self.workload.no_truth = "its float64 result is not the same from call to call"
        looking = {}  # truths are made here: what makes them waits for the others itself
        for name, found in outputs.items():
            for part, output in found.items():
                own = self.truth(trial, outputs, name, part) if repeats else None
                looking[name, part] = self.within.submit(look, output, own, trial, limits)
        jobs = {}
        if protocol.KERNEL in values:
            kernel, repeat = values[protocol.KERNEL], again[protocol.KERNEL]
            for name, value in values.items():
                if name != protocol.KERNEL and value.shape == kernel.shape:
                    pair = protocol.KERNEL, name
                    jobs[pair] = self.within.submit(agreement.compare_both, kernel, repeat, value, limits)
        seen = {}
        pairs: dict[tuple[str, str], agreement.Compared] = {}
        for name, found in outputs.items():
            parts = {part: looking[name, part].result() for part in found}
            some = list(found.values())
            seen[name] = Seen(parts, any(each.mutated for each in some), any(each.unwritten for each in some))
            compared = [part.truth for part in parts.values() if part.truth is not None]
            if len(compared) == len(parts):
                pairs[name, protocol.TRUTH] = agreement.worst(compared)
        pairs.update((names, job.result()) for names, job in jobs.items())
        if keep:
            for name, output in mains.items():
                self.kept[f"{recipe}/{trial.number}/{name}"] = output.array
            if exact is not None:
                self.kept[f"{recipe}/{trial.number}/{protocol.TRUTH}"] = exact.values
            of_model = outputs.get(protocol.MODEL, {})
            for part in of_model.keys() - {main_name(of_model)}:
                own = self.truth(trial, outputs, protocol.MODEL, part)
                if own is not None:
                    self.kept[f"{recipe}/{trial.number}/{protocol.OF_OUTPUT}{part}"] = own.values
        judged = pairs.get((protocol.KERNEL, protocol.TRUTH))
        failing = trial.number == 0 and judged is not None and not judged.passed["rounding"]
        return Row(
            input_sha256=trial.sha256,
            pairs=pairs,
            seen=seen,
            truth_sha256="" if exact is None else exact.sha256,
            costs={} if exact is None else exact.error_scale.costs,
            would_pass=would_pass(trial, outputs[protocol.KERNEL], limits, self.precision(protocol.KERNEL))
            if failing
            else [],
        )


def _is_kept(request: wire.JudgeRequest, trial: int, outputs: Mapping[str, Outputs]) -> bool:
    """Whether a trial's outputs, and its truth, are kept to be crossed: of the first trials, while there is room."""
    mains = [main_of(found) for found in outputs.values()]
    truths = list(outputs.get(protocol.MODEL, {}).values()) or mains[:1]
    size_bytes = sum(output.array.nbytes for output in mains) + 8 * sum(output.array.size for output in truths)
    room = request.array_bytes
    return trial < request.array_trials and (room is None or size_bytes * (trial + 1) <= room)


def _contradicting(target: Target, message: str) -> wire.TargetResult:
    """Return the result of a target whose output has another shape than its definition's."""
    return wire.TargetResult(protocol.WRONG, message, target=target.name)


def _target_result(
    target: Target,
    failed: Failed | None,
    rows: list[Row],
    trials: int,
    request: wire.JudgeRequest,
    precision: list[str],
) -> wire.TargetResult:
    name, ran = target.name, list(target.operators or ())
    result = wire.TargetResult(protocol.OK, target=name, operators=ran, precision=precision if ran else [])
    if failed:  # trials before a failure are not a pass rate
        result.fail(failed)
        return result
    seen = [row.seen[name] for row in rows]
    apart = [each.apart for each in seen if each.apart is not None]
    result.output_sha256 = [each.sha256 for each in seen]
    result.repeats_differ = len(apart)
    result.repeats_max_abs = max((size for size, _ in apart), default=None)
    result.repeats_max_units = max((units for _, units in apart if units is not None), default=None)
    result.inputs_mutated = sum(each.mutated for each in seen)
    result.unwritten_trials = sum(each.unwritten for each in seen)
    result.leaves_range = sum(any(part.leaves_range for part in each.parts.values()) for each in seen)
    result.writes = [part[len(WRITTEN) :] for part in seen[0].parts if part.startswith(WRITTEN)]
    if name == protocol.MODEL or len(seen[0].parts) > 1:
        parts = [part for part in seen[0].parts if all(part in each.parts for each in seen)]
        result.outputs = [output_result(part, [each.parts[part] for each in seen]) for part in parts]
    is_kernel = name == protocol.KERNEL
    for other in [protocol.TRUTH, *(request.references if is_kernel else ())]:
        found = [row.pairs[name, other] for row in rows if (name, other) in row.pairs]
        if len(found) == trials:
            result.against.append(agreement.combine(other, found))
    if is_kernel:
        result.nearer_to = nearer([row.pairs for row in rows], [item.against for item in result.against[1:]])
    deterministic = is_kernel and request.deterministic
    result.status, result.message = describe_target(result, trials, request.decides, request.limits, deterministic)
    bad = [part for part in result.outputs if part.truth and part.truth.passed.get(request.decides) != trials]
    faulty = [part.name or "output" for part in bad]
    if 0 < len(faulty) < len(result.outputs) and result.status == protocol.WRONG:
        result.message += f" ({', '.join(faulty)})"
    would = next((row.would_pass for row in rows if row.would_pass), None)
    if is_kernel and would:
        result.message += f"; it would pass as declared {spelled(would)}"
    return result
