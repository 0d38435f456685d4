"""The whole pre-flight: every selected kernel and workload of a matrix."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from harness.config.environments import package_versions
from harness.config.kernelbench import with_pairs
from harness.config.matrix import load_matrix
from harness.config.missing import missing_files, unfit_wheels
from harness.config.plan import Facts
from harness.config.planner import kernel_sources, plan_run
from harness.errors import HarnessError
from harness.gpu import VISIBLE, gpus, named
from harness.isolate.base import stage
from harness.isolate.choose import Choice
from harness.isolate.host import find_host_python
from harness.isolate.process import end_descendants
from harness.preflight.findings import Findings
from harness.preflight.memory import check_memory
from harness.preflight.operators import check_operators
from harness.preflight.packages import check_interpreters, check_packages
from harness.preflight.prebuilt import check_prebuilt
from harness.preflight.python_files import PROBLEM, SOLUTION, Surroundings, check_file
from harness.preflight.sources import Machine, check_sources, find_compiler
from harness.preflight.symbols import Subject
from harness.run.prepare import Options, choose_executor, folder_files
from harness.schema.records import Device
from harness.schema.run_records import Selection
from harness.tools import cache_folder, output_of, wrong_tools

# Asked of an environment's Python: where the headers are, without importing PyTorch.
_HEADERS = (
    "import importlib.util, json, os, sysconfig;"
    "torch = os.path.join(os.path.dirname(importlib.util.find_spec('torch').origin), 'include');"
    "print(json.dumps([torch, os.path.join(torch, 'torch', 'csrc', 'api', 'include'), sysconfig.get_path('include')]))"
)


class Preflight:
    """Facts about this machine are found when they are first asked for: most pre-flights need few of them."""

    def __init__(self, options: Options, selection: Selection) -> None:
        self.options, self.root, self.cache = options, options.root, cache_folder()
        self.matrix, self.text = load_matrix(options.matrix_path, options.base_image)
        pairs = None
        if options.kernelbench is not None:
            self.matrix, pairs = with_pairs(self.matrix, self.root, options.kernelbench)
        self.files = folder_files(self.matrix, self.root)
        asked = options.executor != "auto" or options.bundle is not None
        self._choice = choose_executor(options, self.matrix) if asked else None  # wrong options are refused first
        self.gpus = named(gpus(), os.environ.get(VISIBLE)) or gpus()  # which may be named as what is not listed
        facts = Facts(executor="", executor_reason="", gpus=len(self.gpus) or self._elsewhere())
        self.plan = plan_run(self.matrix, selection, facts, self.files, pairs)
        self.environments = [each.spec for each in self.plan.environments if each.id in self.plan.measured]

    def _elsewhere(self) -> int:
        """Whether an engine has a GPU that this machine has not: 1 or 0."""
        if not any(kernel.sources and kernel.sources.cuda for kernel in self.matrix.kernels):
            return 0
        engine = self.choice().facts
        return int(engine is not None and not engine.local and bool(engine.gpus))

    def choice(self) -> Choice:
        """Where the environments will run."""
        if self._choice is None:
            self._choice = choose_executor(self.options, self.matrix)
        return self._choice

    def is_builder(self) -> bool:
        """Whether this machine's own compilers make all builds."""
        return all(each.is_host for each in self.environments) or self.choice().executor == "venv"

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

    def findings(self) -> Findings:
        found = self._memory()
        unfit = unfit_wheels(self.matrix, self.text, self.options.matrix_path, self.environments)
        found.problems += unfit
        if not unfit and self.choice().bundle is None:  # a bundle brings its packages
            found.add(check_packages(self.matrix, self.text, self.options.matrix_path, self.environments))
        if self.choice().executor == "venv":
            found.add(check_interpreters(self.environments))
        if any(kernel.pytorch for kernel in self.plan.kernels):
            found.add(self._operators())
        subjects = []
        for kernel in (each for each in self.matrix.kernels if each.name in {k.name for k in self.plan.kernels}):
            missing = missing_files(self.matrix, self.text, self.options.matrix_path, [kernel.name])
            found.problems += missing
            if missing:
                continue
            if kernel.problem is not None and kernel.model_new is not None:
                for name, wanted in ((kernel.problem, PROBLEM), (kernel.model_new, SOLUTION)):
                    found.add(check_file(self.root / name, name, wanted, self._surroundings()))
                continue
            if kernel.prebuilt is not None:
                found.add(check_prebuilt(kernel, self.root / kernel.prebuilt, self.environments))
                continue
            sources = kernel_sources(kernel, self.files)
            subjects += [
                Subject(root=self.root, kernel=kernel, device=device, sources=sources[device])
                for device in self._built(kernel.name)
            ]
        wrong = wrong_tools(any(subject.device == "cuda" for subject in subjects)) if subjects else None
        if wrong and self.is_builder():
            raise wrong
        machine = Machine(cache=self.cache, includes=self._includes() if subjects else {}, is_builder=self.is_builder)
        pool = ThreadPoolExecutor(max_workers=max(1, min(4, os.cpu_count() or 1)))
        try:
            for each in pool.map(lambda subject: check_sources(subject, self.environments, machine), subjects):
                found.add(each)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            end_descendants()
            raise
        pool.shutdown()
        return found

    def _operators(self) -> Findings:
        path = self.options.matrix_path
        found = Findings(problems=missing_files(self.matrix, self.text, path, list(self.matrix.groups)))
        for name in dict.fromkeys(each.problem for each in self.matrix.operators if each.problem):
            if (self.root / name).is_file():
                found.add(check_file(self.root / name, name, PROBLEM, self._surroundings()))
        ids = [each.id() for each in self.environments]
        found.add(check_operators(self.matrix, self.text, path, self.pythons(), ids))
        return found

    def _built(self, kernel: str) -> list[Device]:
        """What the run builds to be measured, and what it only compiles, where that can be."""
        measured = {cell.device for cell in self.plan.cells if cell.kernel == kernel}
        built = dict.fromkeys(build.device for build in self.plan.builds if build.kernel == kernel)
        return [
            device
            for device in built
            if device in measured or not isinstance(find_compiler(device, self.environments), str)
        ]

    def _memory(self) -> Findings:
        used: dict[str, set[Device]] = {}
        for cell in self.plan.cells:
            used.setdefault(self.plan.workload(cell.workload).name, set()).add(cell.device)
        has = {"its GPU": self.gpus[0].memory_bytes if self.gpus else 0}
        has["this machine"] = psutil.virtual_memory().total + psutil.swap_memory().total
        found = check_memory(self.matrix, self.text, self.options.matrix_path, used, has)
        if found.problems and (engine := self.choice().facts) is not None:  # whose machine may be another
            has["this machine"] = engine.memory_bytes
            found = check_memory(self.matrix, self.text, self.options.matrix_path, used, has)
        return found

    def _surroundings(self) -> Surroundings:
        there = self.pythons()
        folders = [each for python in there.values() for each in python.parents[1].glob("lib/python*/site-packages")]
        return Surroundings(
            packages=[package for each in self.environments for package in self.matrix.packages_in(each)],
            pythons=self._versions,
            site_packages=folders,
            complete=all(each.id() in there for each in self.environments),
            has_host=any(each.is_host for each in self.environments),
        )

    def _versions(self) -> Collection[tuple[int, int]]:
        host = any(each.is_host for each in self.environments)
        given = [each.python for each in self.environments if not each.is_host]
        with contextlib.suppress(HarnessError):
            given += [find_host_python(stage(self.cache)).version] if host else []
        return {(int(major), int(minor)) for major, minor in (version.split(".")[:2] for version in given)}

    def _includes(self) -> dict[str, list[str]]:
        found = {}
        for id, python in self.pythons().items():
            printed = output_of([str(python), "-I", "-c", _HEADERS])
            if printed is not None:
                found[id] = json.loads(printed)
        return found


def preflight(options: Options, selection: Selection) -> Findings:
    """What cannot work of what is selected. InputError where matrix.yaml or the selection is refused."""
    return Preflight(options, selection).findings()
