"""Controls: how often the test of environments is wrong, and what it finds, on launches whose truth is known.

A/A: replicas of one environment. Whatever the test calls a change between them is a false alarm.
Detection: a kernel beside a slowed copy of it (`control_of` in matrix.yaml). All launches together give the true
slow-down; trials give how often as many launches as a run has detect it.

A trial is a disjoint group of N blocks, judged by the very procedure that judges environments: `latency.decide_all`
over all of its rows, cold and hot, its false-discovery rate included. Trials share no launch, so they are independent
of each other as launches are; rows of one trial share its launches, and are not. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from harness.errors import InputError
from harness.schema.run_records import Cell
from harness.stats import effects
from harness.worker import protocol
from reports import model
from reports.compare import latency
from reports.compare.calibration import AA, Calibration, Controls, Detection, Share, count_share, total
from reports.compare.gpus import cards
from reports.load.evidence import Evidence, same_stack
from reports.model import Latency, LatencySide

LAUNCHES = 10  # of each environment in a trial: as many as a run has by default
RESAMPLES = 200
CALLED = (model.REGRESSED, model.IMPROVED, model.ABOUT)


@dataclass(frozen=True, kw_only=True)
class ControlRow:
    """Two sides that a trial compares; `slowed` where the second is a slowed copy of the first."""

    name: str
    workload: str
    device: str
    mode: str
    slowed: bool
    base: LatencySide
    this: LatencySide
    min_effect: float

    @property
    def blocks(self) -> set[int]:
        return set(self.base.blocks) & set(self.this.blocks)

    def within(self, blocks: set[int]) -> tuple[LatencySide, LatencySide, float]:
        return _within(self.base, blocks), _within(self.this, blocks), self.min_effect


def _within(side: LatencySide, blocks: set[int]) -> LatencySide:
    kept = [(block, us) for block, us in zip(side.blocks, side.medians_us, strict=True) if block in blocks]
    if not kept:
        return replace(side, status="not_run", message="no launch of it in these blocks", blocks=[], medians_us=[])
    return replace(side, blocks=[block for block, _ in kept], medians_us=[us for _, us in kept])


def _rows(
    evidence: Evidence, cells: tuple[Cell, Cell], target: str, name: str, slowed: bool = False
) -> Iterator[ControlRow]:
    """Cold and hot, where both sides have times."""
    workload, device = cells[0].workload, cells[0].device
    for mode in latency.modes(device):
        base, this = (latency.side(evidence, cell, target, mode) for cell in cells)
        if base.status == this.status == "ok":
            yield ControlRow(
                name=name,
                workload=workload,
                device=device,
                mode=mode,
                slowed=slowed,
                base=base,
                this=this,
                min_effect=evidence.min_effect(device),
            )


def replica_rows(evidence: Evidence, one: str, two: str) -> list[ControlRow]:
    """As the report compares them: each kernel; each reference once, in the first kernel's launches that have it."""
    found: dict[tuple[str, str, str], list[ControlRow]] = {}
    for cell in evidence.run.cells:
        if cell.environment == one:
            cells = cell, cell.model_copy(update={"environment": two})
            for name, target in {cell.kernel: protocol.KERNEL, **_references(evidence, cell)}.items():
                key = (name, cell.workload, cell.device)
                if not found.get(key):
                    found[key] = list(_rows(evidence, cells, target, name))
    return [row for group in found.values() for row in group]


def _references(evidence: Evidence, cell: Cell) -> dict[str, str]:
    return {f"{name} (reference)": name for name in evidence.references(cell.kernel, cell.device)}


def slowed_rows(evidence: Evidence, environment: str, kernel: str, slowed: str) -> list[ControlRow]:
    """As an environment would look in which nothing but this kernel had changed: its references are unchanged."""
    found: list[ControlRow] = []
    for cell in evidence.run.cells:
        if (cell.environment, cell.kernel) == (environment, slowed):
            cells = cell.model_copy(update={"kernel": kernel}), cell
            found += _rows(evidence, cells, protocol.KERNEL, slowed, slowed=True)
            for name, target in _references(evidence, cell).items():
                found += _rows(evidence, cells, target, name)
    return found


def judge(evidence: Evidence, rows: Sequence[ControlRow], blocks: set[int]) -> list[Latency]:
    """The procedure that judges environments, on the launches of these blocks."""
    pairs = [row.within(blocks) for row in rows]
    return latency.decide_all(pairs, evidence.names, evidence.confidence, evidence.false_discovery_rate)


def _blocks(rows: Sequence[ControlRow]) -> list[int]:
    return sorted(set().union(*(row.blocks for row in rows)))


def trials(rows: Sequence[ControlRow], launches: int) -> list[set[int]]:
    """Disjoint groups of `launches` blocks, in measured order; blocks left over make none."""
    blocks = _blocks(rows)
    return [set(blocks[start : start + launches]) for start in range(0, len(blocks) - launches + 1, launches)]


def _too_few(what: str, rows: Sequence[ControlRow], launches: int) -> str:
    if not rows:
        return f"{what}: no row has times on both sides"
    return f"{what}: {len(_blocks(rows))} blocks are too few for a trial of {launches}"


def aa(evidence: Evidence, rows: list[ControlRow], environments: list[str], launches: int) -> AA:
    alarms, alarmed, judged = [], 0, 0
    groups = trials(rows, launches)
    for number, blocks in enumerate(groups):
        results = judge(evidence, rows, blocks)
        called = [(row, result) for row, result in zip(rows, results, strict=True) if result.verdict in CALLED]
        judged += sum(result.ratio is not None for result in results)
        alarmed += bool(called)
        alarms += [f"trial {number}: {row.name} on {row.workload}, {row.mode}: {result.why}" for row, result in called]
    return AA(
        environments=environments,
        blocks=len(_blocks(rows)),
        trials=len(groups),
        rows=count_share(len(alarms), judged),
        alarmed=count_share(alarmed, len(groups)),
        alarms=alarms,
    )


def detections(
    evidence: Evidence, rows: list[ControlRow], environment: str, kernel: str, launches: int
) -> tuple[list[Detection], Share]:
    """Each slowed row's trials, and how many of the unchanged rows in the same trials were called."""
    groups = trials(rows, launches)
    blocks = sorted(set().union(*groups))
    results = [judge(evidence, rows, group) for group in groups]
    drawn: list[list[Latency]] = []
    if len(groups) > 1:
        generator = np.random.default_rng(0)
        for _ in range(RESAMPLES):
            picked = generator.choice(blocks, size=launches, replace=False)
            drawn.append(judge(evidence, rows, {int(block) for block in picked}))
    whole = effects.compare_launches([latency.shared_blocks(row.base, row.this) for row in rows], 0.95)
    found = []
    for index, (row, truth) in enumerate(zip(rows, whole, strict=True)):
        if row.slowed:
            found.append(
                Detection(
                    environment=environment,
                    kernel=kernel,
                    slowed=row.name,
                    workload=row.workload,
                    device=row.device,
                    mode=row.mode,
                    launches=truth.blocks,
                    ratio=truth.ratio,
                    low=truth.low,
                    high=truth.high,
                    found=_slower(results, index),
                    resampled=_slower(drawn, index) if drawn else None,
                )
            )
    still = [result[index] for result in results for index, row in enumerate(rows) if not row.slowed]
    judged = [each for each in still if each.ratio is not None]
    return found, count_share(sum(each.verdict in CALLED for each in judged), len(judged))


def _slower(results: list[list[Latency]], index: int) -> Share:
    return count_share(sum(result[index].verdict == model.REGRESSED for result in results), len(results))


def controls(evidence: Evidence, launches: int = LAUNCHES) -> Controls | None:
    """None where the run has neither replicas nor a slowed kernel."""
    run = evidence.run
    stacks = evidence.environments
    replicas = [(a, b) for a, b in combinations(run.environments, 2) if same_stack(stacks.get(a), stacks.get(b))]
    names = {info.name for info in run.kernels}
    pairs = [(info.control_of, info.name) for info in run.kernels if info.control_of in names]
    found_aa, found_slow, unchanged, missing = [], [], [], []
    for one, two in replicas:
        compared = replica_rows(evidence, one, two)
        if trials(compared, launches):
            found_aa.append(aa(evidence, compared, [one, two], launches))
        else:
            missing.append(_too_few(f"{one} against {two}", compared, launches))
    for environment in run.environments:
        for kernel, slowed in pairs:
            compared = slowed_rows(evidence, environment, str(kernel), slowed)
            if trials(compared, launches):
                slow, still = detections(evidence, compared, environment, str(kernel), launches)
                found_slow += slow
                unchanged.append(still)
            else:
                missing.append(_too_few(f"{slowed} in {environment}", compared, launches))
    if not replicas and not pairs:
        return None
    return Controls(launches=launches, aa=found_aa, detections=found_slow, missing=missing, unchanged=total(unchanged))


def calibrate(evidence: Evidence, launches: int = LAUNCHES) -> Calibration:
    """InputError where the run has no control, or too few launches for one trial of it."""
    found = controls(evidence, launches)
    if found is None:
        raise InputError(
            f"{evidence.paths.folder}: has neither replicas of one environment nor a slowed kernel",
            "give an environment of matrix.yaml a `replica:`, or a kernel `control_of:`, and run it",
        )
    if not found.aa and not found.detections:
        raise InputError(f"{evidence.paths.folder}: {found.missing[0]}", "run more launches, or give fewer: --launches")
    run, gpus = evidence.run, cards(evidence)
    return Calibration(
        schema_version=1,
        run_id=run.run_id,
        created_utc=run.created_utc,
        command=run.command,
        gpus=[card.name for card in gpus],
        drivers=sorted({card.driver for card in gpus}),
        environments=run.environments,
        thresholds=run.thresholds,
        controls=found,
    )
