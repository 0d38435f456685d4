"""A trace as a whole: record both versions twice, align, compare, substitute, judge."""

from __future__ import annotations

import linecache
import shutil
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from string import Template

from harness.errors import InputError
from harness.trace.diverge import Site
from harness.trace.judge import judge_all
from harness.trace.model import (
    DifferingSite,
    DivergingKind,
    OneRaised,
    OperatorCall,
    OperatorKind,
    Reason,
    ScriptEnd,
    Trace,
    TraceSummary,
    TraceVerdict,
)
from harness.trace.results import distances, find_result, pair_tensors
from harness.trace.runs import TracedVersion, find_programs
from harness.trace.substitute import (
    Experiment,
    Proof,
    Say,
    find_diverging,
    find_first_unstable,
    find_unstable,
)

MOST_ROWS = 60  # of the table
TEMPLATE = Path(__file__).parent / "alone.py.txt"
FOLDER = "alone"


def trace(
    good: TracedVersion, bad: TracedVersion, command: Sequence[str], notes: Sequence[str], say: Say
) -> TraceSummary:
    """Return everything that was found. InputError where the script cannot be traced."""
    outcome = TraceSummary(good=good.version, bad=bad.version, command=list(command), notes=list(notes))
    g, g_again = _record(good, outcome, say)
    b, b_again = _record(bad, outcome, say)
    if not g.operators and not b.operators:
        end = f"; it ends with {g.end.failure}" if g.end.failure else ""
        raise InputError(f"the script calls no operator of PyTorch{end}", f"run it by itself in {good.version}")
    experiment = Experiment(good, bad, g, b, say)
    _describe_results(outcome, experiment)
    _describe_differences(outcome, experiment)
    outcome.not_repeatable = _find_unrepeated(good, g, g_again) + _find_unrepeated(bad, b, b_again)
    to_bad = dict(experiment.alignment.pairs)
    unstable = find_unstable(b, b_again) | {to_bad.get(index, -1) for index in find_unstable(g, g_again)}
    repeats = find_result(g_again).equals(experiment.wanted) and find_result(b_again).equals(experiment.had)
    if not repeats:
        outcome.verdict = TraceVerdict.DOES_NOT_REPEAT
    elif experiment.wanted.equals(experiment.had):
        first = dict[OperatorKind, Site]()
        for site in find_diverging(experiment.sites, unstable):
            first.setdefault(site.kind, site)
        outcome.causes = [_describe_kind(site, g, b) for site in first.values()]
        outcome.verdict = TraceVerdict.NO_EFFECT if first else TraceVerdict.UNCHANGED
    else:
        _prove(outcome, experiment, unstable)
    outcome.runs = good.count + bad.count
    return outcome


def _record(side: TracedVersion, outcome: TraceSummary, say: Say) -> tuple[Trace, Trace]:
    say(f"{side.version}, without the recorder")
    plain = side.run_plainly()
    say(f"{side.version}, recorded twice")
    traces = side.record(), side.record()
    end = traces[0].end
    require_undisturbed(side.version, plain, end)
    outcome.seconds[side.version] = plain.duration_s, end.duration_s
    outcome.torch.append(end.torch)
    outcome.notes += [note for note in end.notes if note not in outcome.notes]
    return traces


def require_undisturbed(version: str, plain: ScriptEnd, recorded: ScriptEnd) -> None:
    """Raise InputError where the script ends in another way under the recorder."""
    if plain.failure != recorded.failure:
        ends = [end.failure or "exit code 0" for end in (recorded, plain)]
        message = f"{version}: the script ends otherwise when it is recorded: {ends[0]}; else: {ends[1]}"
        raise InputError(message, "leave out what disturbs the recorder; where its end is luck, run it again")


def _find_unrepeated(side: TracedVersion, one: Trace, other: Trace) -> list[str]:
    site = find_first_unstable(one, other)
    if site is not None:
        line = _find_first(site, one, other).line
        return [f"In {side.version}, {site.kind} at {line} does not repeat"]
    if not find_result(one).equals(find_result(other)):
        return [f"{side.version} differs from itself, by no operator that was seen"]
    return []


# -- facts that need no experiment ------------------------------------------------------------------------------------


def _describe_results(outcome: TraceSummary, experiment: Experiment) -> None:
    g, b = experiment.given, experiment.taken
    outcome.ended = {"good": g.end.failure, "bad": b.end.failure}
    outcome.numbers, outcome.tensors = distances(experiment.wanted, experiment.had)
    if g.end.failure and g.end.failure == b.end.failure:
        outcome.notes.append(f"both versions end with {g.end.failure}: what comes before it was compared")
    pairs = pair_tensors(experiment.wanted, experiment.had)
    for version, held in ((outcome.good, pairs.good_only), (outcome.bad, pairs.bad_only)):
        if held:
            text = f"only {version} holds {len(held)} of the tensors that are left; not compared; first: {held[0].line}"
            outcome.notes.append(text)


def _describe_differences(outcome: TraceSummary, experiment: Experiment) -> None:
    g, b, pairs = experiment.given, experiment.taken, experiment.alignment.pairs
    differing = [site for site in experiment.sites if site.differs]
    counts = {"good": len(g.operators), "bad": len(b.operators), "matched": len(pairs), "differing": len(differing)}
    outcome.counts = counts
    for site in differing[:MOST_ROWS]:
        first = _find_first(site, g, b)
        outcome.differing.append(DifferingSite(str(site.kind), site.diverges, first.line, first.module, first.phase))


# -- the experiment ---------------------------------------------------------------------------------------------------


def _prove(outcome: TraceSummary, experiment: Experiment, unstable: set[int]) -> None:
    proof = experiment.prove(unstable)
    outcome.raised = _find_raised(experiment.given, proof.after or experiment.taken, outcome)
    if proof.all:
        outcome.causes = _find_causes(experiment, proof)
    outcome.comes_back, outcome.left = proof.comes_back, proof.left
    if proof.comes_back:
        outcome.verdict = TraceVerdict.PROVEN
    elif outcome.raised is not None and outcome.raised.where.is_pytorchs:
        outcome.verdict = TraceVerdict.RAISED  # whatever else differs is not why
    else:
        outcome.verdict = TraceVerdict.POSSIBLE if proof.all else TraceVerdict.NOT_EXPLAINED


def _find_causes(experiment: Experiment, proof: Proof) -> list[DivergingKind]:
    """Return every kind that diverges; what is needed first, in the program's order."""
    experiment.say("the first diverging operators run again alone: three times, and in float64")
    judged = judge_all(experiment.giver, experiment.taker, experiment.given, proof)
    causes = []
    for number, each in enumerate(proof.all.values()):
        cause = _describe_kind(each.site, experiment.given, each.seen_in)
        cause.instances, cause.program = len(each.substituted), number
        if proof.after is not None:
            lines = dict.fromkeys(proof.after.operators[index].line for index in each.substituted)
            cause.others = [[line, read_line(line)] for line in lines if line != cause.line]
        cause.judged = judged.get(each.kind, cause.judged)
        cause.is_needed = each.is_needed
        causes.append(cause)
    return sorted(causes, key=lambda cause: (not cause.is_needed, cause.index or 0))


def _find_raised(good: Trace, bad: Trace, outcome: TraceSummary) -> OneRaised | None:
    """Return the exception of one version, where the other raised none. `bad`: with all substituted that diverges."""
    if bool(good.end.raised) == bool(bad.end.raised):
        return None
    version, other, raising, returning = outcome.good, outcome.bad, good, bad
    if bad.end.raised:
        version, other, raising, returning = other, version, returning, raising
    where = raising.end.raised
    assert where is not None
    calls = ((operator.name, tuple(value.digest for value in operator.inputs)) for operator in returning.operators)
    returned = (where.operator, where.given) in calls
    return OneRaised(version, other, raising.end.exception, read_line(where.line), where, returned)


def _find_first(site: Site, g: Trace, b: Trace) -> OperatorCall:
    """Return the operator to be named: of a region the first that computes something, of the bad version if it has
    one."""
    operators = [*(b.operators[index] for index in site.bad), *(g.operators[index] for index in site.good)]
    return next((operator for operator in operators if not operator.is_view), operators[0])


def read_line(line: str) -> str:
    """Return the text of `FILE:NUMBER`."""
    file, _, number = line.rpartition(":")
    return linecache.getline(file, int(number)).strip() if number.isdecimal() else ""


def _describe_kind(site: Site, g: Trace, b: Trace) -> DivergingKind:
    first = _find_first(site, g, b)
    return DivergingKind(
        kind=site.kind,
        function=first.function,
        line=first.line,
        source=read_line(first.line),
        module=first.module,
        phase=first.phase,
        reason=site.reason,
        changes=_list_changes(site, g, b),
        index=site.bad[0] if site.bad else None,
    )


def _list_changes(site: Site, g: Trace, b: Trace) -> list[str]:
    """Return the arguments, or the strides, that differ where a matched operator is called."""
    if site.kind.is_region:
        return []
    left, right = g.operators[site.good[0]], b.operators[site.bad[0]]
    pairs: list[tuple[object, object]] = []
    if site.reason == Reason.ARGUMENTS:
        pairs = list(zip_longest(left.scalars, right.scalars, fillvalue="the default"))
    elif site.reason == Reason.LAYOUT:
        pairs = [(list(x.strides), list(y.strides)) for x, y in zip(left.inputs, right.inputs, strict=True)]
    return [f"{x} and {y}" for x, y in pairs if x != y]


# -- the script that stands alone ---------------------------------------------------------------------------------


def write_script(outcome: TraceSummary, good: TracedVersion, bad: TracedVersion, out: Path) -> str:
    """Write the first diverging operator as a script that stands alone: it runs the stored calls, which lie beside it,
    and needs PyTorch only. Return its path, '' where no operator was stored."""
    for cause in outcome.causes:
        programs = {} if cause.program is None else find_programs(good, bad, cause.program)
        if programs:
            break
    else:
        return ""
    folder = out / FOLDER
    folder.mkdir(exist_ok=True)
    for name, path in programs.items():
        shutil.copy(path, folder / f"{name}.pt")
    title = f"{cause.kind}: equal inputs, other outputs.\n\nSeen at {cause.line}."
    text = Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=title.replace("\\", "/").replace('"""', "'''"), good=good.version, bad=bad.version
    )
    script = folder / "alone.py"
    script.write_text(text, encoding="utf-8")
    return str(script)
