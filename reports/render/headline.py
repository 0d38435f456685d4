"""The verdict in one sentence. Pure."""

from __future__ import annotations

import math
from collections import Counter

from harness.worker import protocol
from reports import model
from reports.attribute.causes import Cause
from reports.compare.outcomes import Version, name_of
from reports.compare.rows import KERNEL, correctness_moved, has_moved, leading_time
from reports.model import Comparison
from reports.render.explanations import Explanation, unmoved
from reports.text import count_of


def headline(
    versions: list[Version], rows: list[Comparison], by_row: dict[str, list[tuple[Explanation, Cause]]]
) -> str:
    """The verdict in one sentence: the worst that is certain, then what is undecided."""
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
    parts = [_part(kernels, "kernel"), _part([row for row in rows if row.kind != KERNEL], "reference")]
    drifted = sum(unmoved(row, by_row) for row in kernels)
    if drifted:
        parts.insert(1, f"{drifted} unchanged under a changed reference")
    passing = sum(row.correctness.verdict in model.RIGHT for row in kernels)
    if kernels and passing == len(kernels):
        # A reader's first question, whatever the references did.
        parts.insert(0, f"{'all ' if passing > 1 else ''}{count_of(passing, 'kernel output')} correct as before")
    elif not any(parts):
        parts.append(f"no significant change in {count_of(len(rows), 'comparison')}")
    astray = {row.target for row in kernels if row.correctness.this.off_stream or row.correctness.baseline.off_stream}
    if astray:
        parts.insert(0, f"{' and '.join(sorted(astray))} on another stream than the one given")
    for aspect in ("correctness", "latency"):
        undecided = sum(getattr(row, aspect).verdict == model.UNDECIDED for row in rows)
        parts += [f"{aspect} undecided in {undecided} of {count_of(len(rows), 'comparison')}"] if undecided else []
    about = sum(row.latency.verdict == model.ABOUT for row in rows)
    if about:
        parts.append(f"latency changed by about the threshold in {about} of {count_of(len(rows), 'comparison')}")
    return where + "; ".join(part for part in [*parts, control] if part) + "."


# Short enough for one sentence; the badges below it use the words of the verdicts.
PHRASES = {
    model.BROKEN: "broken",
    model.REGRESSED: "newly wrong",
    model.NO_LONGER_SUPPORTED: "no longer supported",
    "unbuilt": "not built in either environment",
    "stopped": "without an output in either environment",
    model.FAILING: "wrong as before",
    model.FIXED: "fixed",
    model.NEWLY_SUPPORTED: "newly supported",
    model.LESS_EXACT: "less exact",
    model.MORE_EXACT: "more exact",
}


def _part(rows: list[Comparison], noun: str) -> str:
    found = Counter(
        ("unbuilt" if row.correctness.this.status == protocol.BUILD_FAILED else "stopped")
        if row.correctness.verdict == model.BROKEN and not correctness_moved(row)
        else row.correctness.verdict
        for row in rows
    )
    parts = [f"{found[word]} {phrase}" for word, phrase in PHRASES.items() if found[word]]
    for verdict, word in ((model.REGRESSED, "slower"), (model.IMPROVED, "faster")):
        timed = [leading_time(row)[1] for row in rows]
        ratios = [each.ratio for each in timed if each.verdict == verdict and each.ratio]
        if ratios:
            extreme = max(ratios, key=lambda ratio: abs(math.log(ratio)))
            parts.append(f"{len(ratios)} {word} by {'' if len(ratios) == 1 else 'up to '}{abs(extreme - 1):.0%}")
    return f"of {count_of(len(rows), noun + ' row')}, {', '.join(parts)}" if parts else ""
