"""Made-up runs, written through harness.records exactly as the harness writes real ones: for tests and benchmarks.

`Case` overrides what one (environment, target, workload) does; everything else is right and equally fast everywhere.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from harness.records import (
    BINDING_OBJECT,
    Agreement,
    BuildRecord,
    Cell,
    Crossing,
    CrossingRecord,
    Device,
    DeviceFunction,
    EnvironmentRecord,
    Fallback,
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

BASE = "torch2.1.0-cu121-py311"
NEXT = "torch2.5.0-cu121-py311"


@dataclass(frozen=True, kw_only=True)
class Case:
    """What one target does on one workload in one environment."""

    passed: int | None = None  # trials that pass against the truth; None: all
    agrees: int | None = None  # kernel only: trials that agree with each reference; None: as many as pass
    slowdown: float = 1.0
    status: str = "ok"
    message: str = ""
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


def observation(spec: Spec, environment: str) -> Observation:
    version = environment.removeprefix("torch").split("-")[0]
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
        gpus=[],
        settings={"float32_matmul_precision": "highest"},
    )


def environment_record(spec: Spec, environment: str) -> EnvironmentRecord:
    outcome = spec.stacks.get(environment, Outcome(status="ok"))
    version = environment.removeprefix("torch").split("-")[0]
    return EnvironmentRecord(
        **outcome.model_dump(),
        id=environment,
        torch=version,
        cuda="12.1",
        python="3.11",
        replica=int(environment.rpartition("-r")[2]) if "-r" in environment else 0,
        index="https://download.pytorch.org/whl/cu121",
        executor="venv",
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


def launch_record(
    spec: Spec, environment: str, kernel: str, index: int, generator: np.random.Generator
) -> LaunchRecord:
    timings = []
    for workload in spec.workloads:
        for order, target in enumerate(("kernel", *spec.references)):
            case = spec.case(environment, target, workload)
            centre = 800.0 * case.slowdown * float(np.exp(generator.normal(0, spec.spread)))
            samples = np.sort(centre * (1 + 0.01 * generator.standard_normal(spec.samples)))
            samples[len(samples) // 2] = centre
            timings.append(
                Timing(
                    status=case.status,
                    message=case.message,
                    workload=workload,
                    target=target,
                    order=order,
                    clock="perf_counter_ns",
                    warmup_calls=5,
                    samples_us=[round(float(s), 4) for s in samples] if case.status == "ok" else [],
                    correct=True if target == "kernel" else None,
                )
            )
    return LaunchRecord(
        status="ok",
        environment=environment,
        kernel=kernel,
        device=spec.device,
        key=sha(environment, kernel, index),
        index=index,
        position=index,
        started_utc="2025-01-01T00:10:00+00:00",
        duration_s=4.2,
        threads=2,
        load=Load(load_average=0.4, busy_share_others=spec.busy, cpu_mhz=2900.0, steal_share=0.0),
        timings=timings,
    )


def crossing_record(spec: Spec, kernel: str, workload: str) -> CrossingRecord:
    pairs = []
    base = spec.baseline
    for other in (name for name in spec.environments if name != base):
        for target in ("kernel", *spec.references):
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
        executor="venv",
        executor_reason="no container engine" + spec.hostile,
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
            )
            for name in names
        ],
        workloads=[
            WorkloadInfo(
                id=workload,
                name=workload.partition("-")[0],
                dtype="float16",
                devices=[spec.device],
                batch=1,
                heads=8,
                seq_len=512,
                head_dim=64,
                causal=False,
                scale=0.125,
                trials={"independent": spec.trials},
                flops=4 * 8 * 512**2 * 64,
            )
            for workload in spec.workloads
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
    for cell in cells(spec):
        if not spec.case(cell.environment, "kernel", cell.workload).missing and "/" not in cell.kernel:
            save_record(run.validation_path(cell), validation_record(spec, cell))
    for kernel in spec.kernels:
        for workload in spec.workloads:
            save_record(run.crossing_path(kernel, spec.device, workload), crossing_record(spec, kernel, workload))
    return run
