"""Rules for a package inside the environments that moved: what follows it while PyTorch is held, both ways."""

from __future__ import annotations

from typing import Any

from packaging.version import InvalidVersion, Version

from reports import model
from reports.attribute import causes, figures
from reports.attribute.causes import DECISIVE, STRONG, Cause, RuledOut
from reports.attribute.evidence import became, excluded
from reports.attribute.facts.cases import CaseFacts
from reports.attribute.facts.components import COMPONENT, TOGETHER, Exchange, Sole, package_text, sole_of
from reports.attribute.facts.times import TimeChange
from reports.attribute.wording import make, make_of_time
from reports.model import Seen
from reports.text import bisect_command

SAME_PYTORCH = RuledOut(rival="PyTorch's version", how="the same in both environments")
HELD = "held: with either PyTorch, result and package go together"
NOT_BOTH = Seen(text="not excluded: PyTorch's own part, for one of the two exchanges could not be run")


def component_moved(case: CaseFacts) -> Cause | None:
    """Results that go with a package, whichever PyTorch it is with; or with both together."""
    found = [(cell, each, kind) for cell, each, kind in case.exchanged if kind in (COMPONENT, TOGETHER)]
    if not found or case.alone:
        return None
    cell, exchange, kind = found[0]
    both = kind == COMPONENT and not exchange.one_way and len({each.package for _, each, _ in found}) == 1
    sure = both and not case.unsteady and not case.follows_poison
    alike = [other for other in case.moved if other.verdict == cell.verdict]
    return make(
        case,
        causes.COMPONENT_MOVED,
        DECISIVE if sure else STRONG,
        "component_moved" if kind == COMPONENT else "component_together",
        [cell, *alike],
        [
            cell.why,
            *(cell.seen(put_where(each, case), each.path) for _, each, _ in found),
            *(Seen(text=text, record=exchange.path) for text in exchange.problems),
            *([NOT_BOTH] if exchange.one_way else []),
        ],
        ruled_out=[
            excluded("the inputs", cell.inputs),
            RuledOut(rival="PyTorch's version", how=HELD, record=exchange.path) if both else None,
            excluded("chance", case.steady),
        ],
        figures=[figures.exchange_figure(exchange)],
        what=became(cell),
        fix=fix_of(exchange, cell.verdict),
        command=_next(case, exchange, cell.workload, "correctness"),
        **named(exchange),
        held=held_with(exchange),
    )


def sole_package(case: CaseFacts) -> Cause | None:
    """Results that moved between environments of one PyTorch that differ in one package: they are the experiment."""
    sole, moved = _sole(case), case.moved
    if sole is None or not moved:
        return None
    sure = not sole.others and not case.unsteady and not case.follows_poison
    return make(
        case,
        causes.COMPONENT_MOVED,
        DECISIVE if sure else STRONG,
        "sole_package",
        moved,
        [moved[0].why, *differ(sole)],
        ruled_out=[excluded("the inputs", moved[0].inputs), SAME_PYTORCH, excluded("chance", case.steady)],
        what=became(moved[0]),
        fix=fix_of(sole, moved[0].verdict),
        command=_next(case, sole, moved[0].workload, "correctness"),
        **named(sole),
    )


def sole_package_of_time(change: TimeChange) -> Cause | None:
    """The same of a time."""
    sole = _sole(change.case)
    if sole is None:
        return None
    return make_of_time(
        change,
        causes.COMPONENT_MOVED,
        STRONG if sole.others else DECISIVE,
        "sole_package_of_time",
        differ(sole),
        [SAME_PYTORCH],
        fix=fix_of(sole, change.verdict),
        command=_next(change.case, sole, change.cells[0].workload, "latency"),
        **named(sole),
    )


def _sole(case: CaseFacts) -> Sole | None:
    return None if case.alone else sole_of(*case.stacks, case.device)


def differ(sole: Sole) -> list[Seen]:
    text = f"not excluded: {', '.join(sole.others)}, which differs too, and which PyTorch is not known to compute with"
    return [Seen(text=text)] if sole.others else []


def put_where(exchange: Exchange, case: CaseFacts) -> str:
    """Which version was put where, of what could be run."""
    base, this = case.versions
    places = (exchange.base, exchange.this), (exchange.this, exchange.base)
    put = [
        f"{version} put into the environment of {where}" if version else f"left out of the environment of {where}"
        for place, version, where in zip(places, exchange.versions[::-1], (base, this), strict=True)
        if place in exchange.cells
    ]
    return f"{exchange.package}: {' and '.join(put)} (run {exchange.run})"


def named(package: Exchange | Sole) -> dict[str, Any]:
    """What a sentence says of a package and its versions."""
    name, (one, two) = package.package, package.versions
    with_one, with_two = (package_text(name, version) for version in package.versions)
    return {"package": name, "one": one or "none", "two": two or "none", "with_one": with_one, "with_two": with_two}


def held_with(exchange: Exchange) -> str:
    return "with the one PyTorch that could be tried" if exchange.one_way else "with either PyTorch"


def _next(case: CaseFacts, exchange: Exchange | Sole, workload: str, what: str) -> str:
    """The bisection of the package's releases; '' where its version went down, for it takes the earlier one first."""
    command, (one, two) = case.evidence.run.command, exchange.versions
    try:
        later = Version(one) < Version(two)
    except InvalidVersion:
        later = False
    if not later or "--bundle" in command:
        return ""
    return bisect_command(
        command,
        component=exchange.package,
        good=one,
        bad=two,
        torch=case.environment,
        kernel=case.kernel or None,
        workload=workload,
        device=case.device,
        what=what,
    )


def fix_of(exchange: Exchange | Sole, verdict: str) -> str:
    worse = verdict not in (model.FIXED, model.MORE_EXACT, model.IMPROVED)
    return pinned(exchange.package, exchange.versions[0]) if worse else ""


def pinned(package: str, version: str) -> str:
    """The remedy."""
    return f"{f'pin {package}=={version}' if version else f'leave out {package}'} (packages, in matrix.yaml)"


def component_of_time(change: TimeChange) -> Cause | None:
    """A time that goes with a package, whichever PyTorch it is with."""
    case = change.case
    kinds = [(cell, each, case.time_follows(each)) for cell in change.cells for each in cell.exchanges if each.timed]
    found = [(cell, each) for cell, each, kind in kinds if kind == COMPONENT]
    if not found:
        return None
    cell, exchange = found[0]
    both = not exchange.one_way and len({each.package for _, each in found}) == 1
    held = RuledOut(rival="PyTorch's version", how="held: it made no such difference", record=exchange.path)
    return make_of_time(
        change,
        causes.COMPONENT_MOVED,
        DECISIVE if both else STRONG,
        "component_of_time",
        [
            cell.seen(put_where(exchange, case), exchange.path),
            *(Seen(text=text, record=exchange.path) for text in exchange.problems),
            *([NOT_BOTH] if exchange.one_way else []),
        ],
        [held if both else None],
        [figures.exchange_figure(exchange, times=True)],
        fix=fix_of(exchange, change.verdict),
        command=_next(case, exchange, cell.workload, "latency"),
        **named(exchange),
        held=held_with(exchange),
    )
