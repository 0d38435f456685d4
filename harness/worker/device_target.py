"""`target` on a GPU, where a sample is a few microseconds and an order takes tens of them.

The samples are what events on the device tell the process that computes: its own word. So it is ordered besides to
replay a graph with several calls, all on inputs that no call had before, and that is timed here, from outside. What the
same order takes in a process that is known, of calls that do next to nothing, comes off: what is left is the time of
the calls, and honest samples are not much below it. Nor are hot ones below what the second half of the calls adds.

Where a call cannot be captured, its samples stand only if calls that follow one another at once take no longer: work on
a stream that nobody waits for can hide behind what is done between cold calls.
"""

from __future__ import annotations

import math
import statistics
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Sequence, Tuple

from . import channel, dtypes, events, host, protocol, sampling, wire
from .device_fresh import DeviceSlots
from .target import DELIVERIES, MOST_DRAWN, Target

if TYPE_CHECKING:
    from .dtypes import Array

NOTHING = ""  # the target whose calls do next to nothing
COLD_ORDER = struct.Struct("<III")  # first slot, slots, pieces of other work before each call
RING_BYTES = 2 << 30  # of several calls' inputs and outputs, at most
HOT_BYTES = 16 << 20  # of a graph's: what the cache still holds when they are read
MOST_CALLS, MOST_LAUNCHES, LAUNCHES = 64, 800, 12  # of an order; of which a call takes so many, perhaps
REPLAY_ORDER = struct.Struct("<I?")  # slots, whether cold
ORDERS = {"cold": 20, "hot": 60, "eager": 15}  # of which the fastest counts
FEWEST_ORDERS, SPAN_US = 5, 1e6  # where they take long
OTHER_SAMPLES = "its process gave other samples than it was asked for"
LESS, LESS_US, LESS_OTHER = 0.1, 1.0, 0.05  # by how much samples may be below: of it, and of what else is in an order
LESS_ORDER_US, LESS_MORE_US = 150.0, 8.0  # the same, for a whole order; and for the difference of two sizes

OrderOf = Callable[[int], Tuple[bytes, bytes]]  # of so many calls: its kind and its payload


def _replay(*, cold: bool) -> OrderOf:
    return lambda calls: (channel.REPLAY, REPLAY_ORDER.pack(calls, cold))


def _call(calls: int) -> tuple[bytes, bytes]:
    return channel.CALL, host.CALLED.pack(0, calls, False)


class DeviceTarget(Target):
    """One target on one workload."""

    slots_of, waking, spare, most_output_bytes = DeviceSlots, 0, 1, 1 << 34
    copied_order: wire.CopyOrder | None = None  # last, in the references' process
    told: wire.ProcessUse | None = None  # by its process, once it was sampled

    def _array(self, memory: Any, offset: int, shape: Sequence[int], dtype: str) -> Array:
        size = dtypes.size_bytes(dtype, shape)
        found: Array = memory[offset : offset + size].cpu().numpy().view(dtypes.STORAGE[dtype]).reshape(tuple(shape))
        return found

    def sample(self, beside: Target | None = None) -> None:
        """Sample one target after the other: two processes that use a GPU in turns cost each other more than the time
        between them does. What the kernel's orders take is measured beside a target that does nothing, when both were
        sampled: a process has one open target, and that one is then no longer the reference."""
        both: list[Target] = [self] if beside is None else [self, beside]
        self.random.shuffle(both)
        sampled = self._each(both, _sample_alone)
        self._each(sampled, lambda target: target.end())

    def sample_alone(self) -> None:
        """Sample cold times, then hot ones."""
        row, timing = self.row, self.request.timing
        began = sampling.clock_ns()
        most = MOST_CALLS if self.fresh.is_continuous else MOST_DRAWN
        self.resize(max(1, min(most, RING_BYTES // self.slots.slot_bytes)))
        self.leads = 1
        row.warmup_calls, call_us = events.warm_up(self, timing)
        if self.ring > 1:
            self._keep_outputs_apart(lambda: self.take(2))
        self.elapsed_ns.clear()  # none of these is judged
        self.peer.tell(channel.METER)
        rule = sampling.StopRule(timing)
        while not rule.is_met(row.samples_us):
            for sample in self.take(self.at_once(call_us)):
                row.samples_us.append(sample.us)
                row.sampled_s.append(sample.at_s)
                row.enqueue_us.append(sample.enqueue_us)
            self._look(len(self.elapsed_ns), self.picked)
        while 0 < len(self.late_ns) < DELIVERIES:
            self.take(self.count)
            self._deliver()
        row.clock, row.calls_per_sample = "cuda_event", 1
        call_us = statistics.median(row.samples_us)
        self.told = self.peer.read(wire.ProcessUse, self.peer.ask(channel.TELL))
        if row.target.endswith(protocol.BACKWARD):
            row.hot_message = "a backward pass by itself is timed cold alone"
        elif self.workload.writes:
            row.hot_message = "it writes to its inputs, and a graph is replayed on the same ones"
        else:
            self._hot(call_us)
        self.sampling_s = (sampling.clock_ns() - began) / 1e9

    def end(self) -> None:
        """Compare the samples with what orders take, and outputs with what copies take."""
        began = sampling.clock_ns()
        if self.in_kernels_process:
            self._bound(statistics.median(self.row.samples_us))
        self.sampling_s += (sampling.clock_ns() - began) / 1e9
        late_us = self.find_lateness() / 1e3
        self.row.samples_us = [each + late_us for each in self.row.samples_us]
        assert self.told is not None
        self._check_threads(self.told)

    def _time_copy(self, memory: Any) -> int:
        """Time the same by the references' process: both pay for a change of the process that computes there."""
        known, references = self.described, self.references
        assert known is not None and references is not None
        order = wire.CopyOrder(self.row.workload, self.count, known.dtype, known.shape, known.contiguous)
        references.outbox_of(self.count * self._output_bytes())
        for _ in range(1 if order == self.copied_order else 2):  # the first makes what is copied
            began = sampling.clock_ns()
            references.request(channel.COPY, order)
        self.copied_order = order
        return sampling.clock_ns() - began

    def resize(self, slots: int) -> None:
        if slots != self.ring:
            self._map(slots)

    # -- cold --------------------------------------------------------------------------------------------

    def take(self, count: int) -> list[events.Sample]:
        """Take samples of an order of so many calls, each after `leads` pieces of other work."""
        self.count = count
        self._ready(self.random.randrange(self.ring - count + 1))
        order = COLD_ORDER.pack(self.first, count, self.leads)
        began = sampling.clock_ns()
        said = self.peer.ask(channel.COLD, order)
        self.elapsed_ns.append(self._ended(began))
        found = self.peer.read(wire.ColdSamples, said)
        if not len(found.us) == len(found.at_s) == len(found.enqueue_us) <= count:
            raise wire.Failed(protocol.WRONG, OTHER_SAMPLES)
        _refuse_impossible(found.us, found.at_s, found.enqueue_us)
        self.leads = max(self.leads, min(found.leads, events.MOST_LEADS))
        return [events.Sample(*columns) for columns in zip(found.us, found.at_s, found.enqueue_us)]

    def at_once(self, call_us: float) -> int:
        """Return calls of an order: no more than a span, and than the device's queue holds."""
        room = RING_BYTES // max(1, self._output_bytes()), MOST_LAUNCHES // (self.leads + LAUNCHES)
        return max(1, min(self.ring, *room, int(events.SPAN_S * 1e6 / max(call_us, 1e-3))))

    def _ready(self, first: int, *, awake: bool = False) -> None:
        """New inputs in the slots of the next order. `awake`: for which its process waits busily, since before it could
        see any of them."""
        self.peer.tell(channel.FORGET)
        self.first = first
        draws = self.row.target != NOTHING or self.fresh.is_continuous  # else it takes long, and changes nothing
        if draws:
            self.fresh.draw(self.count)
        if awake:
            self.peer.ask(channel.WAKE, b"idle")
        if draws:
            self.fresh.show(self.areas, first, self.count)

    def _ended(self, began: int) -> int:
        """Nanoseconds until the device has time for this process, which reads something there. What a process that
        answered too early still does there is waited for, or the outputs that are read now are not there yet."""
        self.memory[self.first * self.slots.slot_bytes].item()
        return sampling.clock_ns() - began

    # -- hot ---------------------------------------------------------------------------------------------

    def _hot(self, call_us: float) -> None:
        row, self.count = self.row, 1
        self._ready(0)
        order = wire.HotOrder(call_us, self.request.timing)
        found = self.peer.read(wire.HotSamples, self.peer.request(channel.HOT, order))
        if len(found.us) != len(found.at_s) or found.calls < 1:
            raise wire.Failed(protocol.WRONG, OTHER_SAMPLES)
        _refuse_impossible(found.us, found.at_s)
        row.hot_us, row.hot_sampled_s, row.hot_calls_per_sample = found.us, found.at_s, found.calls
        row.hot_message, row.escaped = found.message[: protocol.MESSAGE_CHARACTERS], found.escaped

    # -- by the clock of this process --------------------------------------------------------------------

    def _bound(self, call_us: float) -> None:
        """Compare what its orders take with its samples."""
        row, self.leads = self.row, 1
        known = wire.TargetTiming(protocol.OK, workload=row.workload, target=NOTHING)
        assert self.references is not None
        nothing = DeviceTarget(self.request, self.workload, self.fresh, self.references, known)
        nothing.open()
        nothing.resize(self.ring)
        count = self.at_once(call_us)
        try:
            if row.escaped is not None:
                raise wire.Failed(protocol.CRASHED, "a graph does not hold what it does")
            cold = self._take_orders("cold", _replay(cold=True), [count], nothing)
        except wire.Failed:
            eager = self._take_orders("eager", _call, [count], nothing)
            if call_us < eager.call_us - eager.slack_us:
                self.doubt = (
                    f"its times cannot be confirmed: a call takes {call_us:.3g} us by its process's own events, and "
                    f"{eager.call_us:.3g} us among calls that follow one another, and it cannot be captured in a graph"
                )
            return
        row.ordered_us = cold.call_us
        _refuse_less("cold", call_us, cold.call_us, cold.slack_us)
        hot_us = statistics.median(row.hot_us) if row.hot_us else call_us
        count = max(min(2, self.ring), min(self.at_once(hot_us), HOT_BYTES // self.slots.slot_bytes))
        sizes = [count, count // 2] if count > 1 else [count]
        hot = self._take_orders("hot", _replay(cold=False), sizes, nothing)
        bounds = [(hot.call_us, hot.slack_us)]
        if hot.more_us is not None:
            noise_us = LESS_MORE_US / (count - count // 2)
            bounds.append((hot.more_us, LESS * hot.more_us + LESS_US + noise_us))
        row.hot_ordered_us, slack_us = max(bounds, key=lambda bound: bound[0] - bound[1])
        if self.slots.slot_bytes > HOT_BYTES:  # some of it may not be in the cache any more
            slack_us += LESS * row.hot_ordered_us
        for kind, claimed_us in (("cold", call_us), ("hot", hot_us)):
            _refuse_less(kind, claimed_us, row.hot_ordered_us, slack_us)

    def _take_orders(self, kind: str, order_of: OrderOf, sizes: list[int], nothing: DeviceTarget) -> OrderTimes:
        """What orders of so many calls take: rounds of one of each size, and one, of the larger, of a known process."""
        taken_ns: dict[int, list[int]] = {size: [] for size in sizes}
        known_ns: list[int] = []
        most = nothing.count = max(sizes)
        call_us = statistics.median(self.row.samples_us)
        rounds = max(FEWEST_ORDERS, min(ORDERS[kind], int(SPAN_US / (sum(sizes) * max(call_us, 1e-3)))))
        for number in range(1 + (rounds if self.fresh.is_continuous else FEWEST_ORDERS)):
            for size in self.random.sample(sizes, len(sizes)):
                self.count = size
                taken_ns[size].append(self._timed(*order_of(size)))
                self.elapsed_ns.append(taken_ns[size][-1])
                self._look(len(self.elapsed_ns), self.picked)  # before other inputs are drawn
            known_ns.append(nothing._timed(*order_of(most)))
            if number == 0:  # which may have had more to do
                taken_ns, known_ns = {size: [] for size in sizes}, []
        return _ordered(taken_ns, known_ns)

    def _timed(self, kind: bytes, payload: bytes) -> int:
        """Return the nanoseconds of an order of calls on the first `count` slots."""
        self._ready(0, awake=True)
        began = sampling.clock_ns()
        self.peer.ask(kind, payload)
        return self._ended(began)


@dataclass(frozen=True)
class OrderTimes:
    """Microseconds of a call by the time of its orders, by how much honest samples may be less, and what each call that
    is added takes; None where all orders have as many."""

    call_us: float
    slack_us: float
    more_us: float | None


def _ordered(taken_ns: dict[int, list[int]], known_ns: list[int]) -> OrderTimes:
    """By the least, since a busy machine makes orders longer, and none shorter. What is not the calls' differs from
    process to process by up to 0.1 ms an order (seen on an H100), and not between orders of one process: what calls
    that are added take is free of it. That is the least by three quantiles, each right where nothing interferes."""
    most, fewest = max(taken_ns), min(taken_ns)
    taken, other = (min(all_ns) / most / 1e3 for all_ns in (taken_ns[most], known_ns))
    call_us = max(0.0, taken - other)
    slack_us = LESS * call_us + LESS_US + LESS_OTHER * other + LESS_ORDER_US / most
    if most == fewest:
        return OrderTimes(call_us, slack_us, None)
    rises = [_quantile(taken_ns[most], share) - _quantile(taken_ns[fewest], share) for share in (0.0, 0.25, 0.5)]
    return OrderTimes(call_us, slack_us, max(0.0, min(rises) / (most - fewest) / 1e3))


def _sample_alone(target: Target) -> None:
    assert isinstance(target, DeviceTarget)  # all of a device's targets are
    target.sample_alone()


def _quantile(values: list[int], share: float) -> int:
    return sorted(values)[int(share * (len(values) - 1))]


def _refuse_less(kind: str, claimed_us: float, ordered_us: float, slack_us: float) -> None:
    if claimed_us < ordered_us - slack_us:
        words = f"{claimed_us:.3g} us by itself, and {ordered_us:.3g} us by the time of its orders"
        raise wire.Failed(protocol.WRONG, f"its times are inconsistent: a {kind} call takes {words}")


def _refuse_impossible(*columns: Sequence[float]) -> None:
    if not all(0 < value < math.inf for column in columns for value in column):
        raise wire.Failed(protocol.WRONG, OTHER_SAMPLES)
