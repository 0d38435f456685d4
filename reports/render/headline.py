"""The verdict in a few sentences. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from harness.worker import protocol
from reports import model
from reports.attribute.causes import Cause
from reports.compare.outcomes import Version, name_of
from reports.compare.rows import KERNEL, correctness_moved, has_moved, leading_time
from reports.model import Comparison
from reports.render.explanations import Explanation, unmoved
from reports.text import TIMES, count_of, span


def headline(
    versions: list[Version], rows: list[Comparison], by_row: dict[str, list[tuple[Explanation, Cause]]]
) -> str:
    """The verdict in a few sentences: kernels, then references, then what is undecided."""
    base = next((version for version in versions if version.baseline), None)
    others = [version for version in versions if not version.baseline and not version.control]
    controls = [row for row in rows if row.control]
    control = f"A/A control: {sum(map(has_moved, controls))} of {len(controls)} changed" if controls else ""
    if base is not None and control and not others:
        return f"{name_of(base)} against itself: {control}."
    rows = [row for row in rows if not row.control]
    if base is None or not others:
        names = ", ".join(name_of(version) for version in versions)
        wrong = sum(row.correctness.verdict in (model.FAILING, model.BROKEN) for row in rows)
        return (
            f"{names} alone: {count_of(len(rows), 'target')} measured, {wrong} of them wrong or broken; "
            "no other version to compare with."
        )
    names = " and ".join(name_of(version).removeprefix("PyTorch ") for version in others)
    where = f"From {name_of(base)} to {names}: "
    dead = [version for version in versions if version.status == "broken"]
    if dead:
        names = " and ".join(version.id for version in dead)
        return f"{where}{names} could not be measured: the environment is broken."
    kernels = [row for row in rows if row.kind == KERNEL]
    both = BOTH if len(others) == 1 else f"all {len(others) + 1} environments"
    sentences = [_of_kernels(kernels, both) if kernels else ""]
    astray = {row.target for row in kernels if row.correctness.this.off_stream or row.correctness.baseline.off_stream}
    if astray:
        verb = "works" if len(astray) == 1 else "work"
        sentences.insert(0, f"{' and '.join(sorted(astray))} {verb} on another stream than the one given")
    drifted = sum(unmoved(row, by_row) for row in kernels)
    if drifted:
        where_drifted = f"In {count_of(drifted, 'comparison')}"
        sentences.append(f"{where_drifted} only agreement with a reference changed, because the reference did")
    sentences.append(_of_references([row for row in rows if row.kind != KERNEL]))
    if not any(sentences):
        sentences.append(f"No significant change in {count_of(len(rows), 'comparison')}")
    sentences += _of_open_times(rows)
    return where + ". ".join(sentence for sentence in [*sentences, control] if sentence) + "."


BOTH = "both environments"
# Short enough for a title; the badges below it use the words of the verdicts.
PHRASES = {
    model.BROKEN: "broken",
    model.REGRESSED: "newly wrong",
    model.NO_LONGER_SUPPORTED: "no longer supported",
    "unbuilt": "not built in {neither}",
    "stopped": "without an output in {neither}",
    model.FAILING: "wrong in {both}",
    "wrong_where_accepted": "wrong, and refused before",
    model.FIXED: "now correct",
    model.NEWLY_SUPPORTED: "newly supported",
    model.LESS_EXACT: "correct but less exact",
    model.MORE_EXACT: "correct and more exact",
    model.UNDECIDED: "of undecided correctness",
    model.UNSUPPORTED: "refused in {both}",
    model.PASS: "correct in {both}",
}
OF_KERNELS = (model.UNSUPPORTED, model.PASS)  # what is no news of a reference


def _word(row: Comparison) -> str:
    judged = row.correctness
    if judged.verdict == model.BROKEN and not correctness_moved(row):
        return "unbuilt" if judged.this.status == protocol.BUILD_FAILED else "stopped"
    if judged.verdict == model.FAILING and judged.baseline.status == protocol.UNSUPPORTED:
        return "wrong_where_accepted"
    return judged.verdict


def _phrase(word: str, both: str = BOTH) -> str:
    neither = "either environment" if both == BOTH else "any environment"
    return PHRASES[word].format(both=both, neither=neither)


def _counted(rows: list[Comparison], without: Iterable[str] = ()) -> list[str]:
    """Each row is a comparison of two environments, however many there are."""
    found = Counter(map(_word, rows))
    phrases = {word: _phrase(word) for word in PHRASES if word not in without}
    return [f"{found[word]} {phrase}" for word, phrase in phrases.items() if found[word]]


def _of_times(rows: list[Comparison]) -> list[str]:
    """Such as "6 slower (up to 4.89x)"."""
    timed, parts = [leading_time(row)[1] for row in rows], []
    for verdict, word, bound in ((model.REGRESSED, "slower", "up to "), (model.IMPROVED, "faster", "down to ")):
        ratios = [each.ratio for each in timed if each.verdict == verdict and each.ratio]
        if ratios:
            extreme = max(ratios, key=lambda ratio: abs(math.log(ratio)))
            parts.append(f"{len(ratios)} {word} ({bound if len(ratios) > 1 else ''}{extreme:.2f}{TIMES} the time)")
    return parts


def _of_kernels(rows: list[Comparison], both: str) -> str:
    """A reader's first question, whatever the references did: are mine correct?"""
    names = list(dict.fromkeys(row.target for row in rows))
    subject = " and ".join(names) if len(names) < 3 else f"all {len(names)} kernels"
    words, times = set(map(_word, rows)), _of_times(rows)
    if len(words) > 1:
        return f"{subject} ({count_of(len(rows), 'comparison')}): {', '.join([*_counted(rows), *times])}"
    workloads = len({row.workload for row in rows})
    where = f" on all {workloads} workloads" if workloads > 1 else ""
    said = f"{subject} {'is' if len(names) == 1 else 'are'} {_phrase(words.pop(), both)}{where}"
    if len(rows) == 1:  # a time that moved is its only one
        return " and ".join([said, *(each.removeprefix("1 ") for each in times)])
    return ", ".join([said, *times])


def _of_references(rows: list[Comparison]) -> str:
    parts = [*_counted(rows, OF_KERNELS), *_of_times(rows)]
    whose = "The problems' models" if {row.target for row in rows} == {protocol.MODEL} else "PyTorch's references"
    return f"{whose} ({count_of(len(rows), 'comparison')}): {', '.join(parts)}" if parts else ""


def _of_open_times(rows: list[Comparison]) -> list[str]:
    found = [row for row in rows if row.latency.verdict == model.UNDECIDED]
    about = [row for row in rows if row.latency.verdict == model.ABOUT]
    of = f"of {count_of(len(rows), 'time')}"
    are = "is" if len(found) == 1 else "are"
    said = [f"{len(found)} {of} {are} undecided{_launches(found)}"] if found else []
    return said + ([f"{len(about)} {of} changed by about the smallest effect that counts"] if about else [])


def _launches(rows: list[Comparison]) -> str:
    """How many launches of each side these times rest on."""
    counts = [len(side.medians_us) for row in rows for side in (row.latency.baseline, row.latency.this)]
    most = max(counts, default=0)
    return f" ({span(counts, '{}')} launch{'' if most == 1 else 'es'} each)" if most else ""
