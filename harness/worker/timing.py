"""`time`: one launch. Every target of every workload, in random order, in this fresh process.

The code under test shares the process with the clock and with the references. What it was seen to do to them makes
its row `wrong`, and nothing is measured here after it. Of a problem file both sides are Python, which can reach
anything: there `Model` is measured before `ModelNew` is loaded, and an `audit` goes with the kernel's samples.
"""

import concurrent.futures
import contextlib
import functools
import gc
import random
import statistics
import sys

import torch

from . import audit, events, graphs, integrity, kept, kernels, protocol, sampling, tensors
from . import workload as workloads
from .load import LoadMeter
from .references import Unsupported

RECIPE = "independent"
BEFORE, AFTER, EXCHANGED, REPLAYED = "before", "after", "exchanged", "replayed"  # where an output was given
_get_num_threads = torch.get_num_threads


def timing(request):
    meter = LoadMeter()
    torch.set_num_threads(request.threads)
    # A kernel that crashed on a workload in validation is not called there again: it would end the whole launch.
    calls_kernel = request.kernel_workloads if request.kernel else ()
    inputs = {value.id: Inputs(request, value) for value in request.workloads}
    pairs = [
        (value.id, target)
        for value in request.workloads
        for target in request.targets
        if target != protocol.KERNEL or value.id in calls_kernel
    ]
    random.Random(request.order_seed).shuffle(pairs)
    of_problem = protocol.MODEL in request.targets
    if of_problem:
        pairs.sort(key=lambda pair: pair[1] == protocol.KERNEL)
    with concurrent.futures.ThreadPoolExecutor(request.threads) as pool:
        for value in inputs.values():
            value.make(pool.map)
    if request.held_back:
        sys.stdin.buffer.read()  # ends when it may begin
    rows, left = [], kept.Kept(request)
    replaced = integrity.Snapshot().replaced
    touched = False
    gc.collect()
    gc.freeze()  # PyTorch's own objects are for good; to walk them before every target costs a second in all
    lost = ""
    for order, (workload_id, target) in enumerate(pairs):
        row = {"workload": workload_id, "target": target, "order": order}
        row.update(status=protocol.OK, message="", log_excerpt="", correct=None)
        row.update(clock="", calls_per_sample=1, warmup_calls=0, samples_us=[])
        rows.append(row)
        if lost:
            row.update(status=protocol.NOT_RUN, message=lost)
            continue
        touched = touched or target == protocol.KERNEL
        try:
            measure = _measure_kernel if target == protocol.KERNEL else _measure_reference
            measure(request, inputs[workload_id], kept.Outputs(left, workload_id, target), row)
        except kernels.KernelFailure as error:
            row.update(status=error.status, message=error.message, log_excerpt=error.excerpt)
        except Unsupported as error:
            row.update(status=protocol.UNSUPPORTED, message=str(error))
        fault = tensors.lost(request.device) if row["status"] != protocol.OK else ""
        if fault:
            lost = f"{target} on {workload_id} before it left the device unusable: {fault}"
        tampering = replaced() if touched else ""
        if touched and of_problem:
            tampering = tampering or _other_threads(request)
        if tampering:
            row.update(status=protocol.WRONG, message="; ".join(filter(None, (tampering, row["message"]))))
            lost = f"{target} on {workload_id} before it was found to have {tampering}: no time here could be trusted"
    return {
        "status": protocol.OK,
        "message": "",
        "threads": torch.get_num_threads(),
        "load": meter.read(),
        "idle_processors": sampling.idle_processors() if request.device == "cpu" else None,
        "sampling_s": sum(row.pop("sampling_s", 0.0) for row in rows),
        "timings": rows,
        "kept": left.rows,
    }


def _other_threads(request):
    """Native kernels may bring threads of their own; a solution in Python takes PyTorch's."""
    now = _get_num_threads()
    return "" if now == request.threads else f"set {now} threads, not {request.threads}"


class Inputs:
    """A workload with tensors of its first trial. `make` makes their elements, and those of a second: an attention's
    stay; a problem's, which may be large, are made again whenever they are needed, and dropped."""

    def __init__(self, request, value):
        self.workload = workloads.parse_workload(value)
        self.device = request.device
        self.seed, self.threads = request.seed, request.threads
        self.two = len(request.expected_sha256.get(value.id, ())) > 1
        self.arrays = {}
        self.arguments = None
        self.drawn = False  # whether the reference draws random numbers at each call

    def make(self, each):
        """`each` as for `inputs.deviates`."""
        for trial in range(1 if self.workload.problem is not None else 1 + self.two):
            self.arrays[trial] = self.workload.arrays(RECIPE, trial, self.seed, each)

    def elements(self, trial):
        """That trial's arguments, new. Several threads make them on a GPU's host, whose processors nobody measures."""
        arrays = self.arrays.get(trial)
        if self.workload.problem is not None:
            self.arrays.clear()
        if arrays is None:
            with concurrent.futures.ThreadPoolExecutor(self.threads) as pool:
                each = pool.map if self.device == "cuda" else map
                arrays = self.workload.arrays(RECIPE, trial, self.seed, each)
        return self.workload.arguments(arrays, self.device)

    def get(self):
        if self.arguments is None:
            self.arguments = self.elements(0)
        return self.arguments

    def discard(self):
        """A kernel had them: who comes next gets tensors that no kernel has seen."""
        self.arguments = None

    def audit(self, answers):
        """None where there is nothing to look at: attention kernels are no Python, a drawn output has no digest."""
        if self.workload.problem is None or self.drawn:
            return None
        return audit.Audit(self.workload, self.device, self.arguments, self.elements, answers)

    def exchange(self):
        """Write the second trial's elements into the very same memory."""
        for tensor, new in zip(tensors.flat(self.arguments), tensors.flat(self.elements(1))):
            tensor.data.copy_(new)


def _measure_reference(request, inputs, outputs, row):
    arguments, target = inputs.get(), outputs.target
    with torch.no_grad(), contextlib.ExitStack() as stack:
        try:
            reference = inputs.workload.references([target], inputs.device)[0]
            reference.attempt(arguments)
            stack.enter_context(reference.active())
            call = reference.bind(arguments)
            inputs.drawn = inputs.workload.draws(call)
            _sample(call, request, row)
            if inputs.device == "cuda":
                _replay(call, call(), request, row, outputs)
        except Unsupported:
            raise
        except Exception as error:
            raise kernels.failure(error, target) from None


def _measure_kernel(request, inputs, outputs, row):
    workload, device, target = inputs.workload, inputs.device, outputs.target
    arguments = inputs.get()
    expected = request.expected_sha256.get(workload.id)
    try:
        with torch.no_grad():
            kernel = kernels.load(request.kernel, workload)
            call = kernel.bind(arguments)

            def judged(trial, where):
                """Whether an output is the validated one of that trial, whose elements the inputs hold, or may be."""
                workload.reseed()
                with kernels.blamed(target):
                    output = call()
                output = kernels.checked(output, workload, device)
                with kernels.blamed(target):
                    return answers.holds(trial, output, where, must=True) if answers else False

            answers = audit.Answers(expected, device, outputs.keep) if expected else None
            first = judged(0, BEFORE)
            watching = inputs.audit(answers) if first else None
            with kernels.blamed(target):
                _sample(call, request, row, watching)
                if device == "cuda":
                    anew = kernel.bind(arguments, anew=True)
                    expected_output = kernels.checked(call(), workload, device).clone()
                    fresh = functools.partial(_checked, anew, workload, device)
                    _replay(fresh, expected_output, request, row, outputs)
            if expected and row["status"] == protocol.OK:
                fault = watching.verdict() if watching else ""
                follows = inputs.two and watching is None
                fault = fault or _fault(first, judged, inputs, lambda: follows or outputs.other_bits)
                row.update(correct=not fault, message=fault, other_bits=outputs.other_bits)
    finally:
        inputs.discard()


def _checked(call, workload, device):
    return kernels.checked(call(), workload, device)


def _fault(first, judged, inputs, follows):
    """'' where the outputs are the validated ones, or may be; else why they are not.

    Before the timed calls, and after them: a kernel that is right once and wrong in a loop is wrong. Where the request
    has the digest of a second trial's output, at last on its inputs in the same memory, past PyTorch's version counter:
    what was kept, or found in memory that held the right answer, is an old answer then. `follows`: whether that is
    asked, as of every output that had other bits than the validated one, and not where an audit asked it.
    """
    if not first:
        return "its output is not the validated one"
    if not judged(0, AFTER):
        return "its output after the timed calls is not the one before them"
    if not follows():
        return ""
    with kernels.blamed("exchanging its inputs"):
        inputs.exchange()
    if not judged(1, EXCHANGED):
        return "its output does not follow its inputs: it is not computed from them at each call"
    return ""


def _sample(call, request, row, watching=None):
    sample = events.sample if request.device == "cuda" else sampling.sample
    _undisturbed(row, lambda: sample(call, request.timing, watching))


def _replay(call, expected, request, row, outputs):
    """On a GPU the same, hot. `call` gives a new tensor each time, with the bits of `expected`, or right ones."""
    if row["status"] == protocol.OK:
        call_us = statistics.median(row["samples_us"])
        keep = functools.partial(outputs.keep, trial=0, where=REPLAYED)
        _undisturbed(row, lambda: graphs.sample(call, expected, call_us, request.timing, keep))


def _undisturbed(row, sample):
    """What `sample` gives goes into the row. The garbage collector does not run meanwhile."""
    gc.collect()
    gc.disable()
    try:
        fields = sample()
    finally:
        gc.enable()
    row.update({**fields, "sampling_s": row.get("sampling_s", 0.0) + fields.get("sampling_s", 0.0)})
