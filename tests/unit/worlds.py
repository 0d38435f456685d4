"""A matrix with everything in it, facts about a made-up machine, and the keys of all records of its run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from harness.config.keys import KINDS, JobId, Keys
from harness.config.matrix import Matrix
from harness.config.plan import Facts, Plan
from harness.config.planner import plan_run
from harness.schema.records import Device
from harness.schema.run_records import Selection

DEVICES: tuple[Device, ...] = ("cpu", "cuda")
A, B = "torch2.1.0-cu121-py311", "torch2.5.0-cu121-py311"
FILES = {
    "csrc/attention_binding.cpp",
    "csrc/attention.h",
    "csrc/plain.cpp",
    "csrc/plain.cu",
    "csrc/ptx.cuh",
    "own/own.cpp",
    "own/own.cu",
    "own/own.h",
    "p/softmax.py",
    "p/fast.py",
}
SHIPPED = ["csrc/attention_binding.cpp", "csrc/attention.h"]
READS: dict[str, dict[Device, list[str]]] = {
    "plain": {
        "cpu": ["csrc/plain.cpp", *SHIPPED, "csrc/ptx.cuh"],
        "cuda": ["csrc/plain.cu", *SHIPPED, "csrc/ptx.cuh"],
    },
    "own": {"cuda": ["own/own.cu", "own/own.cpp", "csrc/attention.h", "csrc/ptx.cuh", "own/own.h"]},
    "python": {device: ["p/fast.py", "p/softmax.py"] for device in DEVICES},
}


def matrix_value() -> dict[str, Any]:
    environment = {"cuda": "12.1", "python": "3.11"}
    return {
        "schema_version": 1,
        "baseline": "2.1.0",
        "environments": [{"torch": torch, **environment} for torch in ("2.1.0", "2.5.0")],
        "packages": ["numpy==1.26.4", "ninja==1.11.1.1", "setuptools==69.5.1"],
        "kernels": [
            {
                "name": "plain",
                "sources": {"cpu": ["csrc/plain.cpp"], "cuda": ["csrc/plain.cu"]},
                "tunables": {"BLOCK_M": 32},
            },
            {"name": "own", "folder": "own", "binding": "own", "flags": {"cxx": ["-O2"], "nvcc": ["-O2"]}},
            {"name": "python", "problem": "p/softmax.py", "model_new": "p/fast.py", "devices": ["cpu", "cuda"]},
        ],
        "workloads": [
            {
                "name": "first",
                "shape": {"batch": 1, "heads": 1, "seq_len": 8, "head_dim": 64},
                "dtypes": {"cpu": ["float32"], "cuda": ["float32", "float16"]},
            },
        ],
        "references_cuda": ["flash", "cudnn"],
        "launches": 2,
    }


FACTS = Facts(
    executor="venv",
    executor_reason="as asked for",
    interpreters={"3.11": "/usr/bin/python3.11 (3.11.2)"},
    pins_sha256={A: "pins of 2.1.0", B: "pins of 2.5.0"},
    sources_sha256={name: f"digest of {name}" for name in FILES},
    files=READS,
    binding_files=SHIPPED,
    code={kind: f"code of {kind}" for kind in KINDS},
    host={
        "machine": "1f",
        "architecture": "x86_64",
        "cpu": "Zen 3",
        "cores": "8",
        "memory_gib": "64",
        "kernel": "6.1",
        "system": "Debian 12",
        "compiler": "c++ 12.2",
        "nvcc": "12.4",
        "gpus": "H200, GPU-1; H200, GPU-2",
    },
    cpu_flags="avx2",
    inherited={"LD_LIBRARY_PATH": "1"},
    threads=4,
    gpus=2,
    gpu={"uuid": "GPU-1", "name": "H200", "driver": "550", "mig": False, "ecc": True, "power_limit_w": 700.0},
)


def made_plan(value: Mapping[str, Any], facts: Facts = FACTS, **selection: Any) -> tuple[Plan, Matrix]:
    matrix = Matrix.model_validate(value)
    folders = {"own": ["own/own.cpp", "own/own.cu", "own/own.h"]}
    return plan_run(matrix, Selection(**selection), facts, folders), matrix


def all_keys(plan: Plan, matrix: Matrix) -> dict[JobId, str]:
    """The key of every job of a run, and, as that of a kind of its own, the digest of the run."""
    first = Keys(plan, matrix, {}, {})
    stores = {
        workload.id: first.key(JobId(kind="store", environment=plan.baseline, workload=workload.id))
        for workload in plan.workloads
        if workload.problem
    }
    keys = Keys(plan, matrix, {}, stores)
    jobs = [JobId(kind="store", environment=plan.baseline, workload=id) for id in stores]
    for environment in plan.measured:
        jobs += [JobId(kind=kind, environment=environment, device=d) for kind in ("ceiling", "probe") for d in DEVICES]
    for build in plan.builds:
        place = {"environment": build.environment, "kernel": build.kernel, "device": build.device}
        jobs += [JobId(kind=kind, **place) for kind in ("build", *(["binding"] if build.kernel == "plain" else []))]
    for cell in plan.cells:
        for kind in ("validation", "conditions", "checkers", "compiled", "profile", "profile_of_reference"):
            jobs.append(JobId(kind=kind, **vars(cell)))
    jobs += [
        JobId(kind="launch", environment=each.environment, kernel=each.kernel, device=each.device, index=each.index)
        for each in plan.launches
    ]
    return {job: keys.key(job) for job in jobs} | {JobId(kind="run"): plan.digest}


@cache
def standard_keys() -> dict[JobId, str]:
    return all_keys(*made_plan(matrix_value()))


def changed(value: Mapping[str, Any], facts: Facts = FACTS, **selection: Any) -> set[JobId]:
    """The jobs of the standard run that would have to be done again: their key is another, or gone."""
    after = all_keys(*made_plan(value, facts, **selection))
    return {job for job, key in standard_keys().items() if after.get(job) != key}


def with_facts(**changes: Any) -> Facts:
    return replace(FACTS, **changes)
