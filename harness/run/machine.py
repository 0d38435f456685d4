"""What a run asks of this machine and of the network before it plans. A test passes another `Machine`."""

from __future__ import annotations

import hashlib
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.config import indexes, listing
from harness.config.environments import HOST
from harness.config.interpreters import find_interpreter
from harness.config.matrix import Matrix
from harness.config.plan import Plan
from harness.errors import InfrastructureError
from harness.executors import Executor
from harness.executors.archive import Bundle, bundle_facts, choose_bundled_index
from harness.executors.bwrap import grant
from harness.executors.choose import Choice, Wanted, choose_bundle, choose_here, make_executor, wanted_bundle
from harness.executors.engine import EngineFacts
from harness.executors.host import host_identity
from harness.executors.images import base_identity
from harness.gpu import VISIBLE, gpus, named
from harness.tools import cache_folder, cpu_flags, host_facts, physical_cores

BESIDE = "; the host's PyTorch in {how}"
BESIDE_UNCONFINED = "; the host's PyTorch as plain processes, which nothing confines: {why}"


class Machine:
    """This machine, as it is."""

    def choose(self, wanted: Wanted, bundle: Path | None, matrix: Matrix) -> Choice:
        """Choose where the environments will run. InputError or InfrastructureError where that cannot be had."""
        folder = wanted_bundle(wanted, bundle, os.environ)
        if folder is not None:
            return choose_bundle(folder)
        assert wanted != "bundle"
        return choose_here(wanted, [e.base_image for e in matrix.pinned_environments], len(gpus()))

    def find_facts(self, matrix: Matrix, choice: Choice) -> dict[str, Any]:
        """Find the `Facts` that depend on this machine and on where the environments run."""
        confined = not matrix.has_host or grant()[0] is not None
        facts = {
            "executor": choice.executor,
            "executor_reason": choice.reason + (_tell_beside(choice) if matrix.has_host else ""),
            "sandboxed": choice.sandboxes and confined,
            "interpreters": _find_interpreters(matrix, choice),
        }
        if choice.bundle is not None:
            host = host_facts() | {"compiler": "the bundle's", "nvcc": "the bundle's"}
            return facts | _find_here() | {"bundle": bundle_facts(choice.bundle), "host": host}
        if choice.engine is None or choice.facts is None:
            return facts | _find_here() | {"host": host_facts()}
        engine = choice.facts
        here = _find_here() if engine.local else {"threads": engine.processors, "gpus": 1}
        return {
            **facts,
            "bases": {e.base_image: base_identity(choice.engine, e.base_image) for e in matrix.pinned_environments},
            "engine": {"version": engine.version, "system": engine.system},
            "host": engine_host(engine),
            **(here if engine.gpus else here | {"gpus": 0, "gpu": {}}),
        }

    def choose_indexes(
        self, matrix: Matrix, choice: Choice, *, strict: bool, offline: bool
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Choose the package indexes, as `harness.config.indexes.choose_indexes` does. `offline`: one that does not
        answer is no reason to stop."""
        if choice.bundle is not None:
            return bundled_indexes(matrix, choice.bundle, strict=strict)
        try:
            return indexes.choose_indexes(matrix, strict=strict)
        except InfrastructureError:
            if not offline:
                raise
            return {}, {}

    def make_executor(self, choice: Choice, matrix: Matrix, plan: Plan, root: Path, cache: Path) -> Executor:
        return make_executor(choice, matrix.limits, plan, root, cache)

    def fetch_listing(self, index: str, package: str) -> list[listing.Listed]:
        return listing.fetch_listing(index, package)

    def probe_index(self, index: str) -> str:
        return indexes.probe_index(index)


def bundled_indexes(matrix: Matrix, bundle: Bundle, *, strict: bool) -> tuple[dict[str, str], dict[str, str]]:
    """Choose the indexes as the bundle was packed, without the network. InputError where it lacks an environment."""
    chosen, reasons = {}, {}
    for spec in matrix.pinned_environments:
        index, fell_back = choose_bundled_index(bundle, spec.id(), spec.id(spec.fallback_index))
        chosen[spec.id()] = index
        if fell_back and strict:
            raise InfrastructureError(
                f"{spec.id()}: the bundle has wheels of {index} (--strict refuses the fallback)",
                f"pack it where {spec.wheel_index} can be reached",
            )
        if fell_back:
            reasons[spec.id()] = "the bundle was packed with them"
    return chosen, reasons


def engine_host(engine: EngineFacts) -> dict[str, str]:
    """Return `host_facts` of the machine that containers run on. Its compilers do not matter: an image brings its
    own."""
    inside = {"compiler": "the image's", "nvcc": "the image's"}
    if engine.local:
        facts = host_facts() | inside
        return facts if engine.gpus else facts | {"gpus": "none that a container could see"}
    return {
        "machine": hashlib.sha256(("kernel-matrix:" + engine.machine).encode()).hexdigest()[:12],
        "architecture": engine.architecture,
        "cpu": "the engine's",
        "cores": str(engine.processors),
        "memory_gib": str(round(engine.memory_bytes / 2**30)),
        "kernel": engine.kernel,
        "system": engine.system,
        "gpus": "those of the engine's machine" if engine.gpus else "none that a container could see",
        **inside,
    }


def _tell_beside(choice: Choice) -> str:
    """Say where the host's PyTorch runs beside the pinned environments."""
    bwrap, refusal = grant()
    if bwrap is None:
        return BESIDE_UNCONFINED.format(why=refusal)
    return "" if choice.executor == "venv" else BESIDE.format(how=bwrap.describe())


def _find_interpreters(matrix: Matrix, choice: Choice) -> dict[str, str]:
    """Find what each Python version, and `host`, is here; the pinned ones only where they are used."""
    interpreters = {}
    if choice.executor == "venv":
        pythons = {environment.python for environment in matrix.pinned_environments}
        interpreters = {python: str(find_interpreter(python) or "to be fetched") for python in pythons}
    if matrix.has_host:
        interpreters[HOST] = host_identity(cache_folder())
    return interpreters


def _find_here() -> dict[str, Any]:
    """Find the facts of this very machine. Its GPU is the one that the run will use, however the variable names it."""
    visible = gpus()
    gpu = next(iter(named(visible, os.environ.get(VISIBLE))), None)
    return {
        "threads": physical_cores(),
        "cpu_flags": cpu_flags(),
        "gpus": len(visible),
        "gpu": asdict(gpu) if gpu is not None else {},
    }
