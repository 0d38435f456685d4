"""`judge`: outputs against the truth and the references. Never loads the candidate; reads its bytes.

The main thread runs the references trial by trial; a few threads judge (numpy releases the interpreter's lock), each
a whole trial, whose heads and comparisons others share, so that memory stays bounded and all processors work.
"""

import collections
import concurrent.futures
import hashlib
import io

import numpy as np
import torch

from . import agreement, dtypes, inputs, power, protocol, tensors, truth
from . import workload as workloads
from .measured import Measured, judged_as
from .outputs import STATUSES, Failed, read_output
from .references import Unsupported
from .verdict import describe_target, describe_validation, nearer, spelled

# Trials of each recipe in which a reference is run again; the kernel is in all. PyTorch 2.5.0's math backend
# alone takes half of a validation's time on the CPU.
REPEATED_TRIALS = 10
MANY_BYTES = 1 << 30  # of a trial's tensors: the next one's are made when these are judged


class Output:
    """What one target produced in one trial: its array in `dtype`'s storage, and what was seen while it ran."""

    def __init__(self, array, dtype, again=None, mutated=False, unwritten=False):
        self.array = array
        self.again = again  # the second run's, where it has other bits
        self.dtype = dtype
        self.sha256 = hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()
        self.mutated = mutated
        self.unwritten = unwritten


class Candidate:
    """The candidate's stored outputs: untrusted files, and a result that its process may have written itself."""

    name = protocol.KERNEL
    operators = ()

    def __init__(self, request, workload):
        result = request.candidate
        self.result = result if isinstance(result, dict) else {}
        self.folder = request.candidate_out
        self.workload = workload
        self.failed = None
        status = self.result.get("status")
        said, excerpt = (str(self.result.get(key, ""))[-8000:] for key in ("message", "log_excerpt"))
        if status not in STATUSES:
            self.failed = Failed(protocol.CRASHED, "its process left a result that cannot be read")
        elif status != protocol.OK:
            self.failed = Failed(status, said, excerpt)

    def begin(self, _arguments):
        if self.failed is not None:
            raise self.failed

    def output(self, recipe, trial, _arguments, expected):
        try:
            row = self.result["recipes"][recipe][trial]
            claimed = list(row["shape"]), row["dtype"]
            shape, dtype = expected or claimed  # a problem whose model cannot run says nothing of its output
            mutated, unwritten, repeats = (bool(row[key]) for key in ("mutated", "unwritten", "repeats"))
            if not all(isinstance(size, int) and 0 <= size < 1 << 40 for size in shape) or dtype not in dtypes.STORAGE:
                raise TypeError
        except (KeyError, IndexError, TypeError):
            raise Failed(protocol.CRASHED, f"no output of trial {trial} of {recipe}") from None
        if claimed != (list(shape), dtype) or not self.workload.fits(shape, dtype):
            raise Failed(
                protocol.WRONG,
                f"returned {tuple(claimed[0])} {claimed[1]}; expected {tuple(shape)} {dtype}",
            )
        array = self._read(recipe, trial, "", shape, dtype)
        again = None if repeats else self._read(recipe, trial, ".repeat", shape, dtype)
        return Output(array, dtype, again, mutated, unwritten)

    def _read(self, recipe, trial, suffix, shape, dtype):
        data = read_output(self.folder, f"{recipe}/{trial}{suffix}.bin", dtypes.size_bytes(dtype, shape))
        return dtypes.from_bytes(data, dtype, shape)


class Reference:
    """A reference, run here."""

    def __init__(self, reference):
        self.reference = reference
        self.name = reference.name
        self.operators = None
        self.failed = None

    def begin(self, arguments):
        """Prove, once, which operators run."""
        if self.operators is None and self.failed is None:
            try:
                self.operators = self.reference.prove(arguments)
            except Unsupported as error:
                self.failed = Failed(protocol.UNSUPPORTED, str(error))
        if self.failed is not None:
            raise self.failed

    def output(self, _recipe, trial, arguments, _expected):
        try:
            with torch.no_grad(), self.reference.active():
                call = self.reference.bind(arguments)
                outputs = [self.reference.judged(call) for _ in range(2 if trial < REPEATED_TRIALS else 1)]
                dtype = tensors.dtype_name(outputs[0])
                outputs = [tensors.to_array(output) for output in outputs]
        except Exception as error:  # a problem's model is the user's own code
            said = str(error).strip().splitlines() or [type(error).__name__]
            self.failed = Failed(protocol.CRASHED, said[0])
            raise self.failed from None
        first, second = outputs[0], outputs[-1]
        return Output(first, dtype, None if tensors.same_arrays(first, second) else second)


def judge(request):
    torch.set_num_threads(request.threads)
    workload = workloads.parse_workload(request.workload)
    targets = [Reference(reference) for reference in workload.references(request.references, request.device)]
    if request.candidate is not None:
        targets.append(Candidate(request, workload))
    arrays = {}
    threads = max(1, request.threads)
    # Few large trials leave threads idle: heads of a truth are computed side by side, whichever trials they are of.
    # Trials, and what is done within one: a few large ones alone would leave processors idle.
    with concurrent.futures.ThreadPoolExecutor(threads) as pool, concurrent.futures.ThreadPoolExecutor(
        threads
    ) as within:
        cache = truth.Cache(request.truth_dir, within.map)
        recipes = [
            _judge_recipe(request, workload, recipe, trials, targets, cache, pool, within, arrays)
            for recipe, trials in workload.recipes.items()
        ]
    if request.arrays:
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        protocol.write_atomically(request.arrays, buffer.getvalue())
    status, message = describe_validation(recipes, request.decides, workload.no_truth)
    return {
        "status": status,
        "message": message,
        "recipes": recipes,
        "precision": judged_as(request, workload, protocol.KERNEL),
        "reference_precision": judged_as(request, workload, ""),
    }


def _judge_recipe(request, workload, recipe, trials, targets, cache, pool, within, kept):
    failures, rows, pending, models = {}, [], collections.deque(), None
    for trial in range(trials):
        arrays = workload.arrays(recipe, trial, request.seed, within.map)
        arguments = workload.arguments(arrays, request.device)
        outputs = {}
        expected = workload.expected_output()
        for target in targets:
            if target.name in failures:
                continue
            try:
                target.begin(arguments)
                outputs[target.name] = target.output(recipe, trial, arguments, expected)
            except Failed as error:
                failures[target.name] = error
            else:
                if target.name == protocol.MODEL and trial == 0:
                    models = (
                        dtypes.decode(outputs[target.name].array, outputs[target.name].dtype),
                        outputs[target.name].dtype,
                    )
                if expected is None:  # a problem's shape is known once its model has run
                    expected = outputs[target.name].array.shape, outputs[target.name].dtype
        size_bytes = sum(array.nbytes for array in [*arrays, *(output.array for output in outputs.values())])
        keep = kept if request.arrays and _is_kept(request, trial, outputs) else None
        while len(pending) > request.threads:
            rows.append(pending.popleft().result())
        pending.append(
            pool.submit(_judge_trial, workload, arrays, outputs, cache, within, request, recipe, trial, keep)
        )
        del arrays, arguments, outputs
        if size_bytes > MANY_BYTES:
            rows.extend(job.result() for job in pending)
            pending.clear()
    rows.extend(job.result() for job in pending)
    proven = []
    if request.power:
        precision = judged_as(request, workload, protocol.KERNEL)
        rule = power.Rule(request.limits, request.decides, precision)
        proven = power.prove(workload, recipe, trials, request.seed, cache, rule, models)
    return {
        "recipe": recipe,
        "trials": trials,
        "input_sha256": [row["input_sha256"] for row in rows],
        "truth_sha256": [row["truth_sha256"] for row in rows if row["truth_sha256"]],
        "rounding_cost": [row["costs"]["largest"] for row in rows if row["costs"]],
        "costs": [row["costs"] for row in rows if row["costs"]],
        "power": proven,
        "targets": [_target_result(target, failures.get(target.name), rows, trials, request) for target in targets],
    }


def _is_kept(request, trial, outputs):
    """Whether a trial's outputs, and its truth, are kept to be crossed: of the first trials, while there is room."""
    size_bytes = sum(output.array.nbytes + 8 * output.array.size / len(outputs) for output in outputs.values())
    room = request.array_bytes
    return trial < request.array_trials and (room is None or size_bytes * (trial + 1) <= room)


def _judge_trial(workload, arrays, outputs, cache, within, request, recipe, trial, keep):
    """Everything about one trial that needs its arrays; only numbers and digests are returned."""
    sha256, limits = inputs.digest(arrays), request.limits
    precisions = {name: judged_as(request, workload, name) for name in outputs}
    kernels = judged_as(request, workload, protocol.KERNEL)
    measured = Measured(workload, arrays, sha256, cache)
    exact = measured.by(kernels)
    values = {name: dtypes.decode(output.array, output.dtype) for name, output in outputs.items()}
    again = {name: None if o.again is None else dtypes.decode(o.again, o.dtype) for name, o in outputs.items()}
    jobs = {}
    for name, value in values.items():
        truth_of = measured.by(precisions[name])
        if truth_of is not None and truth_of.values.shape == value.shape:
            args = value, again[name], truth_of.values, limits, truth_of.yardstick
            jobs[name, protocol.TRUTH] = within.submit(agreement.compare_both, *args)
    if protocol.KERNEL in values:
        kernel, repeat = values[protocol.KERNEL], again[protocol.KERNEL]
        for name, value in values.items():
            if name != protocol.KERNEL and value.shape == kernel.shape:
                jobs[protocol.KERNEL, name] = within.submit(agreement.compare_both, kernel, repeat, value, limits)
    pairs = {names: job.result() for names, job in jobs.items()}
    if keep is not None:
        for name, output in outputs.items():
            keep[f"{recipe}/{trial}/{name}"] = output.array
        if exact is not None:
            keep[f"{recipe}/{trial}/{protocol.TRUTH}"] = exact.values
    between = (exact.values, exact.yardstick) if exact is not None else ()
    apart = {
        name: None if again[name] is None else agreement.apart(value, again[name], *between)
        for name, value in values.items()
    }
    seen = {name: (o.sha256, apart[name], o.mutated, o.unwritten) for name, o in outputs.items()}
    row = {"input_sha256": sha256, "pairs": pairs, "seen": seen, "truth_sha256": "", "costs": {}}
    if exact is not None:
        row.update(truth_sha256=exact.sha256, costs=exact.yardstick.costs)
    pair = pairs.get((protocol.KERNEL, protocol.TRUTH))
    if trial == 0 and pair is not None and not pair["passed"]["rounding"]:
        row["would_pass"] = measured.would_pass(values[protocol.KERNEL], limits)
    return row


def _target_result(target, failed, rows, trials, request):
    """The `TargetResult` of one target on one recipe."""
    name = target.name
    result = {
        "target": name,
        "status": failed.status if failed else protocol.OK,
        "message": failed.message if failed else "",
        "log_excerpt": failed.excerpt if failed else "",
        "operators": list(target.operators or ()),
        "against": [],
        "output_sha256": [],
        "repeats_differ": 0,
        "repeats_max_abs": None,
        "repeats_max_units": None,
        "inputs_mutated": 0,
        "unwritten_trials": 0,
        "nearer_to": {},
    }
    if failed:  # trials before a failure are not a pass rate
        return result
    seen = [row["seen"][name] for row in rows]
    result["output_sha256"] = [sha256 for sha256, _, _, _ in seen]
    apart = [each for _, each, _, _ in seen if each is not None]
    result["repeats_differ"] = len(apart)
    result["repeats_max_abs"] = max((size for size, _ in apart), default=None)
    result["repeats_max_units"] = max((units for _, units in apart if units is not None), default=None)
    result["inputs_mutated"] = sum(mutated for _, _, mutated, _ in seen)
    result["unwritten_trials"] = sum(unwritten for _, _, _, unwritten in seen)
    others = [protocol.TRUTH] + [other for other in request.references if name == protocol.KERNEL]
    for other in others:
        found = [row["pairs"][name, other] for row in rows if (name, other) in row["pairs"]]
        if len(found) == trials:
            result["against"].append(agreement.combine(other, found))
    if name == protocol.KERNEL:
        result["nearer_to"] = nearer(rows, [item["against"] for item in result["against"][1:]])
    deterministic = name == protocol.KERNEL and request.deterministic
    result["status"], result["message"] = describe_target(
        result, trials, request.decides, request.limits, deterministic
    )
    would = [row["would_pass"] for row in rows if row.get("would_pass")] if name == protocol.KERNEL else []
    if would:
        result["message"] += f"; it would pass as declared {spelled(would[0])}"
    return result
