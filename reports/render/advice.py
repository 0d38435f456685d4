"""Of one subject: why it is so, what to do about it, and what is open. The first screen holds what this returns.

The sentences are macros of reports/templates/advice.txt.j2. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from harness.worker import protocol
from harness.worker.protocol import FailureKind
from reports import model
from reports.attribute.causes import MEMORY, UNINITIALISED, Cause, Grade, Kind
from reports.attribute.cells import CellFacts, hidden
from reports.attribute.experiments import Detection, findings, reproduced_at, sizes_text
from reports.attribute.times import launches_command
from reports.compare.memory import memory_open
from reports.compare.outputs import forms, lacks_operator, other_bits, other_types, wrong_outputs
from reports.compare.properties import one_length
from reports.compare.rows import KERNEL, OPERATOR
from reports.load.evidence import Evidence
from reports.load.groups import grouped
from reports.model import Comparison, CorrectnessSide
from reports.render.subjects import (
    BAD,
    End,
    State,
    Subject,
    end_word,
    find_end,
    listed_text,
    places_text,
    sides_of,
)
from reports.sentences import sentence, sentences
from reports.text import bisect_command, count_of, short

# Kinds of what checkers report, and the causes that they are evidence for.
FAULTS = (*MEMORY, Kind.PREDECESSOR_SENSITIVITY)
PROVEN = {
    Kind.OUT_OF_BOUNDS: "an access out of bounds",
    Kind.PREDECESSOR_SENSITIVITY: "that it depends on what ran before",
    **{cause: f"a read of {cause.label}" for cause in UNINITIALISED},
}
REPORTED = {"out_of_bounds": (Kind.OUT_OF_BOUNDS,), "race": (Kind.RACE,), "uninitialised": UNINITIALISED}


def parts_of(causes: Iterable[Cause]) -> list[Cause]:
    """Return causes, each with its parts."""
    return [part for cause in causes for part in (cause, *cause.parts)]


def _reports(evidence: Evidence, rows: Iterable[Comparison]) -> list[tuple[Kind, Detection]]:
    """Return what checkers reported, with each cause that it is evidence for."""
    return [
        (kind, finding)
        for row in rows
        for reported, kinds in REPORTED.items()
        for finding in findings(CellFacts(evidence, row).checkers, reported)
        for kind in kinds
    ]


def proven_faults(evidence: Evidence, causes: Sequence[Cause], rows: Sequence[Comparison]) -> list[str]:
    """Return the kernel's own faults that are proven, whatever its trials say: by an experiment, or by a checker that
    found the fault that was planted for it."""
    checked = {kind for kind, finding in _reports(evidence, rows) if finding.proven}
    found = [
        each
        for each in parts_of(causes)
        if each.cause in FAULTS and (each.grade == Grade.PROVEN or each.cause in checked)
    ]
    return list(dict.fromkeys(PROVEN.get(each.cause, each.name) for each in found))


def wrong_parts(subject: Subject) -> list[str]:
    """Return which outputs are wrong, such as one gradient, where others are right."""
    found = grouped(
        (tuple(wrong), (row.workload, name))
        for row in subject.rows
        for name, side in sides_of([row]).items()
        if (wrong := wrong_outputs(side))
    )
    return [sentence("advice", "wrong_parts", names, places_text(subject, places)) for names, places in found.items()]


def why(causes: Sequence[Cause], changed: Sequence[str] = ()) -> list[str]:
    """Return the first of each class, with its parts; of sources that changed between two runs, only that."""
    if changed:
        return [sentence("advice", "changed_sources", changed)]
    first: dict[tuple[str, ...], Cause] = {}
    for cause in causes:
        first.setdefault((cause.cause, cause.about, str(cause.improved)), cause)
    texts = [
        sentence("advice", "why", each, each.told_after(cause))
        for cause in first.values()
        for each in (cause, *cause.parts)
        if not each.under
    ]
    return list(dict.fromkeys(short(text, 500) for text in texts))


def beside(causes: Sequence[Cause], state: State) -> list[str]:
    """Return what changed beside the kernel: references that it is compared with."""
    every = parts_of(causes)
    under = [each for each in every if each.under]
    if under and len(under) < len(every) and state.is_worse:
        return [sentence("advice", "beside", list(dict.fromkeys(name for cause in under for name in cause.under)))]
    return list(dict.fromkeys(cause.statement for cause in under if not cause.not_excluded))


def graded_names(causes: Sequence[Cause]) -> list[str]:
    """Return the names of a reference's causes, whose cards say the rest."""
    names = dict.fromkeys(sentence("advice", "graded", part) for part in parts_of(causes))
    return [", ".join(names)] if names else []


# -- what to do ---------------------------------------------------------------------------------------------


def to_do(evidence: Evidence, causes: Sequence[Cause], bad: Sequence[Comparison], subject: Subject) -> list[str]:
    """Return first the lines that checkers named; then what mends it, the build first: another one costs little, and
    tells."""
    every = parts_of(causes)
    named = {cause.cause for cause in every}
    faulty = subject.rows if subject.state is State.LATENT else bad
    reported = [each for kind, each in _reports(evidence, faulty) if kind in named and each.finding.where]
    own = sorted((each for each in every if each.fix and not each.under), key=lambda e: e.cause != Kind.BUILD_MOVED)
    found = sentences(
        "advice",
        "to_do",
        reported=list({id(each.finding): each for each in reported}.values())[:3],
        fixes=list(dict.fromkeys(cause.fix for cause in own)),
        smallest=_smallest(evidence, bad),
        hidden=hidden([CellFacts(evidence, row) for row in bad]),
    )
    tests = [cause.fix for cause in every if cause.fix and cause.under]
    if not found:
        found = [sentence("advice", "in_tests", fix) for fix in tests]
    elif all(cause.under for cause in every):
        found += tests  # what is wrong or slow has no reason of its own
    return list(dict.fromkeys(found))


def _smallest(evidence: Evidence, bad: Sequence[Comparison]) -> str:
    """Return the smallest input that was seen to fail: of the sizes that were tried, else of the workloads."""
    failing = {row.id: [side for side in sides_of([row]).values() if find_end(side) in BAD] for row in bad}
    # What has no binary fails on every workload alike: there is none to reproduce it on.
    unbuilt = (End.UNBUILT, End.UNLOADED)
    bad = [row for row in bad if not all(find_end(side) in unbuilt for side in failing[row.id])]
    tried = [each for row in bad for each in CellFacts(evidence, row).lengths if each.smallest]
    if tried:
        least = min(tried, key=lambda each: math.prod((each.smallest or {}).values()))
        place = reproduced_at(least), least.conditions.record.workload, sizes_text(least)
        return sentence("advice", "smallest_tried", *place)
    infos = [(info, row) for row in bad if (info := evidence.workload(row.workload)) is not None]
    if not infos:
        return ""
    info, row = min(infos, key=lambda each: each[0].flops or 0.0)
    # Of what only does not repeat, every element is within tolerance: none shows it.
    wrong = [side for side in failing[row.id] if find_end(side) is not End.UNREPEATABLE]
    recipe = next((each for side in wrong for each in side.recipes if each.failing), None)
    returned = next((side.message for side in wrong if side.failure is FailureKind.OTHER_TYPE), "")
    return sentence("advice", "smallest_workload", info, recipe, returned)


def command(evidence: Evidence, subject: Subject, causes: Sequence[Cause]) -> str:
    """Return the next step of the first cause, of what one version refuses the bisection; of a time that is undecided,
    the launches that would decide it."""
    if causes and subject.state is State.BROKE and causes[0].cause == Kind.UNSUPPORTED_COMBINATION:
        return bisection(evidence, subject, causes) or causes[0].next_command
    if causes and subject.state.is_worse:
        return causes[0].next_command
    row = subject.rows[0]
    timed = [each for row in subject.ran_rows if not row.alone for each in row.timed]
    return launches_command(evidence.run, row.target, row.device, timed)


def bisection(evidence: Evidence, subject: Subject, causes: Sequence[Cause]) -> str:
    """Return a bisection of what got worse, or stopped, in one version alone; '' where a package is why."""
    run = evidence.run
    worse = [row for row in subject.rows if _is_worse(row)]
    slower = [row for row in subject.rows if any(timed.verdict == model.REGRESSED for timed in row.timed)]
    for rows, what in ((worse, "correctness"), (slower, "latency")):
        stacks = [evidence.environments.get(name) for row in rows[:1] for name in (row.baseline, row.environment)]
        known = [stack for stack in stacks if stack is not None and stack.executor != "host"]
        if len(known) == 2 and not run.sides:
            row, (good, bad) = rows[0], (stack.torch for stack in known)
            package = [each for each in causes if each.cause == Kind.COMPONENT_MOVED and row.id in each.rows]
            if good == bad or package:
                return ""
            kernel = row.target if row.kind == KERNEL else None
            return bisect_command(
                run.command, good=good, bad=bad, what=what, kernel=kernel, workload=row.workload, device=row.device
            )
    return ""


def _is_worse(row: Comparison) -> bool:
    """Return whether it ran in the baseline, and is wrong, less exact, refused or stopped in the other version, or
    computes something else there."""
    judged = row.correctness
    if judged.verdict in (model.REGRESSED, model.MEANING_CHANGED, model.LESS_EXACT, model.NO_LONGER_SUPPORTED):
        return True
    stopped = (protocol.CRASHED, protocol.TIMED_OUT, protocol.KILLED, protocol.UNSUPPORTED)
    return judged.this.status in stopped and judged.baseline.status in protocol.RAN


# -- what is open --------------------------------------------------------------------------------------


def unjudged(subject: Subject) -> list[str]:
    """Return what does not run, or cannot be judged, and why."""
    found: list[tuple[str, tuple[str, str, CorrectnessSide]]] = []
    for row in subject.rows:
        sides = sides_of([row])
        for name, side in sides.items():
            end = find_end(side)
            is_told = end in (End.RIGHT, End.WRONG, End.UNREPEATABLE) or lacks_operator(side)
            if not is_told and (side.message or end is End.ABSENT):
                found.append((sentence("advice", "unjudged", end_word(side), side), (row.workload, name, side)))
        if row.correctness.verdict == model.UNDECIDED and End.ABSENT not in map(find_end, sides.values()):
            text = sentence("advice", "undecided", row.correctness.why)
            found.append((text, (row.workload, row.environment, CorrectnessSide(environment="", status="ok"))))
    texts = []
    for text, places in grouped(found).items():
        ends = grouped((name, side) for _, name, side in places)
        texts.append(f"{text} ({places_text(subject, [place[:2] for place in places], ends)})")
    return texts


def open_questions(evidence: Evidence, subject: Subject) -> list[str]:
    """Return what could not be told of a kernel."""
    row = subject.rows[0]
    tried = any(CellFacts(evidence, each).lengths for each in subject.rows)
    return unjudged(subject) + sentences(
        "advice",
        "open",
        never_ran=not evidence.ever_ran(row.target, row.device),
        alone=all(each.alone for each in subject.rows),
        times=_open_times(subject),
        memory=_open_memory(subject),
        length="" if tried else one_length(evidence, row.target),
    )


def _open_times(subject: Subject) -> list[tuple[str, str]]:
    """Return what would decide times of right outputs that are undecided, and of which workloads."""
    rows = subject.open_times
    needed = max((timed.launches_needed or 0 for _, timed in rows), default=0)
    found = grouped((sentence("advice", "enough", timed, needed), row.workload) for row, timed in rows)
    return [(text, listed_text(workloads)) for text, workloads in found.items()]


def _open_memory(subject: Subject) -> list[tuple[str, str]]:
    rows = [row for row in subject.ran_rows if memory_open(row)]
    found = grouped((sentence("advice", "memory", row.memory), row.workload) for row in rows)
    return [(text, listed_text(workloads)) for text, workloads in found.items()]


# -- operators: there is no kernel to mend -----------------------------------------------------------------


def operator_also(subject: Subject) -> list[str]:
    """Return bits that changed though the verdict did not, and outputs that come in another form."""
    bits, changed = [], []
    for row in subject.rows:
        ends = set(map(find_end, sides_of([row]).values()))
        place = row.environment
        is_comparable = row.correctness.verdict not in model.ANOTHER_MEANING
        if is_comparable and len(ends) == 1 and (names := other_bits(row)):
            text = sentence("advice", "other_bits", names, subject.base, ends == {End.RIGHT})
            bits.append(((place, text), row.workload))
        if found := forms(row):
            changed.append(((place, sentence("advice", "forms", found, subject.base)), row.workload))
    return [
        f"{subject.where([where])}, {text} ({_named(workloads)})"
        for (where, text), workloads in (*grouped(bits).items(), *grouped(changed).items())
    ]


def _named(names: Iterable[str]) -> str:
    return sentence("advice", "named", list(dict.fromkeys(names)))


def operator_changes(rows: Sequence[Comparison], names: Mapping[str, str]) -> list[str]:
    """Return how many operators have other bits, or outputs of another form, and which, over all rows."""
    own = [row for row in rows if row.kind == OPERATOR]
    changes: dict[str, Callable[[Comparison], Any]] = {
        "other bits": other_bits,
        "outputs of another type": lambda row: other_types(row.correctness.baseline, row.correctness.this),
        "outputs of another form": forms,
    }
    texts = []
    for what, find in changes.items():
        if changed := list(dict.fromkeys(row.target for row in own if find(row))):
            base = names.get(own[0].baseline, own[0].baseline)
            texts.append(
                f"{count_of(len(changed), 'operator')} with {what} than in {base}: {short(', '.join(changed), 300)}"
            )
    return texts


def operator_to_do(subject: Subject, causes: Sequence[Cause]) -> list[str]:
    """Return what mends it, or else what to do by the state of its worst row."""
    fixes = list(dict.fromkeys(cause.own_fix for cause in causes if cause.own_fix))
    worse = (State.BROKE, State.COMPUTES_ELSE, State.DRAWS_ELSE, State.LESS_EXACT, State.SLOWER)
    if fixes and subject.state in worse:
        return fixes
    mistyped = subject.state is State.REFUSED and any(
        all(map(lacks_operator, sides_of([row]).values())) for row in subject.rows
    )
    return sentences("advice", "operator_to_do", subject.state, _mended(subject), mistyped)


def _mended(subject: Subject) -> str:
    """Return the last version of several, if what got worse is there as in the baseline."""
    *others, last = dict.fromkeys(row.environment for row in subject.rows)
    rows = [row for row in subject.rows if row.environment == last]
    verdicts = {row.correctness.verdict for row in rows}
    if subject.state is State.SLOWER:
        verdicts = {timed.verdict for row in rows for timed in row.timed}
    well = {model.PASS, model.IMPROVED, model.MORE_EXACT}
    return subject.names[last] if others and verdicts <= well else ""
