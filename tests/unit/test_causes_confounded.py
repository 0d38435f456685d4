"""Factors that moved together: none of them is named for sure, both are named, and so is what would part them. Each of
these was once answered decisively, and wrongly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.schema.records import Outcome
from reports.attribute import causes
from reports.attribute.causes import DECISIVE, STRONG, SUGGESTIVE, Cause
from tests.unit import timed
from tests.unit.attributed import CODE, FELL, FLAGS, Known, causes_of, check, checked, filled, here, spec, swapped
from tests.unit.experiments import FOLLOWS, KERNEL, STILL, clean
from tests.unit.spec import BASE, NEXT, Case, Spec
from tests.unit.timed import SOFTMAX, TARGETS, only, slower

FROM_4_TO_2 = {BASE: 4, NEXT: 2}
NEW: dict[str, Any] = {"machine_code": CODE}
REBUILT: dict[str, Any] = {"machine_code": CODE, "flags": FLAGS}
SET: dict[str, Any] = {"variables": {NEXT: {"MKL_CBWR": "AVX2"}}}
NO_MKLDNN: dict[str, Any] = {"settings": {BASE: {"mkldnn.enabled": "True"}, NEXT: {"mkldnn.enabled": "False"}}}
LACKING = Outcome(status="build_failed", message="error: no member named 'item' in namespace 'at'")
NOT_BUILT: dict[str, Any] = {"builds": {NEXT: LACKING}}
REFUSED = Case(status="unsupported", message="head_dim 64 is not supported")
ACCESS = checked("address", "out_of_bounds")
BOTH_FOUND = [causes.OUT_OF_BOUNDS, causes.BUILD_MOVED]


def names_both(cause: Cause, *wanted: str) -> bool:
    return set(wanted) <= set(cause.causes) and any("To tell them apart" in part.statement for part in cause.parts)


KNOWN = {
    **{
        f"no swapped object fails, whatever their bits: {letters}": Known(
            spec(FELL, **REBUILT), [clean, swapped(letters, "AB")], causes.UNDECIDED
        )
        for letters in ("AABB", "ABAB", "BBAA")
    },
    "objects that fail the other way round": Known(spec(FELL, **NEW), [clean, swapped("BBAA")], causes.UNDECIDED),
    "other bits in every combination hide no failure that goes with the object": Known(
        spec(FELL, **NEW), [clean, swapped("ABCD", "AB")], causes.KERNEL_CODE_MOVED, DECISIVE
    ),
    # What the swap shows outranks an access that a checker names beside it, unless outputs were seen to follow that.
    "an access beside a build that fails": Known(
        spec(FELL, **REBUILT), [ACCESS, swapped("AABB")], causes.BUILD_MOVED, also=BOTH_FOUND
    ),
    "the same, and no filling matters": Known(
        spec(FELL, **REBUILT),
        [filled(output=STILL, heap=STILL, stack=STILL), ACCESS, swapped("AABB")],
        causes.BUILD_MOVED,
        also=BOTH_FOUND,
    ),
    "the same, and outputs follow the filling": Known(
        spec(FELL, **REBUILT),
        [filled(output=STILL, heap=FOLLOWS, stack=STILL), ACCESS, swapped("AABB")],
        causes.OUT_OF_BOUNDS,
        also=BOTH_FOUND,
    ),
    "refused beside another build": Known(
        here(REFUSED, **REBUILT), [], causes.UNSUPPORTED_COMBINATION, SUGGESTIVE, also=[causes.BUILD_MOVED]
    ),
    "a build that failed with other flags under another PyTorch": Known(
        spec(**NOT_BUILT, flags=FLAGS), [], causes.BUILD_MOVED, STRONG, also=[causes.UNSUPPORTED_COMBINATION]
    ),
    "the same, and nothing else differs": Known(
        spec(**NOT_BUILT), [], causes.UNSUPPORTED_COMBINATION, DECISIVE, never=[causes.BUILD_MOVED]
    ),
    "code beside threads and variables": Known(
        spec(FELL, **REBUILT, threads=FROM_4_TO_2, **SET),
        [clean],
        causes.BUILD_MOVED,
        SUGGESTIVE,
        also=[causes.ENVIRONMENT_CONFOUNDER],
    ),
    "the same, and a swap held what moved beside it": Known(
        spec(FELL, **REBUILT, threads=FROM_4_TO_2, **SET),
        [clean, swapped("AABB")],
        causes.BUILD_MOVED,
        DECISIVE,
        never=[causes.ENVIRONMENT_CONFOUNDER],
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_outputs_that_moved_with_two_factors(name: str, tmp_path: Path) -> None:
    found = check(KNOWN[name], tmp_path)
    assert found.grade == DECISIVE or len(found.causes) == 1 or ACCESS in KNOWN[name].experiments or names_both(found)


def test_a_reference_that_differs_at_each_call_did_not_move_for_sure(tmp_path: Path) -> None:
    """Of the kernel that agreed with it, and of itself."""
    made = spec(
        (BASE, "math", Case(repeats_differ=10)),
        (NEXT, "math", Case(bits="new", repeats_differ=10, passed=2, units=30.0)),
        (NEXT, "kernel", Case(agrees=2)),
    )
    told = [cause for cause in causes_of(tmp_path, made) if causes.REFERENCE_MOVED in cause.causes]
    assert {cause.subject for cause in told} == {"math", KERNEL}
    for cause in told:
        assert cause.grade == SUGGESTIVE
        assert any("not excluded: chance" in seen.text and "replica: 1" in seen.text for seen in cause.evidence)
    steady = spec((NEXT, "math", Case(bits="new", passed=8, units=30.0)), (NEXT, "kernel", Case(agrees=8)))
    told = [cause for cause in causes_of(tmp_path / "steady", steady) if causes.REFERENCE_MOVED in cause.causes]
    assert {cause.grade for cause in told} == {DECISIVE}


@pytest.mark.parametrize(
    ("changes", "rival"),
    [
        (SET, causes.ENVIRONMENT_CONFOUNDER),
        (NO_MKLDNN, causes.ENVIRONMENT_CONFOUNDER),
        ({"threads": FROM_4_TO_2}, causes.ENVIRONMENT_CONFOUNDER),
        ({}, ""),
    ],
)
def test_a_reference_that_became_wrong_beside_another_factor(changes: Any, rival: str, tmp_path: Path) -> None:
    made = spec((NEXT, "math", Case(passed=1, units=30.0, bits="new")), **changes)
    found = next(cause for cause in causes_of(tmp_path, made) if cause.reference == "math")
    assert (found.cause, found.grade) == (causes.REFERENCE_MOVED, SUGGESTIVE if rival else DECISIVE)
    assert (not rival and not found.parts) or names_both(found, causes.REFERENCE_MOVED, rival)


# -- times --------------------------------------------------------------------------------------------------

# Cold moved by 10 us, hot stands.
DEARER = ("kernel", Case(slowdown=1.2, hot_slowdown=1.0))
OVERHEAD: dict[str, Any] = {"device": "cuda", "times_us": {("kernel", "seed-fp16"): 50.0}}
OTHER_THREADS: dict[str, Any] = {"threads": FROM_4_TO_2, "flags": {NEXT: ("-O0",)}, **NEW}
BUSY: dict[str, Any] = {"busy_processors": {BASE: 1.0, NEXT: 1.0}}
BY_THREADS, BY_CODE = causes.LATENCY_THREAD_COUNT, causes.BUILD_MOVED


@pytest.mark.parametrize(
    ("made", "profiled", "grade", "named", "never"),
    [
        (
            timed.spec(DEARER, **OVERHEAD, enqueue_us={NEXT: 47.0}, **REBUILT),
            None,
            SUGGESTIVE,
            [causes.LATENCY_LAUNCH_OVERHEAD, BY_CODE],
            [],
        ),
        (
            timed.spec(DEARER, **OVERHEAD, enqueue_us={NEXT: 17.0}, **REBUILT),
            None,
            STRONG,
            [causes.LATENCY_LAUNCH_OVERHEAD, BY_CODE],
            [],
        ),
        (timed.spec(DEARER, **OVERHEAD, enqueue_us={NEXT: 47.0}), None, SUGGESTIVE, [], []),
        (timed.spec(*slower(*TARGETS, by=1.9), **OTHER_THREADS), None, SUGGESTIVE, [BY_THREADS, BY_CODE], []),
        (timed.spec(*slower("kernel", by=1.9), **OTHER_THREADS), None, SUGGESTIVE, [BY_THREADS, BY_CODE], []),
        (timed.spec(*slower("kernel", by=1.9), **OTHER_THREADS, **BUSY), None, STRONG, [BY_CODE], [BY_THREADS]),
        (  # of an extension, say: its code may ask more of the same operators
            timed.spec(*slower("kernel"), **REBUILT),
            (SOFTMAX, SOFTMAX | {"aten::bmm": (2.0, 720.0)}),
            SUGGESTIVE,
            [causes.LATENCY_OPERATOR, BY_CODE],
            [],
        ),
        (timed.spec(*slower(*TARGETS, by=1.8), threads={NEXT: 1}), None, DECISIVE, [BY_THREADS], causes.CODE),
    ],
    ids=[
        "a call costs far more than what moved",
        "a call costs what moved",
        "that alone",
        "threads and flags",
        "the kernel alone",
        "one processor busy in both",
        "an operator under other code",
        "one factor alone",
    ],
)
def test_times_that_moved_with_two_factors(
    made: Spec, profiled: Any, grade: str, named: list[str], never: Any, tmp_path: Path
) -> None:
    profile = {"target": "kernel", "base": profiled[0], "this": profiled[1]} if profiled else {}
    cause = only(tmp_path, made, **profile)
    assert cause.grade == grade and set(named) <= set(cause.causes) and not set(never) & set(cause.causes)
    assert cause.cause == (named or [cause.cause])[0] and (len(named) < 2 or names_both(cause))
    ruled_out = {each.rival for each in cause.ruled_out}
    assert BY_THREADS not in never or "the number of threads" in ruled_out


@pytest.mark.parametrize(("flags", "wanted"), [(FLAGS, causes.BUILD_MOVED), ({}, causes.KERNEL_CODE_MOVED)])
def test_a_kernels_own_device_function_is_no_operator(flags: Any, wanted: str, tmp_path: Path) -> None:
    made = timed.spec(*slower("kernel"), device="cuda", machine_code=CODE, flags=flags)
    own = "void (anonymous namespace)::attention_scalar_forward<__half, 64>(__half const*, int)"
    profiled: dict[str, Any] = {"target": "kernel", "device": "cuda", "kind": "device_function"}
    cause = only(tmp_path, made, base={own: (1.0, 800.0)}, this={own: (1.0, 1120.0)}, **profiled)
    assert cause.cause == wanted and cause.grade != DECISIVE and causes.LATENCY_OPERATOR not in cause.causes
    assert "Where a call's time goes" in cause.figures[0].title
