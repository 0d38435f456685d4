"""First calls of what compiles at run time, apart from launches: with empty caches, and with filled ones.

Launches time calls that are compiled already, and a first call takes so long that a few samples of it are enough. A
sample is two fresh processes that share a folder of caches, empty for the first. Samples of all environments are taken
in turns, in random order, so that they are compared as launches are: within blocks.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.config.matrix import Matrix
from harness.config.plan import Plan
from harness.experiments.profile import unavailable
from harness.progress import Display
from harness.run.believed import SHORTEST_US
from harness.run.context import Context, checked, fields_of, to_outcome
from harness.run.device import run_task
from harness.run.folders import now_utc, stored
from harness.run.requests import files_of, kernel_request, workload_request
from harness.schema.compiled_records import CompiledRecord, FirstCall
from harness.schema.records import Device, Outcome
from harness.schema.run_records import Cell
from harness.schema.storage import Run, load_record
from harness.worker import protocol, wire

EXPERIMENT = "compiled"
SAMPLES, QUICK_SAMPLES = 5, 3
COMPILES = re.compile(r"\btorch\s*\.\s*compile\b|\btriton\b")  # in the text of a file that may
Subject = tuple[str, str, Device]


def subjects(root: Path, matrix: Matrix, plan: Plan) -> dict[Subject, list[Cell]]:
    """The measured cells of what compiles at run time: operators under torch.compile, and Python files that name it or
    Triton."""
    found: dict[Subject, list[Cell]] = {}
    for cell in plan.cells:
        if cell.environment in plan.measured and _compiles(root, matrix, plan, cell):
            found.setdefault((cell.kernel, cell.workload, cell.device), []).append(cell)
    return found


def _compiles(root: Path, matrix: Matrix, plan: Plan, cell: Cell) -> bool:
    file = matrix.kernel(cell.kernel).model_new
    if not file:
        return plan.workload(cell.workload).compiled
    return bool(COMPILES.search((root / file).read_text(encoding="utf-8", errors="replace")))


def record_path(run: Run, cell: Cell) -> Path:
    return run.experiment_path(cell.environment, cell.kernel, cell.device, cell.workload, EXPERIMENT)


def unsampled(root: Path, matrix: Matrix, plan: Plan, run: Run) -> bool:
    """Whether a run lacks samples of something that compiles."""
    cells = (cell for group in subjects(root, matrix, plan).values() for cell in group)
    return any(not record_path(run, cell).exists() for cell in cells)


def sample_all(context: Context, display: Display) -> None:
    """The samples that the run lacks, of all environments of a subject together; from another run only so, too."""
    for cells in subjects(context.root, context.matrix, context.plan).values():
        keys = [compiled_key(context, cell) for cell in cells]
        if _recorded(context, cells, keys):
            continue
        with context.hold(cells[0].device):
            records = sample_in_turns(context, cells)
        for cell, record in zip(cells, records, strict=True):
            context.save(record_path(context.run, cell), record)
            display.note(f"first calls of {cell.id}: {record.message or _told(record)}")


def _told(record: CompiledRecord) -> str:
    return ", ".join(f"{each.cold_s:.1f} s cold and {each.warm_s:.1f} s warm" for each in record.samples)


def compiled_key(context: Context, cell: Cell) -> str:
    return context.key(EXPERIMENT, **cell.model_dump(), asked=_samples(context.plan))


def _samples(plan: Plan) -> int:
    return QUICK_SAMPLES if plan.quick else SAMPLES


def _recorded(context: Context, cells: Sequence[Cell], keys: Sequence[str]) -> bool:
    """Whether this run holds all of a subject's records, or another one, from which they are copied."""
    places = {record_path(context.run, cell): key for cell, key in zip(cells, keys, strict=True)}
    if all(path.exists() and load_record(path, CompiledRecord).key == key for path, key in places.items()):
        return True
    runs: dict[Path, dict[Path, CompiledRecord]] = {}
    for path, key in places.items():
        for run, record in stored(context.root, path.relative_to(context.run.folder), CompiledRecord, key):
            if record.status == protocol.OK:
                runs.setdefault(run.folder, {})[path] = record
    found = next((records for records in runs.values() if len(records) == len(places)), {})
    for path, record in found.items():
        context.save(path, record)
    return bool(found)


class Sampler:
    """First calls of one cell."""

    def __init__(self, context: Context, cell: Cell) -> None:
        self.context, self.cell = context, cell
        self.started, self.duration_s = now_utc(), 0.0
        self.samples: list[FirstCall] = []
        self.first: wire.CompiledResult | None = None
        is_operator = context.plan.kernel(cell.kernel).pytorch
        reason = unavailable(context, cell, protocol.MODEL if is_operator else protocol.KERNEL)
        self.failed = Outcome(status=protocol.NOT_RUN, message=reason) if reason else None
        self.about = f"{cell.kernel}-{cell.device}-{cell.workload}"
        self.caches = context.scratch(cell.environment, f"{self.about}.caches")
        built = context.builds[cell.environment, cell.kernel, cell.device]
        self.kernel = None if is_operator or reason else kernel_request(context, cell.kernel, cell.device, built)

    def sample(self, block: int) -> None:
        """Two processes; nothing once one has failed."""
        if self.failed is not None:
            return
        shutil.rmtree(self.caches, ignore_errors=True)
        self.caches.mkdir(parents=True)
        results = []
        for state in ("cold", "warm"):
            result = self._call(state)
            if not isinstance(result, wire.CompiledResult) or result.status != protocol.OK:
                self.failed = to_outcome(result)
                return
            results.append(result)
        cold, warm = results
        self.first = self.first or cold
        made = protocol.digest([[each.kind, each.name, each.sha256] for each in cold.generated])
        assert cold.later_us is not None  # see `implausible`
        self.samples.append(
            FirstCall(
                block=block, cold_s=cold.first_s, warm_s=warm.first_s, later_us=cold.later_us, generated_sha256=made
            )
        )

    def compile_once(self) -> str:
        """Fill the caches; why it failed, or ''."""
        self.caches.mkdir(parents=True)
        result = self._call("cold") if self.failed is None else self.failed
        return "" if result.status == protocol.OK else result.message or result.status.replace("_", " ")

    def _call(self, state: str) -> wire.CompiledResult | Outcome:
        context, cell, plan = self.context, self.cell, self.context.plan
        workload = workload_request(context, plan.workload(cell.workload))
        request = wire.CompiledRequest(
            workload=workload,
            seed=plan.seed,
            threads=plan.threads_in(cell.environment),
            kernel=self.kernel,
            device=cell.device,
            caches=str(self.caches),
        )
        task = context.task(
            EXPERIMENT,
            request,
            cell.environment,
            self.about,
            log=f"{EXPERIMENT}-{self.about}-{state}",
            timeout_s=plan.limits.launch_s,
            reads=(*files_of(self.kernel, workload), self.caches),
            writes=(self.caches,),
            compiles=True,
        )
        answer = run_task(context, task, cell.device)
        self.duration_s += answer.ended.duration_s
        result = checked(wire.CompiledResult, answer, "the process that called it first")
        if isinstance(result, wire.CompiledResult) and (reason := implausible(result, answer.ended.duration_s)):
            return Outcome(status=protocol.CRASHED, message=reason)
        return result

    def record(self) -> CompiledRecord:
        shutil.rmtree(self.caches, ignore_errors=True)
        made: dict[str, Any] = asdict(self.first) if self.first is not None else {}
        outcome = self.failed or Outcome(status=protocol.OK)
        return CompiledRecord(
            **self.cell.model_dump(),
            **fields_of(outcome),
            key=compiled_key(self.context, self.cell),
            started_utc=self.started,
            duration_s=round(self.duration_s, 3),
            samples=self.samples,
            generated=made.get("generated", []),
            picked=made.get("picked", []),
        )


def implausible(result: wire.CompiledResult, duration_s: float) -> str:
    """'' where what it claims is a time, and fits into the one that passed by our own clock: its process had the code
    under test in it."""
    first_us, later_us = result.first_s * 1e6, result.later_us or 0.0
    if result.status != protocol.OK or (min(first_us, later_us) >= SHORTEST_US and first_us <= duration_s * 1e6):
        return ""
    claim = f"a first call of {result.first_s:.3g} s and later ones of {later_us:.3g} us"
    return f"it claims {claim}, in {duration_s:.3g} s"


def sample_in_turns(context: Context, cells: Sequence[Cell]) -> list[CompiledRecord]:
    """One environment's sample after the other's, in each block in an order of its own."""
    samplers = [Sampler(context, cell) for cell in cells]
    generator = random.Random(context.plan.seed)
    for block in range(_samples(context.plan)):
        for sampler in generator.sample(samplers, len(samplers)):
            sampler.sample(block)
    return [sampler.record() for sampler in samplers]
