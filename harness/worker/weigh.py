"""`weigh`: the outputs that `conditions` left, against the truth. Never loads the candidate; reads its bytes.

The truth is a function of recipe, sequence length and trial alone, so nothing else of a condition changes it. Equal
outputs are compared once.
"""

import collections
import concurrent.futures
import hashlib

from . import agreement, dtypes, inputs, protocol, truth
from . import workload as workloads
from .measured import judged_as
from .outputs import STATUSES, Failed, read_output
from .references import Unsupported


def weigh(request):
    """For each job that ended well the fields of `ConditionResult`; for each other one its failure."""
    workload = workloads.parse_workload(request.workload)
    weighed = {job.number: Weighed(job, request, workload) for job in request.jobs}
    wanted = collections.OrderedDict()  # (recipe, length, trial) to jobs: each truth is held once, and not for long
    for job in weighed.values():
        for trial in job.ran if job.failed is None else ():
            wanted.setdefault((job.recipe, job.seq_len, trial), []).append(job)
    with concurrent.futures.ThreadPoolExecutor(max(1, request.threads)) as pool:
        cache = truth.Cache(request.truth_dir, pool.map)
        for (recipe, seq_len, trial), jobs in wanted.items():
            asked = workload.of_length(seq_len)
            arrays = asked.arrays(recipe, trial, request.seed)
            sha256 = inputs.digest(arrays)
            if workload.problem is not None and workload.shape is None:
                _learn_shape(workload, arrays)
            precision = judged_as(request, workload, protocol.KERNEL)
            exact = asked.on(recipe).truth(arrays, sha256, cache, precision)
            if recipe in protocol.SCALED_RECIPES and exact is not None:
                scales = _scales(workload, trial, request, cache, exact)
                for job in jobs:
                    job.scales = scales and job.scales is not False
            known = {}
            list(pool.map(lambda job, t=trial, s=sha256, e=exact, k=known: job.add(t, s, e, k), jobs))
    return {"status": protocol.OK, "message": "", "results": [job.result() for job in weighed.values()]}


def _scales(workload, trial, request, cache, exact):
    """Whether the truth on smaller inputs is that on the full ones, scaled: then it is the same question."""
    arrays = workload.arrays(protocol.RECIPES[0], trial, request.seed)
    full = workload.truth(arrays, inputs.digest(arrays), cache)
    if full is None:
        return False
    return agreement.is_scaled(full.values, exact.values, request.limits, exact.yardstick)


def _learn_shape(workload, arrays):
    """A problem's truth is known once its model has run."""
    for reference in workload.references([protocol.MODEL], "cpu"):
        try:
            reference.attempt(workload.arguments(arrays, "cpu"))
        except Unsupported:
            return


def _are_counts(values, end):
    return isinstance(values, (list, tuple)) and all(type(n) is int and 0 <= n < end for n in values)


class Weighed:
    """One job's outputs: untrusted files, described by what its process may have written itself."""

    def __init__(self, job, request, workload):
        self.number = job.number
        self.recipe, self.seq_len = job.condition.recipe, job.condition.seq_len
        self.trials, self.repeats, self.ran = job.trials, job.repeats, {}
        self.folder, self.limits = request.candidate_out, request.limits
        # Smaller outputs would pass any rule whose tolerance does not shrink with them.
        self.decides = "rounding" if self.recipe in protocol.SCALED_RECIPES else request.decides
        self.failed = self.scales = None
        self.passed = self.nonfinite = self.judged = 0
        self.max_units = self.apart_units = None
        self.output_sha256, self.input_sha256, self.within = {}, {}, collections.defaultdict(list)
        done = job.done if isinstance(job.done, dict) else {}
        status = done.get("status")
        if status not in STATUSES:
            self.failed = Failed(protocol.CRASHED, "its process left a result that cannot be read")
        elif status != protocol.OK:
            self.failed = Failed(status, *(str(done.get(key, ""))[-8000:] for key in ("message", "log_excerpt")))
        else:
            self._expect(workload.of_length(self.seq_len), done)

    def _expect(self, workload, done):
        shape, dtype = workload.expected_output() or (done.get("shape"), done.get("dtype"))
        ran = done.get("ran")
        sound = _are_counts(shape, 1 << 40) and _are_counts(ran, self.repeats + 1) and 0 < len(ran) <= len(self.trials)
        if not sound or 0 in ran or type(dtype) is not str or dtype not in dtypes.STORAGE:
            self.failed = Failed(protocol.CRASHED, "its process left a result that cannot be read")
        elif (list(shape), dtype) != (done.get("shape"), done.get("dtype")):
            self.failed = Failed(protocol.WRONG, f"expected {tuple(shape)} {dtype}")
        else:
            self.shape, self.dtype, self.ran = tuple(shape), dtype, dict(zip(self.trials, ran))

    def add(self, trial, input_sha256, exact, known):
        """Read and judge one trial's outputs. `known` are the verdicts on outputs of this trial, by digest."""
        digests, self.first = [], None
        try:
            for repeat in range(self.ran[trial]):
                size_bytes = dtypes.size_bytes(self.dtype, self.shape)
                data = read_output(self.folder, f"{self.number}/{trial}-{repeat}.bin", size_bytes)
                digests.append(hashlib.sha256(data).hexdigest())
                self._judge(trial, data, digests[-1], exact, known)
        except Failed as error:
            self.failed = error
            return
        self.output_sha256[trial], self.input_sha256[trial] = digests, input_sha256

    def _judge(self, trial, data, sha256, exact, known):
        if exact is None:
            return
        if exact.values.shape != self.shape:
            raise Failed(protocol.WRONG, f"returned {self.shape}; expected {exact.values.shape}")
        verdict = known.get(sha256)
        if verdict is None:
            value = dtypes.decode(dtypes.from_bytes(data, self.dtype, self.shape), self.dtype)
            verdict = known[sha256] = agreement.compare(value, exact.values, self.limits, exact.yardstick)
        self.judged += 1
        self.passed += verdict["passed"][self.decides]
        self.within[trial].append(verdict["passed"][self.decides])
        self.nonfinite += verdict["nonfinite"]
        if verdict["units"] is not None:
            self.max_units = max(verdict["units"], self.max_units or 0.0)
        self._compare_runs(data, sha256, exact)

    def _compare_runs(self, data, sha256, exact):
        """With the same trial's first run: how far they lie apart, and not only whether they do."""
        if self.first is None:
            self.first = sha256, data
        elif sha256 != self.first[0]:
            sides = (dtypes.from_bytes(each, self.dtype, self.shape) for each in (self.first[1], data))
            one, two = (dtypes.decode(each, self.dtype) for each in sides)
            _, units = agreement.apart(one, two, exact.values, exact.yardstick)
            if units is not None:
                self.apart_units = max(units, self.apart_units or 0.0)

    def result(self):
        result = {"number": self.number, "status": protocol.OK, "message": "", "log_excerpt": "", "runs": 0}
        if self.failed is not None:
            result.update(status=self.failed.status, message=self.failed.message, log_excerpt=self.failed.excerpt)
            return result
        runs = sum(self.ran.values())
        if self.judged < runs:
            result.update(status=protocol.NOT_RUN, message="cannot be judged: there is no truth")
        elif self.passed < runs:
            result.update(status=protocol.WRONG, message=self._said(runs))
        result.update(
            runs=runs,
            passed=self.passed,
            nonfinite=self.nonfinite,
            scales=self.scales,
            within=[self.within[trial] for trial in self.ran],
            max_units=self.max_units,
            apart_units=self.apart_units,
            output_sha256=[self.output_sha256[trial] for trial in self.ran],
            input_sha256=[self.input_sha256[trial] for trial in self.ran],
        )
        return result

    def _said(self, runs):
        rest = f", NaN or infinity in {self.nonfinite}" if self.nonfinite else ""
        units = "" if self.max_units is None else f", {self.max_units:.3g} units at worst"
        return f"{self.passed} of {runs} runs pass the {self.decides} rule{units}{rest}"
