"""The records of a made-up run's environments and cells: builds, validations, launches, crossings."""

from __future__ import annotations

import hashlib
import itertools
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np

from harness.schema.environment_records import (
    BINDING_OBJECT,
    BuildRecord,
    DeviceFunction,
    EnvironmentRecord,
    Gpu,
    Observation,
    Wheel,
)
from harness.schema.records import (
    Agreement,
    CallMemory,
    Crossing,
    CrossingRecord,
    GpuWatch,
    LaunchRecord,
    Load,
    Outcome,
    RecipeResult,
    TargetResult,
    TargetTiming,
    ValidationRecord,
    Worst,
)
from harness.schema.run_records import Cell
from harness.worker import protocol
from tests.unit.spec import HOST, UUID, Case, Spec

START = datetime(2025, 1, 1, 0, 10, tzinfo=timezone.utc)


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
        }
        | {
            name: Wheel(version=own, record_sha256=sha(name, own))
            for name, own in spec.packages.get(environment, {}).items()
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
        settings={"float32_matmul_precision": "highest"} | spec.settings.get(environment, {}),
    )


def environment_record(spec: Spec, environment: str) -> EnvironmentRecord:
    outcome = spec.stacks.get(environment, Outcome(status="ok"))
    version = version_of(environment)
    return EnvironmentRecord(
        **vars(outcome),
        id=environment,
        torch=version,
        cuda="12.1",
        python="3.11",
        replica=int(environment.rpartition("-r")[2]) if "-r" in environment else 0,
        index="https://download.pytorch.org/whl/cu121",
        executor=spec.executors.get(environment, "venv"),
        key=sha(environment),
        pins={"torch": version, "numpy": "1.26.4"},
        pins_sha256=sha("pins", version, spec.packages.get(environment, {})),
        packages=spec.packages.get(environment, {}),
        variables=spec.variables.get(environment, {}),
        prepared_s=61.0,
        reused=False,
        observed=observation(spec, environment) if outcome.status == "ok" else None,
    )


def build_record(spec: Spec, environment: str, kernel: str) -> BuildRecord:
    outcome = spec.builds.get(environment, Outcome(status="ok"))
    code = spec.machine_code.get(environment, "same")
    return BuildRecord(
        **vars(outcome),
        environment=environment,
        kernel=kernel,
        device=spec.device,
        key=sha(environment, kernel),
        runnable=True,
        compiler="g++ (Debian 12.2.0-14) 12.2.0" + spec.hostile,
        flags=["-O3", "-march=native", "-std=c++17", *spec.flags.get(environment, ())],
        build_ninja=f"rule compile\n  command = g++ -O3\nbuild {kernel}.o: compile {kernel}.cpp\n# {environment}\n",
        build_s=21.5,
        artifact=f"{kernel}.so",
        artifact_sha256=sha(environment, kernel, code),
        artifact_bytes=123456,
        objects={
            f"{kernel}.o": sha(kernel, code),
            **({} if spec.own_binding else {BINDING_OBJECT: sha(kernel, environment)}),
        },
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


def _agreement(spec: Spec, against: str, passed: int, units: float | None, nonfinite: int = 0) -> Agreement:
    error = None if units is None else units * 4.9e-4
    counts = {"kernelbench": passed, "strict": passed} | ({"rounding": passed} if against == "truth" else {})
    return Agreement(
        against=against,
        passed=counts,
        max_abs=error,
        mean_abs=None if error is None else error / 9,
        max_units=units if against == "truth" else None,
        units_per_trial=[units] * spec.trials if against == "truth" else [],
        nonfinite_trials=nonfinite,
        elements=1325,
        worst=Worst(trial=3, index=[0, 2, 100, 7], got=0.51, want=0.50),
    )


def target_result(
    spec: Spec, environment: str, target: str, workload: str, recipe: str = "independent"
) -> TargetResult:
    case = spec.case(environment, target, workload)
    if case.status != "ok":
        return TargetResult(status=case.status, message=case.message or f"{target} refused", target=target)
    passed = spec.trials if case.passed is None else case.passed
    agrees = passed if case.agrees is None else case.agrees
    passed, units = case.recipes.get(recipe, (passed, case.units))
    against = [_agreement(spec, case.against, passed, units, case.nonfinite)]
    if target == "kernel":
        against += [_agreement(spec, reference, agrees, case.units) for reference in spec.references]
    return TargetResult(
        status="ok",
        target=target,
        operators=list(case.operators) or [f"aten::{target}"],
        against=against,
        output_sha256=[
            sha(case.twin or target, workload, _bits(spec, environment, target, workload), recipe, trial)
            for trial in range(spec.trials)
        ],
        repeats_differ=case.repeats_differ,
        repeats_max_units=case.repeats_units,
        unwritten_trials=case.unwritten,
        inputs_mutated=case.mutated,
    )


def _bits(spec: Spec, environment: str, target: str, workload: str) -> str:
    case = spec.case(environment, target, workload)
    return spec.case(environment, case.twin, workload).bits if case.twin else case.bits


def validation_record(spec: Spec, cell: Cell) -> ValidationRecord:
    case = spec.case(cell.environment, "kernel", cell.workload)
    rates = [case.recipes.get(recipe, (case.passed, 0.0))[0] for recipe in spec.recipes]
    status, wrong = case.status, any(passed is not None and passed < spec.trials for passed in rates)
    wrong = wrong or (case.deterministic and case.repeats_differ > 0)
    if spec.stopped(cell.environment):
        status = "not_run"
    recipes = [
        RecipeResult(
            recipe=recipe,
            trials=spec.trials,
            input_sha256=[sha(cell.workload, trial, spec.inputs.get(cell.environment)) for trial in range(spec.trials)],
            truth_sha256=[sha("truth", cell.workload, trial) for trial in range(spec.trials)] if spec.truth else [],
            rounding_cost=[spec.rounding_cost] * spec.trials,
            draws_numbers=spec.draws_numbers,
            gradients=spec.gradients.get(cell.environment, {}),
            formulas=spec.formulas.get(cell.environment, {}),
            targets=[
                target_result(spec, cell.environment, name, cell.workload, recipe)
                for name in ("kernel", *spec.references)
            ],
        )
        for recipe in spec.recipes
    ]
    return ValidationRecord(
        status="wrong" if wrong and status == "ok" else status,
        message=case.message + spec.hostile,
        log_excerpt=case.log_excerpt + spec.hostile,
        environment=cell.environment,
        kernel=cell.kernel,
        workload=cell.workload,
        device=cell.device,
        key=sha(cell.id),
        decides=spec.decides,
        deterministic=case.deterministic,
        limits=spec.limits,
        recipes=recipes if status in ("ok", "crashed") and not spec.stopped(cell.environment) else [],
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
        "escaped": case.escaped,
        "hot_message": case.hot_message + (spec.hostile if case.hot_message else ""),
        "enqueue_us": [
            round(float(us), 3)
            for us in spec.enqueue_us.get(environment, 7.4) + 0.2 * generator.standard_normal(spec.samples)
        ],
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
    timings = []
    for workload in spec.workloads:
        backward = [name + protocol.BACKWARD for name in spec.references if protocol.BACKWARD in workload]
        for order, target in enumerate(("kernel", *spec.references, *backward)):
            case = spec.case(environment, target, workload)
            usual = spec.times_us.get((target, workload), 800.0)
            luck = float(np.exp(generator.normal(0, spec.spread)))
            centre = usual * case.slowdown * luck
            samples = np.sort(centre * (1 + 0.01 * generator.standard_normal(spec.samples)))
            samples[len(samples) // 2] = centre
            status = protocol.OK if case.status == protocol.UNDECIDABLE else case.status  # that is timed all the same
            timings.append(
                TargetTiming(
                    status=status,
                    message=case.message,
                    workload=workload,
                    target=target,
                    order=order,
                    clock="cuda_event" if cuda else "perf_counter_ns",
                    warmup_calls=5,
                    samples_us=[round(float(s), 4) for s in samples] if status == "ok" else [],
                    correct=not case.timed_wrong if target == "kernel" else None,
                    busy_processors=_busy(spec, environment, target),
                    switches_per_ms=spec.switches_per_ms.get(environment if target == "kernel" else target, 0.2),
                    threads_started=spec.threads_started.get(environment if target == "kernel" else target, 0.1),
                    memory=_memory(spec, environment, target, index) if status == "ok" else None,
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
        workloads=list(spec.workloads),
        position=position,
        started_utc=(START + timedelta(seconds=5 * position)).isoformat(),
        duration_s=4.2,
        threads=spec.threads.get(environment, 2),
        load=Load(
            load_average=0.4,
            busy_share_others=spec.busy_in.get(environment, spec.busy),
            cpu_mhz=2900.0,
            steal_share=0.0,
        ),
        idle_processors=spec.idle_processors.get(environment),
        gpu=_watch(spec, environment, index) if cuda else None,
        sampling_s=2.9 if cuda else None,
        timings=timings,
    )


def _memory(spec: Spec, environment: str, target: str, index: int) -> CallMemory | None:
    """A page more or less in every launch, as real ones have."""
    peak, kept = spec.peaks_bytes.get((environment, target), (spec.peak_bytes, 0))
    return None if peak is None else CallMemory(peak_bytes=peak + 4096 * (index % 3), kept_bytes=kept)


def _busy(spec: Spec, environment: str, target: str) -> float | None:
    told = spec.busy_processors.get(environment)
    return told if target == "kernel" or told is None else 1.9


def crossing_record(spec: Spec, kernel: str, workload: str) -> CrossingRecord:
    pairs = []
    for base, other in itertools.combinations(spec.environments, 2):
        for target in ("kernel", *spec.references):
            if {spec.case(name, target, workload).status for name in (base, other)} != {"ok"}:
                continue
            same = _bits(spec, base, target, workload) == _bits(spec, other, target, workload)
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
                    largest=spec.largest,
                )
            )
    return CrossingRecord(
        kernel=kernel,
        workload=workload,
        device=spec.device,
        inputs_identical=not spec.inputs,
        pairs=pairs,
        truths=list(spec.truths),
    )
