"""The device: `probe`, whether it answers, and rightly, after a process that faulted or hung; `ceilings`, its peaks.

The peaks are what this device reaches at most by PyTorch's own means: what a kernel's rate is a share of. A large
product of random matrices (zeros are faster than real data) for the rate of arithmetic, and a large copy for that of
memory; both warm.
"""

from __future__ import annotations

import statistics
from typing import Callable

import torch

from . import dtypes, events, protocol, wire

PROBE_SIZE = 1024
SIZE = 8192  # rows, columns and depth of the product
COPY_BYTES = 2 << 30  # of the source, far more than any cache holds
TIMING = wire.SamplingRequest(
    warmup_s=1.0, warmup_calls=5, target_s=1.0, min_samples=20, max_samples=200, relative_error=0.002
)


def probe(_request: wire.EmptyRequest) -> wire.Outcome:
    """One product."""
    try:
        ones = torch.ones(PROBE_SIZE, PROBE_SIZE, device="cuda")
        right = bool(((ones @ ones) == PROBE_SIZE).all())
    except Exception as error:
        return wire.Outcome(protocol.CRASHED, str(error).strip().splitlines()[0])
    return wire.Outcome(protocol.OK) if right else wire.Outcome(protocol.WRONG, "a product is wrong")


def ceilings(request: wire.CeilingsRequest) -> wire.CeilingsResult:
    torch.set_num_threads(request.threads)
    if not torch.cuda.is_available():
        return wire.CeilingsResult(protocol.NOT_RUN, "PyTorch sees no CUDA device here")
    free_bytes, _ = torch.cuda.mem_get_info()
    rates = {dtype: product_tflops(dtype) for dtype in dtypes.UNIT_ROUNDOFF if fits(3 * SIZE**2 * 4, free_bytes)}
    size_bytes = COPY_BYTES
    while not fits(2 * size_bytes, free_bytes):
        size_bytes //= 2
    return wire.CeilingsResult(
        protocol.OK,
        matmul_tflops=rates,
        matmul_size=SIZE if rates else None,
        copy_gbps=copy_gbps(size_bytes),
        copy_bytes=2 * size_bytes,
    )


def fits(needed_bytes: float, free_bytes: float) -> bool:
    return needed_bytes <= free_bytes * 0.8


def product_tflops(dtype: str) -> float:
    """Float32 is float32: without the 10-bit significands of TF32, which PyTorch leaves off unless it is asked."""
    kind = getattr(torch, dtype)
    left, right = (torch.randn(SIZE, SIZE, device="cuda", dtype=kind) for _ in range(2))
    out = torch.empty_like(left)
    return 2 * SIZE**3 / median_us(lambda: torch.mm(left, right, out=out)) / 1e6


def copy_gbps(size_bytes: int) -> float:
    """Bytes read plus bytes written, over the time."""
    source = torch.randint(0, 256, (size_bytes,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * size_bytes / median_us(lambda: target.copy_(source)) / 1e3


def median_us(call: Callable[[], object]) -> float:
    sampler = events.WarmSampler(call)
    _, call_us = events.warm_up(sampler, TIMING)
    return statistics.median(sample.us for sample in events.collect(sampler, call_us, TIMING)[0])
