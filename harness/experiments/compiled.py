"""What compiles at run time: the code that is generated for it, with empty caches.

Each environment compiles it in two fresh processes. Where they do not generate the same, nothing of another
environment's code follows from a difference.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config.matrix import Matrix
from harness.config.plan import Plan
from harness.experiments.base import CellExperiment, path_of
from harness.progress import Display
from harness.run.context import Context, checked, fields_of
from harness.run.device import run_task
from harness.run.requests import files_of, kernel_request, workload_request
from harness.schema.compiled_records import Compilation, CompiledRecord
from harness.schema.records import Outcome
from harness.schema.run_records import Cell
from harness.schema.storage import Run
from harness.worker import protocol, wire

EXPERIMENT = "compiled"
SAMPLES = 2
COMPILES = re.compile(r"\btorch\s*\.\s*compile\b|\btriton\b")  # in the text of a file that may


def find_cells(root: Path, matrix: Matrix, plan: Plan) -> Iterator[Cell]:
    """Yield the measured cells of what compiles at run time: operators under torch.compile, and Python files that name
    it or Triton."""
    for cell in plan.cells:
        file = matrix.kernel(cell.kernel).model_new
        compiles = plan.workload(cell.workload).compiled
        if file:
            compiles = bool(COMPILES.search((root / file).read_text(encoding="utf-8", errors="replace")))
        if compiles and cell.environment in plan.measured:
            yield cell


def unsampled(root: Path, matrix: Matrix, plan: Plan, run: Run) -> bool:
    """Return whether a run lacks samples of something that compiles."""
    return any(not path_of(run, cell, EXPERIMENT).exists() for cell in find_cells(root, matrix, plan))


def sample_all(context: Context, display: Display) -> None:
    """Compile what the run lacks, and another run does not hold either."""
    for cell in find_cells(context.root, context.matrix, context.plan):
        experiment = CompiledExperiment(context=context, cell=cell)
        if not experiment.is_recorded:
            with context.hold(cell.device):
                record = experiment.run()
            display.note(f"code generated for {cell.id}: {record.message or f'{len(record.generated)} files'}")


@dataclass(frozen=True, kw_only=True)
class CompiledExperiment(CellExperiment):
    """Compiles one cell in fresh processes; in none any more once one has failed."""

    name = EXPERIMENT
    record = CompiledRecord

    @property
    def key(self) -> str:
        return self.context.key(EXPERIMENT, **vars(self.cell), asked=SAMPLES)

    def measure(self) -> dict[str, Any]:
        is_operator = self.context.plan.kernel(self.cell.kernel).pytorch
        outcome, results = Outcome(status=protocol.OK), list[wire.CompiledResult]()
        if reason := self.find_unavailable(protocol.MODEL if is_operator else protocol.KERNEL):
            outcome = Outcome(status=protocol.NOT_RUN, message=reason)
        while outcome.status == protocol.OK and len(results) < SAMPLES:
            result = self._compile(is_operator)
            if isinstance(result, wire.CompiledResult) and result.status == protocol.OK:
                results.append(result)
            else:
                outcome = result.ended()
        digests = [[[each.kind, each.name, each.sha256] for each in result.generated] for result in results]
        return {
            **fields_of(outcome),
            "samples": [Compilation(generated_sha256=protocol.digest(each)) for each in digests],
            "generated": results[0].generated if results else [],
        }

    def _compile(self, is_operator: bool) -> wire.CompiledResult | Outcome:
        """Compile in one process, with caches of its own."""
        context, cell, plan = self.context, self.cell, self.context.plan
        caches = context.scratch(cell.environment, f"{self.about}.caches")
        shutil.rmtree(caches, ignore_errors=True)
        caches.mkdir(parents=True)
        kernel = None if is_operator else kernel_request(context, cell.kernel, cell.device, self.build)
        workload = workload_request(context, plan.workload(cell.workload))
        request = wire.CompiledRequest(
            workload=workload,
            seed=plan.seed,
            threads=plan.threads_in(cell.environment),
            kernel=kernel,
            device=cell.device,
            caches=str(caches),
        )
        task = context.task(
            EXPERIMENT,
            request,
            cell.environment,
            self.about,
            timeout_s=plan.limits.launch_s,
            reads=(*files_of(kernel, workload), caches),
            writes=(caches,),
        )
        try:
            return checked(wire.CompiledResult, run_task(context, task, cell.device), "the process that compiled it")
        finally:
            shutil.rmtree(caches, ignore_errors=True)
