"""`appraise`: outputs that a launch left for their other bits, against the truth. Never loads the candidate.

The rule is that of validation: against the truth, and without one against the problem's own `Model`, which runs here.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import re
from typing import TYPE_CHECKING, Mapping

import torch

from . import agreement, dtypes, protocol, truth, wire
from . import workload as workloads
from .judging import Reference, judged_as, read_output
from .wire import Failed

if TYPE_CHECKING:
    from .dtypes import Array
    from .rounding import ErrorScale

RECIPE = "independent"
EXCHANGED = 2  # trials that a launch of an attention takes, however many were validated


def appraise(request: wire.AppraiseRequest) -> wire.AppraiseResult:
    """For each of `kept`, in order, whether it passes the rule, and a few words why not."""
    torch.set_num_threads(request.threads)
    by_id = {value.id: value for value in request.workloads}
    groups: dict[tuple[str, int], list[int]] = {}
    for number, kept in enumerate(request.kept):
        if _is_possible(kept, by_id):
            groups.setdefault((kept.workload, kept.trial), []).append(number)
    rows = [wire.Appraised(False, "it is described in no way that can be read") for _ in request.kept]
    with concurrent.futures.ThreadPoolExecutor(max(1, request.threads)) as pool:
        for (workload, trial), members in groups.items():
            judged = Judged(request, by_id[workload], trial, pool)
            for number in members:
                rows[number] = judged.row(request.kept[number])
    return wire.AppraiseResult(protocol.OK, rows=rows)


def _is_possible(kept: wire.KeptOutput, workloads: Mapping[str, wire.WorkloadRequest]) -> bool:
    """Whether a launch, which is not trusted, names a workload, a trial and a file that it could have been given."""
    workload = workloads.get(kept.workload)
    trials = range(0 if workload is None else max(EXCHANGED, workload.recipes.get(RECIPE, 0)))
    return kept.trial in trials and re.fullmatch(r"[0-9]+\.bin", kept.file) is not None


class Judged:
    """One trial's right answer, and what passes for it."""

    def __init__(
        self,
        request: wire.AppraiseRequest,
        value: wire.WorkloadRequest,
        trial: int,
        pool: concurrent.futures.Executor,
    ) -> None:
        self.folder, self.limits = request.candidate_out, request.limits[value.id]
        workload = workloads.parse_workload(value)
        cache = truth.Cache(request.truth_dir[value.id], pool.map)
        self.trial = workloads.Trial(workload, RECIPE, trial, request.seed, cache)
        self.expected = workload.expected_output()
        self.model: Array | None = None
        if workload.problem is not None:  # its output's shape is known once its model has run
            arguments = workload.arguments(self.trial.arrays, request.device)
            reference = Reference(workload.references([protocol.MODEL], request.device)[0])
            with contextlib.suppress(Failed):
                output = reference.output(RECIPE, trial, arguments, None)
                self.model = dtypes.decode(output.array, output.dtype)
                self.expected = output.array.shape, output.dtype
        self.precision = {name: judged_as(request, workload, name) for name in (protocol.KERNEL, "")}
        self.decides = request.decides

    def want(self, target: str) -> tuple[Array | None, ErrorScale | None]:
        """The right answer for this target, and its error scale; Nones where there is none."""
        exact = self.trial.truth(self.precision[protocol.KERNEL if target == protocol.KERNEL else ""])
        return (self.model, None) if exact is None else (exact.values, exact.error_scale)

    def row(self, kept: wire.KeptOutput) -> wire.Appraised:
        want, error_scale = self.want(kept.target)
        if want is None or not self.expected:
            return wire.Appraised(None, "cannot be judged: there is neither a truth nor a reference")
        shape, dtype = self.expected
        if (list(shape), dtype) != (kept.shape, kept.dtype):
            return wire.Appraised(False, f"expected {tuple(shape)} {dtype}")
        try:
            value = dtypes.decode(read_output(self.folder, kept.file, dtype, shape), dtype)
        except Failed as error:
            return wire.Appraised(False, error.message)
        return wire.Appraised(*agreement.verdict(value, want, self.limits, error_scale, self.decides))
