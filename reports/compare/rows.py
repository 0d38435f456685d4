"""Every planned cell, and every reference x workload x device, against the same in the baseline environment; which of
these rows moved, and which a reader must see first. Pure.

No gaps: what has no record is a row whose status is `not_run`, with the reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256

from harness.schema.records import Device
from harness.schema.run_records import Cell
from harness.stats import decide
from harness.worker import protocol
from reports import model
from reports.compare import correctness, latency, meaning, memory
from reports.compare.correctness import FAILED, OutputsSeen
from reports.compare.decisions import decide_all
from reports.compare.latency import STOPPED
from reports.load.evidence import Evidence, same_stack
from reports.model import Comparison, Correctness, CorrectnessSide, Latency, Memory
from reports.sentences import sentence
from reports.text import eval_command, matrix_command

# An operator of PyTorch's that is measured by itself is no reference of anything: it is what the run is about.
KERNEL, OPERATOR, REFERENCE = "kernel", "operator", "reference"
SUBJECTS = (KERNEL, OPERATOR)


def measured_as(kind: str, target: str) -> str:
    """What records call it."""
    return {KERNEL: protocol.KERNEL, OPERATOR: protocol.MODEL}.get(kind, target)


@dataclass(frozen=True)
class PlannedRow:
    """One row to be compared. `kernels` hold the records: the kernel itself, or those that a reference ran beside."""

    kind: str
    target: str
    environment: str
    workload: str
    device: Device
    kernels: tuple[str, ...]

    @property
    def timed_as(self) -> str:
        return measured_as(self.kind, self.target)

    def cells(self, baseline: str, has: Callable[[Cell, str], bool]) -> tuple[Cell, Cell]:
        """The baseline's cell and this environment's, of the first kernel with evidence on both sides, else on either,
        else of the first."""
        pairs = []
        for kernel in self.kernels:
            this = Cell(environment=self.environment, kernel=kernel, workload=self.workload, device=self.device)
            pairs.append((replace(this, environment=baseline), this))
        found = [sum(has(cell, self.timed_as) for cell in pair) for pair in pairs]
        return pairs[found.index(max(found))]

    @property
    def id(self) -> str:
        """Readable, and unique even where a name holds what a URL fragment cannot."""
        name = f"ref:{self.target}" if self.kind == REFERENCE else self.target
        plain = "/".join((self.environment, name, self.workload, self.device))
        safe = re.sub(r"[^A-Za-z0-9._:/+-]", "_", plain)
        return safe if safe == plain else f"{safe}-{sha256(plain.encode()).hexdigest()[:8]}"


def planned_rows(evidence: Evidence) -> Iterator[PlannedRow]:
    """Kernels and operators in plan order, then references. The baseline's own cells are rows only where no other
    environment was planned."""
    run = evidence.run
    references: dict[tuple[str, str, str, Device], list[str]] = {}
    for cell in [cell for cell in run.cells if cell.environment != run.baseline] or run.cells:
        place = (cell.environment, cell.workload, cell.device)
        if cell.kernel in run.pytorch:
            info = evidence.workload(cell.workload)
            yield PlannedRow(OPERATOR, info.name if info else cell.workload, *place, kernels=(cell.kernel,))
            continue
        yield PlannedRow(KERNEL, cell.kernel, *place, kernels=(cell.kernel,))
        for reference in evidence.references(cell.kernel, cell.device):
            references.setdefault((reference, *place), []).append(cell.kernel)
    for key, kernels in references.items():
        yield PlannedRow(REFERENCE, *key, kernels=tuple(kernels))


def is_control(evidence: Evidence, environment: str) -> bool:
    """An A/A control: the baseline's stack a second time, where every change called is a false alarm. Of two runs
    something else may have changed."""
    if evidence.run.sides:
        return False
    base, this = map(evidence.environments.get, (evidence.run.baseline, environment))
    return environment != evidence.run.baseline and same_stack(base, this)


def compare(evidence: Evidence) -> list[Comparison]:
    """Comparisons without causes, which attribution adds."""
    run = evidence.run
    planned = list(planned_rows(evidence))
    verdicts = _judge_outputs(evidence, planned)
    times, memories = _judge_times(evidence, planned, verdicts), _judge_memory(evidence, planned)
    forwards = {row.id: timed[model.COLD] for row, timed in zip(planned, times, strict=True)}
    results = []
    for row, judged, timed, used in zip(planned, verdicts, times, memories, strict=True):
        cold, backward = timed[model.COLD], timed.get(model.BACKWARD)
        forward = forwards.get(replace(row, workload=protocol.forward_of(row.workload)).id)
        kernel = row.kernels[0] if row.kind in SUBJECTS else (cold.this.measured_with or row.kernels[0])
        stack = evidence.environments.get(row.environment)
        torch = row.environment if stack is None or stack.executor == "host" else stack.torch
        selected = {"kernel": kernel, "workload": row.workload, "device": row.device}
        results.append(
            Comparison(
                id=row.id,
                kind=row.kind,
                target=row.target,
                workload=row.workload,
                device=row.device,
                environment=row.environment,
                baseline=run.baseline,
                control=is_control(evidence, row.environment),
                alone=row.environment == run.baseline,
                correctness=judged,
                latency=cold,
                hot=timed.get(model.HOT),
                backward=backward,
                parts=sentence("verdicts", "parts", forward, backward) if backward is not None else "",
                memory=used,
                command="" if run.sides else matrix_command(run.command, **selected),
                eval_command="" if run.sides else eval_command(run.command, torch, **selected),
            )
        )
    return results


def _judge_times(
    evidence: Evidence, planned: list[PlannedRow], verdicts: list[Correctness]
) -> list[dict[str, Latency]]:
    """Return the times of each row by mode."""

    def was_timed(cell: Cell, target: str) -> bool:
        return any(launch.status == "ok" for launch in evidence.timed(cell, target))

    untested: dict[tuple[int, str], Latency] = {}
    for index, (row, judged) in enumerate(zip(planned, verdicts, strict=True)):
        cells = row.cells(evidence.run.baseline, was_timed)
        modes = latency.modes(row.device)
        if any(evidence.timed(cell, row.timed_as + protocol.BACKWARD) for cell in cells):
            modes += (model.BACKWARD,)
        for mode in modes:
            base, this = (
                latency.side(evidence, cell, row.timed_as, mode, side)
                for cell, side in zip(cells, (judged.baseline, judged.this), strict=True)
            )
            untested[index, mode] = latency.compare_times(evidence, base, this, evidence.min_effect(row.device))
    found: list[dict[str, Latency]] = [{} for _ in planned]
    for (index, mode), timed in zip(untested, decide_all(evidence, list(untested.values())), strict=True):
        without = mode == model.BACKWARD and not (timed.baseline.blocks and timed.this.blocks)
        found[index][mode] = replace(timed, verdict=model.NO_DATA) if without else timed
    return found


def _judge_memory(evidence: Evidence, planned: list[PlannedRow]) -> list[Memory]:
    def was_measured(cell: Cell, target: str) -> bool:
        return any(launch.memory is not None for launch in evidence.timed(cell, target))

    untested = []
    for row in planned:
        cells = row.cells(evidence.run.baseline, was_measured)
        sides = (memory.side(evidence, cell, row.timed_as) for cell in cells)
        untested.append(memory.compare_memory(evidence, *sides))
    return decide_all(evidence, untested)


def _judge_outputs(evidence: Evidence, planned: list[PlannedRow]) -> list[Correctness]:
    observed = [_observe_outputs(evidence, row) for row in planned]
    q_values = decide.adjust([each.p_value for each in observed])
    level = evidence.false_discovery_rate
    return [
        correctness.judge(each, q_value, level, evidence.names)
        for each, q_value in zip(observed, q_values, strict=True)
    ]


def _observe_outputs(evidence: Evidence, row: PlannedRow) -> OutputsSeen:
    def was_validated(cell: Cell, target: str) -> bool:
        record = evidence.validations.get(cell.id)
        return record is not None and any(correctness.target_of(each, target) for each in record.recipes)

    cells = row.cells(evidence.run.baseline, was_validated)
    base, this = (correctness.side(evidence, cell, row.timed_as) for cell in cells)
    records = [evidence.validations.get(cell.id) for cell in cells]
    bits = correctness.compare_bits(records[0], records[1], row.timed_as)
    seen = OutputsSeen(base=base, this=this, bits=bits)
    if _is_measured_by_its_version(row, base, this):
        changed = meaning.meaning_change(evidence, *cells)
        draws = meaning.draws_otherwise(evidence, cells, row.timed_as, bits)
        if changed is not None or draws:
            return replace(seen, meaning=changed, draws=draws)
    if base.status == this.status == "ok":
        errors, p_value = correctness.compare_errors(records[0], records[1], row.timed_as)
        return replace(seen, errors=errors, p_value=p_value)
    return replace(seen, p_value=correctness.fisher_p(base, this))


def _is_measured_by_its_version(row: PlannedRow, base: CorrectnessSide, this: CorrectnessSide) -> bool:
    """Return whether a change of what a version computes matters: not for a kernel that is wrong by either one."""
    ran = base.status in protocol.RAN and this.status in protocol.RAN
    return ran and not (row.kind == KERNEL and base.status == this.status == protocol.WRONG)


def correctness_moved(row: Comparison) -> bool:
    judged = row.correctness
    return judged.verdict in model.MOVED and not (judged.verdict == model.BROKEN and judged.baseline.status in FAILED)


def _time_moved(timed: Latency) -> bool:
    """What has no times here, and for its own failure had none in the baseline, did not move."""
    return timed.verdict in model.MOVED and not (timed.verdict == model.BROKEN and timed.baseline.status in STOPPED)


def latency_moved(row: Comparison) -> bool:
    return any(map(_time_moved, row.timed))


def memory_moved(row: Comparison) -> bool:
    return row.memory.verdict in model.MOVED


def leading_time(row: Comparison) -> tuple[str, Latency]:
    """The mode whose verdict represents a row: cold, unless only another moved."""
    return next(((mode, timed) for mode, timed in row.modes.items() if _time_moved(timed)), (model.COLD, row.latency))


def has_moved(row: Comparison, under_a_moved_reference: bool = False) -> bool:
    """A verdict that moved, or a reference that moved under a kernel that did not."""
    if row.alone:
        return row.correctness.verdict in (model.BROKEN, model.FAILING)
    return correctness_moved(row) or latency_moved(row) or memory_moved(row) or under_a_moved_reference


def significance(row: Comparison) -> tuple[float, ...]:
    """Sort key, most significant first: worse outputs, kernels before references, slower before more memory, that
    before other outputs that moved and those before faster, the smaller q, the larger change."""
    worse_output = row.correctness.verdict in model.WORSE and (row.alone or correctness_moved(row))
    timed = leading_time(row)[1]
    worse_time = timed.verdict in model.WORSE and (row.alone or latency_moved(row))
    q = timed.q_value if timed.q_value is not None else 1.0
    change = abs(math.log(timed.ratio)) if timed.ratio else 0.0
    moved = correctness_moved(row)
    more_memory = row.memory.verdict in model.WORSE
    return (not worse_output, row.kind not in SUBJECTS, not worse_time, not more_memory, not moved, q, -change)
