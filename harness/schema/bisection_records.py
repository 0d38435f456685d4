"""The record of a bisection: what was asked, what was seen of each version, and where something changed.

    reports/bisections/<id>/
        bisection.json          written when no version is left to ask
        index.html, summary.md  by `kernel-matrix report`

Every probe is an ordinary run, which `run` names. A bisection that was killed has no record of its own: it starts
again, and finds the runs that were finished.
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum

from harness.schema.environment_records import Observation
from harness.schema.records import Outcome, Record
from harness.schema.run_records import Fallback


class Aspect(str, Enum):
    CORRECTNESS = "correctness"
    LATENCY = "latency"


class ProbeVerdict(str, Enum):
    GOOD = "good"
    BAD = "bad"
    NEITHER = "neither"
    INCONCLUSIVE = "inconclusive"
    SKIPPED = "skipped"


class Release(Record):
    version: str
    skipped: str = ""  # why it cannot be installed here; empty where it can


class Question(Record):
    id: str
    created_utc: str
    command: list[str]
    good: str
    bad: str
    what: Aspect
    target: str  # kernel, or a reference by name
    executor: str
    index: str  # package index that the releases were read from
    fallbacks: list[Fallback] = field(default_factory=list)  # where that is not the one that was asked for
    releases: list[Release]  # from good to bad
    every: bool  # whether every version is asked, and not only those that halve what is left


class PassCount(Record):
    passed: int
    trials: int


class TruthSketch(Record):
    """A few numbers of one float64 result of a problem (`harness.search.bisect.observe.sketch`)."""

    shape: list[int]
    nonfinite_sha256: str  # of where it has NaN and infinities
    projection: float  # of its finite values on a random direction, over the root of their number
    largest: float  # largest finite magnitude


class CellSeen(Outcome, kw_only=True):
    """One cell of one version. `ratio` is its time over the good version's in the same rounds, with its interval."""

    cell: str  # <kernel>/<workload>/<device>, without the kernel for a reference
    rates: dict[str, PassCount] = field(
        default_factory=dict
    )  # trials that pass the deciding rule, by input distribution
    # of a problem: what this version computes in float64, by distribution, trial and output
    truths: dict[str, TruthSketch] = field(default_factory=dict)
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    median_us: float | None = None
    replicates: int = 0
    min_effect: float = 0.0  # the smallest share that counts as another time


class Probe(Record):
    """What was seen of one version."""

    version: str
    verdict: ProbeVerdict = ProbeVerdict.INCONCLUSIVE
    reason: str = ""  # why it was skipped
    run: str = ""  # the run that holds the records: reports/runs/<run>
    environment: str = ""
    observed: Observation | None = None  # the stack as found inside
    cells: list[CellSeen] = field(default_factory=list)


class SketchDifference(Record):
    cell: str
    computes_else: bool  # whether the float64 results differ beyond rounding


class Step(Record):
    """A change: `before` is the last version on its one side, `after` the first on its other."""

    before: str
    after: str
    unknown: list[str]  # versions between the two whose side is not known
    differences: list[SketchDifference]


class BisectionRecord(Record):
    question: Question
    probes: list[Probe]  # of the versions that were asked, in order
    steps: list[Step]
    monotonic: bool  # False where a later version is like an earlier one again
    most_environments: int  # ceil(log2 n) + 2 of the n releases: enough where one step explains it
    finished_utc: str
