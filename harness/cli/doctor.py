"""`kernel-matrix doctor`: what this machine has of what a run needs, and what to do about the rest."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.cli.options import Command, Parser, add_base_image, add_matrix
from harness.config.environments import PYPI
from harness.config.indexes import probe_index
from harness.config.interpreters import installed
from harness.config.matrix import Matrix, load_matrix, parse_matrix
from harness.config.yaml_problems import EXAMPLES
from harness.errors import DONE, INFRASTRUCTURE, HarnessError
from harness.executors.base import stage
from harness.executors.bwrap import REMEDY as SANDBOX_REMEDY
from harness.executors.bwrap import grant
from harness.executors.choose import BUNDLE_VARIABLE, Choice, choose_bundle, choose_here
from harness.executors.host import find_host_python
from harness.gpu import described, gpus
from harness.schema.storage import existing
from harness.tools import (
    CACHE_VARIABLE,
    GIB,
    cache_folder,
    cpu_model,
    host_compiler,
    nvcc_for,
    physical_cores,
)
from harness.typed import as_typed

USUAL = Path("matrix.yaml")
NEEDED_GIB = 7  # one environment, its share of uv's cache, and arrays


@dataclass(frozen=True)
class Check:
    """`needed` checks that fail stop a run; the others narrow it."""

    name: str
    ok: bool
    found: str
    remedy: str = ""
    needed: bool = False


def add_options(parser: Parser) -> None:
    add_matrix(parser)
    add_base_image(parser)


def run(options: argparse.Namespace) -> int:
    if options.matrix == USUAL and not USUAL.exists():
        print("no matrix.yaml here: what its default environments need (kernel-matrix init writes one)")
        matrix = parse_matrix(f"kernels: {EXAMPLES['kernels']}")
        matrix = matrix.with_base(options.base_image) if options.base_image else matrix
    else:
        matrix, _ = load_matrix(options.matrix, options.base_image)
    checks = examine(matrix)
    print(render(checks))
    return INFRASTRUCTURE if any(check.needed and not check.ok for check in checks) else DONE


def check_pythons(matrix: Matrix) -> list[Check]:
    checks = []
    for version in sorted({environment.python for environment in matrix.pinned_environments}):
        found = installed(version)
        remedy = f"apt-get install python{version} python{version}-dev; otherwise uv fetches one, where it can"
        ready = bool(found) and found[0].headers
        checks.append(Check(f"Python {version}", ready, str(found[0]) if found else "none here", remedy))
    return checks


def check_compilers(matrix: Matrix) -> list[Check]:
    cxx, nvcc = host_compiler(), nvcc_for([each.cuda for each in matrix.environments])
    wanted = " or ".join(sorted({each.cuda.partition(".")[0] for each in matrix.environments} - {""}))
    remedy = f"install a toolkit of CUDA {wanted}, which alone PyTorch takes here, and set CUDA_HOME to its folder"
    return [
        Check("C++ compiler", cxx is not None, " of ".join(cxx or ["none"]), "apt-get install g++", needed=True),
        Check("nvcc", not isinstance(nvcc, str), nvcc if isinstance(nvcc, str) else " of ".join(nvcc), remedy),
    ]


def check_gpu() -> Check:
    found = "; ".join(map(described, gpus()))
    remedy = "without one, kernels are measured through their CPU twins"
    return Check("GPU", bool(found), found or "none that NVIDIA's driver reports", remedy)


def check_choice(name: str, find: Callable[[], str]) -> Check:
    """Return a thing that is described where it can be used; a HarnessError where it cannot says why."""
    try:
        return Check(name, True, find(), needed=True)
    except HarnessError as error:
        return Check(name, False, error.message, error.remedy, needed=True)


def check_host(matrix: Matrix) -> list[Check]:
    """Check the host's PyTorch, where the matrix has it: it builds with this machine's compilers."""
    if not matrix.has_host:
        return []
    python = check_choice("the host's PyTorch", lambda: str(find_host_python(stage(cache_folder()))))
    return [*check_compilers(matrix), python]


def check_executor(choice: Choice) -> list[Check]:
    """Return what `--executor auto` chooses, and why."""
    remedy = f"environments are virtual environments; for containers {choice.remedy}"
    checks = [Check("containers", choice.executor == "docker", choice.reason, remedy)]
    if choice.executor == "venv":
        bwrap, why = grant()
        found = bwrap.describe() if bwrap else f"nothing confines kernels: {why}"
        checks.append(Check("sandboxes", bwrap is not None, found, SANDBOX_REMEDY))
    if choice.facts is not None and gpus():
        found = choice.facts.gpus or "the engine cannot hand them over"
        remedy = "install NVIDIA's container toolkit: nvidia-ctk runtime configure --runtime=docker"
        checks.append(Check("GPUs in containers", bool(choice.facts.gpus), found, remedy))
    return checks


def check_disk(matrix: Matrix) -> Check:
    folder, wanted = cache_folder(), len(matrix.pinned_environments)
    free = shutil.disk_usage(existing(folder)).free / GIB
    made = len(list((folder / "environments").glob("*/complete.json")))
    found = f"{free:.0f} GiB free under {folder}, {made} environments there; {NEEDED_GIB * wanted} GiB for a first run"
    remedy = f"free some, or move it: export {CACHE_VARIABLE}=/a/larger/disk"
    return Check("disk", free >= NEEDED_GIB * wanted or made >= wanted, found, remedy, needed=True)


def check_indexes(matrix: Matrix) -> list[Check]:
    fallbacks = {environment.fallback_index for environment in matrix.pinned_environments}
    checks = []
    for index in dict.fromkeys(index for each in matrix.pinned_environments for index in each.indexes):
        problem = probe_index(index)
        remedy = (
            "check network and proxy" if index in fallbacks else "its environments fall back, and the report says so"
        )
        checks.append(Check(f"index {index}", not problem, problem or "answers", remedy, needed=index == PYPI))
    return checks


def examine(matrix: Matrix) -> list[Check]:
    """Return what a run by the executor that it would choose needs of this machine."""
    here = [Check("processor", True, f"{cpu_model()}, {physical_cores()} physical cores", needed=True), check_gpu()]
    host, bundle = check_host(matrix), os.environ.get(BUNDLE_VARIABLE)
    if bundle:  # it brings compilers, Pythons and wheels
        return [*here, check_choice(f"bundle {bundle}", lambda: choose_bundle(Path(bundle)).reason), *host]
    bases = list(dict.fromkeys(environment.base_image for environment in matrix.pinned_environments))
    choice = choose_here("auto", bases, len(gpus()))
    own = host  # images bring compilers and Pythons, and lie on the engine's disk
    if choice.executor == "venv":
        own = [*check_pythons(matrix), *(host or check_compilers(matrix)), check_disk(matrix)]
    return [*here, *own, *check_executor(choice), *check_indexes(matrix)]


def render(checks: list[Check]) -> str:
    lines = []
    for check in checks:
        mark = "ok     " if check.ok else ("MISSING" if check.needed else "without")
        lines.append(f"{mark}  {check.name}: {check.found}")
        if not check.ok:
            lines.append(f"         -> {as_typed(check.remedy)}")
    return "\n".join(lines)


COMMANDS = {"doctor": Command(add_options, run)}
