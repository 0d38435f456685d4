"""Records of bisections: what was asked, what was seen of each version, and what follows.

    reports/bisections/<id>/
        question.json                 what was asked, and the releases that there were: written when it begins
        versions/<version>.json       what was seen of one version: written once it is known
        bisection.json                all of it, with the answer: written when no version is left to ask
        index.html, summary.md        by `kernel-matrix report`

A bisection that was killed goes on from the first two. What was measured stands in ordinary runs, which `run` names.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from harness.schema.records import Outcome, Record
from harness.schema.run_records import Fallback

Aspect = Literal["correctness", "latency"]
Verdict = Literal["good", "bad", "neither", "undecided", "skipped"]


class Release(Record):
    version: str
    skipped: str = ""  # why it cannot be installed here; empty where it can


class Question(Record):
    id: str
    created_utc: str
    command: list[str]
    good: str
    bad: str
    component: str = ""  # the package whose releases they are; empty: PyTorch's
    held: str = ""  # of a package: the environment that it is in, all else unchanged
    what: Aspect
    target: str  # kernel, or a reference by name
    kernels: list[str]  # the kernel under test, or the one that the reference is measured beside
    workloads: list[str]
    devices: list[str]
    executor: str
    index: str  # package index that the releases were read from
    fallbacks: list[Fallback] = field(default_factory=list)  # where that is not the one that was asked for
    releases: list[Release]  # from good to bad
    level: float  # most that chance may do, in one comparison of two versions at one look
    looks: list[int]  # of correctness: factors of the trials; of latency: launches of each version
    min_effect: dict[str, float]  # by device: the smallest share that counts as another time
    every: bool  # whether every version is asked, and not only those that halve what is left


class Rate(Record):
    passed: int
    trials: int


class TruthSketch(Record):
    """What is kept of one float64 result of a problem (`harness.search.bisect.sketches`)."""

    shape: list[int]
    nonfinite_sha256: str  # of where it has NaN and infinities
    projection: float  # of its finite values on a random direction, over the root of their number
    largest: float  # largest finite magnitude


class CellSeen(Outcome, kw_only=True):
    """One cell of one version. `ratio` is its time over the good version's in the same blocks, with its interval."""

    cell: str  # <kernel>/<workload>/<device>, without the kernel for a reference
    rates: dict[str, Rate] = field(default_factory=dict)  # trials that pass the deciding rule, by recipe of inputs
    # of a problem: what this version computes in float64, by recipe, trial and output
    truths: dict[str, TruthSketch] = field(default_factory=dict)
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    median_us: float | None = None
    launches: int = 0


class Difference(Record):
    """What moved between two versions in one cell: from, to."""

    cell: str
    before: str
    after: str
    computes_else: bool = False  # whether the float64 results differ


class VersionRecord(Outcome, kw_only=True):
    """What was seen of one version. `label`: versions that are alike share one; 0 is the good end's."""

    version: str
    verdict: Verdict
    label: int | None
    environment: str = ""
    environment_key: str = ""
    torch: str = ""  # torch.__version__ as found inside
    torch_cuda: str = ""  # the CUDA version that it was built for, as found inside
    torch_git: str = ""  # PyTorch's commit that it was built from, as found inside
    looks: int = 0  # how often more was asked for, until it was clear
    cells: list[CellSeen] = field(default_factory=list)
    run: str = ""  # the run that holds the records: reports/runs/<run>
    started_utc: str
    duration_s: float


class StepRecord(Record):
    """A change: `before` is the last version on its one side, `after` the first on its other."""

    before: str
    after: str
    unknown: list[str]  # versions between the two whose side is not known
    also: list[str] = field(default_factory=list)  # what else than PyTorch's version differs between the two
    commits: str = ""  # PyTorch's commits between the two, as a page that compares them
    differences: list[Difference]


class BisectionRecord(Record):
    question: Question
    versions: list[VersionRecord]  # those that were asked, in order
    steps: list[StepRecord]
    monotonic: bool  # False where a later version is like an earlier one again
    environments: int  # versions of which an environment was asked for
    most_environments: int  # ceil(log2 n) + 2 of the n releases: enough where one step explains it
    answer: str
    next_command: str
    finished_utc: str
    duration_s: float  # sum over the versions, in whichever session
