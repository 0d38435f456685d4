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
from reports.text import words

AT_MOST = 0.95
CONFIDENCE = 0.95
PASS, SLOW, MORE, WRONG, UNDECIDED = "pass", "slow", "more memory", "wrong", "undecided"
MEMORY = "memory"  # beside the ways to time
BUILD_FAILED, BROKEN = "build failed", "broken"
STOPPED = {protocol.BUILD_FAILED: BUILD_FAILED, protocol.BROKEN: BROKEN}  # before any cell
CODES = {
    PASS: errors.DONE,
    WRONG: errors.CORRECTNESS_REGRESSED,
    SLOW: errors.LATENCY_REGRESSED,
    MORE: errors.MEMORY_REGRESSED,
    UNDECIDED: errors.UNDECIDED,
    BUILD_FAILED: errors.BUILD_FAILED,
    BROKEN: errors.INFRASTRUCTURE,
}


@dataclass(frozen=True, kw_only=True)
class CellVerdict:
    """Of one cell, timed cold or hot, or of its memory. `of_kernel` and `of_reference` are microseconds, or bytes;
    `ratio` is the one over the other, launch by launch. Cells that have both get no verdict until all are judged
    together."""

    cell: Cell
    mode: str
    reference: str
    verdict: str = ""
    why: str = ""
    of_kernel: Sequence[float] = ()
    of_reference: Sequence[float] = ()
    ratio: effects.Estimate | None = None


def rule(ratio: effects.Estimate, at_most: float, rows: int, what: str = "time") -> tuple[str, str]:
    """(verdict, why) of one of so many ratios of the kernel's time, or memory, to the reference's."""
    count = f"{ratio.blocks} launch" + ("" if ratio.blocks == 1 else "es")
    if ratio.low is None or ratio.high is None or ratio.error is None or ratio.freedom is None:
        return UNDECIDED, f"{count}: at least 2 are needed to estimate their spread"
    if ratio.high <= at_most and (ratio.high < 1 or what == MEMORY):
        return PASS, f"at most {at_most:g} of the reference's {what}, the whole interval"
    page = decide.DecisionRule(confidence=CONFIDENCE, rate=1 - CONFIDENCE, rows=rows)
    if math.log(ratio.ratio / at_most) > page.reach(ratio.freedom) * ratio.error and ratio.low > at_most:
        return MORE if what == MEMORY else SLOW, f"significantly above {at_most:g} of the reference's {what}"
    half, off = math.log(ratio.high / ratio.low) / 2, abs(math.log(ratio.ratio / at_most))
    enough = f"; about {math.ceil(ratio.blocks * (half / off) ** 2) + 1} would be enough" if off > half / 10 else ""
    return UNDECIDED, f"{count} cannot decide between above and below {at_most:g} of the reference's {what}{enough}"


def paired(evidence: Evidence, cell: Cell, reference: str, mode: str) -> tuple[list[float], list[float]]:
    """Times, or bytes, of the kernel and of the reference, of the launches that have both."""
    found = []
    for target in (protocol.KERNEL, reference):
        values = {row.block: _value(row, mode) for row in evidence.timed(cell, target)}
        found.append({block: value for block, value in values.items() if value is not None})
    return latency.of_shared_blocks(*found)


def _value(row: Launch, mode: str) -> float | None:
    if mode == MEMORY:
        return None if row.memory is None else counted(row.memory.peak_bytes)
    return row.time_us(mode)


def judge(evidence: Evidence, cell: Cell, reference: str, mode: str, blocked: str = "") -> CellVerdict:
    """One cell against the reference in the same launches. Its own correctness; `gate` adds the other versions'.
    `blocked`: why the control permits no ratio of times."""

    def judged(verdict: str, why: str) -> CellVerdict:
        return CellVerdict(cell=cell, mode=mode, reference=reference, verdict=verdict, why=why)

    stopped = evidence.blocked(cell)
    if stopped is not None and stopped.status in STOPPED:
        return judged(STOPPED[stopped.status], stopped.message)
    own = correctness.side(evidence, cell, protocol.KERNEL)
    if own.status == protocol.WRONG or own.status in FAILED:
        return judged(WRONG, f"{words(own.status)}: {own.message}")
    if own.off_stream:
        return judged(WRONG, OFF_STREAM)
    if own.status != protocol.OK:
        return judged(UNDECIDED, f"{words(own.status)}: {own.message}")
    if any(row.correct is False for row in evidence.timed(cell, protocol.KERNEL)):
        return judged(WRONG, "a launch gave another output than the one that was validated")
    if reference not in (known := evidence.references(cell.kernel, cell.device)):
        return judged(UNDECIDED, f"the run has no {reference}; it has {', '.join(known)}")
    if evidence.run.quick and mode != MEMORY:
        return judged(UNDECIDED, "a quick run: its times are too short to decide")
    if blocked:
        return judged(UNDECIDED, blocked)
    of_kernel, of_reference = paired(evidence, cell, reference, mode)
    if not of_kernel:
        return judged(UNDECIDED, why_no_time(evidence, cell, reference, mode))
    return replace(judged("", ""), of_kernel=of_kernel, of_reference=of_reference)


def decided(evidence: Evidence, found: Sequence[CellVerdict], at_most: float) -> list[CellVerdict]:
    """Those that have both, each with its verdict: the spread of launches is estimated from all of them."""
    pairs = [(each.of_reference, each.of_kernel) for each in found if each.of_kernel]
    ratios = iter(effects.compare_launches(pairs, CONFIDENCE))
    results = []
    for each in found:
        if each.of_kernel:
            ratio = next(ratios)
            verdict, why = rule(ratio, at_most, len(pairs), MEMORY if each.mode == MEMORY else "time")
            if correctness.side(evidence, each.cell, each.reference).status == protocol.WRONG:
                why += f"; the reference itself is wrong in {evidence.names[each.cell.environment]}"
            each = replace(each, verdict=verdict, why=why, ratio=ratio)
        results.append(each)
    return results


def why_no_time(evidence: Evidence, cell: Cell, reference: str, mode: str) -> str:
    for target in (protocol.KERNEL, reference):
        found = evidence.timed(cell, target)
        if not any(_value(row, mode) is not None for row in found):
            if mode == MEMORY:
                message = next((row.memory_message for row in found if row.memory_message), "it was not measured")
                return f"no memory of {target}: {message}"
            message = next((row.hot_message if row.status == "ok" else row.message or row.status for row in found), "")
            return f"no {mode} time of {target}: {message or 'the run has no launch of it'}"
    what = "memory" if mode == MEMORY else f"{mode} times"
    return f"no launch has {what} of both the kernel and {reference}"


def reference_of(info: KernelInfo, wanted: str | None) -> str:
    """What PyTorch picks by default; a problem file has its model alone."""
    return wanted or ("default" if "default" in info.references or len(info.references) != 1 else info.references[0])


def chosen(evidence: Evidence, kernels: Sequence[str], workloads: Sequence[str]) -> Iterator[tuple[Cell, KernelInfo]]:
    """The cells to judge: of the kernels named, or of all but copies that were slowed on purpose."""
    run = evidence.run
    infos = {kernel.name: kernel for kernel in run.kernels}
    names = {workload.id: {workload.id, workload.name} for workload in run.workloads}
    for wanted, option, there in (
        (kernels, "--kernel", list(infos)),
        (workloads, "--workload", list(dict.fromkeys(name for each in names.values() for name in sorted(each)))),
    ):
        unknown = next((name for name in wanted if name not in there), None)
        if unknown is not None:
            remedy = f"{meant(unknown, there)}choose from: {', '.join(there)}"
            raise InputError(f"{option} {unknown}: not in this run", remedy)
    for cell in run.cells:
        info = infos[cell.kernel]
        named = not kernels or cell.kernel in kernels
        if named and (not workloads or names[cell.workload] & set(workloads)):
            yield cell, info


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
    """Every cell and way to time, and where `memory_at_most` is given its memory. `reference`: by default what PyTorch
    picks. A kernel that is wrong in one version passes on that workload in none."""
    cells = list(chosen(evidence, kernels, workloads))
    found, blocked = [], identical.blocked_places(evidence)
    for cell, info in cells:
        for mode in [mode for mode in latency.modes(cell.device) if mode in modes or cell.device == "cpu"]:
            why = blocked.get((cell.environment, cell.device), "")
            found.append(judge(evidence, cell, reference_of(info, reference), mode, why))
    found = decided(evidence, found, at_most)
    if memory_at_most is not None:
        used = [judge(evidence, cell, reference_of(info, reference), MEMORY) for cell, info in cells]
        found += decided(evidence, used, memory_at_most)
    wrong: dict[tuple[str, str, str], str] = {}
    for each in found:
        if each.verdict == WRONG:
            wrong.setdefault((each.cell.kernel, each.cell.workload, each.cell.device), each.cell.environment)
    for index, each in enumerate(found):
        where = wrong.get((each.cell.kernel, each.cell.workload, each.cell.device))
        if where is not None and each.verdict in (PASS, SLOW, MORE):
            found[index] = replace(each, verdict=WRONG, why=f"{each.why}; not correct in {where}")
    return found


def exit_code(found: Sequence[CellVerdict]) -> int:
    return errors.exit_code(CODES[each.verdict] for each in found)
