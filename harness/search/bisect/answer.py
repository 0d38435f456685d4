"""What follows from what was seen: the steps, one sentence, and the next command. Pure, but for what prints."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Sequence

from harness.config.environments import NOUNS, channel
from harness.run.folders import now_utc
from harness.schema.bisection_records import (
    BisectionRecord,
    CellSeen,
    Difference,
    Question,
    StepRecord,
    VersionRecord,
)
from harness.search.bisect import plan
from harness.search.bisect.oracle import MEASURED, differing
from harness.search.bisect.sketches import sketches_differ
from harness.search.loop import print_rows, without_option
from harness.typed import typed_by_nox, words_of

SHORT = 90


def _short(text: str) -> str:
    return text if len(text) <= SHORT else f"{text[: SHORT - 1]}\N{HORIZONTAL ELLIPSIS}"


def seen_text(seen: CellSeen, recipes: Sequence[str] | None = None) -> str:
    """What was seen of one cell: of these recipes of inputs, or of all."""
    if seen.ratio is not None and seen.median_us is not None:
        counted = f"{seen.median_us:.3g} us, {seen.launches} launches"
        if seen.low == seen.high == 1:
            return f"the measure of the others ({counted})"
        interval = "no interval" if seen.low is None or seen.high is None else f"{seen.low:.3g} to {seen.high:.3g}"
        return f"{seen.ratio:.3g} times the good one's [{interval}] ({counted})"
    if seen.status not in MEASURED:
        return seen.status.replace("_", " ") + (f": {_short(seen.message)}" if seen.message else "")
    shown = {name: rate for name, rate in seen.rates.items() if recipes is None or name in recipes}
    return ", ".join(f"{name} {rate.passed}/{rate.trials}" for name, rate in shown.items())


def describe(record: VersionRecord) -> str:
    """What was seen of one version, in a line."""
    if not record.cells:
        return _short(record.message)
    return "; ".join(f"{cell.cell}: {seen_text(cell)}" for cell in record.cells)


def _moved(before: CellSeen, after: CellSeen) -> Difference:
    """Of rates only those recipes whose share is another."""
    recipes = None
    if before.rates and after.rates:
        recipes = [
            name
            for name, rate in before.rates.items()
            if (other := after.rates.get(name)) and rate.passed * other.trials != other.passed * rate.trials
        ]
    return Difference(
        cell=before.cell,
        before=seen_text(before, recipes),
        after=seen_text(after, recipes),
        computes_else=sketches_differ(before.truths, after.truths),
    )


def find_steps(question: Question, records: Sequence[VersionRecord], labels: plan.Labels) -> list[StepRecord]:
    """Every change, and what moved there."""
    versions = [release.version for release in question.releases]
    by_version = {record.version: record for record in records}
    alike: dict[int | None, list[VersionRecord]] = {}
    for record in (by_version[question.good], by_version[question.bad], *records):  # the ends were shown to differ
        alike.setdefault(record.label, []).append(record)
    found = []
    for left, right in plan.steps(labels):
        before, after = by_version[versions[left]], by_version[versions[right]]
        # Labels say that these two differ. Where their own trials are too few to show in what, others' with the same
        # labels do.
        pairs = itertools.chain([(before, after)], itertools.product(alike[before.label], alike[after.label]))
        shown = (differing(one.cells, other.cells, question.what, question.min_effect) for one, other in pairs)
        moved = next(filter(None, shown), [])
        cells = {cell.cell: cell for cell in after.cells}
        found.append(
            StepRecord(
                before=before.version,
                after=after.version,
                unknown=versions[left + 1 : right],
                also=[]
                if before.torch_cuda == after.torch_cuda
                else [
                    f"{before.version} was built for CUDA {before.torch_cuda}, {after.version} for {after.torch_cuda}"
                ],
                commits=compared(before.torch_git, after.torch_git),
                differences=[_moved(cell, cells[cell.cell]) for cell in before.cells if cell.cell in moved],
            )
        )
    return found


def compared(before: str, after: str) -> str:
    """GitHub's page of the commits between two; empty where one is not known, or they are the same."""
    known = all(re.fullmatch(r"[0-9a-f]{40}", commit) for commit in (before, after))
    return f"https://github.com/pytorch/pytorch/compare/{before}...{after}" if known and before != after else ""


def _difference_text(item: Difference, step: StepRecord) -> str:
    if item.computes_else:
        return f"{item.cell} computes something else, also in float64, and nothing here says which is right"
    return f"{item.cell}: {item.before} in {step.before}, {item.after} in {step.after}"


def _step_text(step: StepRecord) -> str:
    """`2.2.0 is the first that differs`, or as much of it as can be said."""
    moved = "; ".join(_difference_text(item, step) for item in step.differences[:3])
    more = len(step.differences) - 3
    moved += f"; and {more} more cells" if more > 0 else ""
    if step.unknown:
        return (
            f"after {step.before} and not later than {step.after} ({', '.join(step.unknown)} between them could not be "
            f"told): {moved}"
        )
    return f"at {step.after}, the one after {step.before}: {moved}"


def answer(question: Question, records: Sequence[VersionRecord], steps: Sequence[StepRecord], monotonic: bool) -> str:
    what = f"{question.what} of {question.target}"
    of = f"In {question.held}, with other releases of {question.component} and all else held, " * bool(question.held)
    if not steps:
        cells = next(record for record in records if record.version == question.bad)
        none = f"{'no' if of else 'No'} difference in {what} between {question.good} and {question.bad}"
        return f"{of}{none} was found: {describe(cells)}."
    texts = [_step_text(step) for step in steps]
    if len(texts) > 1:
        numbered = "; ".join(f"({number}) {text}" for number, text in enumerate(texts, 1))
        texts = [f"in {len(texts)} steps: {numbered}"]
    said = f"{of}{'the' if of else 'The'} {what} changed {texts[0]}."
    also = [text for step in steps for text in step.also]
    if also:
        said += f" Not only PyTorch's version differs there: {'; '.join(also)}."
    if not monotonic:
        said += " It is not monotonic: a later version is like an earlier one again; there may be more steps (--every)."
    return said


def next_command(question: Question, records: Sequence[VersionRecord], steps: Sequence[StepRecord]) -> str:
    """Where there is a step, the report of the run that saw its far side; else the question that is left."""
    by_version = {record.version: record for record in records}
    if steps:
        run = f"reports/runs/{by_version[steps[0].after].run}"
        return shlex.join(words_of("report", run, nox=typed_by_nox(question.command)))
    other = "latency" if question.what == "correctness" else "correctness"
    return shlex.join([*without_option(question.command, "--what"), "--what", other])


def conclude(question: Question, records: Sequence[VersionRecord], labels: plan.Labels) -> BisectionRecord:
    steps = find_steps(question, records, labels)
    monotonic = plan.is_monotonic(labels)
    usable = sum(not release.skipped for release in question.releases)
    return BisectionRecord(
        question=question,
        versions=list(records),
        steps=steps,
        monotonic=monotonic,
        environments=len(records),
        most_environments=plan.most_environments(usable),
        answer=answer(question, records, steps, monotonic),
        next_command=next_command(question, records, steps),
        finished_utc=now_utc(),
        duration_s=round(sum(record.duration_s for record in records), 1),
    )


def print_question(question: Question) -> None:
    usable = [release for release in question.releases if not release.skipped]
    noun = NOUNS[channel(question.good)]
    print(
        f"{question.what} of {question.target} from {question.good} to {question.bad}, on "
        f"{', '.join(question.workloads)} ({', '.join(question.devices)}): {len(usable)} {noun}; where one step "
        f"explains it, at most {plan.most_environments(len(usable))} environments"
    )
    of = f" of {question.component}" if question.component else ""
    print(f"{noun}{of}: " + " ".join(release.version for release in usable))
    for release in question.releases:
        if release.skipped:
            print(f"skipped: {release.version}: {release.skipped}")


def print_table(record: BisectionRecord) -> None:
    """Every release, those that were skipped or not asked too."""
    rows = {
        release.version: (release.version, "", release.skipped, "skipped" if release.skipped else "not asked")
        for release in record.question.releases
    }
    rows |= {seen.version: (seen.version, seen.torch, describe(seen), seen.verdict) for seen in record.versions}
    print_rows(("version", "found", "seen", "verdict"), rows.values())
    print(
        f"{record.environments} environments (at most {record.most_environments} where one step explains it), "
        f"{record.duration_s:.0f} s"
    )
    for step in record.steps:
        if step.commits:
            print(f"PyTorch's commits from {step.before} to {step.after}: {step.commits}")
    print(f"next: {record.next_command}")
