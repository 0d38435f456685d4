"""`appraise`: outputs that a launch left for their other bits, against the truth. Never loads the candidate.

The rule is that of validation: against the truth, and without one against the problem's own `Model`, which runs here.
"""

import concurrent.futures
import re

import torch

from . import agreement, dtypes, inputs, protocol, truth
from . import workload as workloads
from .judge import Reference
from .measured import Measured, judged_as
from .outputs import Failed, read_output

RECIPE = "independent"
EXCHANGED = 2  # trials that a launch of an attention takes, however many were validated


def appraise(request):
    """`rows`: for each of the request's `kept`, in order, whether it passes the rule, and a few words why not."""
    torch.set_num_threads(request.threads)
    by_id = {value.id: value for value in request.workloads}
    groups = {}
    for number, row in enumerate(request.kept):
        groups.setdefault((row["workload"], row["trial"]) if _readable(row, by_id) else None, []).append((number, row))
    rows = [{"passed": False, "message": "it is described in no way that can be read"} for _ in request.kept]
    with concurrent.futures.ThreadPoolExecutor(max(1, request.threads)) as pool:
        for key, members in groups.items():
            if key is not None:
                judged = Judged(request, by_id[key[0]], key[1], pool)
                for number, row in members:
                    rows[number] = judged.row(row)
    return {"status": protocol.OK, "message": "", "rows": rows}


def _readable(row, workloads):
    """Whether a launch, which is not trusted, names a workload, a trial and a file that it could have been given."""
    kinds = {"workload": str, "trial": int, "file": str}
    if not isinstance(row, dict) or any(type(row.get(key)) is not kind for key, kind in kinds.items()):
        return False
    workload = workloads.get(row["workload"])
    trials = range(0 if workload is None else max(EXCHANGED, workload.recipes.get(RECIPE, 0)))
    return row["trial"] in trials and re.fullmatch(r"[0-9]+\.bin", row["file"]) is not None


class Judged:
    """One trial's right answer, and what passes for it."""

    def __init__(self, request, value, trial, pool):
        self.folder, self.limits = request.candidate_out, request.limits[value.id]
        workload = workloads.parse_workload(value)
        arrays = workload.arrays(RECIPE, trial, request.seed, pool.map)
        self.model = None
        if workload.problem is not None:  # its output's shape is known once its model has run
            arguments = workload.arguments(arrays, request.device)
            reference = Reference(workload.references([protocol.MODEL], request.device)[0])
            try:
                reference.begin(arguments)
                self.model = reference.output(RECIPE, trial, arguments, None)
            except Failed:
                self.model = None
        cache = truth.Cache(request.truth_dir[value.id], pool.map)
        self.measured = Measured(workload, arrays, inputs.digest(arrays), cache)
        self.precision = {name: judged_as(request, workload, name) for name in (protocol.KERNEL, "")}
        self.decides = request.decides
        self.expected = workload.expected_output() or (self.model and (self.model.array.shape, self.model.dtype))

    def want(self, target):
        """(the right answer, its yardstick) for this target; Nones where there is none."""
        exact = self.measured.by(self.precision[protocol.KERNEL if target == protocol.KERNEL else ""])
        if exact is not None:
            return exact.values, exact.yardstick
        return (None if self.model is None else dtypes.decode(self.model.array, self.model.dtype)), None

    def row(self, row):
        want, yardstick = self.want(row.get("target"))
        if want is None or not self.expected:
            return {"passed": None, "message": "cannot be judged: there is neither a truth nor a reference"}
        shape, dtype = self.expected
        try:
            if (list(shape), dtype) != (row.get("shape"), row.get("dtype")):
                return {"passed": False, "message": f"expected {tuple(shape)} {dtype}"}
            data = read_output(self.folder, row["file"], dtypes.size_bytes(dtype, shape))
        except Failed as error:
            return {"passed": False, "message": error.message}
        value = dtypes.decode(dtypes.from_bytes(data, dtype, tuple(shape)), dtype)
        found = agreement.compare(value, want, self.limits, yardstick)
        rule = self.decides if self.decides in found["passed"] else "kernelbench"
        if found["passed"][rule]:
            return {"passed": True, "message": ""}
        size = "" if found["units"] is None else ", {:.3g} units".format(found["units"])
        return {"passed": False, "message": f"it fails the {rule} rule (limit {self.limits[rule]:g}){size}"}
