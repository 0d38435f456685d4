"""The memory of a target's calls, in a process of its own that has called nothing before.

What a target allocates once and keeps (a workspace, a cache) is seen in its first call alone, and what the process
called before can hide it. So a `Nursery` is forked from the process that computes before that computes anything, and
every target is measured in a fresh fork of it: `CALLS` calls on the same inputs, when nothing is timed any more.

On the CPU: resident memory that is not a file's, as Linux counts it (proc(5): RssAnon and RssShmem of
/proc/self/status), and its peak within a call (VmHWM, set back by writing 5 to /proc/self/clear_refs). Huge pages are
off, and what the C library keeps of freed memory is given back before every call: both would come in jumps. The first
call loads code, which is no memory of the target's: its peak does not count, what it keeps does. On a GPU: by the
counts of PyTorch's allocator; the rest only by what the device has less than before, when the calls are over.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import mmap
import multiprocessing
import os
import time
from typing import TYPE_CHECKING, Any, Callable

from . import channel, codec, protocol, wire
from .tools import end_with_parent, read_text

if TYPE_CHECKING:
    from .host import Callee
    from .peer import Peer

CALLS = 2
LONGEST_S = 60.0  # for all of a target's calls, and what comes before them
LAUNCH_S = 180.0  # from which on no further target of a launch is measured
PR_SET_THP_DISABLE = 41
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of mallopt(3)
MOST_INT = 2**31 - 1
KIB = 1024
FORK = multiprocessing.get_context("fork")
OF_GPUS = ("cuda", "/nvidia/", "/triton/")  # parts of paths of libraries that are large, and of no use on a CPU
_libc = ctypes.CDLL(None)


def of_rows(rows: list[wire.TargetTiming], references: Peer, kernel: Peer | None) -> None:
    """Add the memory of every target that was timed; where there is none, why."""
    deadline = time.monotonic() + LAUNCH_S
    for row in rows:
        peer = kernel if row.target == protocol.KERNEL else references
        if row.target.startswith(protocol.CONTROL):
            continue
        if row.status != protocol.OK or peer is None or row.target.endswith(protocol.BACKWARD):
            continue
        try:
            if time.monotonic() > deadline:
                raise wire.Failed(protocol.NOT_RUN, f"the targets before it took {LAUNCH_S:.0f} s")
            order = wire.OpenOrder(row.workload, row.target)
            row.memory = peer.read(wire.CallMemory, peer.request(channel.MEMORY, order))
        except wire.Failed as error:
            row.memory_message = str(error)[: protocol.MESSAGE_CHARACTERS]


def keep_freed_memory() -> None:
    """Keep what is freed for the next allocation, as PyTorch's allocator does on a GPU.

    glibc returns large blocks to the system, and each call then pays for their pages anew: 1,700 page faults in a call
    of 4 ms. What a fault costs depends on what other processes did to the machine's memory. C libraries without
    mallopt(3) are left as they are.
    """
    mallopt = getattr(_libc, "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, MOST_INT)


def map_libraries() -> None:
    """Read a byte of every page of the libraries that a CPU's operators are in, so that all are mapped.

    A load with an AVX-512 mask that selects nothing raises no page fault. If its page is not mapped, the processor
    takes hundreds of cycles to find that out, in every call, for the page never gets mapped: softmax takes 6 ms in
    place of 0.3 (its exponential has such a load, of a constant). A forked process begins without such pages, and what
    else was called in a process decides which of them it has.
    """
    for line in read_text("/proc/self/maps").splitlines():
        place, access, _, _, inode, *path = line.split(maxsplit=5)
        name = path[0] if path else ""
        if inode == "0" or access[0] != "r" or ".so" not in name or any(part in name for part in OF_GPUS):
            continue
        start, end = (int(address, 16) for address in place.split("-"))
        library = (ctypes.c_char * (end - start)).from_address(start)
        library[:: mmap.PAGESIZE]  # reads them


# -- in the process that computes --------------------------------------------------------------------------


class Nursery:
    """A process like that of `callee` as it is now. Each order is carried out in a fork of it, which then ends."""

    def __init__(self, callee: Callee) -> None:
        self.orders, theirs = channel.pair()
        if os.fork() == 0:
            try:
                end_with_parent()
                _close_all_but(theirs.connection.fileno())
                _serve(theirs, callee)
            except channel.Closed:
                pass
            finally:
                os._exit(0)
        theirs.close()

    def ask(self, payload: bytes, _file: int | None) -> bytes:
        """Return the memory of a target, an `OpenOrder`. `wire.Failed` where its process ended, or took too long."""
        try:
            kind, content = self.orders.ask(channel.MEMORY, payload)
        except (channel.Closed, channel.Unasked):
            raise wire.Failed(protocol.CRASHED, protocol.GONE) from None
        if kind == channel.FAILED:
            raise codec.from_bytes(wire.Outcome, content).to_error()
        return content


def _serve(orders: channel.Channel, callee: Callee) -> None:
    gc.collect()
    gc.freeze()  # the forks' collections look at what they made themselves, and take no time
    while True:
        _, token, payload, _ = orders.receive()
        kind, content = _in_a_fork(callee, payload)
        orders.send(kind, token, content)


def _in_a_fork(callee: Callee, payload: bytes) -> tuple[bytes, bytes]:
    """Return (DONE or FAILED, payload) of its answer."""
    ours, theirs = FORK.Pipe(duplex=False)
    child = FORK.Process(target=_answer, args=(callee, payload, theirs))
    child.start()
    theirs.close()
    answer, why = None, f"{CALLS} calls took longer than {LONGEST_S:.0f} s"
    if ours.poll(LONGEST_S):
        with contextlib.suppress(EOFError):
            answer = ours.recv()
        why = "its process ended when it was called in a fresh one"
    child.kill()
    child.join()
    return answer or (channel.FAILED, codec.to_bytes(wire.Outcome(protocol.NOT_RUN, why)))


def _answer(callee: Callee, payload: bytes, to: Any) -> None:
    end_with_parent()
    to.send(callee.answered(lambda given, _: _measured(callee, given), payload))
    os._exit(0)


def _measured(callee: Callee, payload: bytes) -> bytes:
    """In a process that opened nothing before, on inputs of its own."""
    callee.torch.set_num_threads(callee.request.threads)
    callee.open(payload, None)
    assert callee.bind is not None
    for tensor in callee.tensors.flat(callee.values):
        tensor.copy_(tensor.clone())  # memory that nobody wrote to is not there yet
    out, device = None, callee.request.device
    if callee.in_slots:
        shape, dtype = callee.workload.expected_output()
        out = callee.torch.ones(shape, dtype=getattr(callee.torch, dtype), device=device)
    with callee.kernels.blamed(callee.target):
        call = callee.bind(callee.values, out)
        renew = _renewing(callee)
        found = on_gpu(call, renew) if device == "cuda" else on_cpu(call, renew)
    if out is not None:  # which others allocate in the call
        found.peak_bytes += out.numel() * out.element_size()
    return codec.to_bytes(found)


def _renewing(callee: Callee) -> Callable[[], None]:
    """Return what gives the inputs their elements again, where a problem's model writes to them."""
    if not callee.workload.writes:
        return lambda: None
    held = list(callee.tensors.flat(callee.values))
    kept = [tensor.clone() for tensor in held]

    def renew() -> None:
        for tensor, elements in zip(held, kept):
            tensor.copy_(elements)

    return renew


def _close_all_but(kept: int) -> None:
    """Connections of the process that it was forked from, whose end others wait for."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != kept:
            with contextlib.suppress(OSError):  # that of the listing itself
                os.close(int(name))


# -- on the CPU --------------------------------------------------------------------------------------------


def on_cpu(call: Callable[[], Any], renew: Callable[[], None] = lambda: None) -> wire.CallMemory:
    """Of calls that were never made before. `wire.Failed` where the system does not tell."""
    _libc.prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)
    _settle()
    start, peak = _held(_status()), 0
    for number in range(CALLS):
        renew()
        before = _status()
        _reset_peak()
        output = call()
        within = _status()["VmHWM"] - before["VmRSS"]
        if number:
            peak = max(peak, _held(before) - start + within)
        del output
        _settle()
    return wire.CallMemory(peak_bytes=max(0, peak) * KIB, kept_bytes=max(0, _held(_status()) - start) * KIB)


def _settle() -> None:
    """Give back what was freed."""
    gc.collect()
    trim = getattr(_libc, "malloc_trim", None)  # of glibc
    if trim is not None:
        trim(0)


def _status() -> dict[str, int]:
    """In KiB."""
    lines = (line.split() for line in read_text("/proc/self/status").splitlines())
    found = {words[0].rstrip(":"): int(words[1]) for words in lines if words[2:] == ["kB"]}
    if not found.keys() >= {"VmHWM", "VmRSS", "RssAnon", "RssShmem"}:
        raise wire.Failed(protocol.NOT_RUN, "/proc/self/status does not tell a process's memory here")
    return found


def _held(status: dict[str, int]) -> int:
    return status["RssAnon"] + status["RssShmem"]


def _reset_peak() -> None:
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError as error:
        raise wire.Failed(protocol.NOT_RUN, f"the peak of a process's memory cannot be set back: {error}") from None


# -- on a GPU ----------------------------------------------------------------------------------------------


def on_gpu(call: Callable[[], Any], renew: Callable[[], None] = lambda: None) -> wire.CallMemory:
    """Measure the same. What is allocated outside of PyTorch's allocator and freed within a call is not seen."""
    from torch import cuda

    def settle() -> None:
        cuda.synchronize()
        gc.collect()
        cuda.empty_cache()

    settle()
    allocated, reserved, free = cuda.memory_allocated(), cuda.memory_reserved(), cuda.mem_get_info()[0]
    cuda.reset_peak_memory_stats()
    for _ in range(CALLS):
        renew()
        output = call()
        cuda.synchronize()
        del output
    peak, most_reserved = cuda.max_memory_allocated(), cuda.max_memory_reserved()
    settle()
    return wire.CallMemory(
        peak_bytes=peak - allocated,
        kept_bytes=max(0, cuda.memory_allocated() - allocated),
        reserved_bytes=most_reserved - reserved,
        outside_bytes=max(0, free - cuda.mem_get_info()[0] - (cuda.memory_reserved() - reserved)),
    )
