"""What a run is about, gathered before anything starts: the matrix, facts about this machine, and the plan."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.executors.choosing import Choice, Wanted, choose_here
from harness.executors.docker.engine import EngineFacts
from harness.executors.images import base_identity
from harness.executors.proving import inside_digest
from harness.indexes import Probes, choose_indexes
from harness.inside import protocol
from harness.interpreters import find_interpreter
from harness.matrix import Matrix, load_matrix
from harness.pins import ensure_pins
from harness.plan import Facts, Plan, Selection, kernel_sources, plan_run
from harness.records import Device
from harness.steps.building import kernel_files, missing_source
from harness.tools import cache_folder, gpus, host_facts, physical_cores


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to run, apart from what (`Selection`)."""

    matrix_path: Path
    command: tuple[str, ...]
    strict: bool = False
    fresh: bool = False
    executor: Wanted = "auto"
    base_image: str | None = None

    @property
    def root(self) -> Path:
        return self.matrix_path.resolve().parent


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A plan and what it was made from."""

    matrix: Matrix
    text: str
    plan: Plan
    choice: Choice
    sources: dict[str, dict[Device, list[str]]]


def folder_files(matrix: Matrix, root: Path) -> dict[str, list[str]]:
    return {
        kernel.folder: sorted(
            str(path.relative_to(root)) for path in (root / kernel.folder).glob("*") if path.is_file()
        )
        for kernel in matrix.kernels
        if kernel.folder is not None
    }


def make_plan(options: Options, selection: Selection, *, write_pins: bool) -> Prepared:
    """The plan for this machine. With `write_pins`, missing pin files are resolved and written."""
    matrix, text = load_matrix(options.matrix_path)
    if options.base_image:
        matrix = matrix.with_base(options.base_image)
    root = options.root
    choice = choose_here(options.executor, [e.base_image for e in matrix.environments], len(gpus()))
    files = folder_files(matrix, root)
    indexes, reasons = choose_indexes(matrix, Probes(cache_folder() / "probes.json"), strict=options.strict)
    facts = Facts(
        executor=choice.executor,
        executor_reason=choice.reason,
        indexes=indexes,
        index_reasons=reasons,
        **_place(matrix, choice),
        inside_sha256=inside_digest(),
    )
    draft = plan_run(matrix, selection, facts, files)
    sources = {kernel.name: kernel_sources(kernel, files) for kernel in matrix.kernels}
    pins = {}
    for environment in draft.environments:
        if write_pins:
            path, written = ensure_pins(root, environment, matrix)
            if written:
                print(f"{path.relative_to(root)}: resolved from {environment.index}; commit it")
            pins[environment.id] = protocol.sha256_file(str(path))
    named = {
        name
        for kernel in draft.kernels
        for device in sources[kernel.name]
        for name in kernel_files(
            root, next(k for k in matrix.kernels if k.name == kernel.name), sources[kernel.name], device
        )
    }
    for name in sorted(named):
        if not (root / name).is_file():
            raise missing_source(name)
    facts = replace(
        facts, pins_sha256=pins, sources_sha256={name: protocol.sha256_file(str(root / name)) for name in sorted(named)}
    )
    plan = plan_run(matrix, selection, facts, files)
    return Prepared(matrix=matrix, text=text, plan=plan, choice=choice, sources=sources)


def _place(matrix: Matrix, choice: Choice) -> dict[str, Any]:
    """Those of the facts that depend on where the environments live."""
    if choice.engine is None or choice.facts is None:
        return {
            "interpreters": {e.python: str(find_interpreter(e.python) or "to be fetched") for e in matrix.environments},
            "host": host_facts(),
            "threads": physical_cores(),
            "gpus": len(gpus()),
        }
    engine = choice.facts
    return {
        "bases": {e.base_image: base_identity(choice.engine, e.base_image) for e in matrix.environments},
        "engine": {"version": engine.version, "system": engine.system},
        "host": engine_host(engine),
        "threads": physical_cores() if engine.local else engine.processors,
        "gpus": (len(gpus()) if engine.local else 1) if engine.gpus else 0,
    }


def engine_host(engine: EngineFacts) -> dict[str, str]:
    """`host_facts` of the machine that the cells run on. Its compilers do not matter: an image brings its own."""
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
