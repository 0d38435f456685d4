"""Sentences of evidence that rules share, built from facts. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from harness.schema.run_records import WorkloadInfo
from reports import model
from reports.attribute import figures, thresholds
from reports.attribute.cases import CaseFacts
from reports.attribute.causes import Figure
from reports.attribute.cells import CellFacts
from reports.attribute.experiments import Conditions, Finding, LengthTrials, fails, passes, sizes_text
from reports.attribute.times import TimeChange, clock_ratio
from reports.model import Rate, Seen
from reports.text import apart, ratios_text, short

# -- words ------------------------------------------------------------------------------------------------


def listed(names: Iterable[str], most: int = 3) -> str:
    every = list(dict.fromkeys(names))
    left = len(every) - most
    return ", ".join(every[:most]) + (f" and {left} more" if left > 0 else "")


def in_words(observations: Iterable[Seen]) -> str:
    """The first two, briefly."""
    return "; ".join(short(seen.text, 120) for seen in list(observations)[:2])


def number(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def share(rate: Rate | None) -> str:
    return f"{rate.passed} of {rate.trials}" if rate is not None else "an unknown number of"


def dtypes_of(case: CaseFacts, cells: Sequence[CellFacts]) -> str:
    infos = [case.evidence.workload(cell.workload) for cell in cells]
    return listed(info.dtype for info in infos if info is not None)


def inputs_of(case: CaseFacts, cells: Sequence[CellFacts]) -> str:
    """Their dtypes, with what attentions have beyond plain ones, which may be what is refused."""
    infos = [info for cell in cells if (info := case.evidence.workload(cell.workload)) is not None]
    return listed(info.dtype + ("" if info.problem else _beyond(info)) for info in infos)


def _beyond(info: WorkloadInfo) -> str:
    return " with gradients" if info.backward else " with options" if info.has_options else ""


def became(cell: CellFacts) -> str:
    """How its outputs moved, by its verdict."""
    words = {
        model.FIXED: "became right",
        model.LESS_EXACT: "became less exact",
        model.MORE_EXACT: "became more exact",
        model.OTHER_TYPE: "gives another type",
        model.MEANING_CHANGED: "computes something else",
        model.OTHER_DRAWS: "draws other numbers",
    }
    return words.get(cell.verdict, "became wrong")


SITES = {
    "shared": "shared memory",
    "output": "the output's memory",
    "around": "memory around its inputs",
    "workspace": "memory that the allocator hands out",
    "heap": "the heap",
    "stack": "the stack",
}


def where_all(case: CaseFacts) -> str:
    return "in the only environment of this run" if case.alone else "in either environment"


def ended(message: str) -> str:
    """A message as the end of a sentence."""
    return message.rstrip(". ") + "."


# -- evidence ---------------------------------------------------------------------------------------------


def was_so(cells: Sequence[CellFacts]) -> list[Seen]:
    return [
        cell.seen(f"{cell.row.correctness.why}; {cell.bits.seen.text}")
        if cell.always_wrong and not cell.row.alone
        else cell.why
        for cell in cells[:3]
    ]


def recipes_seen(cell: CellFacts, recipes: Iterable[str]) -> Seen:
    rates = [(recipe, cell.passing(recipe, 1) or cell.passing(recipe, 0)) for recipe in recipes]
    texts = [f"{name.replace('_', ' ')} {rate.passed}/{rate.trials}" for name, rate in rates if rate is not None]
    return cell.seen(f"trials within tolerance: {', '.join(texts)}")


def rates_seen(cell: CellFacts, conditions: Conditions) -> Seen:
    rates = ", ".join(f"{each.condition.label} {each.passed}/{each.runs}" for each in conditions.ran)
    return cell.seen(f"runs within tolerance: {rates}", conditions.path)


def lengths_seen(lengths: LengthTrials) -> Seen:
    conditions = lengths.conditions
    return Seen(text=f"{conditions.record.workload}: {sizes_text(lengths)}", record=conditions.path)


def finding_seen(finding: Finding) -> Seen:
    where = f" at {finding.finding.where}" if finding.finding.where else ""
    proof = (
        f"control: it found a fault of this kind in a test kernel ({finding.result.control})"
        if finding.proven and finding.result.control
        else "control: it found a fault of this kind in a test kernel"
        if finding.proven
        else "no control proved that it works here"
    )
    return Seen(text=f"{finding.result.tool}: {finding.finding.text}{where}; {proof}", record=finding.path)


def hidden(cells: Iterable[CellFacts]) -> list[Seen]:
    """Inputs on which a kernel that is wrong on independent ones is right: a test that has no others passes."""
    found = []
    for cell in cells:
        for conditions in cell.of("inputs"):
            tested = conditions.as_laid_out
            failing = any(fails(result) for result in tested if result.condition.recipe == "independent")
            passing = [result.condition.label for result in tested if passes(result)]
            if failing and passing:
                text = f"these inputs hide it: {', '.join(passing)}; do not test with them alone"
                found.append(cell.seen_in(conditions.environment, text, conditions.path))
    return found[-1:]


def repeat_figure(case: CaseFacts) -> Figure | None:
    for cell, conditions in case.of("repeat"):
        title = f"Repeated calls, {cell.workload}, in {conditions.environment}"
        return figures.conditions_figure(title, conditions.ran, conditions.path)
    for cell, spread in case.poison:
        return figures.spread_figure(f"Repeated calls, {cell.workload}", spread)
    return None


# -- evidence on times ------------------------------------------------------------------------------------


APART = 1.05  # of two ratios: the second is told where it says something else


def extent(change: TimeChange) -> str:
    """2.9 to 4.5 times, or one ratio; and that of replays, where it is another one."""
    if not change.ratios:
        return change.word
    word = change.word + (" in its backward pass" if change.mode == model.BACKWARD else "")
    text = f"{word}: {ratios_text(change.ratios)} the time of {change.case.versions[0]}"
    replays = change.of_replays
    if change.mode != model.COLD or not replays or 1 / APART < max(replays) / max(change.ratios) < APART:
        return text
    return f"{text} ({ratios_text(replays)} in replays of a CUDA graph)"


def time_seen(change: TimeChange) -> list[Seen]:
    """The change as it was measured."""
    found = []
    for cell in change.cells[:3]:
        latency = change.latency(cell)
        text = "; ".join(filter(None, (latency.why, cell.row.parts)))
        found.append(Seen(text=f"{cell.workload}: {text}", record=latency.this.record))
    around = change.around
    if around.total:
        others = f"the {around.total} other targets of this environment"
        alike = f"{around.alike} of {others} also" if around.alike else f"none of {others}"
        found.append(Seen(text=f"{alike} became {change.word} (median ratio of all {around.median_ratio:.3f})"))
    return found + _modes_and_clock(change.cells[0])


def _modes_and_clock(cell: CellFacts) -> list[Seen]:
    """What the other mode and the clock show: each points at another part of a call."""
    cold, hot, found = cell.row.latency, cell.row.hot, []
    if hot is None:
        return []
    if cold.ratio is not None and hot.ratio is not None:
        text = f"cold {cold.ratio:.3f}, hot {hot.ratio:.3f}: "
        if hot.verdict == cold.verdict:
            text += "the device's own work changed, since replays of a graph have neither launch gaps nor cache misses"
        elif hot.verdict == model.PASS:
            text += "replays did not change, so it is not the arithmetic"
        elif cold.verdict == model.PASS:
            text += "only replays changed: with a cold cache something else hides it"
        else:
            text += f"{hot.verdict.replace('_', ' ')} in replays of a graph, {cold.verdict.replace('_', ' ')} cold"
        found.append(Seen(text=text, record=cold.this.record))
    one, two, moved = cold.baseline.gpu, cold.this.gpu, clock_ratio(cold)
    if one is not None and two is not None and moved is not None and abs(moved - 1) > thresholds.CLOCK_TOLD:
        text = f"SM clock while sampled: {apart(cell.versions, f'{one.sm_mhz:.0f} MHz', f'{two.sm_mhz:.0f}')}"
        found.append(Seen(text=text, record=cold.this.record))
    return found


def load_seen(change: TimeChange) -> list[Seen]:
    """Where the machine was busier, or its processors' clock lower, in the launches of the slower side."""
    seen, versions = [], change.case.versions
    for kind, who in (("busy", "other processes used"), ("steal", "other machines on its host took")):
        if change.busier(kind):
            one, two = map(statistics.median, change.loads(kind))
            seen.append(Seen(text=f"{who} {apart(versions, f'{one:.0%} of the machine', f'{two:.0%}')}"))
    base, this = change.loads("clock")
    if base and this:
        one, two = statistics.median(base), statistics.median(this)
        if (two / one - 1) * change.sign < -thresholds.CLOCK_MOVED:
            seen.append(Seen(text=f"the processor ran at {apart(versions, f'{one:.0f} MHz', f'{two:.0f}')}"))
    return seen


def differences_seen(case: CaseFacts, *, of_threads: bool = False) -> list[Seen]:
    return [Seen(text=each.text) for each in case.differences if each.of_threads or not of_threads]
