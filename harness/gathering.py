"""What a run is about, gathered before anything starts: the matrix, facts about this machine, and the plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from harness.executors.venv import inside_digest
from harness.indexes import Probes, choose_indexes
from harness.inside import protocol
from harness.interpreters import find_interpreter
from harness.matrix import Matrix, load_matrix
from harness.pins import ensure_pins
from harness.plan import Facts, Plan, Selection, kernel_sources, plan_run
from harness.records import Device
from harness.steps.building import kernel_files, missing_source
from harness.tools import cache_folder, gpus, host_facts, physical_cores

VENV_REASON = "virtual environments: this version has no other executor"


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to run, apart from what (`Selection`)."""

    matrix_path: Path
    command: tuple[str, ...]
    strict: bool = False
    fresh: bool = False

    @property
    def root(self) -> Path:
        return self.matrix_path.resolve().parent


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A plan and what it was made from."""

    matrix: Matrix
    text: str
    plan: Plan
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
    root = options.root
    files = folder_files(matrix, root)
    indexes, reasons = choose_indexes(matrix, Probes(cache_folder() / "probes.json"), strict=options.strict)
    facts = Facts(
        executor="venv",
        executor_reason=VENV_REASON,
        indexes=indexes,
        index_reasons=reasons,
        interpreters={e.python: str(find_interpreter(e.python) or "to be fetched") for e in matrix.environments},
        inside_sha256=inside_digest(),
        host=host_facts(),
        threads=physical_cores(),
        gpus=len(gpus()),
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
    return Prepared(matrix=matrix, text=text, plan=plan_run(matrix, selection, facts, files), sources=sources)
