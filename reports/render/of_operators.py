"""Of an operator of PyTorch's that is measured by itself: what else changed, what to do, what is open. Sentences of
`answers`; there is no kernel to mend. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from harness.worker.protocol import FailureKind, Fault
from reports import model
from reports.attribute.causes import Cause
from reports.compare.outputs import OtherType, forms, other_bits, other_types
from reports.compare.rows import OPERATOR
from reports.model import Comparison
from reports.render.verdict_text import (
    BROKE,
    COMPUTES_ELSE,
    DRAWS_ELSE,
    LESS_EXACT,
    REFUSED,
    RETYPED,
    RIGHT,
    SLOWER,
    WRONG,
    Told,
    most_of,
    outcome,
    outcome_text,
)
from reports.render.verdict_text import sides as sides_of
from reports.text import count_of, message_text, short

LAYOUTS = ("contiguous", "channels_last", "strides")


def also(told: Told) -> list[str]:
    """Bits that changed though the verdict did not, and outputs that come in another form."""
    base = told.names.get(told.rows[0].baseline, told.rows[0].baseline)
    bits: dict[tuple[str, str], list[str]] = {}
    changed: dict[tuple[str, str], list[str]] = {}
    for row in told.rows:
        outcomes = set(map(outcome, sides_of([row]).values()))
        is_comparable = row.correctness.verdict not in model.ANOTHER_MEANING
        if is_comparable and len(outcomes) == 1 and (names := other_bits(row)):
            within = ", within rounding" if outcomes == {RIGHT} else ""
            text = f"{_listed(names)} {'has' if len(names) == 1 else 'have'} other bits than in {base}{within}"
            bits.setdefault((row.environment, text), []).append(row.workload)
        if found := forms(row):
            text = ", ".join(f"{name} is {_form(here)} ({_form(before)} in {base})" for name, before, here in found)
            copied = any(here.startswith(LAYOUTS) for _, _, here in found)
            text += ": what comes next may have to copy it" if copied else ""
            changed.setdefault((row.environment, text), []).append(row.workload)
    return [
        f"{told.where([where])}, {text} ({_listed(workloads)})"
        for (where, text), workloads in (*bits.items(), *changed.items())
    ]


def changes(rows: Sequence[Comparison], names: Mapping[str, str]) -> list[str]:
    """How many operators have other bits, or outputs of another form, and which, over all rows."""
    own = [row for row in rows if row.kind == OPERATOR]
    base = names.get(own[0].baseline, own[0].baseline) if own else ""
    found = {"other bits": other_bits, "outputs of another type": _other_types, "outputs of another form": forms}
    moved = {what: dict.fromkeys(row.target for row in own if of(row)) for what, of in found.items()}
    return [
        f"{count_of(len(which), 'operator')} with {what} than in {base}: {short(', '.join(which), 300)}"
        for what, which in moved.items()
        if which
    ]


def _other_types(row: Comparison) -> list[OtherType]:
    return other_types(row.correctness.baseline, row.correctness.this)


def _form(form: str) -> str:
    return form.replace("strides", "strided as", 1)


def to_do(told: Told, causes: Sequence[Cause]) -> list[str]:
    """What mends it, or else by the state of its worst row."""
    fixes = dict.fromkeys(cause.own_fix for cause in causes if cause.own_fix)
    if fixes and told.state in (BROKE, COMPUTES_ELSE, DRAWS_ELSE, LESS_EXACT, SLOWER):
        return list(fixes)
    if told.state in (BROKE, LESS_EXACT, SLOWER):
        if (mended := _mended(told)) is not None:
            return [f"nothing in your own code: use {mended}, where it is as before"]
        return ["nothing in your own code: find the release that changed it, then stay below it or tell PyTorch"]
    if told.state == RETYPED:
        return ["name the type that your code needs, such as by .to(torch.float32), where the output is used"]
    if told.state == WRONG:
        return ["do not rely on it in this dtype: compare with the same call in float64, or tell PyTorch"]
    if told.state == REFUSED and any(_mistyped(row) for row in told.rows):
        return ["correct the name in matrix.yaml: no version of this run has it"]
    return []


def _mended(told: Told) -> str | None:
    """The last version of several, if what got worse is there as in the baseline."""
    *others, last = dict.fromkeys(row.environment for row in told.rows)
    rows = [row for row in told.rows if row.environment == last]
    if told.state == SLOWER:
        well = all(timed.verdict in (model.PASS, model.IMPROVED) for row in rows for timed in row.timed)
    else:
        well = all(row.correctness.verdict in (model.PASS, model.MORE_EXACT) for row in rows)
    return told.names[last] if others and well else None


def _mistyped(row: Comparison) -> bool:
    return all(side.failure is FailureKind.MISSING_OPERATOR for side in sides_of([row]).values())


def open_questions(told: Told) -> list[str]:
    """Why it is not judged, or does not run."""
    found: dict[str, list[str]] = {}
    for row in told.rows:
        for name, side in sides_of([row]).items():
            told_elsewhere = side.failure is FailureKind.MISSING_OPERATOR
            if outcome(side) not in (RIGHT, WRONG) and side.message and not told_elsewhere:
                words = "" if side.fault is Fault.SUBJECT else f"{outcome_text(side)}: "
                text = words + message_text(side, most_of(side))
                found.setdefault(text, []).append(f"{row.workload} {told.where([name], {name: [side]})}")
    return [f"{text} ({_listed(places)})" for text, places in found.items()]


def _listed(names: Iterable[str]) -> str:
    every: Sequence[str] = list(dict.fromkeys(names))
    return ", ".join(every) if len(every) < 5 else f"{', '.join(every[:3])} and {len(every) - 3} more"
