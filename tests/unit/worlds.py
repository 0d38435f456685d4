"""A matrix with everything in it, facts about a made-up machine, and the keys of all records of its run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from harness.config.key_inputs import Place, World, key
from harness.config.keys import DETERMINES
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
    code={kind: f"code of {kind}" for kind in DETERMINES},
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


def all_keys(plan: Plan, matrix: Matrix) -> dict[tuple[str, str, str, str], dict[str, str]]:
    """(kind, environment, kernel, device) to the keys there, by what else tells them apart."""
    stores: dict[str, str] = {}
    world = World(plan=plan, matrix=matrix, stores=stores)
    found: dict[tuple[str, str, str, str], dict[str, str]] = {}

    def add(name: str, place: Place, **given: Any) -> str:
        made = key(world, place, **given)
        found.setdefault((place.kind, place.environment, place.kernel, place.device), {})[name] = made
        return made

    for workload in plan.workloads:
        if workload.problem:
            place = Place(
                kind="store", environment=plan.baseline, kernel=workload.id.split(".")[0], workload=workload.id
            )
            add(workload.id, place)
            stores[workload.id] = key(world, place, output_gib="whatever fits")  # what is in it
    for environment in plan.measured:
        add("", Place(kind="planned", environment=environment))
        for device in DEVICES:
            add("", Place(kind="ceiling", environment=environment, device=device))
            add("", Place(kind="probe", environment=environment, device=device), source="1", architecture="sm_90")
    for build in plan.builds:
        for kind in ("build", "binding"):
            if kind == "build" or build.kernel == "plain":
                add("", Place(kind=kind, environment=build.environment, kernel=build.kernel, device=build.device))
    for cell in plan.cells:
        for kind in ("validation", "conditions", "checkers", "profile", "profile_of_reference"):
            add(cell.workload, Place(kind=kind, **vars(cell)))
        if plan.workload(cell.workload).problem:
            continue  # it has no object code
        swapped = {"environments": list(plan.measured)}
        add(
            cell.workload,
            Place(kind="swap", kernel=cell.kernel, device=cell.device, workload=cell.workload, asked=swapped),
        )
    for each in plan.launches:
        add(
            str(each.index),
            Place(
                kind="launch", environment=each.environment, kernel=each.kernel, device=each.device, index=each.index
            ),
        )
    found["run", "", "", ""] = {"": plan.digest}
    return found


@cache
def standard_keys() -> dict[tuple[str, str, str, str], dict[str, str]]:
    return all_keys(*made_plan(matrix_value()))


def changed(value: Mapping[str, Any], facts: Facts = FACTS, **selection: Any) -> set[tuple[str, str, str, str]]:
    """Where a record of the standard run would have to be made again: its key is another, or gone."""
    before, after = standard_keys(), all_keys(*made_plan(value, facts, **selection))
    return {
        place for place, keys in before.items() if any(after.get(place, {}).get(n) != made for n, made in keys.items())
    }


def with_facts(**changes: Any) -> Facts:
    return replace(FACTS, **changes)
