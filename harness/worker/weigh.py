"""`weigh`: the outputs that `conditions` left, against the truth. Never loads the candidate; reads its bytes.

The truth is a function of recipe, sizes and trial alone, so nothing else of a condition changes it. Equal
outputs are compared once.
"""

from __future__ import annotations

import collections
import concurrent.futures
import hashlib
from typing import TYPE_CHECKING, Any, Dict, Iterator, Optional, Tuple

from . import agreement, dtypes, protocol, truth, wire
from .attention import AttentionWorkload
from .judging import failure_of, is_possible, judged_as, read_output
from .subjects import WorkloadTrial, parse_workload
from .wire import Failed

if TYPE_CHECKING:
    from .dtypes import Array
    from .subjects import Workload

    Exacts = Dict[str, Optional[truth.Exact]]  # by output
    Known = Dict[str, agreement.Compared]  # verdicts on outputs of one trial, by digest
    Question = Tuple[str, Tuple[int, ...], int]  # recipe, sizes and trial


def weigh(request: wire.WeighRequest) -> wire.WeighResult:
    workload = parse_workload(request.workload)
    weighed = [WeighedOutputs(job, request, workload) for job in request.jobs]
    # Each truth is held once, and not for long.
    wanted: collections.OrderedDict[Question, list[WeighedOutputs]] = collections.OrderedDict()
    for job in weighed:
        for trial in job.ran:
            wanted.setdefault((job.recipe, job.sizes, trial), []).append(job)
    with concurrent.futures.ThreadPoolExecutor(max(1, request.threads)) as pool:
        cache = truth.Cache(request.truth_dir, pool.map)
        for (recipe, _, trial), jobs in wanted.items():
            own = workload.of_sizes(jobs[0].sizes).on(recipe)
            made = WorkloadTrial(own, recipe, trial, request.seed, cache)
            if workload.problem is not None and workload.shape is None:
                _learn_shape(workload, made.arrays)
            precision = judged_as(request, workload, protocol.KERNEL)
            exact = {name: made.truth(precision, name) for name in own.parts}
            main = next(iter(exact.values()))
            if recipe in protocol.SCALED_RECIPES and main is not None:
                full = WorkloadTrial(workload, protocol.RECIPES[0], trial, request.seed, cache).truth()
                scales = full is not None and agreement.is_scaled(
                    full.values, main.values, request.limits, main.error_scale
                )
                for job in jobs:
                    job.result.scales = scales and job.result.scales is not False
            known: Known = {}
            list(pool.map(lambda job, made=made, e=exact, k=known: job.add(made, e, k), jobs))
    return wire.WeighResult(protocol.OK, results=[job.finish() for job in weighed])


def _learn_shape(workload: Workload, arrays: list[Array]) -> None:
    """Run a problem's model, without which its truth is not known."""
    for reference in workload.references([protocol.MODEL], "cpu"):
        try:
            reference.attempt(workload.arguments(arrays, "cpu"))
        except Failed:
            return


class WeighedOutputs:
    """One job's outputs: untrusted files, described by what its process may have written itself."""

    def __init__(self, job: wire.WeighedJobRequest, request: wire.WeighRequest, workload: Workload) -> None:
        self.result = wire.WeighedJob(protocol.OK, number=job.number)
        self.recipe, self.sizes, self.cast = job.condition.recipe, job.condition.sizes, bool(job.condition.dtype)
        self.folder, self.limits = request.candidate_out, request.limits
        # Smaller outputs would pass any rule whose tolerance does not shrink with them.
        self.decides = "rounding" if self.recipe in protocol.SCALED_RECIPES else request.decides
        self.ran: dict[int, int] = {}  # trial to runs
        done = job.done
        failed = failure_of(done)
        self.shape, self.dtype = workload.of_sizes(self.sizes).expected_output() or (tuple(done.shape), done.dtype)
        counts_fit = 0 < len(done.ran) <= len(job.trials) and all(0 < runs <= job.repeats for runs in done.ran)
        if failed is not None:
            self.result.fail(failed)
        elif not (is_possible(self.shape, self.dtype) and counts_fit):
            self.result.fail(Failed(protocol.CRASHED, wire.UNREADABLE))
        elif (list(self.shape), self.dtype) != (done.shape, done.dtype):
            self.result.fail(Failed(protocol.WRONG, f"expected {tuple(self.shape)} {self.dtype}"))
        else:
            self.ran = dict(zip(job.trials, done.ran))
            self.result.runs = sum(done.ran)
            self.result.input_sha256 = [""] * len(done.ran)
            self.result.output_sha256, self.result.within = [[] for _ in done.ran], [[] for _ in done.ran]

    def add(self, trial: WorkloadTrial, exact: Exacts, known: Known) -> None:
        """Read and judge one trial's outputs. `known` are the verdicts on outputs of this trial, by digest."""
        if self.result.status != protocol.OK:
            return
        at, first = list(self.ran).index(trial.number), None
        self.result.input_sha256[at] = trial.sha256
        try:
            self._check_dtype(trial.workload)
            for repeat in range(self.ran[trial.number]):
                name = f"{self.result.number}/{trial.number}-{repeat}.bin"
                array = read_output(self.folder, name, self.dtype, self.shape)
                self.result.output_sha256[at].append(hashlib.sha256(array.data).hexdigest())
                if None not in exact.values():
                    parts = list(self._parts(array, exact, trial.workload))
                    self.result.within[at].append(self._judge(parts, self.result.output_sha256[at], known, first))
                    first = first or parts
        except Failed as error:
            self.result = wire.WeighedJob(protocol.OK, number=self.result.number)  # it says nothing else then
            self.result.fail(error)

    def _check_dtype(self, workload: Workload) -> None:
        """Refuse another dtype than that of a problem's model, once that has run; inputs that were cast may give it."""
        if self.cast or isinstance(workload, AttentionWorkload):
            return
        if workload.out_dtype not in ("", self.dtype):
            raise Failed(protocol.WRONG, f"returned {self.shape} {self.dtype}; expected {workload.out_dtype}")

    def _parts(self, output: Array, exact: Exacts, workload: Workload) -> Iterator[tuple[Array, Any]]:
        """Yield the values of each output with its truth."""
        for name, part in workload.split(output).items():
            value, own = dtypes.decode(part, self.dtype), exact[name]
            if own is not None and own.values.shape != value.shape:
                raise Failed(protocol.WRONG, f"returned {value.shape}; expected {own.values.shape}")
            yield value, own

    def _judge(self, parts: Any, digests: list[str], known: Known, first: Any) -> bool:
        """Return whether a run passes. `digests`: of the trial's runs so far; `first`: what its first run gave."""
        result, sha256 = self.result, digests[-1]
        if sha256 not in known:
            compared = [agreement.compare(value, own.values, self.limits, own.error_scale) for value, own in parts]
            known[sha256] = agreement.worst(compared)
        verdict = known[sha256]
        result.passed += verdict.passed[self.decides]
        result.nonfinite += verdict.nonfinite
        result.max_units = agreement.most([result.max_units, verdict.units])
        if first is not None and sha256 != digests[0]:  # how far they lie apart, and not only whether they do
            for (one, own), (two, _) in zip(first, parts):
                _, units = agreement.apart(one, two, own.values, own.error_scale)
                result.apart_units = agreement.most([result.apart_units, units])
        return verdict.passed[self.decides]

    def finish(self) -> wire.WeighedJob:
        result = self.result
        if result.status != protocol.OK:
            return result
        if sum(map(len, result.within)) < result.runs:
            result.status, result.message = protocol.NOT_RUN, "cannot be judged: there is no truth"
        elif result.passed < result.runs:
            units = "" if result.max_units is None else f", {result.max_units:.3g} units at worst"
            rest = f", NaN or infinity in {result.nonfinite}" if result.nonfinite else ""
            result.status = protocol.WRONG
            result.message = f"{result.passed} of {result.runs} runs pass the {self.decides} rule{units}{rest}"
        return result
