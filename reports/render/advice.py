"""Of one kernel: why it is so, what to do about it, and what is open. Sentences of `answers`. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from harness.schema.run_records import WorkloadInfo
from harness.worker import protocol
from harness.worker.protocol import FailureKind
from reports import model
from reports.attribute.cards import launches_command
from reports.attribute.causes import MEMORY, NAMES, UNINITIALISED, Cause, Grade, Kind
from reports.attribute.cells import CellFacts
from reports.attribute.evidence import hidden
from reports.attribute.experiments import findings, reproduced_at, sizes_text
from reports.compare.memory import memory_open, memory_text
from reports.compare.outputs import wrong_outputs
from reports.compare.properties import one_length
from reports.compare.rows import KERNEL
from reports.load.evidence import Evidence
from reports.model import Comparison, CorrectnessSide
from reports.render.verdict_text import (
    ABSENT,
    BAD,
    BROKE,
    LATENT,
    NEARLY,
    ORDER,
    RIGHT,
    UNBUILT,
    UNLOADED,
    UNREPEATABLE,
    WRONG,
    Told,
    most_of,
    outcome,
    outcome_text,
    sides,
)
from reports.text import bisect_command, message_text, shape_text, short, words

NO_WORSE = (ABSENT, *ORDER[ORDER.index(NEARLY) :])  # states in which nothing got worse
# Kinds of what checkers report, and the causes that they are evidence for.
FAULTS = (*MEMORY, Kind.PREDECESSOR_SENSITIVITY)
PROVEN = {
    Kind.OUT_OF_BOUNDS: "an access out of bounds",
    Kind.PREDECESSOR_SENSITIVITY: "that it depends on what ran before",
    **{cause: f"a read of {NAMES[cause]}" for cause in UNINITIALISED},
}
REPORTED = {"out_of_bounds": (Kind.OUT_OF_BOUNDS,), "race": (Kind.RACE,), "uninitialised": UNINITIALISED}


def proven_faults(evidence: Evidence, causes: Sequence[Cause], rows: Sequence[Comparison]) -> list[str]:
    """The kernel's own faults that are proven, whatever its trials say: by an experiment, or by a checker that found
    the fault that was planted for it."""
    checked = {
        cause
        for row in rows
        for kind, named in REPORTED.items()
        if any(finding.proven for finding in findings(CellFacts(evidence, row).checkers, kind))
        for cause in named
    }
    faults = [part for cause in causes for part in (cause, *cause.parts) if part.cause in FAULTS]
    found = [each for each in faults if each.grade == Grade.PROVEN or each.cause in checked]
    return list(dict.fromkeys(PROVEN.get(each.cause, each.name) for each in found))


def wrong_parts(told: Told) -> list[str]:
    """Which outputs are wrong, such as one gradient, where others are right."""
    found: dict[str, list[tuple[str, str]]] = {}
    for row in told.rows:
        for name, side in sides([row]).items():
            if wrong := wrong_outputs(side):
                text = f"what is wrong is {', '.join(wrong)}; the other outputs are right"
                found.setdefault(text, []).append((row.workload, name))
    return [f"{text} ({_places(told, places)})" for text, places in found.items()]


def why(causes: Sequence[Cause], changed: Sequence[str] = ()) -> list[str]:
    """The first of each class, with its parts; of sources that changed between two runs, only that."""
    if changed:
        return [f"its sources differ between the two runs: {', '.join(changed)}"]
    first: dict[tuple[str, ...], Cause] = {}
    for cause in causes:
        first.setdefault((cause.cause, cause.about, str(cause.improved)), cause)
    texts = []
    for cause in first.values():
        for each in (cause, *cause.parts):
            if not each.under:
                name = "" if each.cause == Kind.UNDECIDED else f"{_graded(each)}: "
                texts.append(name + each.told_after(cause))
    return list(dict.fromkeys(short(text, 500) for text in texts))


def beside(causes: Sequence[Cause], state: str) -> list[str]:
    """What changed beside the kernel: references that it is compared with."""
    every = [part for cause in causes for part in (cause, *cause.parts)]
    under = [each for each in every if each.under]
    if under and len(under) < len(every) and state not in NO_WORSE:
        names = ", ".join(dict.fromkeys(name for cause in under for name in cause.under))
        return [f"PyTorch's own {names} changed as well, which does not explain this"]
    return list(dict.fromkeys(cause.statement for cause in under if not cause.not_excluded))


def _graded(cause: Cause) -> str:
    return f"{cause.name} ({cause.mark})"


def graded_names(causes: Sequence[Cause]) -> list[str]:
    """Of a reference, whose cards say the rest."""
    names = ", ".join(dict.fromkeys(_graded(part) for cause in causes for part in (cause, *cause.parts)))
    return [names] if names else []


# -- what to do ---------------------------------------------------------------------------------------------


def to_do(evidence: Evidence, causes: Sequence[Cause], bad: Sequence[Comparison], told: Told) -> list[str]:
    """First the lines that checkers named; then what mends it, the build first: another one costs little, and tells."""
    every = [part for cause in causes for part in (cause, *cause.parts)]
    faulty = told.rows if told.state == LATENT else bad
    found = _reported(evidence, {cause.cause for cause in every}, faulty)
    own = sorted(
        (each for each in every if each.fix and not each.under), key=lambda each: each.cause != Kind.BUILD_MOVED
    )
    fixes = list(dict.fromkeys(cause.fix for cause in own))
    found += _only_with(evidence, bad, told.right_rows)
    found += [("then, if it stays so: " if number else "") + fix for number, fix in enumerate(fixes)]
    found += _smallest(evidence, bad)
    found += [f"in your tests: {seen.text}" for seen in hidden([CellFacts(evidence, row) for row in bad])]
    tests = [cause.fix for cause in every if cause.fix and cause.under]
    if not found:
        tests = [f"nothing in the kernel; {fix}" for fix in tests]
    elif any(not cause.under for cause in every):
        tests = []  # what is wrong or slow has a reason of its own
    return list(dict.fromkeys([*found, *tests]))


def _reported(evidence: Evidence, causes: set[str], bad: Sequence[Comparison]) -> list[str]:
    """The lines that checkers named, of what is given as a cause."""
    return [
        f"look at {each.finding.where}: {each.result.tool} reports {short(each.finding.text, 160)}"
        for row in bad
        for kind, classes in REPORTED.items()
        if causes & set(classes)
        for each in findings(CellFacts(evidence, row).checkers, kind)
        if each.finding.where
    ][:3]


def _only_with(evidence: Evidence, bad: Sequence[Comparison], right: Sequence[Comparison]) -> list[str]:
    """The mask or the dtype, where each workload that fails has it, and none that passes."""

    def attentions(rows: Sequence[Comparison]) -> dict[str, WorkloadInfo]:
        found = {row.workload: evidence.workload(row.workload) for row in rows}
        return {name: info for name, info in found.items() if info is not None and not info.problem}

    failing = attentions(bad)
    passing = {name: info for name, info in attentions(right).items() if name not in failing}
    found = []
    for trait in (_mask, lambda info: f"in {info.dtype}"):
        own = set(map(trait, failing.values()))
        if passing and len(own) == 1 and own.isdisjoint(map(trait, passing.values())):
            counts = f"{len(failing)} of {len(failing)} such workloads failed, and 0 of {len(passing)} others"
            found.append(f"look at what it does {own.pop()} alone: {counts}")
    return found


def _mask(info: WorkloadInfo) -> str:
    return "with a causal mask" if info.causal else f"with the mask {info.mask}" if info.mask else "without a mask"


def _smallest(evidence: Evidence, bad: Sequence[Comparison]) -> list[str]:
    """The smallest input that was seen to fail: of the sizes that were tried, else of the workloads."""
    bad = [row for row in bad if not all(_is_unbuilt(side) for side in sides([row]).values() if outcome(side) in BAD)]
    tried = [each for row in bad for each in CellFacts(evidence, row).lengths if each.smallest]
    if tried:
        least = min(tried, key=lambda each: math.prod((each.smallest or {}).values()))
        name = least.conditions.record.workload
        return [f"reproduce it at {reproduced_at(least)}, the smallest tried that fails ({name}): {sizes_text(least)}"]
    infos = [(info, row) for row in bad if (info := evidence.workload(row.workload)) is not None]
    if not infos:
        return []
    info, row = min(infos, key=lambda each: each[0].flops or 0.0)
    shape = f" ({shape_text(info)}, {info.dtype})" if shape_text(info) else ""
    failing = [side for side in sides([row]).values() if outcome(side) in BAD]
    # Of what only does not repeat, every element is within tolerance: none shows it.
    wrong = [side for side in failing if outcome(side) != UNREPEATABLE]
    recipe = next((r for side in wrong for r in side.recipes if r.failing), None)
    at = f"; {words(recipe.recipe)} inputs, {recipe.failing}" if recipe else ""
    returned = next(
        (side.message for side in failing if side.failure is FailureKind.OTHER_TYPE), ""
    )  # another shape or type
    at = f": {short(returned.partition(': ')[2], 200)}" if returned else at
    return [f"reproduce it on {info.id}{shape}, the smallest workload that fails{at}"]


def _is_unbuilt(side: CorrectnessSide) -> bool:
    """What has no binary fails on every workload alike: there is none to reproduce it on."""
    return outcome(side) in (UNBUILT, UNLOADED)


def command(evidence: Evidence, told: Told, causes: Sequence[Cause]) -> str:
    """The next step of the first cause, of what one version refuses the bisection; of a time that is undecided, the
    launches that would decide it."""
    if causes and told.state == BROKE and causes[0].cause == Kind.UNSUPPORTED_COMBINATION:
        return bisection(evidence, told, causes) or causes[0].next_command
    if causes and told.state not in NO_WORSE:
        return causes[0].next_command
    row = told.rows[0]
    timed = [each for row in told.ran_rows if not row.alone for each in row.timed]
    return launches_command(evidence.run, row.target, row.device, timed)


def bisection(evidence: Evidence, told: Told, causes: Sequence[Cause]) -> str:
    """A bisection of what got worse, or stopped, in one version alone: of the package, if that is why."""
    run = evidence.run
    if run.sides:
        return ""
    worse = [row for row in told.rows if _is_worse(row)]
    slower = [row for row in told.rows if any(timed.verdict == model.REGRESSED for timed in row.timed)]
    for rows, what in ((worse, "correctness"), (slower, "latency")):
        stacks = [evidence.environments.get(name) for name in (rows[0].baseline, rows[0].environment)] if rows else []
        if len(stacks) == 2 and all(stack is not None and stack.executor != "host" for stack in stacks):
            row = rows[0]
            good, bad = (stack.torch for stack in stacks if stack is not None)
            package = [each for each in causes if each.cause == Kind.COMPONENT_MOVED and row.id in each.rows]
            if good == bad or package:
                return next((each.next_command for each in package if "--component" in each.next_command), "")
            kernel = row.target if row.kind == KERNEL else None
            return bisect_command(
                run.command, good=good, bad=bad, what=what, kernel=kernel, workload=row.workload, device=row.device
            )
    return ""


def _is_worse(row: Comparison) -> bool:
    """Whether it ran in the baseline, and is wrong, less exact, refused or stopped in the other version, or computes
    something else there."""
    judged = row.correctness
    if judged.verdict in (model.REGRESSED, model.MEANING_CHANGED, model.LESS_EXACT, model.NO_LONGER_SUPPORTED):
        return True
    stopped = judged.this.status in (protocol.CRASHED, protocol.TIMED_OUT, protocol.KILLED, protocol.UNSUPPORTED)
    return stopped and judged.baseline.status in protocol.RAN


# -- what is open --------------------------------------------------------------------------------------


def open_questions(evidence: Evidence, told: Told) -> list[str]:
    found: dict[str, list[tuple[str, str]]] = {}  # what, to the workloads and versions of which it is so
    ends: dict[str, dict[str, list[CorrectnessSide]]] = {}  # the same, to how processes ended there, by version
    for row in told.rows:
        own = sides([row])
        for name, side in own.items():
            word = outcome(side)
            if word not in (RIGHT, WRONG, UNREPEATABLE) and (side.message or word == ABSENT):
                text = f"{outcome_text(side)}: {message_text(side, most_of(side))}"
                found.setdefault(text, []).append((row.workload, name))
                ends.setdefault(text, {}).setdefault(name, []).append(side)
        if row.correctness.verdict == model.UNDECIDED and ABSENT not in map(outcome, own.values()):
            text = f"correctness undecided: {short(row.correctness.why, 200)}"
            found.setdefault(text, []).append((row.workload, row.environment))
    texts = [f"{text} ({_places(told, places, ends.get(text, {}))})" for text, places in found.items()]
    row = told.rows[0]
    if not evidence.ever_ran(row.target, row.device):
        texts.append("it ran in no version: `--fail-on` passes it, for nothing regressed; `gate` does not")
    if all(each.alone for each in told.rows):
        texts.append("whether a version changed it: there is nothing to compare with")
    length = one_length(evidence, row.target)
    tried = any(CellFacts(evidence, each).lengths for each in told.rows)
    return [*texts, *_open_times(told), *_open_memory(told), *([length] if length and not tried else [])]


def _places(told: Told, places: Iterable[tuple[str, str]], ends: Mapping[str, Sequence[CorrectnessSide]] = {}) -> str:
    workloads, environments = (list(dict.fromkeys(each)) for each in zip(*places, strict=True))
    return f"{_listed(workloads)}, {told.where(environments, ends)}"


def _open_times(told: Told) -> list[str]:
    """Times of right outputs that are undecided, and what would decide them."""
    rows = [(row, timed) for row in told.ran_rows for timed in row.timed if not row.alone]
    rows = [(row, timed) for row, timed in rows if timed.verdict == model.UNDECIDED]
    found: dict[str, list[str]] = {}
    needed = [timed.launches_needed for _, timed in rows if timed.launches_needed]
    for row, timed in rows:
        enough = f"about {max(needed)} launches of each version would decide it" if timed.launches_needed else ""
        found.setdefault(enough or short(timed.why, 160), []).append(row.workload)
    return [f"whether its time changed on {_listed(workloads)}: {why}" for why, workloads in found.items()]


def _open_memory(told: Told) -> list[str]:
    """Peaks of memory that differ and are undecided."""
    rows = [row for row in told.ran_rows if memory_open(row)]
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(short(f"{memory_text(row.memory)}, {row.memory.why}", 160), []).append(row.workload)
    return [f"whether its memory changed on {_listed(workloads)}: {why}" for why, workloads in found.items()]


def _listed(workloads: Iterable[str]) -> str:
    names = list(dict.fromkeys(workloads))
    return ", ".join(names) if len(names) < 4 else f"{len(names)} workloads"
