"""One target on one workload, as the process that measures it sees it: orders out, answers and outputs back.

What is answered may be the word of a stranger. Only the time until it came is believed, and what lies in shared memory
then.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Sequence

import numpy as np

from . import channel, dtypes, host, protocol, sampling, wire
from .fresh import Slots

if TYPE_CHECKING:
    from .dtypes import Array
    from .fresh import Fresh
    from .peer import Peer
    from .subjects import Workload

SAMPLE_NS = 1_000_000  # an order's shortest length, where that takes several calls
MOST_CALLS, MOST_DRAWN = 1000, 4  # in an order; of inputs that are drawn whole
MOST_RING_BYTES = 1 << 26  # of an order of several calls
SLICE_NS = 50_000_000  # of one target, before the other one's turn
SETTLE_S = 0.02  # between two slices: threads of the process that has computed wait busily for more, then sleep
CHECKED = 2  # timed calls that are judged, of those that count
DELIVERIES, DELIVERED = 8, 0.2  # orders at first whose outputs are delivered, and the share of those that follow
WAITED_NS, WAITED_SHARE = 50_000, 0.02  # by how much an order may exceed its work and what asking takes
LONG_NS = 10_000_000  # of an order: what asking takes is little of it, and no call before it keeps threads awake
LATE_NS, LATE_COPIES = 50_000, 0.5  # by how much a delivery may exceed a copy: the sum of this and a share of it


class Picked(NamedTuple):
    """An output of one call, with that call's inputs."""

    when: str  # a key of NOT_RIGHT
    arrays: list[Any]
    output: Any
    dtype: str


def is_in_kernels_process(target: str) -> bool:
    """Return whether a target is timed in the kernel's process: the kernel, and the control."""
    return target == protocol.KERNEL or target.startswith(protocol.CONTROL)


class Target:
    """One target on one workload, in the process that has it."""

    slots_of = Slots  # the ring's layout
    waking, spare = 1, 4  # slots of calls that nobody times, at the ring's end; of which one call takes any
    most_output_bytes = 1 << 32

    def __init__(
        self, request: wire.TimeRequest, workload: Workload, fresh: Fresh, peer: Peer, row: wire.TargetTiming
    ) -> None:
        self.request, self.workload, self.fresh, self.peer, self.row = request, workload, fresh, peer, row
        self.in_kernels_process = is_in_kernels_process(row.target)
        self.random = random.SystemRandom()  # its state cannot be read
        self.opened = wire.Opened(False, False)
        self.described: wire.Described | None = None
        self.draws = False
        self.memory: Any = None
        self.areas: list[Any] = []
        self.count = 1  # calls of an order
        self.first = 0  # slot of the last order
        self.fastest_ns = math.inf  # of an order, by its process's clock
        self.picked: list[Picked] = []  # outputs of timed orders; each order is as likely to be judged
        self.elapsed_ns: list[int] = []  # of every timed order
        # Those that waited for a processor before or after their work, on a busy machine, do not count: by what their
        # process says of its own time. That can leave an order out, and then another one is judged.
        self.counted_ns: list[int] = []
        self.waited_ns: list[int] = []
        self.picked_of_waited: list[Picked] = []
        self.late_ns: list[float] = []  # of each delivery, for each of its calls: the work after the answer
        self.copied: Any = None  # by this process
        self.sampling_s = 0.0
        self.copies = False  # whether each call ends with a copy of its output
        self.references: Peer | None = None  # that compute beside it, where they are asked for its sake
        self.doubt = ""  # why its times may not be what they seem

    def open(self) -> wire.Opened:
        order = wire.OpenOrder(self.row.workload, self.row.target)
        self.opened = self.peer.read(wire.Opened, self.peer.request(channel.OPEN, order))
        if self.row.target != protocol.KERNEL:  # the word of a process that no kernel has entered
            self.workload.writes = {**dict.fromkeys(self.opened.writes, ""), **self.workload.writes}
        self._map(self.spare)
        return self.opened

    def _map(self, count: int) -> None:
        """Give it a ring of so many slots, and those to be woken with."""
        expected = self.workload.expected_output() if self.opened.in_slots else None
        output_bytes = dtypes.size_bytes(expected[1], expected[0]) if expected else 0
        self.ring, count = count, count + self.waking
        slots = self.slots = self.slots_of(self.fresh.base, output_bytes, count)
        self.memory, self.areas = None, []  # room for others
        memory = self.peer.memory(slots.size_bytes)
        self.memory, self.areas = memory.map, slots.areas(memory.map)
        for slot in range(self.ring, count):
            self.fresh.put(self.areas, slot, self.fresh.base)
        places = slots.slot_bytes, slots.offsets, slots.output_offset
        order = wire.MapOrder(memory.size_bytes, count, *places, self.copies)
        try:
            self.peer.request(channel.MAP, order, memory.file)
        finally:
            memory.close()

    # -- calls whose time nobody takes -------------------------------------------------------------------

    def run(self, arrays: list[Array]) -> Picked:
        """Return its output for these inputs, of a process that has not opened it."""
        self.open()
        return self.once("before", arrays)

    def once(self, when: str, arrays: list[Array]) -> Picked:
        """Return its output for these inputs, under the workload's seed."""
        self.fresh.put(self.areas, 0, arrays)
        self.first = 0
        self.peer.tell(channel.FORGET)
        self.peer.ask(channel.CALL, host.CALLED.pack(0, 1, True))
        output, dtype = self._output(self._outputs(1), 0)
        self.peer.ask(channel.TELL)  # which fails where it left processes running
        return Picked(when, arrays, output, dtype)

    def _outputs(self, count: int) -> Any:
        """Return the memory with the outputs of the last order."""
        if self.opened.in_slots:
            return self.memory
        if self.described is None:
            self.described = self.peer.read(wire.Described, self.peer.ask(channel.DESCRIBE))
            shape, dtype = self.described.shape, self.described.dtype
            possible = all(0 <= size < 1 << 40 for size in shape) and self.workload.fits(tuple(shape), dtype)
            if not possible or dtypes.size_bytes(dtype, shape) > self.most_output_bytes:
                words = f"returned {shape} {dtype}; expected {self.workload.expected()}"
                raise wire.Failed(protocol.WRONG, words[: protocol.MESSAGE_CHARACTERS])
        outbox = self.peer.outbox_of(count * self._output_bytes())
        self.peer.ask(channel.DELIVER)
        return outbox

    def _keep_outputs_apart(self, order: Callable[[], object]) -> None:
        """Where calls of one order return the same memory, by its process's word, only the last output can be judged:
        from now on each call ends with a copy of its output. Who denies it has wrong outputs."""
        if self.opened.in_slots or not self.in_kernels_process:
            return
        order()
        self.described = None
        self._outputs(self.count)
        self.copies = bool(self.described and self.described.shared)
        if self.copies:
            self._map(max(self.ring, self.spare))

    def _output_bytes(self) -> int:
        return dtypes.size_bytes(self.described.dtype, self.described.shape) if self.described else 0

    def _output(self, memory: Any, call: int) -> tuple[Array, str]:
        """Return (a copy of one output of the last order, its dtype)."""
        if self.opened.in_slots:
            expected = self.workload.expected_output()
            assert expected is not None
            shape, dtype = expected
            return self._array(memory, self.slots.output_at(self.first + call), shape, dtype), dtype
        assert self.described is not None
        shape, dtype = tuple(self.described.shape), self.described.dtype
        return self._array(memory, call * self._output_bytes(), shape, dtype), dtype

    def _array(self, memory: Any, offset: int, shape: Sequence[int], dtype: str) -> Array:
        """Return a copy of what lies there."""
        return np.array(np.ndarray(tuple(shape), dtypes.STORAGE[dtype], memory, offset))

    # -- timed calls -------------------------------------------------------------------------------------

    def sample(self, beside: Target | None = None) -> None:
        """Warm up, size an order, and sample until the time of a call is known well enough.

        `beside`, an open target of the other process, is sampled in turns with this one, in slices: what the machine
        does meanwhile, such as a neighbour's load, then meets both alike.
        """
        both = self._each([self] if beside is None else [self, beside], Target.begin)
        while left := [target for target in both if not target.is_sampled()]:
            self.random.shuffle(left)
            lost = set(left) - set(self._each(left, Target.slice, SETTLE_S if len(left) > 1 else 0.0))
            both = [target for target in both if target not in lost]
        self._each(both, Target.end)

    def _each(self, targets: list[Target], step: Callable[[Target], None], pause_s: float = 0.0) -> list[Target]:
        """Take a step with each target, and return those that did not fail. The row of a target beside this one says
        why that failed."""
        left = []
        for target in targets:
            time.sleep(pause_s)
            try:
                step(target)
                left.append(target)
            except wire.Failed as error:
                if target is self:
                    raise
                target.row.fail(error)
        return left

    def begin(self) -> None:
        """Get ready to sample."""
        self.row.warmup_calls = self._warm_up()
        self._size()
        if self.count > 1:
            self._keep_outputs_apart(self._order)
        self.peer.tell(channel.METER)
        self.rule = sampling.StopRule(self.request.timing)
        self.rule.pause()

    def is_sampled(self) -> bool:
        return self.rule.is_met(self.elapsed_ns)

    def slice(self) -> None:
        """Sample for `SLICE_NS`, or until the time of a call is known well enough."""
        self.rule.resume()
        began_ns = sampling.clock_ns()
        while not self.is_sampled() and sampling.clock_ns() - began_ns < SLICE_NS:
            elapsed_ns, claimed_ns = self._order()
            self.elapsed_ns.append(elapsed_ns)
            allowed_ns = self.peer.asking_ns + max(WAITED_NS, WAITED_SHARE * claimed_ns)
            counts = elapsed_ns - claimed_ns <= allowed_ns
            orders, picked = (self.counted_ns, self.picked) if counts else (self.waited_ns, self.picked_of_waited)
            orders.append(max(1, elapsed_ns - self.peer.asking_ns))
            self._look(len(orders), picked)
        self.rule.pause()

    def end(self) -> None:
        """Write the row: its samples, and what they cost."""
        row = self.row
        if len(self.counted_ns) < self.request.timing.min_samples:  # the others count too, as long as they took
            self.counted_ns += self.waited_ns
            self.picked += self.picked_of_waited
        while 0 < len(self.late_ns) < DELIVERIES:
            self._order()
            self._deliver()
        self.sampling_s = sum(self.elapsed_ns) / 1e9
        told = self.peer.read(wire.ProcessUse, self.peer.ask(channel.TELL))
        row.busy_processors, row.switches_per_ms = told.busy_processors, told.switches_per_ms
        row.threads_started = told.threads_started
        row.clock, row.calls_per_sample = "perf_counter_ns", self.count
        row.asking_us = self.peer.asking_ns / self.count / 1e3
        row.samples_us = [(each / self.count + self.find_lateness()) / 1e3 for each in self.counted_ns]
        self._check_threads(told)

    def _check_threads(self, told: wire.ProcessUse) -> None:
        """Native kernels may bring threads of their own; a solution in Python takes PyTorch's."""
        asked = self.request.threads
        if self.workload.problem is not None and told.threads != asked:
            self.row.status, self.row.message = protocol.WRONG, f"set {told.threads} threads, not {asked}"

    def _order(self) -> tuple[int, int]:
        """Return the nanoseconds from an order to its answer; and those that its process says it worked."""
        self.peer.tell(channel.FORGET)
        self.fresh.draw(self.count)
        self.first = self.random.randrange(self.ring) if self.count == 1 else 0
        order = host.CALLED.pack(self.first, self.count, False)
        if self.fastest_ns < LONG_NS:
            if self.workload.writes:  # the call before wrote to these
                self.fresh.put(self.areas, self.ring, self.fresh.base)
            self.peer.ask(channel.WAKE)  # which sees nothing yet of the next inputs
        self.fresh.show(self.areas, self.first, self.count)
        began = sampling.clock_ns()
        said = self.peer.ask(channel.CALL, order)
        elapsed_ns = sampling.clock_ns() - began
        if len(said) != host.SIZE.size:
            raise wire.Failed(protocol.CRASHED, wire.UNREADABLE)
        return elapsed_ns, min(elapsed_ns, host.SIZE.unpack(said)[0])

    def _warm_up(self) -> int:
        """Calls."""
        deadline = sampling.clock_ns() + self.request.timing.warmup_s * 1e9
        calls = 0
        while calls < self.request.timing.warmup_calls or sampling.clock_ns() < deadline:
            self.fastest_ns = min(self.fastest_ns, self._order()[1])
            calls += 1
        return calls

    def _size(self) -> None:
        """Order as many calls at once as take long against what asking takes."""
        most = min(MOST_CALLS, MOST_RING_BYTES // self.slots.slot_bytes)
        most = max(1, most if self.fresh.is_continuous else min(most, MOST_DRAWN))
        while (wanted := min(most, math.ceil(self.count * SAMPLE_NS / max(1, self.fastest_ns)))) >= 1.5 * self.count:
            self.count = wanted
            self._map(max(wanted, self.spare))
            self.fastest_ns = min(self._order()[1] for _ in range(3))

    def _look(self, number: int, picked: list[Picked]) -> None:
        """After the order of a number, of those that it is one of: look at outputs, perhaps."""
        if not self.in_kernels_process:
            return
        judged = not self.draws and self.random.random() < CHECKED / number
        delivered = judged or number <= DELIVERIES or self.random.random() < DELIVERED
        memory = self.memory if self.opened.in_slots else self._deliver() if delivered else None
        if judged:
            call = self.random.randrange(self.count)
            output, dtype = self._output(memory, call)
            if len(picked) == CHECKED:
                del picked[self.random.randrange(CHECKED)]
            picked.append(Picked("timed", self.fresh.arrays(call), output, dtype))

    def _deliver(self) -> Any:
        """Copy the outputs of the last order, and return the memory where they are; time that."""
        began = sampling.clock_ns()
        memory = self._outputs(self.count)
        delivered_ns = sampling.clock_ns() - began
        copy_ns = self._time_copy(memory)
        self.late_ns.append(max(0.0, delivered_ns - LATE_NS - (1 + LATE_COPIES) * copy_ns) / self.count)
        return memory

    def _time_copy(self, memory: Any) -> int:
        """Return the nanoseconds until another process has answered, as late as a busy machine makes it, and as much
        was copied as was delivered."""
        assert self.described is not None
        shape, dtype = [self.count, *self.described.shape], dtypes.STORAGE[self.described.dtype]
        if self.copied is None or list(self.copied.shape) != shape:
            self.copied = np.ones(shape, dtype) if self.described.contiguous else np.ones(shape[::-1], dtype).T
        source: Array = np.ndarray(shape, dtype, memory)
        began = sampling.clock_ns()
        if self.references is not None:
            self.references.ask(channel.TELL)
        self.copied[...] = source
        return sampling.clock_ns() - began

    def find_lateness(self) -> float:
        """Return the nanoseconds of a call that its process worked after it had answered, to have outputs ready."""
        return statistics.median(self.late_ns) if self.late_ns else 0.0
