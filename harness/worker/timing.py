"""`time` on a GPU: one launch. Every target of every workload, in random order, in this fresh process.

The code under test shares the process with the clock and with the references. What it was seen to do to them makes
its row `wrong`, and nothing is measured here after it. Of a problem file both sides are Python, which can reach
anything: there `Model` is measured before `ModelNew` is loaded, and an `audit` goes with the kernel's samples.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import gc
import sys
from typing import Any, Callable

import torch

from . import audit, events, graphs, inputs, integrity, kernels, measuring, protocol, sampling, tensors, wire
from . import workload as workloads

RECIPE = "independent"
BEFORE, AFTER, EXCHANGED, REPLAYED = "before", "after", "exchanged", "replayed"  # where an output was given
_get_num_threads = torch.get_num_threads


def timing(request: wire.TimeRequest) -> wire.TimeResult:
    meter = sampling.LoadMeter()
    torch.set_num_threads(request.threads)
    prepared = {value.id: Inputs(request, value) for value in request.workloads}
    pairs = measuring.pairs_of(request)
    of_problem = protocol.MODEL in request.targets
    if of_problem:
        pairs.sort(key=lambda pair: pair[1] == protocol.KERNEL)
    with concurrent.futures.ThreadPoolExecutor(request.threads) as pool:
        for value in prepared.values():
            value.make(pool.map)
    if request.held_back:
        sys.stdin.buffer.read()  # ends when it may begin
    kept, replaced = audit.Kept(request), integrity.Snapshot().replaced
    result = wire.TimeResult(protocol.OK, threads=request.threads, kept=kept.rows)
    touched = False
    gc.collect()
    gc.freeze()  # PyTorch's own objects are for good; to walk them before every target costs a second in all
    lost = ""
    for order, (workload_id, target) in enumerate(pairs):
        row = wire.Timing(protocol.OK, workload=workload_id, target=target, order=order)
        result.timings.append(row)
        if lost:
            row.status, row.message = protocol.NOT_RUN, lost
            continue
        touched = touched or target == protocol.KERNEL
        sampled = Sampled(request, row)
        try:
            measure = _measure_kernel if target == protocol.KERNEL else _measure_reference
            expected = request.expected_sha256.get(workload_id, ()) if target == protocol.KERNEL else ()
            answers = audit.Answers(expected, request.device, kept, workload_id, target)
            measure(request, prepared[workload_id], answers, sampled)
        except wire.Failed as error:
            row.fail(error)
        result.sampling_s += sampled.spent_s
        fault = tensors.lost(request.device) if row.status != protocol.OK else ""
        if fault:
            lost = f"{target} on {workload_id} before it left the device unusable: {fault}"
        tampering = replaced() if touched else ""
        if touched and of_problem:
            tampering = tampering or _other_threads(request)
        if tampering:
            row.status, row.message = protocol.WRONG, "; ".join(filter(None, (tampering, row.message)))
            lost = f"{target} on {workload_id} before it was found to have {tampering}: no time here could be trusted"
    result.threads, result.load = torch.get_num_threads(), meter.read()
    return result


def _other_threads(request: wire.TimeRequest) -> str:
    """Native kernels may bring threads of their own; a solution in Python takes PyTorch's."""
    now = _get_num_threads()
    return "" if now == request.threads else f"set {now} threads, not {request.threads}"


class Inputs:
    """A workload with tensors of its first trial. `make` makes their elements, and those of a second: an attention's
    stay; a problem's, which may be large, are made again whenever they are needed, and dropped."""

    def __init__(self, request: wire.TimeRequest, value: wire.WorkloadRequest) -> None:
        self.workload = workloads.parse_workload(value)
        self.device = request.device
        self.seed, self.threads = request.seed, request.threads
        self.two = len(request.expected_sha256.get(value.id, ())) > 1
        self.arrays: dict[int, list[Any]] = {}
        self.arguments: list[Any] | None = None
        self.drawn = False  # whether the reference draws random numbers at each call

    def make(self, each: inputs.Each) -> None:
        for trial in range(1 if self.workload.problem is not None else 1 + self.two):
            self.arrays[trial] = self.workload.arrays(RECIPE, trial, self.seed, each)

    def elements(self, trial: int) -> list[Any]:
        """That trial's arguments, new. Several threads make them on a GPU's host, whose processors nobody measures."""
        arrays = self.arrays.get(trial)
        if self.workload.problem is not None:
            self.arrays.clear()
        if arrays is None:
            with concurrent.futures.ThreadPoolExecutor(self.threads) as pool:
                arrays = self.workload.arrays(RECIPE, trial, self.seed, pool.map)
        return self.workload.arguments(arrays, self.device)

    def get(self) -> list[Any]:
        if self.arguments is None:
            self.arguments = self.elements(0)
        return self.arguments

    def discard(self) -> None:
        """A kernel had them: who comes next gets tensors that no kernel has seen."""
        self.arguments = None

    def audit(self, answers: audit.Answers) -> audit.Audit | None:
        """None where there is nothing to look at: attention kernels are no Python, a drawn output has no digest."""
        if self.workload.problem is None or self.drawn:
            return None
        return audit.Audit(self.workload, self.device, self.get(), self.elements, answers)

    def exchange(self) -> None:
        """Write the second trial's elements into the very same memory."""
        for tensor, new in zip(tensors.flat(self.get()), tensors.flat(self.elements(1))):
            tensor.data.copy_(new)


def _measure_reference(_request: wire.TimeRequest, prepared: Inputs, answers: audit.Answers, sampled: Sampled) -> None:
    arguments, target = prepared.get(), answers.target
    with torch.no_grad(), contextlib.ExitStack() as stack:
        try:
            reference = prepared.workload.references([target], prepared.device)[0]
            reference.attempt(arguments)
            stack.enter_context(reference.active())
            call = reference.bind(arguments)
            prepared.drawn = prepared.workload.draws(call)
            sampled.sample(call)
            sampled.replay(call, call(), answers)
        except wire.Failed:
            raise
        except Exception as error:
            raise kernels.failure(error, target) from None


def _measure_kernel(request: wire.TimeRequest, prepared: Inputs, answers: audit.Answers, sampled: Sampled) -> None:
    workload, device, target = prepared.workload, prepared.device, answers.target
    arguments, validated = prepared.get(), bool(answers.digests)
    try:
        with torch.no_grad():
            assert request.kernel is not None
            kernel = kernels.load(request.kernel, workload)
            call = kernel.bind(arguments)

            def judged(trial: int, where: str) -> bool:
                """Whether an output is the validated one of that trial, whose elements the inputs hold, or may be."""
                workload.reseed()
                with kernels.blamed(target):
                    output = call()
                output = kernels.checked(output, workload, device)
                with kernels.blamed(target):
                    return validated and answers.holds(trial, output, where, must=True)

            first = judged(0, BEFORE)
            watching = prepared.audit(answers) if first else None
            with kernels.blamed(target):
                sampled.sample(call, watching)
                anew = kernel.bind(arguments, anew=True)
                expected_output = kernels.checked(call(), workload, device).clone()
                sampled.replay(lambda: kernels.checked(anew(), workload, device), expected_output, answers)
            if validated and sampled.row.status == protocol.OK:
                fault = watching.verdict() if watching else ""
                follows = prepared.two and watching is None
                fault = fault or _fault(first, judged, prepared, lambda: follows or answers.other_bits)
                row = sampled.row
                row.correct, row.message, row.other_bits = not fault, fault, answers.other_bits
    finally:
        prepared.discard()


def _fault(first: bool, judged: Callable[[int, str], bool], prepared: Inputs, follows: Callable[[], object]) -> str:
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
        prepared.exchange()
    if not judged(1, EXCHANGED):
        return "its output does not follow its inputs: it is not computed from them at each call"
    return ""


class Sampled:
    """One row, and the seconds that its samples took. The garbage collector does not run meanwhile."""

    def __init__(self, request: wire.TimeRequest, row: wire.Timing) -> None:
        self.timing, self.row = request.timing, row
        self.spent_s = 0.0

    def sample(self, call: kernels.Call, watching: audit.Audit | None = None) -> None:
        self._undisturbed(lambda: events.sample(call, self.timing, self.row, watching))

    def replay(self, call: kernels.Call, expected: Any, answers: audit.Answers) -> None:
        """The same, hot. `call` gives a new tensor each time, with the bits of `expected`, or right ones."""
        if self.row.status == protocol.OK:
            keep = functools.partial(answers.keep, trial=0, where=REPLAYED)
            self._undisturbed(lambda: graphs.sample(call, expected, self.timing, self.row, keep))

    def _undisturbed(self, sample: Callable[[], float]) -> None:
        gc.collect()
        gc.disable()
        try:
            self.spent_s += sample()
        finally:
            gc.enable()
