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
from tests.unit.attributed import causes.CODE as OTHER_CODE
from tests.unit.attributed import FELL, FLAGS, causes_of, first, spec
from tests.unit.experiments import FOLLOWS, STILL, checkers, clean, poison, swap
from tests.unit.spec import BASE, NEXT, Case
from tests.unit.timed import SOFTMAX, TARGETS, only, slower

FROM_4_TO_2 = {BASE: 4, NEXT: 2}


def names_both(cause: Cause, *wanted: str) -> bool:
    return set(wanted) <= set(cause.causes) and any("To separate the two" in part.statement for part in cause.parts)


@pytest.mark.parametrize("enqueue_us", [47.0, 17.0], ids=["far more than what moved", "what moved"])
def test_a_call_that_costs_more_where_the_code_differs_too(enqueue_us: float, tmp_path: Path) -> None:
    """Cold moved by 10 us, hot stands."""
    made = timed.spec(
        ("kernel", Case(slowdown=1.2, hot_slowdown=1.0)), device="cuda", times_us={("kernel", "seed-fp16"): 50.0},
        enqueue_us={NEXT: enqueue_us}, machine_code=OTHER_CODE, flags=FLAGS,
    )  # fmt: skip
    cause = only(tmp_path, made)
    assert cause.grade != DECISIVE and names_both(cause, causes.LATENCY_LAUNCH_OVERHEAD, causes.BUILD_MOVED)
    assert (cause.grade == STRONG) is (enqueue_us == 17.0)


def test_a_call_that_costs_far_more_than_what_moved_is_not_shown_by_that(tmp_path: Path) -> None:
    made = timed.spec(
        ("kernel", Case(slowdown=1.2, hot_slowdown=1.0)), device="cuda", times_us={("kernel", "seed-fp16"): 50.0},
        enqueue_us={NEXT: 47.0},
    )  # fmt: skip
    assert only(tmp_path, made).grade == SUGGESTIVE


@pytest.mark.parametrize("letters", ["AABB", "ABAB", "BBAA"])
def test_a_failure_that_no_swapped_object_shows_is_not_explained_by_their_bits(letters: str, tmp_path: Path) -> None:
    made = spec(FELL, machine_code=OTHER_CODE, flags=FLAGS)
    found = first(tmp_path, made, clean, lambda run: swap(run, letters, right="AB"))
    assert found.cause == causes.UNDECIDED


def test_objects_that_fail_the_other_way_round_explain_nothing(tmp_path: Path) -> None:
    found = first(tmp_path, spec(FELL, machine_code=OTHER_CODE), clean, lambda run: swap(run, "BBAA"))
    assert found.cause == causes.UNDECIDED


def test_other_bits_in_every_combination_hide_no_failure_that_goes_with_the_object(tmp_path: Path) -> None:
    found = first(tmp_path, spec(FELL, machine_code=OTHER_CODE), clean, lambda run: swap(run, "ABCD", right="AB"))
    assert (found.cause, found.grade) == (causes.KERNEL_CODE_MOVED, DECISIVE)


def test_a_reference_that_differs_at_each_call_did_not_move_for_sure(tmp_path: Path) -> None:
    """Of the kernel that agreed with it, and of itself."""
    made = spec(
        (BASE, "math", Case(repeats_differ=10)),
        (NEXT, "math", Case(bits="new", repeats_differ=10, passed=2, units=30.0)),
        (NEXT, "kernel", Case(agrees=2)),
    )
    told = [cause for cause in causes_of(tmp_path, made) if causes.REFERENCE_MOVED in cause.causes]
    assert {cause.subject for cause in told} == {"math", "attention_scalar"}
    for cause in told:
        assert cause.grade == SUGGESTIVE
        assert any("not excluded: chance" in seen.text and "replica: 1" in seen.text for seen in cause.evidence)
    steady = spec((NEXT, "math", Case(bits="new", passed=8, units=30.0)), (NEXT, "kernel", Case(agrees=8)))
    told = [cause for cause in causes_of(tmp_path / "steady", steady) if causes.REFERENCE_MOVED in cause.causes]
    assert {cause.grade for cause in told} == {DECISIVE}


ONE_PROCESSOR: dict[str, Any] = {"busy_processors": {BASE: 1.0, NEXT: 1.0}}


@pytest.mark.parametrize("targets", [TARGETS, ("kernel",)])
def test_other_threads_and_other_flags_at_once(targets: tuple[str, ...], tmp_path: Path) -> None:
    """Which of them, nothing tells, unless it keeps one processor busy in both."""
    told: dict[str, Any] = {"threads": FROM_4_TO_2, "flags": {NEXT: ("-O0",)}, "machine_code": OTHER_CODE}
    cause = only(tmp_path / "open", timed.spec(*slower(*targets, by=1.9), **told))
    assert (cause.cause, cause.grade) == (causes.LATENCY_THREAD_COUNT, SUGGESTIVE)
    assert names_both(cause, causes.LATENCY_THREAD_COUNT, causes.BUILD_MOVED)
    cause = only(tmp_path / "told", timed.spec(*slower("kernel", by=1.9), **told, **ONE_PROCESSOR))
    assert (cause.cause, cause.grade) == (causes.BUILD_MOVED, STRONG) and causes.LATENCY_THREAD_COUNT not in cause.causes
    assert any(each.rival == "the number of threads" for each in cause.ruled_out)


@pytest.mark.parametrize(("flags", "wanted"), [(FLAGS, causes.BUILD_MOVED), ({}, causes.KERNEL_CODE_MOVED)])
def test_a_kernels_own_device_function_is_no_operator(flags: Any, wanted: str, tmp_path: Path) -> None:
    made = timed.spec(*slower("kernel"), device="cuda", machine_code=OTHER_CODE, flags=flags)
    own = "void (anonymous namespace)::attention_scalar_forward<__half, 64>(__half const*, int)"
    profiled: dict[str, Any] = {"target": "kernel", "device": "cuda", "kind": "device_function"}
    cause = only(tmp_path, made, base={own: (1.0, 800.0)}, this={own: (1.0, 1120.0)}, **profiled)
    assert cause.cause == wanted and cause.grade != DECISIVE and causes.LATENCY_OPERATOR not in cause.causes
    assert "Where a call's time goes" in cause.figures[0].title


def test_an_operator_that_slowed_under_other_code_is_named_with_it(tmp_path: Path) -> None:
    """Of an extension, say: its code may ask more of the same operators."""
    slow = SOFTMAX | {"aten::bmm": (2.0, 720.0)}
    made = timed.spec(*slower("kernel"), machine_code=OTHER_CODE, flags=FLAGS)
    cause = only(tmp_path, made, target="kernel", base=SOFTMAX, this=slow)
    assert cause.grade == SUGGESTIVE and names_both(cause, causes.LATENCY_OPERATOR, causes.BUILD_MOVED)


@pytest.mark.parametrize(("filled", "lead"), [(None, causes.BUILD_MOVED), (STILL, causes.BUILD_MOVED), (FOLLOWS, causes.OUT_OF_BOUNDS)])
def test_an_access_that_a_checker_names_and_a_failure_that_the_build_brings(
    filled: Any, lead: str, tmp_path: Path
) -> None:
    """What the swap shows outranks what was found beside it, unless outputs were seen to follow that."""

    def fill(run: Any) -> None:
        if filled is not None:
            poison(run, {"output": STILL, "heap": filled, "stack": STILL})

    made = spec(FELL, machine_code=OTHER_CODE, flags=FLAGS)
    found = first(
        tmp_path, made, fill, lambda run: checkers(run, "address", "out_of_bounds"), lambda run: swap(run, "AABB")
    )
    assert found.cause == lead and {causes.OUT_OF_BOUNDS, causes.BUILD_MOVED} <= set(found.causes)


@pytest.mark.parametrize(
    ("changes", "rival"),
    [
        ({"variables": {NEXT: {"MKL_CBWR": "AVX2"}}}, causes.ENVIRONMENT_CONFOUNDER),
        ({"settings": {BASE: {"mkldnn.enabled": "True"}, NEXT: {"mkldnn.enabled": "False"}}}, causes.ENVIRONMENT_CONFOUNDER),
        ({"threads": FROM_4_TO_2}, causes.ENVIRONMENT_CONFOUNDER),
        ({}, ""),
    ],
)
def test_a_reference_that_became_wrong_beside_another_factor(changes: Any, rival: str, tmp_path: Path) -> None:
    made = spec((NEXT, "math", Case(passed=1, units=30.0, bits="new")), **changes)
    found = next(cause for cause in causes_of(tmp_path, made) if cause.reference == "math")
    assert (found.cause, found.grade) == (causes.REFERENCE_MOVED, SUGGESTIVE if rival else DECISIVE)
    assert (not rival and not found.parts) or names_both(found, causes.REFERENCE_MOVED, rival)


def test_a_kernel_that_is_refused_beside_another_build(tmp_path: Path) -> None:
    refused = (NEXT, "kernel", Case(status="unsupported", message="head_dim 64 is not supported"))
    found = first(tmp_path, spec(refused, machine_code=OTHER_CODE, flags=FLAGS))
    assert found.grade == SUGGESTIVE and names_both(found, causes.UNSUPPORTED_COMBINATION, causes.BUILD_MOVED)


def test_a_build_that_failed_with_other_flags_under_another_pytorch(tmp_path: Path) -> None:
    failed = {
        "builds": {NEXT: Outcome(status="build_failed", message="error: no member named 'item' in namespace 'at'")}
    }
    found = first(tmp_path / "both", spec(**failed, flags=FLAGS))
    assert found.grade == STRONG and names_both(found, causes.BUILD_MOVED, causes.UNSUPPORTED_COMBINATION)
    found = first(tmp_path / "alone", spec(**failed))
    assert (found.causes, found.grade) == ((causes.UNSUPPORTED_COMBINATION,), DECISIVE)


def test_code_that_a_swap_shows_has_no_rival_in_what_the_swap_held(tmp_path: Path) -> None:
    made = spec(FELL, machine_code=OTHER_CODE, flags=FLAGS, threads=FROM_4_TO_2, variables={NEXT: {"MKL_CBWR": "AVX2"}})
    shown = first(tmp_path / "shown", made, clean, lambda run: swap(run, "AABB"))
    assert (shown.cause, shown.grade, shown.parts) == (causes.BUILD_MOVED, DECISIVE, ())
    open_ = first(tmp_path / "open", made, clean)
    assert open_.grade == SUGGESTIVE and names_both(open_, causes.BUILD_MOVED, causes.ENVIRONMENT_CONFOUNDER)


def test_one_factor_that_moved_alone_is_still_decisive(tmp_path: Path) -> None:
    cause = only(tmp_path, timed.spec(*slower(*TARGETS, by=1.8), threads={NEXT: 1}))
    assert (cause.cause, cause.grade, cause.parts) == (causes.LATENCY_THREAD_COUNT, DECISIVE, ())
    assert not set(causes.CODE) & set(cause.causes)
