"""Why results moved: evidence in, ranked causes out. Pure, from records alone; nothing is run and no torch is needed.

    explained(folder)      every cause that a run's records support, most important first

`trials` reads every experiment as trials of one factor, and says what outcomes follow. `cases`, `cells`, `times`,
`profiles` and `experiments` hold what the records say of one kernel or reference against the baseline. `table` lists
the rules: each recognises one cause, knows of no other rule, and hands over a `finding`. `cards` makes a card of it,
with its grade and what is ruled out, `grades` looks for what else changed, and `precedence` says which of several
causes leads. Sentences stand in templates/, a file for each cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reports.attribute.cases import cases
from reports.attribute.causes import Cause, order
from reports.attribute.precedence import correctness_causes, leaning_causes, memory_causes, time_causes
from reports.compare.rows import compare
from reports.compare.two_runs import changed_sources
from reports.load.evidence import Evidence, load_evidence
from reports.model import Comparison

__all__ = ["Cause", "attribute", "explained"]


def attribute(evidence: Evidence, rows: Sequence[Comparison]) -> list[Cause]:
    """One or more causes for every kernel, and for every reference that moved or is wrong; none for a kernel whose
    sources differ between two runs, for every rule takes them to be the same."""
    changed = {kernel.name for kernel in evidence.run.kernels if changed_sources(evidence.run, kernel)}
    every = cases(evidence, [row for row in rows if row.target not in changed])
    found = [cause for case in every for cause in correctness_causes(case)]
    found += time_causes(every) + memory_causes(every) + leaning_causes(every)
    return sorted(found, key=order)


def explained(run_folder: Path) -> list[Cause]:
    """The causes of a run's folder. InputError where it is none, RecordError where a record cannot be trusted."""
    evidence = load_evidence(run_folder)
    return attribute(evidence, compare(evidence))
