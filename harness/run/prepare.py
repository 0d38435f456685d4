"""What a run is made from, before anything starts: the matrix, facts about this machine, and the plan."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from harness.config import shipped
from harness.config.environments import HOST
from harness.config.indexes import choose_indexes
from harness.config.interpreters import find_interpreter
from harness.config.kernelbench import Folders, with_pairs
from harness.config.keys import code_digests
from harness.config.matrix import Matrix, load_matrix, matrix_text
from harness.config.missing import missing_files
from harness.config.pins import ensure_pins
from harness.config.plan import Facts, Plan
from harness.config.planner import kernel_sources, plan_run, with_digest
from harness.errors import InfrastructureError, InputError, refusal
from harness.executors.archive import Bundle, bundle_facts, choose_bundled_index
from harness.executors.bwrap import REMEDY as SANDBOX_REMEDY
from harness.executors.bwrap import grant
from harness.executors.choose import Choice, Wanted, choose_bundle, choose_here, wanted_bundle
from harness.executors.engine import EngineFacts
from harness.executors.host import host_identity
from harness.executors.images import base_identity
from harness.executors.process import inherited
from harness.gpu import VISIBLE, gpus, named
from harness.run.build import BINDING_FILES, kernel_files
from harness.schema.records import Device
from harness.schema.run_records import KernelInfo, Selection
from harness.tools import cache_folder, cpu_flags, host_facts, physical_cores, wrong_tools
from harness.worker import protocol

BESIDE = "; the host's PyTorch in {how}"
BESIDE_UNCONFINED = "; the host's PyTorch as plain processes, which nothing confines: {why}"


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to run, apart from what (`Selection`)."""

    matrix_path: Path
    command: tuple[str, ...]
    strict: bool = False
    fresh: bool = False
    executor: Wanted = "auto"
    base_image: str | None = None
    trust: bool = False  # whether files from outside of the project may run where there are no sandboxes
    bundle: Path | None = None
    derived: Matrix | None = None  # instead of what matrix_path holds; such a run does not become reports/latest
    blocks: int | None = None  # only the first so many of the plan's; a later call goes on from there
    admit: bool = False  # whether only kernels are timed that `harness.experiments.admission` finds no fault with
    explain: bool = True  # whether experiments follow where something moved
    kernelbench: Folders | None = None  # pairs of files in place of the matrix's kernels

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


def draft_plan(options: Options, selection: Selection, *, offline: bool = False) -> Prepared:
    """Load matrix.yaml, look at this machine, and plan. Files and pins have no digests yet: `complete` adds them.

    `offline`: whether an index that does not answer is no reason to stop.
    """
    matrix, text = load_matrix(options.matrix_path)
    if options.derived is not None:
        matrix, text = options.derived, matrix_text(options.derived)
    if options.base_image:
        matrix = matrix.with_base(options.base_image)
    pairs = None
    if options.kernelbench is not None:
        matrix, pairs = with_pairs(matrix, options.root, options.kernelbench)
    choice = choose_executor(options, matrix)
    files = folder_files(matrix, options.root)
    if choice.executor == "venv" or matrix.has_host:
        _refuse_wrong_tools(matrix, selection, files)
    indexes, reasons = _indexes(matrix, choice, strict=options.strict, offline=offline)
    facts = Facts(
        executor=choice.executor,
        executor_reason=choice.reason + (_beside(choice) if matrix.has_host else ""),
        sandboxed=choice.sandboxes and (not matrix.has_host or grant()[0] is not None),
        indexes=indexes,
        index_reasons=reasons,
        **_machine(matrix, choice),
        inherited=inherited(),
    )
    plan = plan_run(matrix, selection, facts, files, pairs)
    planned = {kernel.name for kernel in plan.kernels}
    sources = {kernel.name: kernel_sources(kernel, files) for kernel in matrix.kernels if kernel.name in planned} | {
        kernel.name: dict.fromkeys(kernel.devices, kernel.sources) for kernel in plan.kernels if kernel.pytorch
    }
    return Prepared(matrix=matrix, text=text, plan=plan, choice=choice, sources=sources)


def make_plan(options: Options, selection: Selection, *, write_pins: bool) -> Prepared:
    """The plan for this machine. With `write_pins`, missing pin files are resolved and written."""
    return complete(draft_plan(options, selection), options, write_pins=write_pins)


def complete(prepared: Prepared, options: Options, *, write_pins: bool) -> Prepared:
    """Return the plan with the digests of all files that it depends on."""
    matrix, plan, root = prepared.matrix, prepared.plan, options.root
    planned = {kernel.name for kernel in plan.kernels}
    if absent := refusal(missing_files(matrix, prepared.text, options.matrix_path, planned)):
        raise absent
    read = {
        kernel.name: {device: _files_of(root, matrix, kernel, sources, device) for device in sources}
        for kernel in plan.kernels
        for sources in (prepared.sources[kernel.name],)
    }
    every = sorted({name for devices in read.values() for each in devices.values() for name in each})
    outside = foreign(root, every)
    if outside and not plan.facts.sandboxed and not options.trust:
        raise InputError(
            f"{outside[0]} lies outside of {root}, and would run without a sandbox, with all that you may do: "
            f"{plan.facts.executor_reason}",
            f"run it in a container, or in sandboxes: {SANDBOX_REMEDY}; or, of code that you trust: --trust",
        )
    facts = replace(
        plan.facts,
        pins_sha256=_pins(prepared, root) if write_pins else {},
        sources_sha256={name: protocol.sha256_file(str(shipped.located(root, name))) for name in every},
        files=read,
        binding_files=BINDING_FILES,
        code=code_digests(),
    )
    return replace(prepared, plan=with_digest(replace(plan, facts=facts), matrix))


def _pins(prepared: Prepared, root: Path) -> dict[str, str]:
    """Resolve and write the pin files that are missing. Return the digest of each environment's."""
    pins = {}
    for environment in prepared.plan.environments:
        if not environment.spec.is_host:
            path, written = ensure_pins(root, environment, prepared.matrix)
            if written:
                print(f"{path.relative_to(root)}: resolved from {environment.index}; commit it")
            pins[environment.id] = protocol.sha256_file(str(path))
    return pins


def _files_of(
    root: Path, matrix: Matrix, kernel: KernelInfo, sources: dict[Device, list[str]], device: Device
) -> list[str]:
    return sources[device] if kernel.pytorch else kernel_files(root, matrix.kernel(kernel.name), sources, device)


def _refuse_wrong_tools(matrix: Matrix, selection: Selection, files: Mapping[str, Sequence[str]]) -> None:
    chosen = [kernel for kernel in matrix.kernels if not selection.kernels or kernel.name in selection.kernels]
    cuda = any(kernel.prebuilt is None and kernel_sources(kernel, files).get("cuda") for kernel in chosen)
    if wrong := wrong_tools(cuda):
        raise wrong


def _indexes(matrix: Matrix, choice: Choice, *, strict: bool, offline: bool) -> tuple[dict[str, str], dict[str, str]]:
    if choice.bundle is not None:
        return bundled_indexes(matrix, choice.bundle, strict=strict)
    try:
        return choose_indexes(matrix, strict=strict)
    except InfrastructureError:
        if not offline:
            raise
        return {}, {}


def foreign(root: Path, names: Iterable[str]) -> list[str]:
    """Of the files that run, those that lie neither in the project nor among what is shipped, wherever links lead."""
    own = (root.resolve(), shipped.ROOT.resolve())
    places = {name: shipped.located(root, name).resolve() for name in names}
    return [name for name, place in places.items() if not any(place.is_relative_to(folder) for folder in own)]


def _beside(choice: Choice) -> str:
    bwrap, refusal = grant()
    if bwrap is None:
        return BESIDE_UNCONFINED.format(why=refusal)
    return "" if choice.executor == "venv" else BESIDE.format(how=bwrap.describe())


def choose_executor(options: Options, matrix: Matrix) -> Choice:
    """Where the environments will run. InputError or InfrastructureError where that cannot be had."""
    folder = wanted_bundle(options.executor, options.bundle, os.environ)
    if folder is not None:
        return choose_bundle(folder)
    assert options.executor != "bundle"
    return choose_here(options.executor, [e.base_image for e in matrix.pinned_environments], len(gpus()))


def bundled_indexes(matrix: Matrix, bundle: Bundle, *, strict: bool) -> tuple[dict[str, str], dict[str, str]]:
    """`choose_indexes` as the bundle was packed, without the network. InputError where it lacks an environment."""
    indexes, reasons = {}, {}
    for spec in matrix.pinned_environments:
        index, fell_back = choose_bundled_index(bundle, spec.id(), spec.id(spec.fallback_index))
        indexes[spec.id()] = index
        if fell_back and strict:
            raise InfrastructureError(
                f"{spec.id()}: the bundle has wheels of {index} (--strict refuses the fallback)",
                f"pack it where {spec.wheel_index} can be reached",
            )
        if fell_back:
            reasons[spec.id()] = "the bundle was packed with them"
    return indexes, reasons


def _interpreters(matrix: Matrix, choice: Choice) -> dict[str, str]:
    """Python versions, and `host`, to what was found on this machine; of the pinned ones only where they are used."""
    interpreters = {}
    if choice.executor == "venv":
        interpreters = {
            e.python: str(find_interpreter(e.python) or "to be fetched") for e in matrix.pinned_environments
        }
    if matrix.has_host:
        interpreters[HOST] = host_identity(cache_folder())
    return interpreters


def _machine(matrix: Matrix, choice: Choice) -> dict[str, Any]:
    """Those of the facts that depend on where the environments run."""
    facts = {"interpreters": _interpreters(matrix, choice)}
    if choice.bundle is not None:
        host = host_facts() | {"compiler": "the bundle's", "nvcc": "the bundle's"}
        return facts | _here() | {"bundle": bundle_facts(choice.bundle), "host": host}
    if choice.engine is None or choice.facts is None:
        return facts | _here() | {"host": host_facts()}
    engine = choice.facts
    here = _here() if engine.local else {"threads": engine.processors, "gpus": 1}
    return {
        **facts,
        "bases": {e.base_image: base_identity(choice.engine, e.base_image) for e in matrix.pinned_environments},
        "engine": {"version": engine.version, "system": engine.system},
        "host": engine_host(engine),
        **(here if engine.gpus else here | {"gpus": 0, "gpu": {}}),
    }


def _here() -> dict[str, Any]:
    """Those of this machine. Its GPU is the one that the run will use, however the variable names it."""
    visible = gpus()
    gpu = next(iter(named(visible, os.environ.get(VISIBLE))), None)
    return {
        "threads": physical_cores(),
        "cpu_flags": cpu_flags(),
        "gpus": len(visible),
        "gpu": asdict(gpu) if gpu is not None else {},
    }


def engine_host(engine: EngineFacts) -> dict[str, str]:
    """`host_facts` of the machine that containers run on. Its compilers do not matter: an image brings its own."""
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
