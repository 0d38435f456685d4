"""One target on one workload, as the process that measures it sees it: orders out, answers and outputs back.

What is answered may be the word of a stranger. Only the time until it came is believed, and what lies in shared memory
then.
"""

from __future__ import annotations

import json
import math
import random
import statistics
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from . import channel, codec, dtypes, host, protocol, sampling, wire
from .fresh import Slots

if TYPE_CHECKING:
    from .dtypes import Array
    from .fresh import Fresh
    from .workload import Workload

R = TypeVar("R")

SAMPLE_NS = 1_000_000  # an order's shortest length, where that takes several calls
MOST_CALLS, MOST_DRAWN = 1000, 4  # in an order; of inputs that are drawn whole
MOST_RING_BYTES, MOST_OUTPUT_BYTES = 1 << 26, 1 << 32  # of an order of several calls; of one call
SPARE_SLOTS = 4  # of which one call takes any
CHECKED = 2  # timed calls that are judged
DELIVERIES, DELIVERED = 5, 0.2  # orders at first whose outputs are delivered, and the share of those that follow
SPINS, FEW_SPINS, SPIN_NS, COPIES = 15, 5, 2_000_000, 5
LONG_NS = 10_000_000  # of an order: what asking takes is little of it
LATE_NS, LATE_COPIES, LATE_SHARE = 50_000, 0.5, 0.1  # by how much a delivery may exceed a copy: sum of the three
CHANGED_INPUTS = "it changed its inputs when it was timed"


class Peer:
    """A process that computes. Every answer that is not one fails the target that it was asked about."""

    def __init__(self, connection: channel.Channel, lost: str = "") -> None:
        self.connection = connection
        self.lost = lost  # why it is asked nothing any more
        self.outbox: channel.Memory | None = None

    def ask(self, kind: bytes, payload: bytes = b"", file: int | None = None) -> bytes:
        """The payload of its answer; `wire.Failed`."""
        if self.lost:
            raise wire.Failed(protocol.NOT_RUN, self.lost)
        try:
            answer, content = self.connection.ask(kind, payload, file)
        except channel.Closed:
            self.lost = protocol.GONE
            raise wire.Failed(protocol.CRASHED, protocol.GONE) from None
        except channel.Unasked:
            self.lost = "its process answered what it was not asked"
            raise wire.Failed(protocol.WRONG, self.lost) from None
        if answer == channel.FAILED:
            said = self.read(wire.Result, content)
            raise wire.Failed(said.status, said.message[:8000], said.log_excerpt[-8000:])
        return content

    def request(self, kind: bytes, message: wire.Request, file: int | None = None) -> bytes:
        return self.ask(kind, json.dumps(codec.dump(message)).encode(), file)

    def read(self, kind: type[R], content: bytes) -> R:
        """A message in an answer. `wire.Failed`."""
        try:
            return codec.read(kind, json.loads(content))
        except (ValueError, RecursionError):
            raise wire.Failed(protocol.CRASHED, wire.UNREADABLE) from None

    def tell(self, kind: bytes) -> None:
        """An order without an answer: the next one finds out whether it is gone."""
        try:
            self.connection.tell(kind)
        except channel.Closed:
            self.lost = protocol.GONE

    def used(self) -> wire.Told | None:
        try:
            return self.read(wire.Told, self.ask(channel.TELL, b"idle"))
        except wire.Failed:
            return None

    def delivery(self, kind: bytes, size_bytes: int, payload: bytes = b"") -> channel.Memory:
        """Have so many bytes written to its outbox, which this gives."""
        anew = self.outbox is None or self.outbox.size_bytes < size_bytes
        if anew:
            self.outbox = channel.Memory(size_bytes)
        outbox = self.outbox
        assert outbox is not None
        self.ask(kind, payload, outbox.file if anew else None)
        return outbox


class Picked(NamedTuple):
    """An output of one call, with that call's inputs."""

    when: str  # a key of NOT_RIGHT
    arrays: list[Any]
    output: Any
    dtype: str


class Target:
    """One target on one workload, in the process that has it."""

    def __init__(
        self, request: wire.TimeRequest, workload: Workload, fresh: Fresh, peer: Peer, row: wire.Timing
    ) -> None:
        self.request, self.workload, self.fresh, self.peer, self.row = request, workload, fresh, peer, row
        self.random = random.SystemRandom()  # its state cannot be read
        self.opened = wire.Opened(False, False)
        self.described: wire.Described | None = None
        self.draws = False
        self.count = 1  # calls of an order
        self.first = 0  # slot of the last order
        self.elapsed_ns: list[int] = []
        self.deliveries_ns: list[int] = []
        self.picked: list[Picked] = []
        self.fault = ""  # what was seen of its timed calls

    def open(self) -> wire.Opened:
        order = wire.OpenOrder(self.row.workload, self.row.target)
        self.opened = self.peer.read(wire.Opened, self.peer.request(channel.OPEN, order))
        self._map(SPARE_SLOTS)
        return self.opened

    def _map(self, count: int) -> None:
        """Give it a ring of so many slots."""
        expected = self.workload.expected_output() if self.opened.in_slots else None
        output_bytes = dtypes.size_bytes(expected[1], expected[0]) if expected else 0
        self.slots = Slots(self.fresh.base, output_bytes, count)
        memory = channel.Memory(self.slots.size_bytes)
        self.memory, self.areas = memory.map, self.slots.areas(memory.map)
        order = wire.MapOrder(count, self.slots.slot_bytes, self.slots.offsets, self.slots.output_offset)
        self.peer.request(channel.MAP, order, memory.file)
        memory.close()

    # -- calls whose time nobody takes -------------------------------------------------------------------

    def run(self, arrays: list[Array]) -> Picked:
        """Its output for these inputs, of a process that has not opened it."""
        self.open()
        return self.once("before", arrays)

    def once(self, when: str, arrays: list[Array]) -> Picked:
        """Its output for these inputs, under the workload's seed."""
        for area, array in zip(self.areas, arrays):
            area[0] = array.reshape(-1)
        self.first = 0
        self.peer.ask(channel.CALL, host.CALLED.pack(0, 1, True))
        output, dtype = self._output(self._outputs(1), 0)
        self.peer.tell(channel.FORGET)
        return Picked(when, arrays, output, dtype)

    def _outputs(self, count: int) -> Any:
        """Memory with the outputs of the last order."""
        if self.opened.in_slots:
            return self.memory
        if self.described is None:
            self.described = self.peer.read(wire.Described, self.peer.ask(channel.DESCRIBE))
            shape, dtype = self.described.shape, self.described.dtype
            possible = all(0 <= size < 1 << 40 for size in shape) and self.workload.fits(tuple(shape), dtype)
            if not possible or dtypes.size_bytes(dtype, shape) > MOST_OUTPUT_BYTES:
                words = f"returned {shape} {dtype}; expected {self.workload.expected()}"
                raise wire.Failed(protocol.WRONG, words[: host.MESSAGE_CHARACTERS])
        return self.peer.delivery(channel.DELIVER, count * self._output_bytes()).map

    def _output_bytes(self) -> int:
        return dtypes.size_bytes(self.described.dtype, self.described.shape) if self.described else 0

    def _output(self, memory: Any, call: int) -> tuple[Array, str]:
        """(a copy of one output of the last order, its dtype)."""
        if self.opened.in_slots:
            expected = self.workload.expected_output()
            assert expected is not None
            shape, dtype = expected
            return np.array(self.slots.output(memory, self.first + call, dtype, shape)), dtype
        assert self.described is not None
        shape, dtype = tuple(self.described.shape), self.described.dtype
        found = np.ndarray(shape, dtypes.STORAGE[dtype], memory, call * self._output_bytes())
        return np.array(found), dtype

    # -- timed calls -------------------------------------------------------------------------------------

    def sample(self, references: Peer) -> None:
        """Warm up, size an order, and sample until the time of a call is known well enough."""
        row, timing = self.row, self.request.timing
        row.warmup_calls, fastest_ns = self._warm_up()
        self._size(fastest_ns)
        self.peer.tell(channel.METER)
        rule = sampling.StopRule(timing)
        while not rule.is_met(self.elapsed_ns):
            self.elapsed_ns.append(self._order())
            self._look()
            self.peer.tell(channel.FORGET)
        told = self.peer.read(wire.Told, self.peer.ask(channel.TELL))
        row.busy_processors, row.switches_per_ms = told.busy_processors, told.switches_per_ms
        row.threads_started = told.threads_started
        asking_ns, error_ns = self._asking(references)
        row.clock, row.calls_per_sample = "perf_counter_ns", self.count
        row.asking_us, row.asking_error_us = asking_ns / self.count / 1e3, error_ns / self.count / 1e3
        row.samples_us = [max(1.0, (each - asking_ns) / self.count) / 1e3 for each in self.elapsed_ns]
        if self.deliveries_ns:
            self.fault = self.fault or self._lateness(references)
        if self.workload.problem is not None and told.threads != self.request.threads:
            # Native kernels may bring threads of their own; a solution in Python takes PyTorch's.
            row.status, row.message = protocol.WRONG, f"set {told.threads} threads, not {self.request.threads}"

    def _order(self) -> int:
        """Nanoseconds from an order to its answer."""
        self.fresh.draw(self.count)
        self.first = self.random.randrange(self.slots.count) if self.count == 1 else 0
        order = host.CALLED.pack(self.first, self.count, False)
        self.fresh.show(self.areas, self.first, self.count)
        began = sampling.clock_ns()
        self.peer.ask(channel.CALL, order)
        return sampling.clock_ns() - began

    def _warm_up(self) -> tuple[int, float]:
        """(calls, nanoseconds of the fastest)."""
        deadline = sampling.clock_ns() + self.request.timing.warmup_s * 1e9
        calls, fastest = 0, math.inf
        while calls < self.request.timing.warmup_calls or sampling.clock_ns() < deadline:
            fastest = min(fastest, self._order())
            self.peer.tell(channel.FORGET)
            calls += 1
        return calls, fastest

    def _size(self, fastest_ns: float) -> None:
        """As many calls in an order as take long against what asking takes."""
        most = min(MOST_CALLS, MOST_RING_BYTES // self.slots.slot_bytes)
        most = max(1, most if self.fresh.is_continuous else min(most, MOST_DRAWN))
        while (wanted := min(most, math.ceil(self.count * SAMPLE_NS / fastest_ns))) >= 1.5 * self.count:
            self.count = wanted
            self._map(max(wanted, SPARE_SLOTS))
            fastest_ns = math.inf
            for _ in range(3):
                fastest_ns = min(fastest_ns, self._order())
                self.peer.tell(channel.FORGET)

    def _look(self) -> None:
        """After an order: whether outputs are looked at. Every order is as likely to be the one that is judged."""
        if self.row.target != protocol.KERNEL:
            return
        number = len(self.elapsed_ns)
        judged = not self.draws and self.random.random() < CHECKED / number
        if not self.opened.in_slots:
            if not (judged or number <= DELIVERIES or self.random.random() < DELIVERED):
                return
            began = sampling.clock_ns()
            memory = self._outputs(self.count)
            self.deliveries_ns.append(sampling.clock_ns() - began)
        elif judged:
            memory = self.memory
        if judged:
            call = self.random.randrange(self.count)
            if not self.fresh.holds(self.areas, self.first, call):
                self.fault = CHANGED_INPUTS
            output, dtype = self._output(memory, call)
            if len(self.picked) == CHECKED:
                del self.picked[self.random.randrange(CHECKED)]
            self.picked.append(Picked("timed", self.fresh.arrays(call), output, dtype))

    def _asking(self, references: Peer) -> tuple[float, float]:
        """(nanoseconds of an order that are not its work, their standard error), of a process that is known."""
        order_ns = statistics.median(self.elapsed_ns)
        length = int(min(order_ns, SPIN_NS))
        found: list[float] = []
        for _ in range(SPINS if order_ns < LONG_NS else FEW_SPINS):
            self.fresh.draw(self.count)  # both wait as long as before an order
            self.fresh.show(self.areas, self.first, self.count)
            began = sampling.clock_ns()
            content = references.ask(channel.SPIN, host.SIZE.pack(length))
            elapsed = sampling.clock_ns() - began
            found.append(max(0, elapsed - host.SIZE.unpack(content)[0]))
        middle = statistics.median(found)
        return middle, middle * sampling.median_error(found) if middle else 0.0

    def _lateness(self, references: Peer) -> str:
        """What is wrong where to deliver outputs took longer than to copy as much."""
        assert self.described is not None
        order = wire.CopyOrder(self.row.workload, self.count, self.described.dtype, self.described.shape)
        asked, copies = json.dumps(codec.dump(order)).encode(), []
        for _ in range(1 + COPIES):
            began = sampling.clock_ns()
            references.delivery(channel.COPY, self.count * self._output_bytes(), asked)
            copies.append(sampling.clock_ns() - began)
        copy, delivered = statistics.median(copies[1:]), statistics.median(self.deliveries_ns)
        if delivered - copy <= LATE_NS + LATE_COPIES * copy + LATE_SHARE * statistics.median(self.elapsed_ns):
            return ""
        return (
            f"its outputs were not ready when it answered: reading them took {delivered / 1e3:.3g} us, and copying as "
            f"much takes {copy / 1e3:.3g} us"
        )
