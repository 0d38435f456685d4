"""A trace as a whole: record both versions twice, align, localise, put back, judge."""

from __future__ import annotations

import linecache
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from harness.errors import InputError
from harness.trace import answer
from harness.trace import outcome as o
from harness.trace.align import Alignment, changes
from harness.trace.ends import (
    distances,
    growth,
    held_by_one,
    printed_difference,
    relative_numbers,
    result_of,
    unstable_lines,
)
from harness.trace.judge import judge_all
from harness.trace.localise import ARGUMENTS, DRAWS, LAYOUT, Site, entry
from harness.trace.model import End, Operator, Trace
from harness.trace.outcome import Cause, Judged, Outcome, RaisedThere
from harness.trace.prove import (
    Experiment,
    Proof,
    Say,
    first_unrepeated,
    origins,
    reversed_kinds,
    unstable_operators,
)
from harness.trace.runs import Side

SHOWN = 60  # rows of a table
POINTS = 400  # of the picture


def trace(good: Side, bad: Side, command: Sequence[str], notes: Sequence[str], say: Say) -> Outcome:
    """Return everything that was found. InputError where the script cannot be traced."""
    found = Outcome(good=good.version, bad=bad.version, command=list(command), notes=list(notes), part=good.script.part)
    found.options = good.script.options
    recorded = {}
    for side in (good, bad):
        say(f"{side.version}, without the recorder")
        plain = side.plain()
        say(f"{side.version}, recorded twice")
        one, other = side.record(), side.record()
        require_undisturbed(side.version, plain, one.end)
        recorded[side.version] = (one, other)
        found.cost[side.version] = {
            "plain_s": plain.duration_s,
            "recorded_s": one.end.duration_s,
            "operators": len(one.operators),
        }
        found.versions[side.version] = one.end.torch
        found.notes += [note for note in one.end.notes if note not in found.notes]
    (g, g_again), (b, b_again) = recorded[good.version], recorded[bad.version]
    if not g.operators and not b.operators:
        how = f"; it ends with {g.end.failure}" * bool(g.end.failure)
        raise InputError(f"the script calls no operator of PyTorch{how}", f"run it by itself in {good.version}")
    experiment = Experiment(good, bad, g, b, say)
    ends = (experiment.wanted, experiment.had)
    _facts(found, experiment)
    skip = unstable_lines(ends[0], result_of(g_again)) | unstable_lines(ends[1], result_of(b_again))
    found.printed = [list(lines) for lines in printed_difference(*ends, skip)][:SHOWN]
    _repeats(found, (good, g, g_again), (bad, b, b_again))
    unstable = unstable_operators(b, b_again) | _as_bad(unstable_operators(g, g_again), experiment.alignment)
    first = origins(experiment.sites, unstable)
    if not (ends[0].equals(result_of(g_again)) and ends[1].equals(result_of(b_again))):
        found.verdict = o.DOES_NOT_REPEAT
    elif ends[0].equals(ends[1]):
        found.verdict = o.NO_EFFECT if first else o.NOTHING_MOVED
        kinds = {site.kind: site for site in reversed(first)}
        found.causes = [_cause(kind, site, g, b, Proof()) for kind, site in reversed(kinds.items())]
    else:
        _prove(found, experiment, unstable, unstable_operators(g, g_again))
    found.runs = good.count + bad.count
    answer.write(found)
    return found


def require_undisturbed(version: str, plain: End, recorded: End) -> None:
    """InputError where the script ends in another way under the recorder."""
    if plain.failure != recorded.failure:
        ends = [each.failure or "exit code 0" for each in (recorded, plain)]
        message = f"{version}: the script ends otherwise when it is recorded: {ends[0]}; else: {ends[1]}"
        raise InputError(message, "leave out what disturbs the recorder; where its end is luck, run it again")


def _as_bad(indices: set[int], alignment: Alignment) -> set[int]:
    return {b for g, b in alignment.pairs if g in indices}


def _facts(found: Outcome, experiment: Experiment) -> None:
    g, b, alignment = experiment.given, experiment.taken, experiment.alignment
    ends = (experiment.wanted, experiment.had)
    found.numbers, found.tensors = distances(*ends)
    if found.part:
        found.elsewhere = relative_numbers(g.end.elsewhere, b.end.elsewhere)
    if g.end.code and ends[0].ended == ends[1].ended:
        found.notes.append(f"both versions end with {g.end.failure}: what comes before it was compared")
    for side, count, line in held_by_one(*ends):
        version = (found.good, found.bad)[side]
        found.notes.append(f"only {version} holds {count} of the tensors that are left; not compared; first: {line}")
    found.ended = {"good": g.end.failure, "bad": b.end.failure}
    found.entry = list(entry(g, b, alignment))
    found.changes = sorted(changes(g, b, alignment), key=lambda row: -int(str(row["times"])))[:SHOWN]
    curve = growth(g, b, alignment.pairs)
    found.growth = [[place, value] for place, value in _thinned(curve)]
    relative = dict(curve)
    differing = [site for site in experiment.sites if site.differs]
    found.counts = {
        "good": len(g.operators),
        "bad": len(b.operators),
        "matched": len(alignment.pairs),
        "regions": len(alignment.regions),
        "differing": len(differing),
    }
    found.first = [
        {
            "kind": site.kind,
            "origin": site.is_origin,
            **_where(_first(site, g, b)),
            "difference": next((relative[index] for index in site.bad if index in relative), None),
        }
        for site in differing[:SHOWN]
    ]


def _thinned(curve: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """The largest of every few points."""
    step = math.ceil(len(curve) / POINTS) or 1
    return [max(curve[i : i + step], key=lambda point: point[1]) for i in range(0, len(curve), step)]


def _repeats(found: Outcome, *sides: tuple[Side, Trace, Trace]) -> None:
    for side, one, other in sides:
        site = first_unrepeated(one, other)
        if site is not None:
            where = _where(_first(site, one, other))
            found.not_repeatable.append(f"In {side.version}, {site.kind} at {where['line']} does not repeat")
        elif not result_of(one).equals(result_of(other)):
            found.not_repeatable.append(f"{side.version} differs from itself, by no operator that was seen")


def _prove(found: Outcome, experiment: Experiment, unstable: set[int], unstable_in_good: set[int]) -> None:
    good, bad, say = experiment.giver, experiment.taker, experiment.say
    proof = experiment.prove(unstable)
    found.raised = _raised(experiment.given, proof.after or experiment.taken, found)
    if not proof.sites:
        found.verdict = o.NOT_EXPLAINED
        _say_raised(found)
        return
    say("the first origins run again alone: three times, and in float64")
    judged = judge_all(good, bad, experiment.given, proof)
    found.causes = [
        _cause(kind, site, experiment.given, proof.seen_in[kind], proof) for kind, site in proof.sites.items()
    ]
    for cause in found.causes:
        alone = judged.get(cause.kind, Judged())
        cause.judged = replace(alone, text=f"{cause.judged.text} {alone.text}".strip())
        cause.program = list(proof.sites).index(cause.kind)
        cause.needed = cause.kind in proof.kinds or cause.kind in proof.not_put
    of_lines = defaultdict[str, float](float)  # a forward operator and its backward are one line's
    for cause in found.causes:
        of_lines[cause.line] += cause.share or 0.0
    found.causes.sort(key=lambda cause: (not cause.needed, -of_lines[cause.line], cause.bad_index or 0))
    found.dropped = proof.dropped
    if proof.after is not None:
        found.comes_back, found.left = proof.comes_back, proof.left
        found.elsewhere_left = relative_numbers(experiment.given.end.elsewhere, proof.after.end.elsewhere)
    if proof.comes_back:
        back = Experiment(bad, good, experiment.taken, experiment.given, say)
        besides = back.confirm(reversed_kinds(proof.kinds), unstable_in_good)
        found.reverse, found.reverse_with = besides == [], reversed_kinds(besides or [])
    found.verdict = o.PROVEN if proof.comes_back else o.NOT_PROVEN
    found.grade = o.DECISIVE if proof.comes_back and found.reverse else o.SUGGESTIVE
    if not proof.comes_back:  # whatever else differs is not why
        _say_raised(found)


def _raised(good: Trace, bad: Trace, found: Outcome) -> RaisedThere | None:
    """The exception of one version, where the other raised none. `bad`: with all put back that differs."""
    sides = ((found.good, good), (found.bad, bad))
    raising = [(version, trace) for version, trace in sides if trace.end.raised]
    if len(raising) != 1:
        return None
    version, trace = raising[0]
    raised, other = trace.end.raised, bad if trace is good else good
    assert raised is not None
    given = [(each.name, tuple(value.digest for value in each.inputs)) for each in other.operators]
    return RaisedThere(
        version=version,
        text=trace.end.exception,
        line=raised.line,
        source=_text(raised.line),
        function=raised.function,
        operator=raised.operator,
        by_pytorch=raised.is_pytorch,
        returned=(raised.operator, raised.given) in given,
    )


def _say_raised(found: Outcome) -> None:
    """An exception that PyTorch raises in one version alone is the answer."""
    if found.raised is not None and found.raised.by_pytorch:
        found.verdict, found.grade = o.RAISED, o.DECISIVE if found.raised.returned else o.SUGGESTIVE


def _first(site: Site, g: Trace, b: Trace) -> Operator:
    """The operator to be named: of a region the first that computes something, of the bad version if it has one."""
    for trace, indices in ((b, site.bad), (g, site.good)):
        computing = [trace.operators[index] for index in indices if not trace.operators[index].is_view]
        if computing:
            return computing[0]
    return b.operators[site.bad[0]] if site.bad else g.operators[site.good[0]]


def _where(operator: Operator) -> dict[str, Any]:
    return {"line": operator.line, "module": operator.module, "phase": operator.phase, "index": operator.index}


def _text(line: str) -> str:
    file, _, number = line.rpartition(":")
    return linecache.getline(file, int(number)).strip() if number.isdecimal() else ""


def _cause(kind: str, site: Site, g: Trace, b: Trace, proof: Proof) -> Cause:
    first = _first(site, g, b)
    put = proof.puts.get(kind, [])
    lines = dict.fromkeys(proof.after.operators[index].line for index in put) if proof.after else {}
    return Cause(
        kind=kind,
        line=first.line,
        source=_text(first.line),
        others=[[line, _text(line)] for line in lines if line != first.line],
        module=first.module,
        phase=first.phase,
        why=site.why,
        instances=len(put),
        share=proof.shares.get(kind),
        bad_index=site.bad[0] if site.bad else None,
        judged=Judged(_detail(site, g, b)),
        function=first.function,
    )


def _detail(site: Site, g: Trace, b: Trace) -> str:
    if site.is_region:
        return ""
    one, other = g.operators[site.good[0]], b.operators[site.bad[0]]
    if site.why == ARGUMENTS:
        pairs = zip_longest(one.scalars, other.scalars, fillvalue="the default")
        moved = [f"{x} and {y}" for x, y in pairs if x != y]
        return f"It is called with other arguments: {'; '.join(moved)}."
    if site.why == DRAWS:
        return "From the same state of the generator the two versions draw other numbers."
    if site.why == LAYOUT:
        strides = [
            f"{list(x.strides)} and {list(y.strides)}"
            for x, y in zip(one.inputs, other.inputs, strict=True)
            if x.strides != y.strides
        ]
        return f"Its inputs are equal in value, and lie in memory in other ways: strides {'; '.join(strides)}."
    return ""
