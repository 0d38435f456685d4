"""`weigh`: the outputs that `conditions` left, against the truth. Never loads the candidate; reads its bytes.

The truth is a function of recipe, sizes and trial alone, so nothing else of a condition changes it. Equal
outputs are compared once.
"""

from __future__ import annotations

import collections
import concurrent.futures
import hashlib
from typing import TYPE_CHECKING, Any, Iterator, Mapping, Optional

from . import agreement, dtypes, protocol, subjects, truth, wire
from .attention import AttentionWorkload
from .judging import failure_of, is_possible, judged_as, read_output
from .wire import Failed

if TYPE_CHECKING:
    from .dtypes import Array

    Exacts = Mapping[str, Optional[truth.Exact]]  # by output
    Known = dict[str, agreement.Compared]  # verdicts on outputs of one trial, by digest


def weigh(request: wire.WeighRequest) -> wire.WeighResult:
    workload = subjects.parse_workload(request.workload)
    weighed = [Weighed(job, request, workload) for job in request.jobs]
    # (recipe, sizes, trial) to jobs: each truth is held once, and not for long
    wanted: collections.OrderedDict[tuple[str, tuple[int, ...], int], list[Weighed]] = collections.OrderedDict()
    for job in weighed:
        for trial in job.ran:
            wanted.setdefault((job.recipe, job.sizes, trial), []).append(job)
    with concurrent.futures.ThreadPoolExecutor(max(1, request.threads)) as pool:
        cache = truth.Cache(request.truth_dir, pool.map)
        for (recipe, _, trial), jobs in wanted.items():
            made = subjects.WorkloadTrial(
                workload.of_sizes(jobs[0].sizes).on(recipe), recipe, trial, request.seed, cache
            )
            if workload.problem is not None and workload.shape is None:
                _learn_shape(workload, made.arrays)
            precision = judged_as(request, workload, protocol.KERNEL)
            exact = {name: made.truth(precision, name) for name in made.workload.parts}
            main = next(iter(exact.values()))
            if recipe in protocol.SCALED_RECIPES and main is not None:
                scales = _scales(workload, trial, request, cache, main)
                for job in jobs:
                    job.scales = scales and job.scales is not False
            known: Known = {}
            list(pool.map(lambda job, made=made, e=exact, k=known: job.add(made, e, k), jobs))
    return wire.WeighResult(protocol.OK, results=[job.finished() for job in weighed])


def _scales(
    workload: subjects.Workload, trial: int, request: wire.WeighRequest, cache: truth.Cache, exact: truth.Exact
) -> bool:
    """Whether the truth on smaller inputs is that on the full ones, scaled: then it is the same question."""
    full = subjects.WorkloadTrial(workload, protocol.RECIPES[0], trial, request.seed, cache).truth()
    if full is None:
        return False
    return agreement.is_scaled(full.values, exact.values, request.limits, exact.error_scale)


def _learn_shape(workload: subjects.Workload, arrays: list[Array]) -> None:
    """A problem's truth is known once its model has run."""
    for reference in workload.references([protocol.MODEL], "cpu"):
        try:
            reference.attempt(workload.arguments(arrays, "cpu"))
        except Failed:
            return


class Weighed:
    """One job's outputs: untrusted files, described by what its process may have written itself."""

    def __init__(self, job: wire.WeighedJobRequest, request: wire.WeighRequest, workload: subjects.Workload) -> None:
        self.result = wire.WeighedJob(protocol.OK, number=job.number)
        self.recipe, self.sizes, self.cast = job.condition.recipe, job.condition.sizes, bool(job.condition.dtype)
        self.folder, self.limits = request.candidate_out, request.limits
        # Smaller outputs would pass any rule whose tolerance does not shrink with them.
        self.decides = "rounding" if self.recipe in protocol.SCALED_RECIPES else request.decides
        self.judged = 0
        self.scales: bool | None = None
        self.first: tuple[str, Array] | None = None  # a trial's first output, and its digest
        self.ran: dict[int, int] = {}  # trial to runs
        failed = failure_of(job.done)
        shape, dtype = workload.of_sizes(self.sizes).expected_output() or (tuple(job.done.shape), job.done.dtype)
        ran, most = job.done.ran, job.repeats
        if failed is not None:
            self.fail(failed)
        elif not (is_possible(shape, dtype) and 0 < len(ran) <= len(job.trials) and all(0 < n <= most for n in ran)):
            self.fail(Failed(protocol.CRASHED, wire.UNREADABLE))
        elif (list(shape), dtype) != (job.done.shape, job.done.dtype):
            self.fail(Failed(protocol.WRONG, f"expected {tuple(shape)} {dtype}"))
        else:
            self.shape, self.dtype, self.ran = shape, dtype, dict(zip(job.trials, ran))
            self.result.runs = sum(ran)
            self.result.input_sha256 = [""] * len(ran)
            self.result.output_sha256 = [[] for _ in ran]
            self.result.within = [[] for _ in ran]

    def fail(self, error: Failed) -> None:
        """It says nothing else then."""
        self.result = wire.WeighedJob(protocol.OK, number=self.result.number)
        self.result.fail(error)

    def add(self, trial: subjects.WorkloadTrial, exact: Exacts, known: Known) -> None:
        """Read and judge one trial's outputs. `known` are the verdicts on outputs of this trial, by digest."""
        if self.result.status != protocol.OK:
            return
        at, self.first = list(self.ran).index(trial.number), None
        self.result.input_sha256[at] = trial.sha256
        try:
            self._check_dtype(trial.workload)
            for repeat in range(self.ran[trial.number]):
                name = f"{self.result.number}/{trial.number}-{repeat}.bin"
                array = read_output(self.folder, name, self.dtype, self.shape)
                sha256 = hashlib.sha256(array.data).hexdigest()
                self.result.output_sha256[at].append(sha256)
                if None not in exact.values():
                    self.result.within[at].append(self._judge(array, sha256, exact, trial.workload, known))
        except Failed as error:
            self.fail(error)

    def _check_dtype(self, workload: subjects.Workload) -> None:
        """A problem's is that of its model, once that has run; of inputs that were cast another is right."""
        if self.cast or isinstance(workload, AttentionWorkload):
            return
        if workload.out_dtype not in ("", self.dtype):
            raise Failed(protocol.WRONG, f"returned {self.shape} {self.dtype}; expected {workload.out_dtype}")

    def _judge(self, array: Array, sha256: str, exact: Exacts, workload: subjects.Workload, known: Known) -> bool:
        def parts(output: Array) -> Iterator[tuple[Array, Any]]:
            for name, part in workload.split(output).items():
                yield dtypes.decode(part, self.dtype), exact[name]

        for value, own in parts(array):
            if own.values.shape != value.shape:
                raise Failed(protocol.WRONG, f"returned {value.shape}; expected {own.values.shape}")
        result, verdict = self.result, known.get(sha256)
        if verdict is None:
            verdict = known[sha256] = agreement.worst(
                [agreement.compare(value, own.values, self.limits, own.error_scale) for value, own in parts(array)]
            )
        self.judged += 1
        result.passed += verdict.passed[self.decides]
        result.nonfinite += verdict.nonfinite
        result.max_units = _larger(result.max_units, verdict.units)
        # With the same trial's first run: how far they lie apart, and not only whether they do.
        if self.first is None:
            self.first = sha256, array
        elif sha256 != self.first[0]:
            for (one, own), (two, _) in zip(parts(self.first[1]), parts(array)):
                _, units = agreement.apart(one, two, own.values, own.error_scale)
                result.apart_units = _larger(result.apart_units, units)
        return verdict.passed[self.decides]

    def finished(self) -> wire.WeighedJob:
        result = self.result
        if result.status != protocol.OK:
            return result
        result.scales = self.scales
        if self.judged < result.runs:
            result.status, result.message = protocol.NOT_RUN, "cannot be judged: there is no truth"
        elif result.passed < result.runs:
            units = "" if result.max_units is None else f", {result.max_units:.3g} units at worst"
            rest = f", NaN or infinity in {result.nonfinite}" if result.nonfinite else ""
            result.status = protocol.WRONG
            result.message = f"{result.passed} of {result.runs} runs pass the {self.decides} rule{units}{rest}"
        return result


def _larger(one: float | None, other: float | None) -> float | None:
    return max((value for value in (one, other) if value is not None), default=None)
