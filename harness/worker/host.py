"""`host`: the process that the code under test lives in while it is timed. It computes when it is told to.

It owns no clock that counts, no input and no file that a result is taken from. Who measures (`measuring`) writes the
elements of every call into shared memory just before it is ordered, and looks at outputs that it chooses afterwards.
What is answered here is a stranger's word, as soon as the code under test was loaded. The references have a process
of the same kind, which that code never enters.

A ring of slots lies in the memory, each with the inputs of one call. A kernel that is given its output's tensor finds
that in its slot, too; what others return is copied to an outbox.

    OPEN      load a target for a workload, which takes the place of the last one
    MAP       the ring's memory, with its shape
    WAKE      the target on the last slot, and wait busily for the next order: as the call before in a loop leaves it;
              with any payload wait only
    CALL      the target on so many slots, one after another; and give how long that took here
    DESCRIBE  the outputs of the last CALL
    OUTBOX    the memory for copies of outputs
    DELIVER   copy the outputs of the last CALL there
    FORGET    drop them, and end processes that the kernel left running, while nobody looks at a clock
    METER     count anew what TELL tells
    TELL      what this process used; and end processes that the kernel left running
    MEMORY    what a target's calls need of it, in a process of their own (`memory`)

On a GPU (`device_host`) there are also COLD, HOT and REPLAY.
"""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import struct
from typing import Any, Callable, Iterator, Optional

from . import channel, codec, protocol, wire

CALLED = struct.Struct("<II?")  # first slot, slots, whether PyTorch's generator is seeded before
SIZE = struct.Struct("<Q")  # nanoseconds, or bytes
RECIPE = "independent"
Order = Callable[[bytes, Optional[int]], bytes]  # (payload, descriptor) to the answer's payload


class Callee:
    """One target at a time on one workload, and the memory of its calls."""

    def __init__(self, request: wire.HostRequest) -> None:
        import torch

        from . import children, kernels, memory, sampling, subjects, tensors

        self.torch, self.kernels, self.sampling, self.tensors = torch, kernels, sampling, tensors
        self.request = request
        self.workloads = {value.id: subjects.parse_workload(value) for value in request.workloads}
        self.workload: Any = None
        self.target = ""
        self.kernel: Any = None  # where that is the target
        self.bind: Callable[[list[Any], Any], Callable[[], Any]] | None = None
        self.values: list[Any] = []  # arguments whose tensors each slot has its own of
        self.in_slots = False  # whether outputs are written to their slots
        self.arguments: list[Any] = []
        self.calls: list[Callable[[], Any]] = []
        self.outputs: list[Any] = []
        self.like: Any = None  # what DESCRIBE saw
        self.outbox: Any = None
        self.context = contextlib.ExitStack()
        self.children = children.Unwatched()  # in forks of the nursery; of references, which may have some
        self.nursery = memory.Nursery(self)  # before any thread is started here
        self.children = children.watched() if request.kernel is not None else self.children
        memory.keep_freed_memory()
        memory.map_libraries()
        torch.set_num_threads(request.threads)
        self.meter()

    def answers(self) -> dict[bytes, Order]:
        """Return what is done for every kind of order that has an answer."""
        return {
            channel.OPEN: self.open,
            channel.MAP: self.map,
            channel.WAKE: self.wake,
            channel.CALL: self.call,
            channel.DESCRIBE: self.describe,
            channel.OUTBOX: self.take_outbox,
            channel.DELIVER: self.deliver,
            channel.TELL: self.children.checked(self.tell),
            channel.MEMORY: self.children.checked(self.nursery.ask),
        }

    def answered(self, order: Order, payload: bytes, file: int | None = None) -> tuple[bytes, bytes]:
        """Return (DONE or FAILED, payload) of the answer to an order."""
        try:
            self.children.refuse()
            return channel.DONE, order(payload, file)
        except Exception as error:
            self.children.end()
            failed = error if isinstance(error, wire.Failed) else self.kernels.failure(error, self.target)
            said = wire.Outcome(failed.status, failed.message, failed.log_excerpt, failed.fault)
            return channel.FAILED, codec.to_bytes(said)

    # -- a target ----------------------------------------------------------------------------------------

    def open(self, payload: bytes, _file: int | None) -> bytes:
        order = codec.from_bytes(wire.OpenOrder, payload)
        self.context.close()
        self.calls, self.outputs, self.arguments, self.values, self.bind, self.kernel = [], [], [], [], None, None
        self.workload, self.target, self.in_slots = self.workloads[order.workload], order.target, False
        self.values = self._values()
        self.context.enter_context(self.torch.no_grad())
        draws = self._open_any(order.target)
        gc.collect()
        gc.disable()
        self.context.callback(gc.enable)
        return codec.to_bytes(wire.Opened(self.in_slots, draws, list(self.workload.writes)))

    def _values(self) -> list[Any]:
        """Return arguments like those of its calls. Of an attention their elements matter to a backward pass alone."""
        if self.workload.problem is None and not self.target.endswith(protocol.BACKWARD):
            likes = [(shape, getattr(self.torch, dtype)) for shape, dtype in self.workload.inputs]
            return [self.torch.zeros(shape, dtype=dtype, device=self.request.device) for shape, dtype in likes]
        arrays = self.workload.arrays(RECIPE, 0, self.request.seed)
        return list(self.workload.arguments(arrays, self.request.device))

    def _open_any(self, target: str) -> bool:
        """Open the kernel, a reference, or a reference in the kernel's place; return whether its calls draw."""
        if target == protocol.KERNEL:
            return self._open_kernel()
        if not target.startswith(protocol.CONTROL):
            return self._open_reference(target)
        if self.workload.problem is None:
            return self._open_reference(target[len(protocol.CONTROL) :])
        return self._open_model()

    def _open_model(self) -> bool:
        """Open a problem's own Model exactly as its ModelNew would be."""
        model = self.kernel = self.kernels.ModelKernel(
            self.workload.problem, self.workload, self.request.device, "Model"
        )
        if self.workload.compiled:
            from .references import compile_forward

            compile_forward(model.model)
        self.bind = lambda arguments, out: model.bind(arguments, out=out)
        return False

    def _open_kernel(self) -> bool:
        assert self.request.kernel is not None
        from .loading import load_kernel

        kernel = self.kernel = load_kernel(self.request.kernel, self.workload)
        self.in_slots = isinstance(kernel, self.kernels.Extension) and not kernel.returns
        self.bind = lambda arguments, out: kernel.bind(arguments, out=out)
        return False

    def _open_reference(self, target: str) -> bool:
        name, backward, _ = target.partition(protocol.BACKWARD)
        reference = self.workload.references([name], self.request.device)[0]
        reference.attempt(self.tensors.copies(self.values))  # a problem's model may write to them
        self.context.enter_context(reference.active())
        call = reference.graph(self.values).backward() if backward else None  # of these inputs, whatever the slot
        self.bind = lambda arguments, _out: call or reference.bind(arguments)
        return call is None and bool(self.workload.draws(lambda: reference.bind(self.tensors.copies(self.values))()))

    def map(self, payload: bytes, file: int | None) -> bytes:
        order = codec.from_bytes(wire.MapOrder, payload)
        assert file is not None and self.bind is not None
        self.calls, self.outputs, self.arguments = [], [], []  # and what they keep, before there is more
        memory = self._mapped(file, order.size_bytes)
        tensors = list(self.tensors.flat(self.values))
        for slot in range(order.slots):
            start = slot * order.slot_bytes
            own = [
                self._tensor(memory, start + offset, self.tensors.dtype_name(like), like.shape)
                for offset, like in zip(order.offsets, tensors)
            ]
            arguments = self._arguments(iter(own))
            self.arguments = self.arguments if slot else arguments  # of the first
            out = None
            if self.in_slots:
                shape, dtype = self.workload.expected_output()
                out = self.tensors.poison(self._tensor(memory, start + order.output_offset, dtype, shape))
            with self.kernels.blamed(self.target):
                call = self.bind(arguments, out)
                self.calls.append(self.tensors.copying(call, self.like) if order.copies else call)
        return b""

    def _arguments(self, own: Iterator[Any]) -> list[Any]:
        return list(self.tensors.each_tensor(self.values, lambda _: next(own)))

    def _mapped(self, file: int, size_bytes: int) -> Any:
        """Map shared memory, by its descriptor, which is closed."""
        memory = mmap.mmap(file, size_bytes)
        os.close(file)
        return memory

    def _tensor(self, memory: Any, offset: int, dtype: str, shape: Any) -> Any:
        """Return a tensor on memory that is not its own."""
        return self.tensors.on_memory(memory, offset, dtype, shape)

    # -- calls -------------------------------------------------------------------------------------------

    def wake(self, payload: bytes, _file: int | None) -> bytes:
        if not payload and self.calls:
            with self.kernels.blamed(self.target):
                self.calls[-1]()
            self.called += 1
        return b""

    def call(self, payload: bytes, _file: int | None) -> bytes:
        first, count, seeded = CALLED.unpack(payload)
        switches, own_ns, began_ns = self.sampling.switches(), self.sampling.process_ns(), self.sampling.clock_ns()
        if seeded:
            self.workload.reseed()
        outputs = self.outputs
        with self.kernels.blamed(self.target):
            for call in self.calls[first : first + count]:
                outputs.append(call())
            self.tensors.synchronise(self.request.device)
        elapsed_ns = self.sampling.clock_ns() - began_ns
        self.called += count
        self.busy_ns += self.sampling.process_ns() - own_ns
        self.switched += self.sampling.switches() - switches
        self.wall_ns += elapsed_ns
        return SIZE.pack(elapsed_ns)

    def forget(self) -> None:
        self.outputs = []
        self.children.look()

    def describe(self, _payload: bytes, _file: int | None) -> bytes:
        checked = [self.kernels.checked(output, self.workload, self.request.device) for output in self.outputs]
        alike = {(self.tensors.dtype_name(output), tuple(output.shape)) for output in checked}
        if len(alike) != 1:
            raise wire.Failed(protocol.WRONG, "its outputs have several shapes")
        dtype, shape = alike.pop()
        contiguous = all(output.is_contiguous() for output in checked)
        self.like = checked[0]
        shared = len({output.data_ptr() for output in checked}) < len(checked)
        return codec.to_bytes(wire.Described(dtype, list(shape), contiguous, shared))

    def take_outbox(self, payload: bytes, file: int | None) -> bytes:
        assert file is not None
        self.outbox = self._mapped(file, *SIZE.unpack(payload))
        return b""

    def deliver(self, _payload: bytes, _file: int | None) -> bytes:
        return self.copy_to_outbox(self.outputs, self.workload)

    def copy_to_outbox(self, outputs: list[Any], workload: Any) -> bytes:
        offset = 0
        for output in outputs:
            output = self.kernels.checked(output, workload, self.request.device)
            place = self._tensor(self.outbox, offset, self.tensors.dtype_name(output), output.shape)
            with self.kernels.blamed(f"reading what {self.target} returned"):
                place.copy_(output)
            offset += output.numel() * output.element_size()
        with self.kernels.blamed(f"reading what {self.target} returned"):
            self.tensors.synchronise(self.request.device)
        return b""

    # -- what it costs -----------------------------------------------------------------------------------

    def meter(self) -> None:
        self.usage = self.sampling.Usage()
        self.called = self.switched = self.busy_ns = self.wall_ns = 0

    def tell(self, payload: bytes, _file: int | None) -> bytes:
        """With any payload: what it uses while it is called by nobody, too."""
        wall_ms = max(1, self.wall_ns) / 1e6
        told = wire.ProcessUse(
            busy_processors=round(self.busy_ns / max(1, self.wall_ns), 3),
            switches_per_ms=round(self.switched / wall_ms, 3),
            threads_started=self.usage.threads_started(self.called),
            processor_s=sum(os.times()[:2]),
            threads=self.torch.get_num_threads(),
            idle_processors=self.sampling.idle_processors() if payload else None,
            lost=self.tensors.lost(self.request.device) if payload else "",
        )
        return codec.to_bytes(told)
