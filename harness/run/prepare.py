"""What a run is made from, before anything starts: the matrix, facts about this machine, and the plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.config import shipped
from harness.config.kernelbench import Folders, with_pairs
from harness.config.keys import code_digests
from harness.config.matrix import Matrix, load_matrix, matrix_text
from harness.config.missing import missing_files
from harness.config.pins import ensure_pins
from harness.config.plan import Facts, Plan
from harness.config.planner import kernel_sources, plan_run, with_digest
from harness.errors import InputError, refusal
from harness.executors.bwrap import REMEDY as SANDBOX_REMEDY
from harness.executors.choose import Choice, Wanted
from harness.executors.process import inherited
from harness.run.build import BINDING_FILES, kernel_files
from harness.run.machine import Machine
from harness.schema.records import Device
from harness.schema.run_records import KernelInfo, Selection
from harness.tools import wrong_tools
from harness.worker import protocol


@dataclass(frozen=True, kw_only=True)
class RunOptions:
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
    machine: Machine = field(default_factory=Machine, compare=False)

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


def draft_plan(options: RunOptions, selection: Selection, *, offline: bool = False) -> Prepared:
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
    choice = options.machine.choose(options.executor, options.bundle, matrix)
    files = folder_files(matrix, options.root)
    if choice.executor == "venv" or matrix.has_host:
        _refuse_wrong_tools(matrix, selection, files)
    indexes, reasons = options.machine.choose_indexes(matrix, choice, strict=options.strict, offline=offline)
    found = options.machine.find_facts(matrix, choice)
    facts = Facts(**found, indexes=indexes, index_reasons=reasons, inherited=inherited())
    plan = plan_run(matrix, selection, facts, files, pairs)
    planned = {kernel.name for kernel in plan.kernels}
    sources = {kernel.name: kernel_sources(kernel, files) for kernel in matrix.kernels if kernel.name in planned} | {
        kernel.name: dict.fromkeys(kernel.devices, kernel.sources) for kernel in plan.kernels if kernel.pytorch
    }
    return Prepared(matrix=matrix, text=text, plan=plan, choice=choice, sources=sources)


def make_plan(options: RunOptions, selection: Selection, *, write_pins: bool) -> Prepared:
    """The plan for this machine. With `write_pins`, missing pin files are resolved and written."""
    return complete(draft_plan(options, selection), options, write_pins=write_pins)


def complete(prepared: Prepared, options: RunOptions, *, write_pins: bool) -> Prepared:
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


def foreign(root: Path, names: Iterable[str]) -> list[str]:
    """Of the files that run, those that lie neither in the project nor among what is shipped, wherever links lead."""
    own = (root.resolve(), shipped.ROOT.resolve())
    places = {name: shipped.located(root, name).resolve() for name in names}
    return [name for name, place in places.items() if not any(place.is_relative_to(folder) for folder in own)]
