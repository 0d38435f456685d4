"""A case as a project of its own: matrix and sources. Its true causes, and its name, are not in there."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import yaml

from harness.config.environments import Environment
from harness.config.matrix import Matrix, parse_matrix
from harness.errors import InputError
from harness.worker import protocol
from tests.fault_cases.cases import HERE, FaultCase, Variant

SOURCES = "kernel"  # where a case's own files lie in its project
SHARED_HEADER = "common.h"


def project_folder(out: Path, name: str) -> Path:
    """By a digest: a folder's name can reach a log, and must not tell the cause."""
    return out / hashlib.sha256(name.encode()).hexdigest()[:12]


def _environment(variant: Variant, shipped: Matrix) -> Environment:
    known = next((environment for environment in shipped.environments if environment.torch == variant.torch), None)
    if known is None and variant.torch == "host":
        known = Environment(torch="host")
    if known is None:
        choices = ", ".join(environment.torch for environment in shipped.environments)
        raise InputError(f"torch {variant.torch}: not in the shipped matrix.yaml", f"choose from: {choices}")
    return known.model_copy(
        update={"packages": variant.packages, "flags": variant.flags, "variables": variant.variables}
    )


def _in_project(subject: dict[str, Any]) -> dict[str, Any]:
    """A kernel or an operator whose own files are where its project has them."""
    return subject | {key: _path(subject[key]) for key in ("sources", "problem", "model_new") if subject.get(key)}


def _path(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.startswith("csrc/") else f"{SOURCES}/{value}"
    if isinstance(value, list):
        return [_path(item) for item in value]
    return {key: _path(item) for key, item in value.items()}


def matrix_text(case: FaultCase, shipped: Matrix) -> str:
    """The case's matrix.yaml. InputError where it is none."""
    environments = [_environment(variant, shipped) for variant in case.environments]
    kernels, operators = (
        [_in_project(one.model_dump(mode="json", exclude_unset=True))] if one else []
        for one in (case.kernel, case.operator)
    )
    value = {
        "schema_version": 1,
        "baseline": environments[0].id(),
        "environments": [environment.model_dump(mode="json", exclude_defaults=True) for environment in environments],
        "packages": list(shipped.packages),
        "kernels": kernels,
        "operators": operators,
        "workloads": [workload.model_dump(mode="json", exclude_defaults=True) for workload in case.workloads],
        "references": list(case.references),
        "tolerances": case.tolerances.model_dump(mode="json"),
        "timing": case.timing.model_dump(mode="json"),
        "limits": case.limits.model_dump(mode="json"),
        "launches": case.launches,
        "most_launches": case.launches,
        "cpu_threads": case.cpu_threads,
    }
    text = yaml.safe_dump(value, sort_keys=False, width=120)
    parse_matrix(text)
    return text


def make_project(case: FaultCase, shipped: Matrix, out: Path) -> Path:
    """Write the case's project below `out` and return its folder; what ran there before stays."""
    folder = project_folder(out, case.name)
    text = matrix_text(case, shipped)
    shutil.rmtree(folder / SOURCES, ignore_errors=True)
    (folder / SOURCES).mkdir(parents=True)
    files = {**case.own_files(), SHARED_HEADER: (HERE / SHARED_HEADER).read_text(encoding="utf-8")}
    for name, text_of_file in files.items():
        (folder / SOURCES / name).write_text(text_of_file, encoding="utf-8")
    protocol.write_atomically(str(folder / "matrix.yaml"), text.encode())
    return folder
