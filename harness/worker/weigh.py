"""`weigh`: the outputs that `conditions` left, against the truth. Never loads the candidate; reads its bytes.

The truth is a function of recipe, sequence length and trial alone, so nothing else of a condition changes it. Equal
outputs are compared once.
"""

from __future__ import annotations

import collections
import concurrent.futures
import hashlib
from typing import TYPE_CHECKING

from . import agreement, dtypes, protocol, truth, wire
from . import workload as workloads
from .judging import failure_of, is_possible, judged_as, read_output
from .wire import Failed

if TYPE_CHECKING:
    from .dtypes import Array

    Known = dict[str, agreement.Compared]  # verdicts on outputs of one trial, by digest


def weigh(request: wire.WeighRequest) -> wire.WeighResult:
    workload = workloads.parse_workload(request.workload)
    weighed = [Weighed(job, request, workload) for job in request.jobs]
    # (recipe, length, trial) to jobs: each truth is held once, and not for long
    wanted: collections.OrderedDict[tuple[str, int, int], list[Weighed]] = collections.OrderedDict()
    for job in weighed:
        for trial in job.ran if job.failed is None else ():
            wanted.setdefault((job.recipe, job.seq_len, trial), []).append(job)
    with concurrent.futures.ThreadPoolExecutor(max(1, request.threads)) as pool:
        cache = truth.Cache(request.truth_dir, pool.map)
        for (recipe, seq_len, trial), jobs in wanted.items():
            made = workloads.Trial(workload.of_length(seq_len).on(recipe), recipe, trial, request.seed, cache)
            if workload.problem is not None and workload.shape is None:
                _learn_shape(workload, made.arrays)
            exact = made.truth(judged_as(request, workload, protocol.KERNEL))
            if recipe in protocol.SCALED_RECIPES and exact is not None:
                scales = _scales(workload, trial, request, cache, exact)
                for job in jobs:
                    job.scales = scales and job.scales is not False
            known: Known = {}
            list(pool.map(lambda job, made=made, e=exact, k=known: job.add(made, e, k), jobs))
    return wire.WeighResult(protocol.OK, results=[job.result() for job in weighed])


def _scales(
    workload: workloads.Workload, trial: int, request: wire.WeighRequest, cache: truth.Cache, exact: truth.Exact
) -> bool:
    """Whether the truth on smaller inputs is that on the full ones, scaled: then it is the same question."""
    full = workloads.Trial(workload, protocol.RECIPES[0], trial, request.seed, cache).truth()
    if full is None:
        return False
    return agreement.is_scaled(full.values, exact.values, request.limits, exact.error_scale)


def _learn_shape(workload: workloads.Workload, arrays: list[Array]) -> None:
    """A problem's truth is known once its model has run."""
    for reference in workload.references([protocol.MODEL], "cpu"):
        try:
            reference.attempt(workload.arguments(arrays, "cpu"))
        except Failed:
            return


class Weighed:
    """One job's outputs: untrusted files, described by what its process may have written itself."""

    def __init__(self, job: wire.WeighedJobRequest, request: wire.WeighRequest, workload: workloads.Workload) -> None:
        self.number = job.number
        self.recipe, self.seq_len = job.condition.recipe, job.condition.seq_len
        self.trials, self.repeats = job.trials, job.repeats
        self.folder, self.limits = request.candidate_out, request.limits
        # Smaller outputs would pass any rule whose tolerance does not shrink with them.
        self.decides = "rounding" if self.recipe in protocol.SCALED_RECIPES else request.decides
        self.scales: bool | None = None
        self.passed = self.nonfinite = self.judged = 0
        self.first: tuple[str, Array] | None = None  # a trial's first output, and its digest
        self.max_units: float | None = None
        self.apart_units: float | None = None
        self.ran: dict[int, int] = {}  # trial to runs
        self.output_sha256: dict[int, list[str]] = {}
        self.input_sha256: dict[int, str] = {}
        self.within: dict[int, list[bool]] = collections.defaultdict(list)
        self.failed = failure_of(job.done)
        if self.failed is None:
            self._expect(workload.of_length(self.seq_len), job.done)

    def _expect(self, workload: workloads.Workload, done: wire.JobResult) -> None:
        shape, dtype = workload.expected_output() or (tuple(done.shape), done.dtype)
        sound = is_possible(shape, dtype) and 0 < len(done.ran) <= len(self.trials)
        if not sound or not all(0 < runs <= self.repeats for runs in done.ran):
            self.failed = Failed(protocol.CRASHED, wire.UNREADABLE)
        elif (list(shape), dtype) != (done.shape, done.dtype):
            self.failed = Failed(protocol.WRONG, f"expected {tuple(shape)} {dtype}")
        else:
            self.shape, self.dtype, self.ran = shape, dtype, dict(zip(self.trials, done.ran))

    def add(self, trial: workloads.Trial, exact: truth.Exact | None, known: Known) -> None:
        """Read and judge one trial's outputs. `known` are the verdicts on outputs of this trial, by digest."""
        digests: list[str] = []
        number, self.first = trial.number, None
        try:
            for repeat in range(self.ran[number]):
                array = read_output(self.folder, f"{self.number}/{number}-{repeat}.bin", self.dtype, self.shape)
                digests.append(hashlib.sha256(array.data).hexdigest())
                self._judge(number, array, digests[-1], exact, known)
        except Failed as error:
            self.failed = error
            return
        self.output_sha256[number], self.input_sha256[number] = digests, trial.sha256

    def _judge(self, trial: int, array: Array, sha256: str, exact: truth.Exact | None, known: Known) -> None:
        if exact is None:
            return
        if exact.values.shape != self.shape:
            raise Failed(protocol.WRONG, f"returned {self.shape}; expected {exact.values.shape}")
        verdict = known.get(sha256)
        if verdict is None:
            value = dtypes.decode(array, self.dtype)
            verdict = known[sha256] = agreement.compare(value, exact.values, self.limits, exact.error_scale)
        self.judged += 1
        self.passed += verdict.passed[self.decides]
        self.within[trial].append(verdict.passed[self.decides])
        self.nonfinite += verdict.nonfinite
        if verdict.units is not None:
            self.max_units = max(verdict.units, self.max_units or 0.0)
        self._compare_runs(array, sha256, exact)

    def _compare_runs(self, array: Array, sha256: str, exact: truth.Exact) -> None:
        """With the same trial's first run: how far they lie apart, and not only whether they do."""
        if self.first is None:
            self.first = sha256, array
        elif sha256 != self.first[0]:
            one, two = (dtypes.decode(each, self.dtype) for each in (self.first[1], array))
            _, units = agreement.apart(one, two, exact.values, exact.error_scale)
            if units is not None:
                self.apart_units = max(units, self.apart_units or 0.0)

    def result(self) -> wire.WeighedJob:
        result = wire.WeighedJob(protocol.OK, number=self.number)
        if self.failed is not None:
            result.fail(self.failed)
            return result
        runs = result.runs = sum(self.ran.values())
        if self.judged < runs:
            result.status, result.message = protocol.NOT_RUN, "cannot be judged: there is no truth"
        elif self.passed < runs:
            result.status, result.message = protocol.WRONG, self._described(runs)
        result.passed, result.nonfinite, result.scales = self.passed, self.nonfinite, self.scales
        result.max_units, result.apart_units = self.max_units, self.apart_units
        result.within = [self.within[trial] for trial in self.ran]
        result.output_sha256 = [self.output_sha256[trial] for trial in self.ran]
        result.input_sha256 = [self.input_sha256[trial] for trial in self.ran]
        return result

    def _described(self, runs: int) -> str:
        rest = f", NaN or infinity in {self.nonfinite}" if self.nonfinite else ""
        units = "" if self.max_units is None else f", {self.max_units:.3g} units at worst"
        return f"{self.passed} of {runs} runs pass the {self.decides} rule{units}{rest}"
