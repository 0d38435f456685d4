"""Peak memory of one target's calls in one environment, and its verdict against the same in the baseline. Pure.

One launch gives one peak, and environments are compared as their times are: by the ratio within blocks, with its
interval and a test over all rows. Small peaks differ by a page or a block, so a change counts only where it is also
`FLOOR_BYTES` or more: what is smaller counts as that much, and of little memory only a large share counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median

from harness.schema.records import CallMemory
from harness.schema.run_records import Cell
from harness.stats import decide
from harness.stats.peaks import FLOOR_BYTES, counted
from harness.worker import protocol
from reports import model
from reports.compare.latency import of_shared_blocks, tested
from reports.load.evidence import Evidence
from reports.model import Comparison, Memory, MemorySide
from reports.text import TIMES, bytes_text, memory_change, ratio_interval, words

NOT_MEASURED = "memory was not measured"
Pair = tuple[MemorySide, MemorySide]


def has_ratio(memory: Memory) -> bool:
    """Whether both peaks are large enough to divide one by the other."""
    return min(each.peak_bytes or 0.0 for each in (memory.baseline, memory.this)) >= FLOOR_BYTES


def memory_text(memory: Memory) -> str:
    """2.10x the memory; of peaks that are too small to divide by, the difference."""
    if has_ratio(memory):
        return f"{memory.ratio or 1.0:.2f}{TIMES} the memory"
    change = (memory.this.peak_bytes or 0.0) - (memory.baseline.peak_bytes or 0.0)
    return f"{bytes_text(abs(change))} {'more' if change > 0 else 'less'} memory"


def memory_open(row: Comparison) -> bool:
    """Whether its peaks differ by more than counts, and it is undecided whether they do."""
    memory = row.memory
    apart = abs(math.log(memory.ratio)) > math.log(1 + memory.min_effect) if memory.ratio else False
    return apart and memory.verdict == model.UNDECIDED and not row.uncompared(memory)


def side(evidence: Evidence, cell: Cell, target: str) -> MemorySide:
    """`target` is `kernel` or a reference's name; the cell's kernel is the one in whose launches it was measured."""
    measured_with = None if target == protocol.KERNEL else cell.kernel
    launches = evidence.timed(cell, target)
    found = [(launch.block, launch.memory) for launch in launches if launch.memory is not None]
    if not found:
        failed = next((launch for launch in launches if launch.memory_message or launch.status != "ok"), None)
        why = (failed.memory_message or failed.message or words(failed.status)) if failed is not None else ""
        message = f"{NOT_MEASURED}: {why}" if why else NOT_MEASURED
        return MemorySide(environment=cell.environment, status="not_run", message=message, measured_with=measured_with)

    def middle(read: Callable[[CallMemory], int | None]) -> float | None:
        values = [value for _, measured in found if (value := read(measured)) is not None]
        return median(values) if values else None

    return MemorySide(
        environment=cell.environment,
        status="ok",
        record=evidence.launches_pointer(cell.environment, cell.kernel, cell.device),
        measured_with=measured_with,
        blocks=[block for block, _ in found],
        peaks_bytes=[measured.peak_bytes for _, measured in found],
        peak_bytes=middle(lambda measured: measured.peak_bytes),
        kept_bytes=middle(lambda measured: measured.kept_bytes),
        reserved_bytes=middle(lambda measured: measured.reserved_bytes),
        outside_bytes=middle(lambda measured: measured.outside_bytes),
    )


def _shared(pair: Pair) -> tuple[list[float], list[float]]:
    base, this = (
        {block: counted(peak) for block, peak in zip(each.blocks, each.peaks_bytes, strict=True)} for each in pair
    )
    return of_shared_blocks(base, this)


def min_effect(pair: Pair, share: float) -> float:
    """The smallest change that counts: the share, or as much as `FLOOR_BYTES` are of the smaller peak."""
    peaks = [each.peak_bytes or 0.0 for each in pair]
    return max(share, FLOOR_BYTES / max(FLOOR_BYTES, min(peaks)))


def _untested(pair: Pair, share: float, names: Mapping[str, str], not_comparable: str) -> Memory:
    """The verdict where there is nothing to test, and none yet where both were measured in the same blocks."""
    missing = [each for each in pair if each.status != "ok"]
    word, why = "", ""
    if missing:
        word, why = model.NO_DATA, missing[0].message
        if len(missing) == 1:
            why = f"{missing[0].message} in {names[missing[0].environment]}"
    elif not_comparable:
        word, why = model.UNDECIDED, not_comparable
    elif not _shared(pair)[0]:
        word, why = model.UNDECIDED, "no block has launches of both environments"
    return Memory(verdict=word, why=why, baseline=pair[0], this=pair[1], min_effect=min_effect(pair, share))


def decide_all(
    pairs: Sequence[Pair],
    names: Mapping[str, str],
    share: float,
    confidence: float,
    rate: float,
    *,
    looks: int = 1,
    not_comparable: str = "",
) -> list[Memory]:
    """Verdicts of all rows of a report together, as `latency.decide_all`; `share`: the smallest change that counts."""
    results = [_untested(pair, share, names, not_comparable) for pair in pairs]
    open_yet = [index for index, each in enumerate(results) if not each.verdict]
    shared, least = [_shared(pairs[index]) for index in open_yet], [results[index].min_effect for index in open_yet]
    decided = decide.decide_rows(shared, least, confidence, rate, looks)
    for index, (estimate, q_value, outcome) in zip(open_yet, decided, strict=True):
        memory = tested(results[index], outcome, estimate, q_value)
        results[index] = replace(memory, why=_why(memory, estimate.blocks))
    return results


def _why(memory: Memory, blocks: int) -> str:
    count = f"{blocks} + {blocks} launches"
    if memory.low is None or memory.high is None:
        return f"{count}: at least 2 launches of each are needed to estimate their spread"
    interval = f"{memory_change(memory)}: {ratio_interval(memory.ratio or 1.0, memory.low, memory.high)}, {count}"
    if memory.verdict in (model.REGRESSED, model.IMPROVED):
        return f"{'more' if memory.verdict == model.REGRESSED else 'less'}: {interval}, q = {memory.q_value:.2g}"
    least = f"{memory.min_effect:.0%}" if memory.min_effect < 1 else bytes_text(FLOOR_BYTES)
    if memory.verdict == model.PASS:
        return f"within {least}: {interval}"
    if memory.verdict == model.ABOUT:
        return f"significantly changed, by about {least}: {interval}, q = {memory.q_value:.2g}"
    if memory.q_value is not None and (memory.low > 1 + memory.min_effect or memory.high * (1 + memory.min_effect) < 1):
        return f"beyond {least}, but q = {memory.q_value:.2g} over all rows of memory is too large: {interval}"
    return f"neither within {least} nor beyond it: {interval}"
