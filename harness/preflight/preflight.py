"""What cannot work of a plan: paths, the syntax of Python files, names, and packages. Nothing of it is run or built."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path

import psutil

from harness.config.environments import package_versions
from harness.config.missing import missing_files, unfit_wheels
from harness.errors import HarnessError
from harness.executors.base import stage
from harness.executors.host import find_host_python
from harness.preflight import Findings
from harness.preflight.environments import check_interpreters, check_operators, check_packages
from harness.preflight.memory import check_memory
from harness.preflight.python_files import PROBLEM, SOLUTION, check_file
from harness.run.prepare import Prepared, RunOptions
from harness.schema.records import Device
from harness.tools import cache_folder


class Preflight:
    """The checks of one plan."""

    def __init__(self, options: RunOptions, prepared: Prepared) -> None:
        self.path, self.root, self.cache = options.matrix_path, options.root, cache_folder()
        self.matrix, self.text = prepared.matrix, prepared.text
        self.plan, self.choice = prepared.plan, prepared.choice
        self.environments = [each.spec for each in self.plan.environments if each.id in self.plan.measured]

    def findings(self) -> Findings:
        """Find all that cannot work."""
        found = self._memory()
        unfit = unfit_wheels(self.matrix, self.text, self.path, self.environments)
        found.problems += unfit
        if not unfit and self.choice.bundle is None:  # a bundle brings its packages
            found.add(check_packages(self.matrix, self.text, self.path, self.environments))
        if self.choice.executor == "venv":
            found.add(check_interpreters(self.environments))
        planned = [kernel.name for kernel in self.plan.kernels]
        found.problems += missing_files(self.matrix, self.text, self.path, planned)
        if any(kernel.pytorch for kernel in self.plan.kernels):
            ids = [each.id() for each in self.environments]
            found.add(check_operators(self.matrix, self.text, self.path, self.pythons(), ids))
        for name, wanted in self._python_files(planned).items():
            if (self.root / name).is_file():
                found.add(check_file(self.root / name, name, wanted, self._versions))
        return found

    def _memory(self) -> Findings:
        used: dict[str, set[Device]] = {}
        for cell in self.plan.cells:
            used.setdefault(self.plan.workload(cell.workload).name, set()).add(cell.device)
        engine, gpu = self.choice.facts, self.plan.facts.gpu
        here = psutil.virtual_memory().total + psutil.swap_memory().total
        has: dict[Device, int] = {
            "cuda": int(gpu.get("memory_bytes", 0)),
            "cpu": here if engine is None else engine.memory_bytes,  # an engine's may be another
        }
        return check_memory(self.matrix, self.text, self.path, used, has)

    def _python_files(self, planned: Collection[str]) -> dict[str, tuple[str, ...]]:
        """Return the problem files and solutions, each with the names that it must define."""
        files: dict[str, tuple[str, ...]] = {}
        if any(kernel.pytorch for kernel in self.plan.kernels):
            files |= {each.problem: PROBLEM for each in self.matrix.operators if each.problem}
        for kernel in self.matrix.kernels:
            if kernel.name in planned and kernel.problem is not None and kernel.model_new is not None:
                files |= {kernel.problem: PROBLEM, kernel.model_new: SOLUTION}
        return files

    def pythons(self) -> Mapping[str, Path]:
        """The interpreters of those environments that exist here, by their ids in matrix.yaml."""
        found = {}
        for each in self.environments:
            if each.is_host:
                with contextlib.suppress(HarnessError):  # then its column is broken, and no other
                    found[each.id()] = Path(find_host_python(stage(self.cache)).path)
                continue
            packages = package_versions(self.matrix.packages_in(each)).keys()
            for id in (each.id(), each.id(each.fallback_index)):
                for done in (self.cache / "environments").glob(f"{id}-{'?' * 12}/complete.json"):
                    with contextlib.suppress(OSError, ValueError, KeyError):  # a damaged one is made again
                        if packages <= set(json.loads(done.read_text())["wheels"]):
                            found.setdefault(each.id(), done.parent / "venv" / "bin" / "python")
        return found

    def _versions(self) -> Collection[tuple[int, int]]:
        host = any(each.is_host for each in self.environments)
        given = [each.python for each in self.environments if not each.is_host]
        with contextlib.suppress(HarnessError):
            given += [find_host_python(stage(self.cache)).version] if host else []
        return {(int(major), int(minor)) for major, minor in (version.split(".")[:2] for version in given)}


def preflight(options: RunOptions, prepared: Prepared) -> Findings:
    """Find what cannot work of a plan."""
    return Preflight(options, prepared).findings()
