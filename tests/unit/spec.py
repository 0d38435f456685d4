"""What a made-up run is made of: `tests.unit.synthetic` writes its records.

`Case` overrides what one (environment, target, workload) does; everything else is right and equally fast everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from harness.schema.records import Device, Outcome, TruthDifference
from harness.schema.run_records import Fallback

SEED_ONLY: dict[str, Any] = {"workloads": ("seed-fp16",)}
BASE = "torch2.1.0-cu121-py311"
NEXT = "torch2.5.0-cu121-py311"
HOST = "host"
UUID = "GPU-7b1c5f6e-3a0d-4c0b-9a53-1d2f8c9e0a11"
TFLOPS, GBPS = {"float16": 792.4, "bfloat16": 790.1}, 4318.0


@dataclass(frozen=True, kw_only=True)
class Case:
    """What one target does on one workload in one environment."""

    passed: int | None = None  # trials that pass against the truth; None: all
    agrees: int | None = None  # kernel only: trials that agree with each reference; None: as many as pass
    slowdown: float = 1.0
    status: str = "ok"
    message: str = ""
    hot_slowdown: float | None = None  # None: as cold
    hot_message: str = ""  # why there are no replays
    escaped: bool | None = None  # whether its calls ran at once while they were captured
    bits: str = ""  # outputs differ from those of targets with other bits
    units: float = 1.2
    repeats_differ: int = 0
    repeats_units: float | None = None
    deterministic: bool = False
    operators: tuple[str, ...] = ()
    missing: bool = False
    recipes: dict[str, tuple[int, float]] = field(default_factory=dict)  # trials that pass and units, where not alike
    unwritten: int = 0
    nonfinite: int = 0
    mutated: int = 0
    twin: str = ""  # the target whose very bits it gives
    log_excerpt: str = ""
    against: str = "truth"  # what it is judged by
    timed_wrong: bool = False  # kernel only: whether its outputs were wrong when it was timed


@dataclass(frozen=True, kw_only=True)
class Spec:
    environments: tuple[str, ...] = (BASE, NEXT)
    baseline: str = BASE
    kernels: tuple[str, ...] = ("attention_scalar",)
    workloads: tuple[str, ...] = ("seed-fp16", "seed-fp32")
    device: Device = "cpu"
    references: tuple[str, ...] = ("flash", "math")
    trials: int = 100
    launches: int = 10
    samples: int = 5
    spread: float = 0.009
    mode: str = "matrix"
    busy: float = 0.02  # share of the machine that other processes used around every launch
    min_effect: float = 0.01
    cases: dict[tuple[str, str, str], Case] = field(default_factory=dict)  # environment, target, workload ("*": any)
    builds: dict[str, Outcome] = field(default_factory=dict)  # by environment
    machine_code: dict[str, str] = field(default_factory=dict)  # by environment
    stacks: dict[str, Outcome] = field(default_factory=dict)
    torch_cuda: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)  # other input bytes, by environment
    fallbacks: tuple[Fallback, ...] = ()
    shapes: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)  # by workload
    times_us: dict[tuple[str, str], float] = field(default_factory=dict)  # by target and workload, where not 800
    executors: dict[str, str] = field(default_factory=dict)  # by environment
    sm_mhz: dict[str, float] = field(default_factory=dict)  # by environment
    throttled: dict[tuple[str, int], int] = field(default_factory=dict)  # samples, by environment and launch
    others: dict[tuple[str, int], int] = field(default_factory=dict)  # other processes on the GPU, by the same
    ceilings: Outcome | None = field(default_factory=lambda: Outcome(status="ok"))  # None: no record
    bundle: dict[str, str] = field(default_factory=dict)
    recipes: tuple[str, ...] = ("independent",)
    truth: bool = True  # whether there is one
    own_binding: bool = False
    decides: str = "rounding"
    limits: dict[str, float] = field(default_factory=lambda: {"rounding": 4.0, "kernelbench": 1e-2, "strict": 1e-3})
    flags: dict[str, tuple[str, ...]] = field(default_factory=dict)  # more of them, by environment
    threads: dict[str, int] = field(default_factory=dict)  # by environment
    busy_in: dict[str, float] = field(default_factory=dict)  # by environment, where not `busy`
    enqueue_us: dict[str, float] = field(default_factory=dict)  # by environment
    settings: dict[str, dict[str, str]] = field(default_factory=dict)  # by environment
    variables: dict[str, dict[str, str]] = field(default_factory=dict)  # by environment
    packages: dict[str, dict[str, str]] = field(default_factory=dict)  # its own, by environment
    busy_processors: dict[str, float] = field(default_factory=dict)  # by environment, of the kernel's calls
    switches_per_ms: dict[str, float] = field(default_factory=dict)  # by environment, of the kernel's calls, or target
    threads_started: dict[str, float] = field(default_factory=dict)  # likewise
    idle_processors: dict[str, float] = field(default_factory=dict)  # by environment
    peak_bytes: int | None = None  # of every target's calls; None: as in records from before it was measured
    peaks_bytes: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)  # and kept, where others
    rounding_cost: float = 4.9e-4
    truths: tuple[TruthDifference, ...] = ()  # float64 results that differ
    gradients: dict[str, dict[str, bool]] = field(default_factory=dict)  # by environment: whether each is a slope
    formulas: dict[str, dict[str, bool]] = field(default_factory=dict)  # likewise: whether it is attention's formula
    draws_numbers: bool = False
    largest: float | None = None  # magnitude of stored outputs
    hostile: str = ""  # put into every free text
    seed: int = 0

    def case(self, environment: str, target: str, workload: str) -> Case:
        for key in ((environment, target, workload), (environment, target, "*")):
            if key in self.cases:
                return self.cases[key]
        return Case()

    def stopped(self, environment: str) -> bool:
        return environment in self.stacks or environment in self.builds


SHAPES = {
    "seed-fp16": (1, 8, 512, 64),
    "causal-fp16": (1, 8, 512, 64),
    "long64-fp16": (4, 16, 4096, 64),
    "long128-fp16": (4, 16, 4096, 128),
    "tail239-fp16": (1, 8, 239, 64),
    "tail1023-fp16": (1, 8, 1023, 64),
}
REFERENCES = ("flash", "math", "efficient", "cudnn", "default")
# Kernel and references in that order, cold, in microseconds, as an H200 takes them.
TIMES_US = {
    "seed-fp16": (38.7, 13.8, 80.3, 26.5, 10.9, 13.8),
    "causal-fp16": (31.2, 12.9, 92.4, 24.0, 10.6, 12.9),
    "long64-fp16": (13710.0, 742.0, 11320.0, 1630.0, 521.0, 742.0),
    "long128-fp16": (24980.0, 1288.0, 12150.0, 3010.0, 861.0, 1288.0),
    "tail239-fp16": (19.4, 9.8, 41.0, 13.6, 9.1, 9.8),
    "tail1023-fp16": (96.1, 21.7, 205.0, 44.9, 17.2, 21.7),
}
FLASH = ("aten::_scaled_dot_product_flash_attention", "pytorch_flash::flash_fwd_kernel")
CUDNN = (
    "aten::_scaled_dot_product_cudnn_attention",
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0",
)
EFFICIENT = ("aten::_scaled_dot_product_efficient_attention", "fmha_cutlassF_f16_aligned_64x64_rf_sm80")
MATH = ("aten::_scaled_dot_product_attention_math", "cutlass::Kernel2", "softmax_warp_forward", "elementwise_kernel")


def gpu_spec(**changes: Any) -> Spec:
    """Three environments on one GPU: cuDNN is new in the second, and PyTorch's choice in the third."""
    environments = (BASE, NEXT, HOST)
    ran = {"flash": FLASH, "math": MATH, "efficient": EFFICIENT, "cudnn": CUDNN, "default": FLASH}
    cases = {(name, target, "*"): Case(operators=ran[target]) for name in environments for target in ran}
    refused = "No available kernel. Aborting execution. cuDNN attention is not a backend of this version."
    uncaptured = "cannot be captured: operation not permitted when stream is capturing"
    cases |= {
        (BASE, "cudnn", "*"): Case(status="unsupported", message=refused),
        (NEXT, "flash", "*"): Case(operators=FLASH, bits="2.5", slowdown=0.94),
        (NEXT, "default", "*"): Case(operators=FLASH, bits="2.5", slowdown=0.94),
        (HOST, "flash", "*"): Case(operators=FLASH, bits="2.5", slowdown=0.93),
        (HOST, "cudnn", "*"): Case(operators=CUDNN, bits="9.1", slowdown=0.97),
        (HOST, "default", "*"): Case(operators=CUDNN, bits="9.1", slowdown=0.79),
        (NEXT, "efficient", "tail239-fp16"): Case(operators=EFFICIENT, slowdown=1.06, hot_slowdown=1.0),
        (HOST, "math", "*"): Case(operators=MATH, hot_message=uncaptured),
        (HOST, "kernel", "seed-fp16"): Case(slowdown=1.041),
    }
    values: dict[str, Any] = {
        "environments": environments,
        "executors": {HOST: "host"},
        "device": "cuda",
        "workloads": tuple(SHAPES),
        "shapes": SHAPES,
        "references": REFERENCES,
        "times_us": {
            (target, workload): us
            for workload, times in TIMES_US.items()
            for target, us in zip(("kernel", *REFERENCES), times, strict=True)
        },
        "trials": 20,
        "spread": 0.004,
        "cases": cases,
        "torch_cuda": {NEXT: "12.4", HOST: "13.0"},
        "throttled": {(NEXT, 3): 14, (NEXT, 4): 3},
        "others": {(HOST, 7): 1},
    }
    return Spec(**(values | changes))
