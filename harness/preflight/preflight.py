"""What cannot work of a plan: paths, the syntax of Python files, and packages. Nothing of it is run or built."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence

import psutil

from harness.config.environments import Environment
from harness.config.missing import missing_files, unfit_wheels
from harness.errors import HarnessError
from harness.executors.base import stage
from harness.executors.host import find_host_python
from harness.preflight import Findings
from harness.preflight.environments import check_interpreters, check_packages
from harness.preflight.memory import check_memory
from harness.preflight.python_files import PROBLEM, SOLUTION, check_file
from harness.run.prepare import Prepared, RunOptions
from harness.schema.records import Device
from harness.tools import cache_folder


def preflight(options: RunOptions, prepared: Prepared) -> Findings:
    """Find all that cannot work of a plan."""
    matrix, text, path, plan = prepared.matrix, prepared.text, options.matrix_path, prepared.plan
    environments = [each.spec for each in plan.environments if each.id in plan.measured]
    found = _check_memory(options, prepared)
    unfit = unfit_wheels(matrix, text, path, environments)
    found.problems += unfit
    if not unfit and prepared.choice.bundle is None:  # a bundle brings its packages
        found.add(check_packages(matrix, text, path, environments))
    if prepared.choice.executor == "venv":
        found.add(check_interpreters(environments))
    planned = [kernel.name for kernel in plan.kernels]
    found.problems += missing_files(matrix, text, path, planned)
    files: dict[str, tuple[str, ...]] = {}
    if any(kernel.pytorch for kernel in plan.kernels):
        files |= {each.problem: PROBLEM for each in matrix.operators if each.problem}
    for kernel in matrix.kernels:
        if kernel.name in planned and kernel.problem is not None and kernel.model_new is not None:
            files |= {kernel.problem: PROBLEM, kernel.model_new: SOLUTION}
    for name, wanted in files.items():
        if (options.root / name).is_file():
            found.add(check_file(options.root / name, name, wanted, lambda: _list_pythons(environments)))
    return found


def _check_memory(options: RunOptions, prepared: Prepared) -> Findings:
    used: dict[str, set[Device]] = {}
    for cell in prepared.plan.cells:
        used.setdefault(prepared.plan.workload(cell.workload).name, set()).add(cell.device)
    engine = prepared.choice.facts
    here = psutil.virtual_memory().total + psutil.swap_memory().total
    has: dict[Device, int] = {
        "cuda": int(prepared.plan.facts.gpu.get("memory_bytes", 0)),
        "cpu": here if engine is None else engine.memory_bytes,  # an engine's may be another
    }
    return check_memory(prepared.matrix, prepared.text, options.matrix_path, used, has)


def _list_pythons(environments: Sequence[Environment]) -> Collection[tuple[int, int]]:
    """Return the versions of Python that files will run on."""
    versions = [each.python for each in environments if not each.is_host]
    if any(each.is_host for each in environments):
        with contextlib.suppress(HarnessError):  # then its column is broken, and no other
            versions.append(find_host_python(stage(cache_folder())).version)
    return {(int(major), int(minor)) for major, minor in (version.split(".")[:2] for version in versions)}
