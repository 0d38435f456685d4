"""Times that moved with the threads at work: too few, too many, started anew, or not the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reports.attribute import causes, explained
from reports.attribute.causes import DECISIVE, STRONG, SUGGESTIVE
from tests.unit.spec import BASE, NEXT, Spec
from tests.unit.synthetic import write_run
from tests.unit.timed import SAFE, SOFTMAX, TARGETS, only, slower, spec

LOST = {BASE: 1.9, NEXT: 1.0}
SCRUBS: dict[str, Any] = {"idle_processors": {BASE: 0.01, NEXT: 1.8}, "variables": {NEXT: {"SCRUB": "1"}}}
NEW: dict[str, Any] = {"machine_code": {NEXT: "new"}}
IN_64: dict[str, Any] = {"threads": {NEXT: 64}, "variables": {NEXT: {"OMP_NUM_THREADS": "64"}}}
STARTED: dict[str, Any] = {"threads_started": {BASE: 16.0, NEXT: 1520.0}, "flags": {NEXT: ("cxx: -DTHREADS=96",)}}
BEYOND: dict[str, Any] = {"busy_processors": {BASE: 1.0, NEXT: 1.9}, "threads": {BASE: 1, NEXT: 1}}


@pytest.mark.parametrize(
    ("made", "cause", "grade", "parts", "text"),
    [
        (
            spec(*slower(*TARGETS, by=1.8), threads={NEXT: 1}),
            causes.LATENCY_THREAD_COUNT,
            DECISIVE,
            [],
            "1 thread computes in PyTorch 2.5.0, and 2",
        ),
        (
            spec(*slower(*TARGETS, by=9.0), **IN_64),
            causes.LATENCY_THREAD_COUNT,
            STRONG,
            [],
            "64 threads in PyTorch 2.5.0 share 2 processors",
        ),
        (
            spec(*slower("kernel", by=1.9), busy_processors=LOST, **NEW),
            causes.LATENCY_THREAD_COUNT,
            STRONG,
            [causes.KERNEL_CODE_MOVED],
            "1.90 processors busy in PyTorch 2.1.0, 1.00 in PyTorch 2.5.0",
        ),
        (
            spec(*slower("kernel", by=3.0), switches_per_ms={NEXT: 900.0}),
            causes.LATENCY_THREAD_COUNT,
            SUGGESTIVE,
            [],
            "0.2 times in PyTorch 2.1.0, 900 in PyTorch 2.5.0",
        ),
        (
            spec(*slower("kernel", by=9.0), **STARTED, **NEW),
            causes.LATENCY_THREAD_COUNT,
            SUGGESTIVE,
            [causes.BUILD_MOVED],
            "started 16 threads in PyTorch 2.1.0, 1,520 in PyTorch 2.5.0",
        ),
        (spec(*slower("kernel", by=3.0), **BEYOND), causes.LATENCY_THREAD_COUNT, SUGGESTIVE, [], "more work to do"),
        (
            spec(*slower("kernel", by=3.0), **BEYOND, **NEW),
            causes.LATENCY_THREAD_COUNT,
            SUGGESTIVE,
            [causes.KERNEL_CODE_MOVED],
            "",
        ),
        (  # references that were measured before the threads began stand still, in the same launches
            spec(*slower("kernel", by=1.9), busy_processors=LOST, **SCRUBS),
            causes.LATENCY_CLOCK_OR_LOAD,
            STRONG,
            [causes.ENVIRONMENT_CONFOUNDER],
            "own process used 0% to 0% of the machine",
        ),
    ],
    ids=[
        "fewer",
        "more than processors",
        "fewer at work",
        "restless",
        "started in each call",
        "more at work",
        "more at work, by other code",
        "busy beside it",
    ],
)
def test_time_that_moved_with_threads(
    made: Spec, cause: str, grade: str, parts: list[str], text: str, tmp_path: Path
) -> None:
    found = only(tmp_path, made)
    assert (found.cause, found.grade, [part.cause for part in found.parts]) == (cause, grade, parts)
    assert any(text in each for each in (found.statement, *(seen.text for seen in found.evidence)))


@pytest.mark.parametrize(
    ("by", "changes"),
    [
        (1.4, {"threads": {BASE: 1, NEXT: 2}}),  # more threads, and processors for them
        (1.9, {"busy_processors": {BASE: 1.9, NEXT: 1.9}}),  # it does more
        (1.9, {"busy_processors": {BASE: 1.9, NEXT: 1.5}}),  # most of it is more work
        (1.9, {"busy_processors": LOST, "busy_in": {NEXT: 0.5}}),  # others took the processors
        (1.9, {"busy_processors": LOST, "idle_processors": {BASE: 0.9}}),  # what was busy was not its calls
        (1.9, {"busy_processors": {NEXT: 1.0}}),
        (3.0, {"threads_started": {NEXT: 2.0}}),  # what else the machine starts
        (3.0, {"threads_started": {BASE: 16.0, NEXT: 20.0}}),
        (3.0, {"threads_started": {BASE: 1520.0, NEXT: 16.0}}),  # the faster side's
        (3.0, {"threads_started": {NEXT: 1520.0} | dict.fromkeys(TARGETS[1:], 500.0)}),  # whatever runs: the machine
        (3.0, {"switches_per_ms": {NEXT: 20.0}}),  # others took the processor
        (3.0, {"switches_per_ms": {BASE: 900.0, NEXT: 900.0}}),
        (3.0, {"switches_per_ms": {BASE: 900.0}}),  # the faster side's
        (3.0, {"switches_per_ms": {NEXT: 900.0, "math": 900.0}}),  # PyTorch's own do
        (
            3.0,
            {
                "switches_per_ms": {NEXT: 900.0},
                "threads": {BASE: 1, NEXT: 1},
                "variables": {NEXT: {"OMP_WAIT_POLICY": "x"}},
            },
        ),
        (3.0, BEYOND | {"threads": {BASE: 2, NEXT: 2}}),  # as many as PyTorch has
        (3.0, BEYOND | {"busy_processors": {BASE: 1.9, NEXT: 1.9}}),  # on both sides
        (3.0, BEYOND | {"busy_processors": LOST}),  # the faster side's
        (3.0, BEYOND | {"busy_processors": {}}),
        (3.0, BEYOND | {"idle_processors": {NEXT: 0.9}}),  # what was busy was not its calls
    ],
)
def test_time_that_is_no_matter_of_threads(by: float, changes: dict[str, Any], tmp_path: Path) -> None:
    assert only(tmp_path, spec(*slower("kernel", by=by), **changes)).cause != causes.LATENCY_THREAD_COUNT


def test_threads_that_calls_start_are_not_the_machine_whoever_else_is_slower(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"threads_started": {NEXT: 768.0, "flash": 24.0}}
    write_run(tmp_path, spec(*slower(*TARGETS, by=9.0), variables={NEXT: {"OMP_NESTED": "TRUE"}}, **changes))
    kernel = next(cause for cause in explained(tmp_path) if cause.kernel and cause.about == "latency")
    assert (kernel.cause, kernel.grade) == (causes.LATENCY_THREAD_COUNT, SUGGESTIVE)
    assert [part.cause for part in kernel.parts] == [causes.ENVIRONMENT_CONFOUNDER]


def test_threads_that_are_as_busy_on_both_sides_say_nothing(tmp_path: Path) -> None:
    made = spec(*slower("kernel", by=1.9), idle_processors={BASE: 1.8, NEXT: 1.8})
    assert only(tmp_path, made).cause != causes.LATENCY_CLOCK_OR_LOAD


def test_threads_that_a_profile_saw(tmp_path: Path) -> None:
    cause = only(tmp_path, spec(*slower("kernel", by=1.9)), target="kernel", base=SOFTMAX, this=SAFE, threads=(2, 1))
    assert (cause.cause, cause.grade) == (causes.LATENCY_THREAD_COUNT, STRONG)
