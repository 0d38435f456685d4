"""Comparison of outputs: every number of an `Agreement`, and that nothing that is not finite passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from harness.worker import agreement, protocol, rounding, verdict, wire

LIMITS = {"rounding": 4.0, "kernelbench": 1e-2, "strict": 1e-3}
WANT = np.array([[1.0, -2.0, 0.5], [0.25, 4.0, -1.0]])


def unit(cost: float, want: np.ndarray = WANT, dtype: str = "float32", **costs: float) -> rounding.ErrorScale:
    return rounding.ErrorScale({**dict.fromkeys(rounding.NORMS, cost), **costs}, False, rounding.Ruler(want, dtype))


def described(*given: Any) -> tuple[str, str]:
    outcome = verdict.describe_validation(*given)
    return outcome.status, outcome.message


def test_equal_outputs_pass_everything() -> None:
    one = agreement.compare(WANT.copy(), WANT, LIMITS, unit(1e-4))
    assert one.passed == {"kernelbench": True, "strict": True, "rounding": True}
    assert (one.units, one.largest, one.elements, one.nonfinite) == (0.0, 0.0, 6, False)


def test_the_rules_have_their_own_limits() -> None:
    got = WANT.copy()
    got[1, 1] += 0.02  # of 4: strict allows 0.005, kernelbench 0.05; relative to the row 0.005
    one = agreement.compare(got, WANT, LIMITS, unit(0.005 / 3, bias=1.0))
    assert one.passed == {"kernelbench": True, "strict": False, "rounding": True}
    assert one.units == pytest.approx(3)
    assert not agreement.compare(got, WANT, LIMITS, unit(0.005 / 5, bias=1.0)).passed["rounding"]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_not_finite_on_one_side_fails_every_rule(bad: float) -> None:
    got = WANT.copy()
    got[0, 2] = bad
    for pair in ((got, WANT), (WANT, got)):
        one = agreement.compare(*pair, LIMITS, unit(1.0, pair[1]))
        assert not any(one.passed.values())
        assert one.nonfinite and one.units is None
        assert one.worst is not None and one.worst[0] == [0, 2] and None in one.worst[1]
        assert one.largest == 0.0 and one.bad == 1


def test_the_same_infinity_on_both_sides_agrees() -> None:
    got = WANT.copy()
    got[0, 0] = np.inf
    one = agreement.compare(got, got.copy(), LIMITS)
    assert one.passed == {"kernelbench": True, "strict": True}
    got[0, 1] = -2.5
    other = got.copy()
    other[0, 0] = -np.inf
    assert agreement.compare(got, other, LIMITS).nonfinite


def test_what_plain_arithmetic_loses_on_its_way_is_said() -> None:
    got = WANT.copy()
    got[0, 0] = np.inf
    agreed = agreement.combine(protocol.TRUTH, [agreement.compare(got, WANT, LIMITS, unit(1e-3))])
    lost = wire.TargetResult("ok", target="model", against=[agreed], leaves_range=1)
    status, message = verdict.describe_target(lost, 1, "rounding", LIMITS)
    assert status == protocol.WRONG
    assert message.endswith("overflows or underflows in an intermediate step in 1 of 1 trials")
    right = wire.TargetResult("ok", target="model", against=result().against, leaves_range=1)
    assert verdict.describe_target(right, 1, "kernelbench", LIMITS) == (protocol.OK, ""), "no fault of what is right"


def test_trials_fold_into_the_record() -> None:
    second = WANT + 0.002
    error_scale = unit(1e-3, row=1.0, bias=1.0)
    trials = [agreement.compare(got, WANT, LIMITS, error_scale) for got in (WANT, second)]
    record = agreement.combine(protocol.TRUTH, trials)
    assert record.passed == {"kernelbench": 2, "rounding": 2, "strict": 1}
    assert record.max_abs == pytest.approx(0.002)
    assert record.mean_abs == pytest.approx(0.001)
    assert record.units_per_trial == [0.0, pytest.approx(0.5)]  # of a row whose largest value is 4
    assert record.max_units == record.norms["largest"] == pytest.approx(0.5)
    assert record.worst is not None and record.worst.trial == 1
    assert record.elements == 12 and record.nonfinite_trials == 0


def test_a_trial_with_nan_is_the_worst() -> None:
    broken, far = WANT.copy(), WANT + 100
    broken[1, 0] = np.nan
    record = agreement.combine("math", [agreement.compare(got, WANT, LIMITS) for got in (far, broken)])
    assert record.worst is not None and record.worst.trial == 1 and record.worst.got is None
    assert record.units_per_trial == [] and record.max_units is None
    assert record.nonfinite_trials == 1


def result(**changes: Any) -> wire.TargetResult:
    trials = [agreement.compare(WANT + 0.01, WANT, LIMITS, unit(1e-3))]
    against = [agreement.combine(protocol.TRUTH, trials)]
    return wire.TargetResult("ok", target="kernel", against=against, **changes)


def test_status_follows_the_deciding_rule() -> None:
    status, message = verdict.describe_target(result(), 1, "rounding", LIMITS)
    assert status == protocol.WRONG and "0 of 1 trials pass the rounding rule" in message
    assert verdict.describe_target(result(), 1, "kernelbench", LIMITS) == (protocol.OK, "")


def test_other_bits_when_run_again_are_a_property_and_a_fault_only_where_determinism_was_asked_for() -> None:
    unsteady = result(repeats_differ=1, repeats_max_units=0.42)
    said = "not bit-repeatable: 1 of 1 trials gave other bits when run again, at most 0.42 units apart"
    assert verdict.describe_target(unsteady, 1, "kernelbench", LIMITS) == (protocol.OK, said)
    status, message = verdict.describe_target(unsteady, 1, "kernelbench", LIMITS, True)
    assert status == protocol.WRONG and message == f"`deterministic: true` asks for the same bits: {said}"
    status, message = verdict.describe_target(unsteady, 1, "rounding", LIMITS)
    assert status == protocol.WRONG and message.endswith(said)


def test_both_runs_of_a_trial_are_judged() -> None:
    near, far = WANT + 1e-4, WANT + 0.02
    for pair in ((near, far), (far, near)):
        both = agreement.compare_both(*pair, WANT, LIMITS, unit(1e-3))
        assert both.passed == agreement.compare(far, WANT, LIMITS, unit(1e-3)).passed
        assert both.units == agreement.compare(far, WANT, LIMITS, unit(1e-3)).units
    broken = WANT.copy()
    broken[0, 0] = np.nan
    for pair in ((near, broken), (broken, near)):
        assert not any(agreement.compare_both(*pair, WANT, LIMITS, unit(1e-3)).passed.values())
    assert agreement.compare_both(near, None, WANT, LIMITS, unit(1e-3)) == agreement.compare(
        near, WANT, LIMITS, unit(1e-3)
    )


def test_how_far_two_runs_lie_apart() -> None:
    size, units = agreement.apart(WANT + 1e-3, WANT - 1e-3, WANT, unit(1e-3, row=1.0, bias=1.0))
    assert size == pytest.approx(2e-3) and units == pytest.approx(0.5)  # of a row whose largest value is 4
    broken = WANT.copy()
    broken[0, 0] = np.nan
    assert agreement.apart(broken, WANT, WANT, unit(1e-3)) == (0.0, 0.0)
    assert agreement.apart(WANT, WANT + 1.0)[1] is None


@pytest.mark.parametrize("key", ["inputs_mutated", "unwritten_trials"])
def test_faults_that_no_tolerance_shows_are_wrong(key: str) -> None:
    status, message = verdict.describe_target(result(**{key: 1}), 1, "kernelbench", LIMITS)
    assert status == protocol.WRONG and message.startswith("1 of 1 trials")


def test_the_validation_names_the_worst_recipe() -> None:
    def recipe(name: str, passed: int) -> wire.RecipeResult:
        against = replace(agreement.combine("truth", []), passed={"rounding": passed})
        status: protocol.Status = "ok" if passed == 3 else "wrong"
        target = wire.TargetResult(status, f"{passed} of 3", target="kernel", against=[against])
        return wire.RecipeResult(name, 3, [], [], [], [target], [{}])

    recipes = [recipe("independent", 3), recipe("shared_qkv", 2), recipe("large_logits", 0)]
    assert described(recipes, "rounding") == ("wrong", "large_logits: 0 of 3")
    assert described(recipes[:1], "rounding") == ("ok", "")
    recipes[0].targets[0].repeats_differ, recipes[0].targets[0].repeats_max_units = 2, 0.5
    said = "not bit-repeatable: 2 of 3 trials gave other bits when run again, at most 0.5 units apart"
    assert described(recipes[:1], "rounding") == ("ok", said)
    assert described([replace(recipes[0], targets=[])], "rounding")[0] == "not_run"
