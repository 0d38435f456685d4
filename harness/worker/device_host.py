"""`host` on a GPU: the calls run there, and there are four more orders.

COLD      the target on so many slots, the cache written over before each; and give each call's time by events
HOT       times of a graph's replays, of calls on the first slot
COPY      as DELIVER, of as many outputs that were there before: what it costs to deliver
REPLAY    a graph with a call on each of so many slots, the cache written over before each if asked for
"""

from __future__ import annotations

from typing import Any, Callable

from . import channel, codec, device_memory, device_target, events, graphs, host, protocol, tensors, wire


class DeviceCallee(host.Callee):
    copied: tuple[wire.CopyOrder | None, list[Any]] = None, []  # the last order to copy, and its outputs

    def answers(self) -> dict[bytes, Callable[[bytes, int | None], bytes]]:
        more = {channel.COLD: self.cold, channel.HOT: self.hot, channel.REPLAY: self.replay, channel.COPY: self.copy}
        return {**super().answers(), **more}

    def open(self, payload: bytes, file: int | None) -> bytes:
        self.graphs: dict[tuple[int, bool], Any] = {}
        self.anew: Callable[[], Any] = lambda: None
        answer = super().open(payload, file)
        self.sampler = events.ColdSampler(lambda: None)
        self.torch.cuda.empty_cache()  # other processes need room, too
        return answer

    def _open_reference(self, target: str) -> bool:
        if target != device_target.NOTHING:
            return super()._open_reference(target)
        least = self.torch.zeros(1, device="cuda")
        self.bind = lambda _arguments, _out: lambda: least.zero_()
        return False

    def map(self, payload: bytes, file: int | None) -> bytes:
        self.graphs, self.anew = {}, lambda: None
        answer = super().map(payload, file)
        with self.kernels.blamed(self.target):
            self.anew = self.calls[0] if self.kernel is None else self.kernel.bind(self.arguments, anew=True)
        if codec.from_bytes(wire.MapOrder, payload).copies:
            call = self.anew
            self.anew = lambda: call().clone()
        return answer

    def _mapped(self, file: int, size_bytes: int) -> Any:
        return device_memory.mapped(file, size_bytes)

    def _tensor(self, memory: Any, offset: int, dtype: str, shape: Any) -> Any:
        kind = getattr(self.torch, dtype)
        size_bytes = self.torch.Size(shape).numel() * self.torch.empty(0, dtype=kind).element_size()
        return memory[offset : offset + size_bytes].view(kind).view(tuple(shape))

    def cold(self, payload: bytes, _file: int | None) -> bytes:
        first, count, leads = device_target.COLD_ORDER.unpack(payload)
        calls, outputs = iter(self.calls[first : first + count]), self.outputs
        keep = outputs.append if self.kernel is not None else lambda _output: None  # nobody looks at a reference's
        self.sampler.call = lambda: keep(next(calls)())
        self.sampler.leads = leads
        with self.kernels.blamed(self.target):
            samples = self.sampler.take(count)
        self.sampler.call = lambda: None
        self.called += count
        return codec.to_bytes(wire.ColdSamples(*_columns(samples), leads=self.sampler.leads))

    def hot(self, payload: bytes, _file: int | None) -> bytes:
        order = codec.from_bytes(wire.HotOrder, payload)
        row = wire.TargetTiming(protocol.OK, samples_us=[order.call_us])
        with self.kernels.blamed(self.target):
            output = self.calls[0]()
        expected = self._checked(output).clone()
        graphs.sample(self._anew, expected, order.timing, row, lambda output: tensors.close(output, expected))
        found = wire.HotSamples(row.hot_us, row.hot_sampled_s, row.hot_calls_per_sample, row.hot_message, row.escaped)
        return codec.to_bytes(found)

    def copy(self, payload: bytes, _file: int | None) -> bytes:
        order = codec.from_bytes(wire.CopyOrder, payload)
        if self.copied[0] != order:
            like = order.dtype, order.shape, order.contiguous, "cuda"
            self.copied = order, [tensors.ones(*like) for _ in range(order.count)]
        return self.copy_to_outbox(self.copied[1], self.workloads[order.workload])

    def _anew(self) -> Any:
        """Return a call on the first slot's inputs whose output has memory of its own."""
        return self._checked(self.anew())

    def _checked(self, output: Any) -> Any:
        if self.kernel is not None:
            return self.kernels.checked(output, self.workload, "cuda")
        from . import outputs

        found = outputs.named(output)  # a reference may give several
        return found[outputs.main({name: tensors.dtype_name(each) for name, each in found.items()})]

    def replay(self, payload: bytes, _file: int | None) -> bytes:
        count, cold = device_target.REPLAY_ORDER.unpack(payload)
        with self.kernels.blamed(self.target):
            if (count, cold) not in self.graphs:
                calls, flush = iter(self.calls[:count]), self.sampler.flush if cold else self.torch.empty(0)

                def call() -> Any:
                    flush.zero_()
                    return next(calls)()

                self.graphs[count, cold] = graphs.capture(call, count, self.calls[0])
            graph, self.outputs = self.graphs[count, cold]
            graph.replay()
            tensors.synchronise("cuda")
        return b""


def _columns(samples: list[events.Sample]) -> tuple[list[float], list[float], list[float]]:
    return [s.us for s in samples], [s.at_s for s in samples], [s.enqueue_us for s in samples]
