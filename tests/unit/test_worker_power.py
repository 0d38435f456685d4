"""What the rule sees: known wrong answers, and infinities place by place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from harness.worker import agreement, dtypes, inputs, power, rounding, truth, verdict, wire
from harness.worker.subjects import WorkloadTrial
from harness.worker.workload import BaseWorkload

LIMITS = {"rounding": 4.0, "kernelbench": 1e-2, "strict": 1e-3}
RULE = power.DecidingRule(LIMITS, "rounding", [])
KINDS = {"zeros", "input", "stale", "scaled", "row"}


class Rows(BaseWorkload):
    """Softmax of rows."""

    problem, operator, definition = None, None, None
    recipes: ClassVar = {"independent": 2}

    def __init__(self, dtype: str) -> None:
        super().__init__()
        self.dtype = dtype

    @property
    def parts(self) -> dict[str, Any]:
        return {"": (256, 64)}

    def describe(self, output: str) -> Any:
        return "", (256, 64), self.dtype, ["rows"]

    def arrays(self, recipe: str, trial: int, seed: int, each: Any = map) -> list[Any]:
        return [dtypes.encode(inputs.deviates(seed, trial, 0, 16384).reshape(256, 64), self.dtype)]

    def exact(self, arrays: list[Any]) -> Any:
        weights = np.exp(dtypes.decode(arrays[0], self.dtype).astype(np.float64))
        return {"": weights / weights.sum(1, keepdims=True)}

    def emulations(self, arrays: list[Any], precision: Any = (), realisation: int = 0) -> Any:
        return {"": dtypes.quantise(self.exact(arrays)[""], self.dtype)}, False

    def alike(self, arrays: list[Any], output: str = "") -> list[tuple[str, Any]]:
        return self._alike([("x", arrays[0])], (256, 64), self.dtype)


def described(*given: Any) -> tuple[str, str]:
    outcome = verdict.describe_validation(*given)
    return outcome.status, outcome.message


def proven(workload: Any, rule: power.DecidingRule, folder: Path) -> list[wire.KnownWrong]:
    cache = truth.Cache(str(folder))
    return power.prove(WorkloadTrial(workload, "independent", 0, 0, cache), rule)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_known_wrong_answers_are_seen(dtype: str, tmp_path: Path) -> None:
    found = proven(Rows(dtype), RULE, tmp_path)
    assert {each.kind for each in found} == KINDS
    unseen = {each.name for each in found if not each.seen}
    assert unseen <= ({"one row 1% too large"} if dtype == "bfloat16" else set())


def test_what_a_blunt_rule_would_let_pass_is_told(tmp_path: Path) -> None:
    blunt = power.DecidingRule({**LIMITS, "rounding": 200.0}, "rounding", [])
    unseen = {each.kind for each in proven(Rows("bfloat16"), blunt, tmp_path) if not each.seen}
    assert "row" in unseen and not unseen & {"zeros", "input"}


def test_without_a_truth_an_output_of_the_model_stands_for_it(tmp_path: Path) -> None:
    workload = Rows("float32")
    workload.describe = lambda output: 1 / 0  # type: ignore[method-assign]
    cache = truth.Cache(str(tmp_path))
    trial = WorkloadTrial(workload, "independent", 0, 0, cache)  # type: ignore[arg-type]
    assert power.prove(trial, RULE) == [] and workload.no_truth
    values = np.random.default_rng(0).standard_normal((256, 64)).astype(np.float32)
    output: Any = SimpleNamespace(values=values, dtype="float32")
    found = power.prove(trial, RULE, output)
    assert {each.kind for each in found if each.seen} == {"zeros", "input", "stale"}


def error_scale(want: np.ndarray, dtype: str, *emulated: np.ndarray) -> rounding.ErrorScale:
    ruler = rounding.Ruler(want, dtype)
    return rounding.ErrorScale(*rounding.measure(emulated or [dtypes.quantise(want, dtype)], ruler), ruler)


def test_infinities_and_nan_of_the_truth_are_compared_place_by_place() -> None:
    generator = np.random.default_rng(0)
    want = generator.standard_normal((8, 64))
    want[0, :4] = [np.inf, -np.inf, np.nan, 1e6]  # the last is beyond float16
    unit = error_scale(want, "float16")
    assert all(np.isfinite(cost) for cost in unit.costs.values())
    got = dtypes.quantise(want, "float16")
    right = agreement.compare(got, want, LIMITS, unit)
    assert right.passed["rounding"] and not right.nonfinite and right.units <= 1.001
    for place, value in ((0, -np.inf), (1, 0.0), (2, np.inf), (3, 65504.0), (9, np.inf), (9, np.nan)):
        wrong = got.copy()
        wrong[0, place] = value
        found = agreement.compare(wrong, want, LIMITS, unit)
        assert found.nonfinite and not any(found.passed.values()), (place, value)


def test_near_the_border_of_a_dtype_an_element_may_be_infinite_or_not() -> None:
    want = np.full((1, 64), 60000.0)
    want[0, 0], want[0, 1] = 65519.0, 65530.0
    unit = error_scale(want, "float16")
    for first, second in ((65504.0, np.inf), (np.inf, 65504.0)):
        got = np.where(np.arange(64) == 0, first, np.where(np.arange(64) == 1, second, 60000.0))[None]
        assert agreement.compare(got, want, LIMITS, unit).passed["rounding"]
    assert not agreement.compare(np.full((1, 64), np.inf), want, LIMITS, unit).passed["rounding"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("lost", [np.inf, -np.inf, np.nan, 0.0, "greatest"])
@pytest.mark.parametrize("share", [0.02, 1.0], ids=["in one place", "everywhere"])
def test_what_arithmetic_loses_in_an_intermediate_step_excuses_nothing(
    dtype: str, lost: float | str, share: float
) -> None:
    """Values up to 43,328, of which straightforward arithmetic in the dtype gives infinity, or what comes of it."""
    want = np.random.default_rng(0).uniform(1000, 43328, (4, 64))
    value = rounding.greatest(dtype) if isinstance(lost, str) else lost
    right = dtypes.quantise(want, dtype)
    emulated = np.where(np.random.default_rng(1).random(want.shape) < share, value, right)
    unit = error_scale(want, dtype, rounding.without_lost(emulated, want, dtype))
    assert unit.leaves_range and all(np.isfinite(cost) for cost in unit.costs.values())
    assert unit.costs == error_scale(want, dtype, right).costs, "no unit is as large as the loss of a number"
    assert agreement.compare(right, want, LIMITS, unit).passed["rounding"]
    assert not any(agreement.compare(emulated, want, LIMITS, unit).passed.values())


def test_a_zero_of_cancellation_is_rounding_and_is_no_loss() -> None:
    want = np.random.default_rng(0).standard_normal((4, 64))
    cancelled = np.round(want * 4) / 4  # as x - 1000 of what is near 1000
    unit = error_scale(want, "float16", cancelled)
    assert not unit.leaves_range and agreement.compare(cancelled, want, LIMITS, unit).passed["rounding"]


def test_the_greatest_finite_number_is_representable() -> None:
    assert [rounding.greatest(dtype) for dtype in ("float16", "float32", "int64")] == [
        65504.0,
        float(np.finfo(np.float32).max),
        np.inf,
    ]
    want = np.full((1, 64), 65504.0)
    unit = error_scale(want, "float16", np.full((1, 64), np.inf))
    assert not any(agreement.compare(np.full((1, 64), np.inf), want, LIMITS, unit).passed.values())
    coarse = rounding.ErrorScale(dict.fromkeys(rounding.NORMS, 1.0), False, unit.ruler)
    assert not any(agreement.compare(np.full((1, 64), np.inf), want, LIMITS, coarse).passed.values())


@pytest.mark.parametrize("shape", [(0, 4), (), (3,), (2, 0, 5)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool", "float64"])
def test_outputs_of_any_kind_can_be_judged(shape: tuple[int, ...], dtype: str) -> None:
    for want in (np.zeros(shape), np.ones(shape)):
        unit = error_scale(want, dtype, want.copy())
        found = agreement.compare(want.copy(), want, LIMITS, unit)
        assert found.passed == {"kernelbench": True, "strict": True, "rounding": True}
        if want.size:
            assert not agreement.compare(want + 1, want, LIMITS, unit).passed["rounding"]


def test_what_passes_where_zeros_would_is_undecidable() -> None:
    against = agreement.combine("truth", [])
    target = wire.TargetResult("ok", target="kernel", against=[against])
    unseen = [wire.KnownWrong("zeros", "zeros", False), wire.KnownWrong("row", "a row", False)]
    recipe = wire.RecipeResult("independent", 3, [], [], [], [target], [{}], unseen)
    status, message = described([recipe], "rounding")
    assert (status, message) == ("undecidable", "independent: zeros would pass here: it decides nothing")
    seen = [replace(wrong, seen=wrong.kind == "zeros") for wrong in unseen]
    assert described([replace(recipe, power=seen)], "rounding")[0] == "ok"
    unjudged = replace(recipe, targets=[replace(target, against=[])])
    assert described([replace(unjudged, costs=[])], "rounding", "no")[0] == "undecidable"
    status, message = described([replace(unjudged, power=seen)], "rounding", "too large")
    assert (status, message) == ("undecidable", "independent: there is no truth for every trial (too large)")
    wrong = replace(recipe, targets=[replace(target, status="wrong")])
    assert described([wrong], "rounding")[0] == "wrong"
