"""The C interface of csrc/attention.h on PyTorch's tensors: called, checked against float64, and timed."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

DEVICE = "cuda"
YARDSTICK = "EFFICIENT_ATTENTION"  # fp32 scores and sums, as the kernels have them
BACKENDS = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION")
FLUSH_BYTES = 256 << 20
QUEUE_CYCLES = 500_000  # the device is busy while a cold call is queued, so that the host's time is nobody's
DTYPES = {"float16": 0, "bfloat16": 1}


@dataclasses.dataclass(frozen=True)
class Workload:
    name: str
    batch: int
    heads: int
    seq_len: int
    head_dim: int
    causal: bool = False
    dtype: str = "float16"

    @property
    def flop(self) -> float:
        """Of both products; masked scores are not counted."""
        pairs = self.seq_len * (self.seq_len + 1) / 2 if self.causal else self.seq_len**2
        return 4.0 * self.batch * self.heads * pairs * self.head_dim


TIMED = (
    Workload("full128", 4, 16, 4096, 128),
    Workload("full128 causal", 4, 16, 4096, 128, causal=True),
    Workload("full64", 4, 16, 4096, 64),
    Workload("full64 causal", 4, 16, 4096, 64, causal=True),
    Workload("full128 bf16", 4, 16, 4096, 128, dtype="bfloat16"),
    Workload("seed", 1, 8, 512, 64),
    Workload("tail239", 1, 8, 239, 64),
    Workload("tail1023", 1, 8, 1023, 64),
)
CHECKED = tuple(
    Workload(f"S={seq_len} D={head_dim} {dtype}{' causal' * causal}", 1, 3, seq_len, head_dim, causal, dtype)
    for seq_len in (1, 63, 64, 65, 127, 129, 239, 257, 1023)
    for head_dim in (64, 128)
    for dtype in DTYPES
    for causal in (False, True)
)


class Problem(ctypes.Structure):
    """attention_problem of csrc/attention.h."""

    _fields_ = [
        (name, ctypes.c_int) for name in ("batch", "heads", "seq_len", "head_dim", "dtype", "causal", "threads")
    ]
    _fields_ += [("scale", ctypes.c_float)]


class Library:
    def __init__(self, path: Path) -> None:
        with contextlib.suppress(ImportError):
            import torch  # noqa: F401  (first: what the library needs of CUDA is PyTorch's own then)
        self.functions = ctypes.CDLL(str(path))
        self.functions.attention_forward.argtypes = [ctypes.POINTER(Problem)] + [ctypes.c_void_p] * 5
        for name in ("attention_error_string", "attention_tunables", "attention_choice"):
            if hasattr(self.functions, name):
                getattr(self.functions, name).restype = ctypes.c_char_p
        self.tunables = self.functions.attention_tunables().decode()

    @staticmethod
    def problem(workload: Workload) -> Problem:
        w = workload
        scale = 1 / math.sqrt(w.head_dim)
        return Problem(w.batch, w.heads, w.seq_len, w.head_dim, DTYPES[w.dtype], int(w.causal), 0, scale)

    def choice(self, workload: Workload) -> str:
        if not hasattr(self.functions, "attention_choice"):
            return ""
        return self.functions.attention_choice(ctypes.byref(self.problem(workload))).decode()

    def caller(self, workload: Workload, q: Any, k: Any, v: Any, out: Any) -> Callable[[], None]:
        import torch

        problem, tensors = self.problem(workload), (q, k, v, out)

        def call() -> None:  # it keeps the tensors
            stream = torch.cuda.current_stream().cuda_stream if DEVICE == "cuda" else None
            pointers = [tensor.data_ptr() for tensor in tensors]
            code = self.functions.attention_forward(ctypes.byref(problem), *pointers, stream)
            if code:
                raise RuntimeError(self.functions.attention_error_string(code).decode())

        return call


def make_inputs(workload: Workload, seed: int) -> list[Any]:
    import torch

    generator = torch.Generator(DEVICE).manual_seed(seed)
    shape = (workload.batch, workload.heads, workload.seq_len, workload.head_dim)
    dtype = getattr(torch, workload.dtype)
    return [torch.randn(shape, generator=generator, device=DEVICE).to(dtype) for _ in range(3)]


def error_of(workload: Workload, inputs: Sequence[Any], out: Any) -> float:
    """Largest error from float64 over a row's largest value, of up to four heads; infinite where it is NaN."""
    import torch

    q, k, v, o = (tensor.flatten(0, 1) for tensor in (*inputs, out))
    worst = 0.0
    for head in sorted({0, 1, len(q) // 2, len(q) - 1} & set(range(len(q)))):
        scores = q[head].double() @ k[head].double().T / math.sqrt(workload.head_dim)
        if workload.causal:
            scores.masked_fill_(torch.ones_like(scores, dtype=torch.bool).triu_(1), -math.inf)
        exact = torch.softmax(scores, -1) @ v[head].double()
        error = (o[head].double() - exact).abs().amax(-1) / exact.abs().amax(-1)
        worst = max(worst, math.inf if torch.isnan(error).any() else error.max().item())
    return worst


def reference(backend: str, workload: Workload, inputs: Sequence[Any]) -> Callable[[], Any]:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def call() -> Any:
        with sdpa_kernel([getattr(SDPBackend, backend)]):
            return torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=workload.causal)

    return call


def check(library: Library, workload: Workload, seed: int = 0) -> str:
    """Why the kernel is wrong on this workload; empty where it is right. PyTorch's own error is the yardstick."""
    import torch

    inputs = make_inputs(workload, seed)
    limit = 2 * error_of(workload, inputs, reference(YARDSTICK, workload, inputs)()) + 2e-6
    outputs = []
    for _ in range(2):
        out = torch.full_like(inputs[0], math.nan)
        library.caller(workload, *inputs, out)()
        outputs.append(out)
    error = error_of(workload, inputs, outputs[0])
    if not error <= limit:
        return f"{workload.name}: error {error:.2e}, limit {limit:.2e}"
    if not torch.equal(outputs[0].view(torch.int16), outputs[1].view(torch.int16)):
        return f"{workload.name}: other bits the second time"
    return ""


def capture(call: Callable[[], Any], calls: int) -> Any:
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    return graph


def elapsed_us(action: Callable[[], Any]) -> float:
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    action()
    end.record()
    end.synchronize()
    return 1e3 * start.elapsed_time(end)


def measure(calls: dict[str, Callable[[], Any]], rounds: int, seed: int = 0) -> dict[str, dict[str, list[float]]]:
    """Microseconds of one call, hot and cold, of each candidate in each round."""
    import torch

    order, drawn = sorted(calls), random.Random(seed)
    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device=DEVICE)
    once = {name: min(elapsed_us(call) for _ in range(3)) for name, call in calls.items()}
    repeats = {name: max(1, min(50, int(2000 / once[name]))) for name in calls}
    graphs = {name: capture(call, repeats[name]) for name, call in calls.items()}
    samples: dict[str, dict[str, list[float]]] = {name: {"hot": [], "cold": []} for name in calls}
    for turn in range(rounds + 2):  # two to warm up
        drawn.shuffle(order)
        for name in order:
            graphs[name].replay()  # what it reads is in the cache, and the device is busy until the next is queued
            hot = elapsed_us(graphs[name].replay) / repeats[name]
            flush.zero_()
            torch.cuda._sleep(QUEUE_CYCLES)
            cold = elapsed_us(calls[name])
            if turn >= 2:
                samples[name]["hot"].append(hot)
                samples[name]["cold"].append(cold)
    return samples
