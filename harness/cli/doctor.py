"""`nox -s doctor`: what this machine has of what a run needs, and what to do about the rest."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from harness.config import shipped
from harness.config.environments import PYPI
from harness.config.indexes import probe_index
from harness.config.interpreters import installed
from harness.config.matrix import Matrix
from harness.errors import HarnessError
from harness.gpu import described, gpus
from harness.isolate.base import stage_worker
from harness.isolate.choose import BUNDLE_VARIABLE, Choice, choose_bundle, choose_here
from harness.isolate.host import find_host_python
from harness.tools import GIB, cache_folder, cpu_model, cuda_compiler, host_compiler, physical_cores

NEEDED_GIB = 7  # one environment, its share of uv's cache, and arrays


@dataclass(frozen=True, kw_only=True)
class Check:
    """`needed` checks that fail stop a run; the others narrow it."""

    name: str
    ok: bool
    needed: bool
    found: str
    remedy: str = ""


def check_pythons(matrix: Matrix) -> list[Check]:
    checks = []
    for version in sorted({environment.python for environment in matrix.pinned_environments}):
        found = installed(version)
        ready = bool(found) and found[0].headers
        checks.append(
            Check(
                name=f"Python {version}",
                ok=ready,
                needed=False,
                found=str(found[0]) if found else "none here",
                remedy=f"apt-get install python{version} python{version}-dev; otherwise uv fetches one, where it can",
            )
        )
    return checks


def check_compiler() -> Check:
    compiler = host_compiler()
    return Check(
        name="C++ compiler",
        ok=compiler is not None,
        needed=True,
        found=f"{compiler[1]} ({compiler[0]})" if compiler else "none",
        remedy="apt-get install g++",
    )


def check_nvcc() -> Check:
    nvcc = cuda_compiler()
    return Check(
        name="nvcc",
        ok=nvcc is not None,
        needed=False,
        found=nvcc[1] if nvcc else "none",
        remedy="install a CUDA 12 toolkit and set CUDA_HOME, to compile the CUDA sources too",
    )


def check_gpu() -> Check:
    found = gpus()
    return Check(
        name="GPU",
        ok=bool(found),
        needed=False,
        found="; ".join(map(described, found)) or "none that NVIDIA's driver tells of",
        remedy="without one, kernels are measured through their CPU twins",
    )


def check_bundle(folder: Path) -> Check:
    """Whether the bundle that KERNEL_MATRIX_BUNDLE names can run here."""
    try:
        found, remedy = choose_bundle(folder).reason, ""
    except HarnessError as error:
        found, remedy = error.message, error.remedy
    return Check(name=f"bundle {folder}", ok=not remedy, needed=True, found=found, remedy=remedy)


def check_host(matrix: Matrix) -> list[Check]:
    """What `torch: host` would be, where the matrix has it."""
    if not matrix.has_host:
        return []
    try:
        found, remedy = str(find_host_python(stage_worker(cache_folder()))), ""
    except HarnessError as error:
        found, remedy = error.message, error.remedy
    return [Check(name="the host's PyTorch", ok=not remedy, needed=True, found=found, remedy=remedy)]


def check_executor(choice: Choice) -> list[Check]:
    """What `--executor auto` chooses, and why."""
    checks = [
        Check(
            name="containers",
            ok=choice.executor == "docker",
            needed=False,
            found=choice.reason,
            remedy=f"environments are virtual environments, which confine nothing; for containers {choice.remedy}",
        )
    ]
    if choice.facts is not None and gpus():
        checks.append(
            Check(
                name="GPUs in containers",
                ok=bool(choice.facts.gpus),
                needed=False,
                found=choice.facts.gpus or "the engine cannot hand them over",
                remedy="install NVIDIA's container toolkit: nvidia-ctk runtime configure --runtime=docker",
            )
        )
    return checks


def check_disk(matrix: Matrix) -> Check:
    folder = cache_folder()
    existing = next(path for path in [folder, *folder.parents] if path.exists())
    free = shutil.disk_usage(existing).free / GIB
    first_gib = NEEDED_GIB * len(matrix.pinned_environments)
    made = len(list((folder / "environments").glob("*/complete.json")))
    return Check(
        name="disk",
        ok=free >= first_gib or made >= len(matrix.pinned_environments),
        needed=True,
        found=f"{free:.0f} GiB free under {folder}, {made} environments there; {first_gib} GiB for a first run",
        remedy="free some, or move it: export KERNEL_MATRIX_CACHE=/a/larger/disk",
    )


def check_indexes(matrix: Matrix) -> list[Check]:
    indexes = dict.fromkeys(
        index for e in matrix.pinned_environments for index in (e.wheel_index, e.fallback_index) if index
    )
    checks = []
    for index in indexes:
        problem = probe_index(index)
        fallback = index in {environment.fallback_index for environment in matrix.pinned_environments}
        checks.append(
            Check(
                name=f"index {index}",
                ok=not problem,
                needed=index == PYPI,
                found=problem or "answers",
                remedy="check network and proxy" if fallback else "its environments fall back, and the report says so",
            )
        )
    return checks


def check_pins(matrix: Matrix, root: Path) -> Check:
    folders = {folder / "docker" / "pins" for folder in (root, shipped.ROOT)}
    present = sorted({path.stem for folder in folders for path in folder.glob("*.txt")})
    return Check(
        name="pins",
        ok=bool(present),
        needed=False,
        found=", ".join(present) or "none",
        remedy="nox -s pins; a run also resolves those that it lacks",
    )


def examine(matrix: Matrix, root: Path) -> list[Check]:
    """What a run by the executor that it would choose needs of this machine."""
    cpu = Check(name="processor", ok=True, needed=True, found=f"{cpu_model()}, {physical_cores()} physical cores")
    host = [check_compiler(), check_nvcc(), *check_host(matrix)] if matrix.has_host else []
    bundle = os.environ.get(BUNDLE_VARIABLE)
    if bundle:  # it brings compilers, Pythons and wheels
        return [cpu, check_gpu(), check_bundle(Path(bundle)), *host, check_pins(matrix, root)]
    bases = list(dict.fromkeys(environment.base_image for environment in matrix.pinned_environments))
    choice = choose_here("auto", bases, len(gpus()))
    if choice.executor == "venv":
        own = [*check_pythons(matrix), *(host or [check_compiler(), check_nvcc()]), check_disk(matrix)]
    else:  # images bring compilers and Pythons, and lie on the engine's disk
        own = host
    return [
        cpu,
        check_gpu(),
        *own,
        *check_executor(choice),
        *check_indexes(matrix),
        check_pins(matrix, root),
    ]


def render(checks: list[Check]) -> str:
    lines = []
    for check in checks:
        mark = "ok     " if check.ok else ("MISSING" if check.needed else "without")
        lines.append(f"{mark}  {check.name}: {check.found}")
        if not check.ok:
            lines.append(f"         -> {check.remedy}")
    return "\n".join(lines)
