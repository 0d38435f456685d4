"""`time`: one launch, measured by a process that the code under test never enters.

This process owns the inputs, the clock, the order and the outputs. It tells two others (`host`) to compute: one lives
in a sandbox with the kernel, one has the references alone. Every call has inputs of its own (`fresh`). A sample is the
time from an order to its answer, of as many calls as take long against what asking takes. The least of that is measured
for each launch, with orders to do nothing, and taken off.

Of the timed calls some are chosen once they are over, and their outputs judged against the truth of their inputs. What
is returned, and not written to shared memory, is copied there on demand after the answer. By how much that takes longer
than a copy does, it was not computed in time, and that time is the target's. On a GPU there are events besides: see
`device_target`.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from typing import TYPE_CHECKING, Any

from . import (
    agreement,
    blame,
    channel,
    dtypes,
    inputs,
    memory,
    protocol,
    rounding,
    sampling,
    serving,
    subjects,
    tools,
    truth,
    wire,
)
from .excerpt import excerpt
from .fresh import RECIPE, Fresh
from .peer import Peer
from .target import Picked, Target, is_in_kernels_process

if TYPE_CHECKING:
    from .dtypes import Array
    from .subjects import Workload

ENDS_S = 5.0  # for a process that has closed its connection to be gone
BUSY_PROCESSORS = 4  # where so many are left, one may wait busily for a GPU
NOT_RIGHT = {
    "before": "its output is not right",
    "timed": "its output in a timed call is not right",
    "after": "its output after the timed calls is not right",
}


def launch(request: wire.TimeRequest) -> wire.TimeResult:
    if request.device == "cuda":
        import torch  # once for this process and its child, which each begin to use the device by themselves

        torch.set_num_threads(request.threads)
    parsed = {value.id: subjects.parse_workload(value) for value in request.workloads}
    child, connection = _start_references(request)  # before any thread is started here
    references = Peer(connection)
    meter = sampling.LoadMeter()
    result = wire.TimeResult(protocol.OK, threads=request.threads)
    measures_kernel = any(target == protocol.KERNEL for _, target in request.rows)
    kernel = _kernels_process(request.link) if measures_kernel else None
    if request.held_back:
        sys.stdin.buffer.read()  # ends when it may begin
    # A process that still imports PyTorch keeps a core busy for seconds. Whatever is timed meanwhile waits for that
    # core at every barrier of its threads, which made the target that came first up to 20 times slower.
    peers = [peer for peer in (references, kernel) if peer is not None]
    for peer in peers:
        peer.wait_until_ready()
    asking_ns = references.time_asking()
    for peer in peers:
        peer.asking_ns = asking_ns
    with concurrent.futures.ThreadPoolExecutor(request.threads) as pool:
        measured = Measured(request, parsed, references, kernel, pool)
        pairs = in_order(request)
        rows = [wire.TargetTiming(protocol.OK, workload=workload, target=target) for workload, target in pairs]
        for order, row in enumerate(rows):
            row.order = order
        result.timings = rows
        for row in rows:
            lead, beside = pair_of(row, rows, request.rows)
            for each, other in ((lead, beside), (row, None)):
                if not is_measured(each):
                    result.sampling_s = (result.sampling_s or 0.0) + measured.row(each, other)
        told = [peer.used() for peer in peers]
        result.load = meter.read(sum(used.processor_s for used in told if used))
        if kernel is not None and told[-1]:
            result.threads, idle = told[-1].threads, told[-1].idle_processors
            result.idle_processors = idle if request.device == "cpu" else None
        if request.memory:  # nothing is timed any more
            memory.of_rows(result.timings, references, kernel)
        if kernel is not None:
            kernel.connection.close()
        measured.judge()
        references.connection.close()
    if references.lost and _killed(child):
        os.kill(os.getpid(), signal.SIGKILL)  # as a whole: who started the launch makes it again
    return result


def in_order(request: wire.TimeRequest) -> list[list[str]]:
    """Return the rows in the replicate's order. Controls come before the kernel: once its code is loaded, nothing in
    its process is anybody else's."""
    rows = list(request.rows)
    random.Random(request.order_seed).shuffle(rows)
    places = [place for place, (_, target) in enumerate(rows) if is_in_kernels_process(target)]
    controls_first = sorted((rows[place] for place in places), key=lambda row: row[1] == protocol.KERNEL)
    for place, row in zip(places, controls_first):
        rows[place] = row
    return rows


def is_measured(row: wire.TargetTiming) -> bool:
    """Return whether a row has its samples, or a reason why there are none."""
    return bool(row.samples_us) or row.status != protocol.OK


def pair_of(
    row: wire.TargetTiming, rows: list[wire.TargetTiming], asked: list[list[str]]
) -> tuple[wire.TargetTiming, wire.TargetTiming | None]:
    """Return the two rows that are sampled in turns, one in each process, if this is one of them: the kernel and the
    first of its references on the same workload, by the order in which they were `asked` for. Return any other row
    alone."""
    same = [each for each in rows if each.workload == row.workload]
    kernels = [each for each in same if each.target == protocol.KERNEL]
    others = [each for each in same if not is_in_kernels_process(each.target)]
    others.sort(key=lambda each: asked.index([each.workload, each.target]))
    if not kernels or not others or row not in (kernels[0], others[0]):
        return row, None
    return kernels[0], others[0]


def _kinds(device: str) -> tuple[type[Fresh], type[Target], Any]:
    """Return (inputs, a target, memory) on a device."""
    if device == "cpu":
        return Fresh, Target, channel.SharedMemory
    from .device_fresh import DeviceFresh
    from .device_memory import DeviceMemory
    from .device_target import DeviceTarget

    return DeviceFresh, DeviceTarget, DeviceMemory


def _start_references(request: wire.TimeRequest) -> tuple[int, channel.Channel]:
    """Start a child that has the references, and ends with this process: its id, and the way to it."""
    ours, theirs = channel.pair()
    child = os.fork()
    if child:
        theirs.close()
        return child, ours
    try:
        ours.close()
        if request.processors:
            with contextlib.suppress(OSError):  # an engine may have been given fewer
                os.sched_setaffinity(0, request.processors)
        tools.end_with_parent()
        asked = wire.HostRequest(request.workloads, request.seed, request.threads, request.device, None, "")
        serving.serve(theirs, asked)
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(0)


def _killed(child: int) -> bool:
    """Return whether it ended by SIGKILL, which nothing in it sends: memory ran short, or somebody did it."""
    deadline = time.monotonic() + ENDS_S
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        time.sleep(0.01)
    return False


def _kernels_process(link: str) -> Peer:
    try:
        return Peer(channel.accept(channel.listen(link)))
    except channel.Closed:
        nobody, _ = channel.pair()
        return Peer(nobody, lost=protocol.GONE)


class Measured:
    """All rows of a launch. Outputs are judged at last, when nobody measures."""

    def __init__(
        self,
        request: wire.TimeRequest,
        parsed: dict[str, Workload],
        references: Peer,
        kernel: Peer | None,
        pool: concurrent.futures.Executor,
    ) -> None:
        self.request, self.references, self.kernel, self.pool = request, references, kernel, pool
        self.workloads = parsed
        self.fresh_of, self.target_of, memory = _kinds(request.device)
        for peer in filter(None, (references, kernel)):
            peer.memory = memory
            peer.connection.is_busy = request.device == "cuda" and len(os.sched_getaffinity(0)) >= BUSY_PROCESSORS
        self.fresh: dict[str, Fresh] = {}
        self.drawing: dict[str, bool] = {}
        self.to_judge: list[tuple[wire.TargetTiming, list[Picked], str]] = []

    def row(self, row: wire.TargetTiming, beside: wire.TargetTiming | None = None) -> float:
        """Measure a target, in turns with the one of the row `beside`; return the seconds that its samples took."""
        target = None
        try:
            target = self._target(row)
            if row.target == protocol.KERNEL:
                target.draws = self._draws(row.workload)
                self._measure_kernel(target, beside)
            elif target.in_kernels_process:
                self._measure_control(target)
            else:
                target.open()
                target.sample()
        except wire.Failed as error:
            row.fail(error)
            if row.target == protocol.KERNEL and self.references.lost:
                row.fail(wire.Failed(protocol.NOT_RUN, f"the references' process: {self.references.lost}"))
            told = target.peer.used() if target is not None and row.status == protocol.CRASHED else None
            if target is not None and told is not None and told.lost:
                target.peer.lost = f"{row.target} on {row.workload} before it left the device unusable: {told.lost}"
        except Exception as error:  # nothing of the code under test runs in this process
            row.fail(blame.skip(error) or blame.of_tool(error))
        finally:
            for fresh in self.fresh.values():
                fresh.drawn = []  # which may be large
        return 0.0 if target is None else target.sampling_s

    def _target(self, row: wire.TargetTiming) -> Target:
        workload = self.workloads[row.workload]
        if row.workload not in self.fresh:
            self.fresh[row.workload] = self.fresh_of(workload, self.request.seed, self.pool.map)
        peer = self.kernel if is_in_kernels_process(row.target) else self.references
        assert peer is not None
        target = self.target_of(self.request, workload, self.fresh[row.workload], peer, row)
        target.references = self.references
        return target

    def _draws(self, workload_id: str) -> bool:
        """Whether a problem's model draws random numbers when it is called. Such outputs are judged under a seed."""
        if workload_id not in self.drawing:
            drawing = False
            if self.workloads[workload_id].problem is not None:
                with contextlib.suppress(wire.Failed):
                    drawing = self._target(_model_row(workload_id)).open().draws
            self.drawing[workload_id] = drawing
        return self.drawing[workload_id]

    def _measure_control(self, target: Target) -> None:
        """The same reference in both processes, in turns."""
        row = target.row
        beside = wire.TargetTiming(protocol.OK, workload=row.workload, target=row.target[len(protocol.CONTROL) :])
        target.open()
        target.sample(self._opened(beside))
        row.beside_us, row.hot_beside_us = beside.samples_us, beside.hot_us
        if not beside.samples_us:
            raise wire.Failed(protocol.NOT_RUN, beside.message)

    def _opened(self, row: wire.TargetTiming | None) -> Target | None:
        """Return a reference's open target; None where it cannot be opened, and its row says why."""
        if row is None:
            return None
        target = self._target(row)
        try:
            target.open()
        except wire.Failed as error:
            row.fail(error)
            return None
        return target

    def _measure_kernel(self, target: Target, beside: wire.TargetTiming | None) -> None:
        """Before the timed calls, in them, and after them: a kernel that is right once and wrong in a loop is wrong."""
        request, row, workload = self.request, target.row, target.workload
        digests = request.expected_sha256.get(row.workload, ())
        arrays = workload.arrays(RECIPE, 0, request.seed, self.pool.map)
        target.open()
        picked = [target.once("before", arrays)]
        target.sample(self._opened(beside))
        if row.status != protocol.OK or not digests:
            return
        picked.append(target.once("after", arrays))
        others = [pick for pick in picked if _sha256(workload, pick.output) != digests[0]]
        row.other_bits, row.correct = len(others), True
        if others and not request.other_bits:
            row.correct, row.message = False, protocol.OTHER_BITS
            row.failure = protocol.FailureKind.OTHER_BITS
        else:
            self.to_judge.append((row, target.picked + others, target.doubt))

    # -- judging -----------------------------------------------------------------------------------------

    def judge(self) -> None:
        """Judge outputs of the kernel whose other outputs were right in validation."""
        with tempfile.TemporaryDirectory() as folder:
            cache = truth.Cache(folder, self.pool.map)
            for row, picked, doubt in self.to_judge:
                for pick in picked if row.workload in self.request.limits else ():
                    passed, why = self._is_right(row, pick, cache)
                    row.checked += passed is not None and pick.when == "timed"
                    if not passed:
                        row.correct = passed
                        row.message = why if passed is None else f"{NOT_RIGHT[pick.when]}: {why}"
                        break
                if doubt and row.correct is not False:
                    row.status, row.message = protocol.UNDECIDABLE, doubt

    def _is_right(self, row: wire.TargetTiming, pick: Picked, cache: truth.Cache) -> tuple[bool | None, str]:
        workload: Any = self.workloads[row.workload]  # of either kind
        limits = self.request.limits[row.workload]
        if workload.problem is None and pick.when == "timed":
            workload, pick = excerpt(workload, pick)
        expected: tuple[Any, str] | None = workload.expected_output()
        model = None
        if workload.problem is not None:  # its output's shape is known once its model has run
            with contextlib.suppress(wire.Failed):
                model = self._target(_model_row(row.workload)).run(pick.arrays)
                expected = workload.is_like(model.output.shape, model.dtype)
        declared, device = self.request.precision, self.request.device
        precision = workload.precision(device) if declared is None else rounding.effective(declared, workload.dtype)
        truths = workload.truths(pick.arrays, inputs.digest(pick.arrays), cache, precision)
        if expected is None or (None in truths.values() and model is None):
            return None, "cannot be judged: there is neither a truth nor a reference"
        if (pick.output.shape, pick.dtype) != expected:
            return False, f"expected {tuple(expected[0])} {expected[1]}"
        for name, output in workload.split(pick.output).items():
            if (exact := truths[name]) is not None:
                want, error_scale = exact.values, exact.error_scale
            else:
                assert model is not None
                want, error_scale = dtypes.decode(model.output, model.dtype), None
            value = dtypes.decode(output, pick.dtype)
            passed, why = agreement.verdict(value, want, limits, error_scale, self.request.decides)
            if not passed:
                return False, f"{name}: {why}" if name else why
        return True, ""


def _sha256(workload: Workload, output: Array) -> str:
    """As `verdict.JudgedTarget` has it."""
    digests = [inputs.digest([part]) for part in workload.split(output).values()]
    return digests[0] if len(digests) == 1 else protocol.digest(digests)


def _model_row(workload_id: str) -> wire.TargetTiming:
    return wire.TargetTiming(protocol.OK, workload=workload_id, target=protocol.MODEL)
