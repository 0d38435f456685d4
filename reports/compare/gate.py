"""Is a kernel fast enough, and correct everywhere? From a run's records. Pure.

The rule, for each cell and on a GPU for both ways to time: the kernel takes at most a given share of the named
reference's time, and it is correct in every environment. The same launches timed both, one process each, so a launch
gives one ratio, and ratios are estimated as those between environments are (`harness.stats.effects`). A cell passes
where its whole 95% interval is at most that share, so no gate passes what it could not have seen; it is slow where the
interval lies above the share, with a chance of at most 5% that any row of the page is called slow wrongly.

The memory of its calls is judged likewise, where a share of the reference's is given for that.

A cell is undecided where the interval contains the share; where the reference was not measured or has no times; where
the kernel is unsupported or was not run; and in a quick run, whose times are too short.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from harness import errors
from harness.errors import InputError, meant
from harness.schema.run_records import Cell, KernelInfo
from harness.stats import decide, effects
from harness.stats.peaks import counted
from harness.worker import protocol
from reports import model
from reports.compare import correctness, identical, latency
from reports.compare.correctness import FAILED, OFF_STREAM
from reports.load.evidence import Evidence
from reports.load.launches import Launch
from reports.sentences import sentence
from reports.text import words

AT_MOST = 0.95
CONFIDENCE = 0.95
MEMORY = "memory"  # beside the ways to time


class GateVerdict(str, Enum):
    """What came of one cell, with the exit code that it calls for."""

    PASS = "pass"
    WRONG = "wrong"
    SLOW = "slow"
    MORE = "more memory"
    UNDECIDED = "undecided"
    BUILD_FAILED = "build failed"
    BROKEN = "broken"

    __str__ = str.__str__

    @property
    def exit_code(self) -> int:
        return CODES[self]


CODES = {
    GateVerdict.PASS: errors.DONE,
    GateVerdict.WRONG: errors.CORRECTNESS_REGRESSED,
    GateVerdict.SLOW: errors.LATENCY_REGRESSED,
    GateVerdict.MORE: errors.MEMORY_REGRESSED,
    GateVerdict.UNDECIDED: errors.UNDECIDED,
    GateVerdict.BUILD_FAILED: errors.BUILD_FAILED,
    GateVerdict.BROKEN: errors.INFRASTRUCTURE,
}
# What keeps a cell from being measured at all.
BLOCKED = {protocol.BUILD_FAILED: GateVerdict.BUILD_FAILED, protocol.BROKEN: GateVerdict.BROKEN}


@dataclass(frozen=True, kw_only=True)
class CellVerdict:
    """Of one cell, timed cold or hot, or of its memory. `of_kernel` and `of_reference` are microseconds, or bytes;
    `ratio` is the one over the other, launch by launch. Cells that have both get their verdict when all are judged
    together."""

    cell: Cell
    mode: str
    reference: str
    verdict: GateVerdict = GateVerdict.UNDECIDED
    why: str = ""
    of_kernel: Sequence[float] = ()
    of_reference: Sequence[float] = ()
    ratio: effects.Estimate | None = None

    @property
    def place(self) -> tuple[str, str, str]:
        return self.cell.kernel, self.cell.workload, self.cell.device


def apply_rule(ratio: effects.Estimate, at_most: float, rows: int, what: str = "time") -> tuple[GateVerdict, str]:
    """Return the verdict of one of so many ratios of the kernel's time, or memory, to the reference's, and why."""
    verdict, enough = GateVerdict.UNDECIDED, None
    if ratio.low is not None and ratio.high is not None and ratio.error is not None and ratio.freedom is not None:
        page = decide.DecisionRule(confidence=CONFIDENCE, rate=1 - CONFIDENCE, rows=rows)
        off = math.log(ratio.ratio / at_most)
        half = math.log(ratio.high / ratio.low) / 2
        if ratio.high <= at_most and (ratio.high < 1 or what == MEMORY):
            verdict = GateVerdict.PASS
        elif off > page.reach(ratio.freedom) * ratio.error and ratio.low > at_most:
            verdict = GateVerdict.MORE if what == MEMORY else GateVerdict.SLOW
        elif abs(off) > half / 10:
            enough = math.ceil(ratio.blocks * (half / off) ** 2) + 1
    return verdict, sentence("gate", "rule", verdict, ratio, at_most, what, enough)


def _value(row: Launch, mode: str) -> float | None:
    if mode == MEMORY:
        return None if row.memory is None else counted(row.memory.peak_bytes)
    return row.time_us(mode)


def judge(evidence: Evidence, cell: Cell, reference: str, mode: str, blocked: str = "") -> CellVerdict:
    """Judge one cell against the reference in the same launches, by its own correctness; `gate` adds the other
    versions'. `blocked`: why the control permits no ratio of times."""
    stopped = evidence.blocked(cell)
    own = correctness.side(evidence, cell, protocol.KERNEL)
    known = evidence.references(cell.kernel, cell.device)
    rows = {target: evidence.timed(cell, target) for target in (protocol.KERNEL, reference)}
    values = [
        {row.block: value for row in found if (value := _value(row, mode)) is not None} for found in rows.values()
    ]
    shared = sorted(values[0].keys() & values[1].keys())
    is_quick = evidence.run.quick and mode != MEMORY
    failed = f"{words(own.status)}: {own.message}"
    checks = (
        (stopped is not None and stopped.status in BLOCKED, stopped.message if stopped else ""),
        (own.status == protocol.WRONG or own.status in FAILED, failed),
        (own.off_stream, OFF_STREAM),
        (own.status != protocol.OK, failed),
        (any(row.correct is False for row in rows[protocol.KERNEL]), sentence("gate", "another_output")),
        (reference not in known, sentence("gate", "no_reference", reference, known)),
        (is_quick, sentence("gate", "quick")),
        (bool(blocked), blocked),
        (not shared, _explain_no_value(rows, mode)),
    )
    holds = [does_hold for does_hold, _ in checks]
    verdict = CellVerdict(cell=cell, mode=mode, reference=reference)
    if not any(holds):
        of_kernel, of_reference = ([each[block] for block in shared] for each in values)
        return replace(verdict, of_kernel=of_kernel, of_reference=of_reference)
    first = holds.index(True)
    found = GateVerdict.WRONG if first in (1, 2, 4) else GateVerdict.UNDECIDED
    if first == 0 and stopped is not None:
        found = BLOCKED[stopped.status]
    return replace(verdict, verdict=found, why=checks[first][1])


def _explain_no_value(rows: dict[str, list[Launch]], mode: str) -> str:
    for target, found in rows.items():
        if not any(_value(row, mode) is not None for row in found):
            return sentence("gate", "no_value", target, found, mode)
    return sentence("gate", "no_shared_launch", list(rows)[-1], mode)


def decide_all(evidence: Evidence, found: Sequence[CellVerdict], at_most: float) -> list[CellVerdict]:
    """Return all, those that have both with their verdict: the spread of launches is estimated from all of them."""
    pairs = [(each.of_reference, each.of_kernel) for each in found if each.of_kernel]
    ratios = iter(effects.compare_launches(pairs, CONFIDENCE))
    results = []
    for each in found:
        if each.of_kernel:
            ratio = next(ratios)
            verdict, why = apply_rule(ratio, at_most, len(pairs), MEMORY if each.mode == MEMORY else "time")
            if correctness.side(evidence, each.cell, each.reference).status == protocol.WRONG:
                why += sentence("gate", "wrong_reference", evidence.names[each.cell.environment])
            each = replace(each, verdict=verdict, why=why, ratio=ratio)
        results.append(each)
    return results


def reference_of(info: KernelInfo, wanted: str | None) -> str:
    """Return what PyTorch picks by default; a problem file has its model alone."""
    return wanted or ("default" if "default" in info.references or len(info.references) != 1 else info.references[0])


def choose(evidence: Evidence, kernels: Sequence[str], workloads: Sequence[str]) -> Iterator[tuple[Cell, KernelInfo]]:
    """Yield the cells to judge: of the kernels and workloads named, or of all."""
    run = evidence.run
    infos = {kernel.name: kernel for kernel in run.kernels}
    names = {workload.id: {workload.id, workload.name} for workload in run.workloads}
    known = sorted(set().union(*names.values())) if names else []
    for wanted, option, there in ((kernels, "--kernel", list(infos)), (workloads, "--workload", known)):
        for name in wanted:
            if name not in there:
                remedy = f"{meant(name, there)}choose from: {', '.join(there)}"
                raise InputError(f"{option} {name}: not in this run", remedy)
    for cell in run.cells:
        if (not kernels or cell.kernel in kernels) and (not workloads or names[cell.workload] & set(workloads)):
            yield cell, infos[cell.kernel]


def gate(
    evidence: Evidence,
    *,
    kernels: Sequence[str] = (),
    workloads: Sequence[str] = (),
    reference: str | None = None,
    at_most: float = AT_MOST,
    modes: Sequence[str] = (model.COLD, model.HOT),
    memory_at_most: float | None = None,
) -> list[CellVerdict]:
    """Judge every cell and way to time, and where `memory_at_most` is given its memory. `reference`: by default what
    PyTorch picks. A kernel that is wrong in one version passes on that workload in none."""
    cells = [(cell, reference_of(info, reference)) for cell, info in choose(evidence, kernels, workloads)]
    blocked = identical.blocked_places(evidence)
    timed = [
        judge(evidence, cell, against, mode, blocked.get((cell.environment, cell.device), ""))
        for cell, against in cells
        for mode in latency.modes(cell.device)
        if mode in modes or cell.device == "cpu"
    ]
    found = decide_all(evidence, timed, at_most)
    if memory_at_most is not None:
        used = [judge(evidence, cell, against, MEMORY) for cell, against in cells]
        found += decide_all(evidence, used, memory_at_most)
    wrong = {each.place: each.cell.environment for each in reversed(found) if each.verdict is GateVerdict.WRONG}
    measured = (GateVerdict.PASS, GateVerdict.SLOW, GateVerdict.MORE)
    return [
        replace(each, verdict=GateVerdict.WRONG, why=f"{each.why}; not correct in {wrong[each.place]}")
        if each.place in wrong and each.verdict in measured
        else each
        for each in found
    ]
