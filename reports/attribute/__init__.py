"""Why results moved: evidence in, ranked causes out. Pure, from records alone; nothing is run and no torch is needed.

    explained(folder)      every cause that a run's records support, most important first

Facts: a `Case` is what is known of one kernel or reference on one device in one environment, its `Cell`s what is known
of each workload; `messages` makes facts of what processes said. Rules each look for one class of cause in a case, and
know of no other rule. `precedence` lists them all, and says which of several leads; `grading` how sure a cause can be,
given what else moved. `making` and `figures` hold what cards say alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reports.attribute.cases import cases
from reports.attribute.model import Cause, order
from reports.attribute.stories import correctness_causes, explain_times
from reports.attribute.timing import hint
from reports.compare.rows import compare
from reports.load.evidence import Evidence, load_evidence
from reports.model import Comparison

__all__ = ["Cause", "attribute", "explained"]


def attribute(evidence: Evidence, rows: Sequence[Comparison]) -> list[Cause]:
    """One or more causes for every kernel, and for every reference that moved or is wrong."""
    known = cases(evidence, rows)
    found = [cause for case in known for cause in correctness_causes(case)]
    found += explain_times(evidence, known)
    found += [told for case in known if (told := hint(case)) is not None]
    return sorted(found, key=order)


def explained(run_folder: Path) -> list[Cause]:
    """The causes of a run's folder. InputError where it is none, RecordError where a record cannot be trusted."""
    evidence = load_evidence(run_folder)
    return attribute(evidence, compare(evidence))
