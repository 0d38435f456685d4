"""The rule for times that moved with an operator of PyTorch: by profiles, or by which one ran under a name. Pure."""

from __future__ import annotations

from reports.causes.cells import Cell, operators_moved
from reports.causes.followed import ways_seen
from reports.causes.model import DECISIVE, DEFAULT_BACKEND_MOVED, LATENCY_OPERATOR, STRONG, SUGGESTIVE, Cause, Ruled
from reports.causes.model import told as told_together
from reports.causes.profiles import Change, another_backend, own, profile_figure, profiled
from reports.causes.timed import MOST, Timed
from reports.durations import brief_time
from reports.factors import operator_names, operators_seen
from reports.model import Seen

ALIKE = ("slowed", "got faster")  # the same operators, as often as before


def operator(timed: Timed) -> Cause | None:
    case = timed.case
    found = profiled(timed)
    if found is not None:
        return _from_profile(timed, *found)
    if case.is_kernel:
        return None
    cells = [cell for cell in timed.cells if operators_moved(*cell.sides)]
    told = [operators_seen(*timed.cells[0].sides)] if timed.cells[0].sides[1].operators else []
    if cells:
        statement = f"{case.subject} is {timed.extent}: another operator runs under that name."
        grade = STRONG
    else:
        statement = (
            f"{case.subject} is {timed.extent}, by the same operator: its own implementation moved. Which part of it, "
            "a profile would tell."
        )
        grade = STRONG if timed.around.steady else SUGGESTIVE
    return timed.make(
        LATENCY_OPERATOR,
        grade,
        statement,
        told,
        [timed.machine_ruled_out, Ruled(rival="the kernel under test", how="it takes no part in a reference's time")],
        gist=("operator", *sorted(operator_names(timed.cells[0].sides[1].operators))) if told else (),
        command=case.explain(timed.cells),
    )


def _from_profile(timed: Timed, cell: Cell, changes: list[Change], path: str) -> Cause | None:
    """The profile's own change must go the way of the measured one, or it explains nothing."""
    case = timed.case
    total = sum(change.delta_us for change in changes)
    latency = timed.latency(cell)
    one, two = latency.baseline.median_us, latency.this.median_us
    measured = two - one if one is not None and two is not None else None
    if total * timed.sign <= 0 or not changes:
        return None
    leading_: list[Change] = []
    for change in changes:
        if change.delta_us * timed.sign > 0 and len(leading_) < 3:
            leading_.append(change)
        if sum(each.delta_us for each in leading_) / total >= 0.8:
            break
    share = sum(each.delta_us for each in leading_) / total
    if not leading_ or share < MOST or (case.is_kernel and all(own(case, change) for change in leading_)):
        return None
    agrees = measured is not None and 0.5 <= total / measured <= 2.0
    told = "; ".join(f"{change.name} {change.word} ({brief_time(change.delta_us, '+')} a call)" for change in leading_)
    evidence = [
        Seen(
            text=f"{cell.workload}: profiles differ by {brief_time(total, '+')} a call"
            + (f", the measured medians by {brief_time(measured, '+')}" if measured is not None else "")
            + f"; these make {min(share, 1):.0%} of it",
            record=path,
        ),
        *ways_seen(case, cell),
    ]
    grade = DECISIVE if agrees and share >= 0.8 and timed.around.alike < max(1, timed.around.total) else STRONG
    cause = timed.make(
        LATENCY_OPERATOR,
        grade,
        f"{case.subject} is {timed.extent}: {told}.",
        evidence,
        [timed.machine_ruled_out],
        [profile_figure(cell, changes, path)],
        gist=("profile", told),
        command=case.explain(timed.cells),
        # The same operators, only slower, may be slowed by whatever else moved.
        measured=not all(change.word in ALIKE for change in leading_),
    )
    also = _backend_chosen(timed, cell)
    return cause if also is None else told_together(cause, also)


def _backend_chosen(timed: Timed, cell: Cell) -> Cause | None:
    found = another_backend(timed.case, cell)
    if found is None:
        return None
    return timed.make(
        DEFAULT_BACKEND_MOVED,
        STRONG,
        f"{timed.case.subject} leaves the choice to PyTorch: it takes {found.before} in the baseline, and "
        f"{found.here} here.",
        [Seen(text=f"by its profiles: {found.text}", record=found.record)],
        gist=("default", found.before, found.here),
    )
