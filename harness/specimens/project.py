"""A specimen as a project of its own: matrix, sources, pins. What is true of it, and its name, are not in there."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import yaml

from harness.config.environments import Environment
from harness.config.matrix import Matrix, parse_matrix
from harness.errors import InputError
from harness.specimens.format import FILE, KERNEL, Place, Specimen
from harness.worker import protocol

SOURCES = "kernel"  # where a specimen's own files lie in its project
SHARED_HEADER = "common.h"


def project_folder(out: Path, name: str) -> Path:
    """By a digest: a folder's name can reach a log, and must not tell."""
    return out / hashlib.sha256(name.encode()).hexdigest()[:12]


def _environment(place: Place, shipped: Matrix) -> Environment:
    known = next((environment for environment in shipped.environments if environment.torch == place.torch), None)
    if known is None and place.torch == "host":
        known = Environment(torch="host")
    if known is None:
        choices = ", ".join(environment.torch for environment in shipped.environments)
        raise InputError(f"torch {place.torch}: not in the shipped matrix.yaml", f"choose from: {choices}")
    changed = {"replica": place.replica, "flags": place.flags, "variables": place.variables}
    return known.model_copy(update=changed)


def _in_project(value: Any) -> Any:
    """Paths of a specimen's own files, where its project has them."""
    if isinstance(value, str):
        return value if value.startswith("csrc/") else f"{SOURCES}/{value}"
    if isinstance(value, list):
        return [_in_project(item) for item in value]
    return {key: _in_project(item) for key, item in value.items()}


def matrix_text(specimen: Specimen, shipped: Matrix) -> str:
    """The specimen's matrix.yaml. InputError where it is none."""
    environments = [_environment(place, shipped) for place in specimen.environments]
    kernel = specimen.kernel.model_dump(mode="json", exclude_unset=True) | {"name": KERNEL}
    for key in ("sources", "problem", "model_new"):
        if kernel.get(key):
            kernel[key] = _in_project(kernel[key])
    value = {
        "schema_version": 1,
        "baseline": environments[0].id(),
        "environments": [environment.model_dump(mode="json", exclude_defaults=True) for environment in environments],
        "packages": list(shipped.packages),
        "kernels": [kernel],
        "workloads": [workload.model_dump(mode="json", exclude_defaults=True) for workload in specimen.workloads],
        "references": list(specimen.references),
        "tolerances": specimen.tolerances.model_dump(mode="json"),
        "timing": specimen.timing.model_dump(mode="json"),
        "limits": specimen.limits.model_dump(mode="json"),
        "launches": specimen.launches,
        "most_launches": specimen.launches,
        "cpu_threads": specimen.cpu_threads,
    }
    text = yaml.safe_dump(value, sort_keys=False, width=120)
    parse_matrix(text)
    return text


def make_project(name: str, specimen: Specimen, shipped: Matrix, root: Path, out: Path) -> Path:
    """Write the specimen's project below `out` and return its matrix.yaml; what ran there before stays.

    `root` is the repository, in which the specimen lies. The project holds its own files and the matrix, like a user's.
    """
    folder, source = project_folder(out, name), root / "csrc" / "specimens"
    text = matrix_text(specimen, shipped)
    shutil.rmtree(folder / SOURCES, ignore_errors=True)
    shutil.copytree(source / name, folder / SOURCES, ignore=shutil.ignore_patterns(FILE))
    shutil.copyfile(source / SHARED_HEADER, folder / SOURCES / SHARED_HEADER)
    protocol.write_atomically(str(folder / "matrix.yaml"), text.encode())
    return folder / "matrix.yaml"
