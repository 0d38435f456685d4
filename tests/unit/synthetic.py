"""Made-up runs, written through harness.records exactly as the harness writes real ones: for tests and benchmarks.

`Case` overrides what one (environment, target, workload) does; everything else is right and equally fast everywhere.
"""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np

from harness.records import (
    BINDING_OBJECT,
    Agreement,
    BuildRecord,
    CeilingRecord,
    Cell,
    Crossing,
    CrossingRecord,
    Device,
    DeviceFunction,
    EnvironmentRecord,
    Fallback,
    Gpu,
    GpuFacts,
    GpuWatch,
    KernelInfo,
    LaunchRecord,
    Load,
    Observation,
    Outcome,
    RecipeResult,
    RunRecord,
    TargetResult,
    Timing,
    ValidationRecord,
    Wheel,
    WorkloadInfo,
    Worst,
)
from harness.storage import Run, save_record

START = datetime(2025, 1, 1, 0, 10, tzinfo=timezone.utc)
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
    bits: str = ""  # outputs differ from those of targets with other bits
    units: float = 1.2
    repeats_differ: int = 0
    operators: tuple[str, ...] = ()
    missing: bool = False


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
    slowed: dict[str, tuple[str, float]] = field(default_factory=dict)  # kernel to what it is a copy of, and how slow
    executors: dict[str, str] = field(default_factory=dict)  # by environment
    sm_mhz: dict[str, float] = field(default_factory=dict)  # by environment
    throttled: dict[tuple[str, int], int] = field(default_factory=dict)  # samples, by environment and launch
    others: dict[tuple[str, int], int] = field(default_factory=dict)  # other processes on the GPU, by the same
    ceilings: Outcome | None = field(default_factory=lambda: Outcome(status="ok"))  # None: no record
    bundle: dict[str, str] = field(default_factory=dict)
    hostile: str = ""  # put into every free text
    seed: int = 0

    def case(self, environment: str, target: str, workload: str) -> Case:
        for key in ((environment, target, workload), (environment, target, "*")):
            if key in self.cases:
                return self.cases[key]
        return Case()

    def stopped(self, environment: str) -> bool:
        return environment in self.stacks or environment in self.builds


def sha(*parts: object) -> str:
    return hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest()


def version_of(environment: str) -> str:
    return "2.11.0" if environment == HOST else environment.removeprefix("torch").split("-")[0]


def observation(spec: Spec, environment: str) -> Observation:
    version = version_of(environment)
    cuda = spec.torch_cuda.get(environment, "12.1")
    local = f"{version}+cu{cuda.replace('.', '')}"
    return Observation(
        python="3.11.9",
        torch=local,
        torch_cuda=cuda,
        torch_git=sha(version)[:12],
        cxx11_abi=False,
        numpy="1.26.4",
        cudnn="8.9.2" if version == "2.1.0" else "9.1.0",
        wheels={
            name: Wheel(version=local if name == "torch" else "1.0", record_sha256=sha(name, version))
            for name in ("torch", "numpy", "ninja", "sympy")
        },
        machine="x86_64",
        cpu_model="Example CPU" + spec.hostile,
        cpu_flags_sha256=sha("flags"),
        cpu_capability="AVX512",
        threads=2,
        kernel_release="6.1.0",
        libc="glibc 2.36",
        gpus=[
            Gpu(name="NVIDIA H200", uuid=UUID, compute_capability="9.0", memory_bytes=150754820096, driver="580.159.04")
        ]
        if spec.device == "cuda"
        else [],
        settings={"float32_matmul_precision": "highest"},
    )


def environment_record(spec: Spec, environment: str) -> EnvironmentRecord:
    outcome = spec.stacks.get(environment, Outcome(status="ok"))
    version = version_of(environment)
    return EnvironmentRecord(
        **outcome.model_dump(),
        id=environment,
        torch=version,
        cuda="12.1",
        python="3.11",
        replica=int(environment.rpartition("-r")[2]) if "-r" in environment else 0,
        index="https://download.pytorch.org/whl/cu121",
        executor=spec.executors.get(environment, "venv"),
        key=sha(environment),
        pins={"torch": version, "numpy": "1.26.4"},
        pins_sha256=sha("pins", version),
        prepared_s=61.0,
        reused=False,
        observed=observation(spec, environment) if outcome.status == "ok" else None,
    )


def build_record(spec: Spec, environment: str, kernel: str) -> BuildRecord:
    outcome = spec.builds.get(environment, Outcome(status="ok"))
    code = spec.machine_code.get(environment, "same")
    return BuildRecord(
        **outcome.model_dump(),
        environment=environment,
        kernel=kernel,
        device=spec.device,
        key=sha(environment, kernel),
        runnable=True,
        compiler="g++ (Debian 12.2.0-14) 12.2.0" + spec.hostile,
        flags=["-O3", "-march=native", "-std=c++17"],
        build_ninja=f"rule compile\n  command = g++ -O3\nbuild {kernel}.o: compile {kernel}.cpp\n# {environment}\n",
        build_s=21.5,
        artifact=f"{kernel}.so",
        artifact_sha256=sha(environment, kernel, code),
        artifact_bytes=123456,
        objects={f"{kernel}.o": sha(kernel, code), BINDING_OBJECT: sha(kernel, environment)},
        functions=[
            DeviceFunction(
                name=f"{kernel}_forward",
                architecture="sm_80",
                registers=96,
                spill_bytes=0,
                shared_bytes=16384,
                disassembly_sha256=sha(kernel, code),
            )
        ],
    )


def _agreement(spec: Spec, against: str, passed: int, units: float | None) -> Agreement:
    error = None if units is None else units * 4.9e-4
    counts = {"kernelbench": passed, "strict": passed} | ({"rounding": passed} if against == "truth" else {})
    return Agreement(
        against=against,
        passed=counts,
        max_abs=error,
        mean_abs=None if error is None else error / 9,
        max_units=units if against == "truth" else None,
        units_per_trial=[units] * spec.trials if against == "truth" else [],
        within_strict_share=1.0 if passed == spec.trials else 0.97,
        nonfinite_trials=0,
        histogram=[0, 0, 5, 40, 300, 900, 80, 0, 0, 0, 0],
        worst=Worst(trial=3, index=[0, 2, 100, 7], got=0.51, want=0.50),
    )


def target_result(spec: Spec, environment: str, target: str, workload: str) -> TargetResult:
    case = spec.case(environment, target, workload)
    if case.status != "ok":
        return TargetResult(status=case.status, message=case.message or f"{target} refused", target=target)
    passed = spec.trials if case.passed is None else case.passed
    agrees = passed if case.agrees is None else case.agrees
    against = [_agreement(spec, "truth", passed, case.units)]
    if target == "kernel":
        against += [_agreement(spec, reference, agrees, case.units) for reference in spec.references]
    return TargetResult(
        status="ok",
        target=target,
        operators=list(case.operators) or [f"aten::{target}"],
        against=against,
        output_sha256=[sha(target, workload, case.bits, trial) for trial in range(spec.trials)],
        repeats_differ=case.repeats_differ,
        nearer_to={"flash": spec.trials} if target == "kernel" else {},
    )


def validation_record(spec: Spec, cell: Cell) -> ValidationRecord:
    case = spec.case(cell.environment, "kernel", cell.workload)
    status, wrong = case.status, case.passed is not None and case.passed < spec.trials
    if spec.stopped(cell.environment):
        status = "not_run"
    recipe = RecipeResult(
        recipe="independent",
        trials=spec.trials,
        input_sha256=[sha(cell.workload, trial, spec.inputs.get(cell.environment)) for trial in range(spec.trials)],
        truth_sha256=[sha("truth", cell.workload, trial) for trial in range(spec.trials)],
        rounding_cost=[4.9e-4] * spec.trials,
        targets=[target_result(spec, cell.environment, name, cell.workload) for name in ("kernel", *spec.references)],
    )
    return ValidationRecord(
        status="wrong" if wrong and status == "ok" else status,
        message=case.message + spec.hostile,
        log_excerpt=spec.hostile,
        environment=cell.environment,
        kernel=cell.kernel,
        workload=cell.workload,
        device=cell.device,
        key=sha(cell.id),
        decides="rounding",
        limits={"rounding": 4.0, "kernelbench": 1e-2, "strict": 1e-3},
        recipes=[recipe] if status == "ok" else [],
        started_utc="2025-01-01T00:00:00+00:00",
        duration_s=12.0,
    )


def _gpu_fields(
    spec: Spec, case: Case, environment: str, index: int, usual_us: float, generator: np.random.Generator
) -> dict[str, Any]:
    """Replays without launch gaps and cache misses, the host's part, and the clock."""
    if case.status != "ok":
        return {}
    slowdown = case.slowdown if case.hot_slowdown is None else case.hot_slowdown
    hot = max(0.8 * usual_us, usual_us - 2.6) * slowdown * (1 + 0.002 * generator.standard_normal(spec.samples))
    return {
        "hot_us": [] if case.hot_message else [round(float(us), 4) for us in hot],
        "hot_calls_per_sample": 20,
        "hot_message": case.hot_message + (spec.hostile if case.hot_message else ""),
        "enqueue_us": [round(float(us), 3) for us in 7.4 + 0.2 * generator.standard_normal(spec.samples)],
        "throttled_samples": spec.throttled.get((environment, index), 0),
        "sm_mhz": spec.sm_mhz.get(environment, 1980.0),
    }


def _watch(spec: Spec, environment: str, index: int) -> GpuWatch:
    throttled = spec.throttled.get((environment, index), 0) > 0
    return GpuWatch(
        uuid=UUID,
        readings=120,
        sm_mhz=spec.sm_mhz.get(environment, 1980.0),
        memory_mhz=3201.0,
        power_w=412.0,
        temperature_c=41.0,
        throttled_share=0.08 if throttled else 0.0,
        throttle_reasons=["sw_power_cap"] if throttled else [],
        other_processes=spec.others.get((environment, index), 0),
    )


def launch_record(
    spec: Spec, environment: str, kernel: str, index: int, generator: np.random.Generator
) -> LaunchRecord:
    cuda = spec.device == "cuda"
    order = [(name, each) for name in spec.environments for each in spec.kernels]
    position = index * len(order) + order.index((environment, kernel))
    timings, slow = [], spec.slowed.get(kernel, ("", 1.0))[1]
    for workload in spec.workloads:
        for order, target in enumerate(("kernel", *spec.references)):
            case = spec.case(environment, target, workload)
            usual = spec.times_us.get((target, workload), 800.0) * (slow if target == "kernel" else 1.0)
            luck = float(np.exp(generator.normal(0, spec.spread)))
            centre = usual * case.slowdown * luck
            samples = np.sort(centre * (1 + 0.01 * generator.standard_normal(spec.samples)))
            samples[len(samples) // 2] = centre
            timings.append(
                Timing(
                    status=case.status,
                    message=case.message,
                    workload=workload,
                    target=target,
                    order=order,
                    clock="cuda_event" if cuda else "perf_counter_ns",
                    warmup_calls=5,
                    samples_us=[round(float(s), 4) for s in samples] if case.status == "ok" else [],
                    correct=True if target == "kernel" else None,
                    **(_gpu_fields(spec, case, environment, index, usual * luck, generator) if cuda else {}),
                )
            )
    return LaunchRecord(
        status="ok",
        environment=environment,
        kernel=kernel,
        device=spec.device,
        key=sha(environment, kernel, index),
        index=index,
        position=position,
        started_utc=(START + timedelta(seconds=5 * position)).isoformat(),
        duration_s=4.2,
        threads=2,
        load=Load(load_average=0.4, busy_share_others=spec.busy, cpu_mhz=2900.0, steal_share=0.0),
        gpu=_watch(spec, environment, index) if cuda else None,
        sampling_s=2.9 if cuda else None,
        timings=timings,
    )


def crossing_record(spec: Spec, kernel: str, workload: str) -> CrossingRecord:
    pairs = []
    for base, other in itertools.combinations(spec.environments, 2):
        for target in ("kernel", *spec.references):
            if {spec.case(name, target, workload).status for name in (base, other)} != {"ok"}:
                continue
            same = spec.case(base, target, workload).bits == spec.case(other, target, workload).bits
            pairs.append(
                Crossing(
                    left=f"{base}:{target}",
                    right=f"{other}:{target}",
                    recipe="independent",
                    trials=3,
                    identical_trials=3 if same else 0,
                    max_abs=0.0 if same else 2e-3,
                    mean_abs=0.0 if same else 1e-5,
                    differing_share=0.0 if same else 0.312,
                )
            )
    return CrossingRecord(
        kernel=kernel, workload=workload, device=spec.device, inputs_identical=not spec.inputs, pairs=pairs
    )


def run_record(spec: Spec) -> RunRecord:
    names = [f"{kernel}{spec.hostile}" for kernel in spec.kernels]
    return RunRecord(
        run_id="20250101-000000-abcdef123456",
        created_utc="2025-01-01T00:00:00+00:00",
        plan_digest=sha("plan"),
        command=["nox", "-s", "matrix"],
        mode=spec.mode,
        quick=False,
        executor="bundle" if spec.bundle else "venv",
        executor_reason="no container engine" + spec.hostile,
        gpus=[
            GpuFacts(
                uuid=UUID,
                name="NVIDIA H200" + spec.hostile,
                driver="580.159.04",
                memory_bytes=150754820096,
                ecc=True,
                mig=False,
                power_limit_w=700.0,
                max_sm_mhz=1980,
            )
        ]
        if spec.device == "cuda"
        else [],
        bundle=spec.bundle,
        host={"cpu": "Example CPU", "cores": "2"},
        baseline=spec.baseline,
        environments=list(spec.environments),
        kernels=[
            KernelInfo(
                name=name,
                devices=[spec.device],
                sources=[f"csrc/{name}.cpp"],
                tunables={"BLOCK_M": "32"},
                workloads=list(spec.workloads),
                references=list(spec.references),
                control_of=spec.slowed[name][0] if name in spec.slowed else None,
            )
            for name in names
        ],
        workloads=[
            WorkloadInfo(
                id=workload,
                name=workload.partition("-")[0],
                dtype="float16",
                devices=[spec.device],
                batch=batch,
                heads=heads,
                seq_len=seq_len,
                head_dim=head_dim,
                causal=workload.startswith("causal"),
                scale=0.125,
                trials={"independent": spec.trials},
                flops=4 * batch * heads * seq_len**2 * head_dim / (2 if workload.startswith("causal") else 1),
                bytes=4 * batch * heads * seq_len * head_dim * 2,
            )
            for workload in spec.workloads
            for batch, heads, seq_len, head_dim in [spec.shapes.get(workload, (1, 8, 512, 64))]
        ],
        cells=cells(spec),
        fallbacks=list(spec.fallbacks),
        thresholds={
            "min_effect_cpu": spec.min_effect,
            "min_effect_cuda": 0.01,
            "false_discovery_rate": 0.05,
            "confidence": 0.95,
        },
        tolerances={"rounding_units": 4.0, "strict": 1e-3, "kernelbench_half": 1e-2, "kernelbench_float32": 1e-4},
        launches=spec.launches,
        order_seed=0,
        matrix_text="schema_version: 1\n" + spec.hostile,
        sources_sha256={"csrc/attention_scalar.cpp": sha("source")},
    )


def ceiling_record(spec: Spec) -> CeilingRecord:
    outcome = spec.ceilings or Outcome(status="ok")
    reached = outcome.status == "ok"
    return CeilingRecord(
        **outcome.model_dump(),
        device_uuid=UUID,
        device_name="NVIDIA H200",
        environment=spec.environments[-1],
        matmul_tflops=TFLOPS if reached else {},
        matmul_size=8192 if reached else None,
        copy_gbps=GBPS if reached else None,
        copy_bytes=1 << 32 if reached else None,
        started_utc="2025-01-01T00:09:00+00:00",
    )


def cells(spec: Spec) -> list[Cell]:
    return [
        Cell(environment=environment, kernel=f"{kernel}{spec.hostile}", workload=workload, device=spec.device)
        for environment in spec.environments
        for kernel in spec.kernels
        for workload in spec.workloads
    ]


def write_run(folder: Path, spec: Spec | None = None) -> Run:
    """The whole folder of records. Where a hostile name cannot be a file's, the cell stays without its record."""
    spec = spec or Spec()
    run, generator = Run(folder), np.random.default_rng(spec.seed)
    save_record(run.run_path(), run_record(spec))
    for environment in spec.environments:
        save_record(run.environment_path(environment), environment_record(spec, environment))
        for kernel in spec.kernels:
            if environment not in spec.stacks:
                save_record(run.build_path(environment, kernel, spec.device), build_record(spec, environment, kernel))
            alone = spec.mode == "eval" and environment == spec.baseline
            for index in range(0 if alone or spec.stopped(environment) else spec.launches):
                save_record(
                    run.launch_path(environment, kernel, spec.device, index),
                    launch_record(spec, environment, kernel, index, generator),
                )
    if spec.device == "cuda" and spec.ceilings is not None:
        save_record(run.ceiling_path(UUID), ceiling_record(spec))
    for cell in cells(spec):
        if not spec.case(cell.environment, "kernel", cell.workload).missing and "/" not in cell.kernel:
            save_record(run.validation_path(cell), validation_record(spec, cell))
    for kernel in spec.kernels:
        for workload in spec.workloads:
            save_record(run.crossing_path(kernel, spec.device, workload), crossing_record(spec, kernel, workload))
    return run


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
