"""Made-up runs, written through `harness.schema` as the harness writes real ones: for tests and benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from harness.schema.environment_records import CeilingRecord
from harness.schema.records import Outcome
from harness.schema.run_records import Cell, GpuFacts, KernelBench, KernelInfo, RunRecord, Thresholds, WorkloadInfo
from harness.schema.storage import Run, load_record, save_record
from harness.worker import protocol
from tests.unit.spec import GBPS, TFLOPS, UUID, Spec
from tests.unit.synthetic_cells import (
    build_record,
    crossing_record,
    environment_record,
    launch_record,
    sha,
    validation_record,
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
            )
            for name in names
        ],
        workloads=[
            WorkloadInfo(
                id=workload,
                name=workload.partition("-")[0],
                dtype="float32" if workload.endswith("fp32") else "float16",
                devices=[spec.device],
                batch=batch,
                heads=heads,
                seq_len=seq_len,
                head_dim=head_dim,
                causal=workload.startswith("causal"),
                scale=0.125,
                trials={"independent": spec.trials},
                backward=protocol.BACKWARD in workload,
                flops=4 * batch * heads * seq_len**2 * head_dim / (2 if workload.startswith("causal") else 1),
                bytes=4 * batch * heads * seq_len * head_dim * 2,
            )
            for workload in spec.workloads
            for batch, heads, seq_len, head_dim in [spec.shapes.get(workload, (1, 8, 512, 64))]
        ],
        cells=cells(spec),
        fallbacks=list(spec.fallbacks),
        thresholds=Thresholds(
            min_effect_cpu=spec.min_effect, min_effect_cuda=0.01, false_discovery_rate=0.05, confidence=0.95
        ),
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
        **vars(outcome),
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


def as_operators(run: Run, compiled: str = "") -> None:
    """Its kernels become groups of PyTorch's operators, and its workloads operators: one under torch.compile."""
    known = load_record(run.run_path(), RunRecord)
    kernels = [replace(each, pytorch=True, sources=[]) for each in known.kernels]
    operator = {"problem": "torch.nn.functional.gelu", "operator": {"name": "gelu", "tensors": []}, "batch": None}
    workloads = [replace(each, **operator, name=each.id[:-5], compiled=each.id == compiled) for each in known.workloads]
    run.run_path().unlink()
    save_record(run.run_path(), replace(known, kernels=kernels, workloads=workloads))


def write_pairs(folder: Path, spec: Spec, missing: Sequence[str] = ()) -> None:
    """A run of problem files in KernelBench's form: every kernel is a solution, and its reference is `model`."""
    write_run(folder, replace(spec, references=("model",), workloads=("seed-fp32",)))
    path = Run(folder).run_path()
    record = load_record(path, RunRecord)
    workloads = [replace(w, problem="p/level1/19_ReLU.py") for w in record.workloads]
    pairs = {kernel.name: f"level1/{kernel.name}.py" for kernel in record.kernels}
    suite = KernelBench(problems="p", solutions="s", pairs=pairs, missing=list(missing), unused=["level1/other.py"])
    path.unlink()
    save_record(path, replace(record, workloads=workloads, kernelbench=suite))
