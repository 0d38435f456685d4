"""What was always so is found, and is not blamed where a rival is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reports.attribute import causes
from reports.attribute.causes import DECISIVE, STRONG, SUGGESTIVE
from tests.unit.attributed import (
    BF16_STRICT,
    CODE,
    FLAGS,
    RECIPES,
    TIMED,
    WRONG,
    Known,
    both,
    called,
    causes_of,
    check,
    first,
    here,
    of_both,
    of_kernel,
    on_gpu,
    spec,
    tried,
)
from tests.unit.experiments import FOLLOWS, clean, conditions, poison, result
from tests.unit.spec import BASE, NEXT, Case, Spec

WRONG_ON_LARGE = Case(bits="new", recipes={"large_logits": (0, 60.0)})
OVERFLOWS = result("CC", 0.0, nonfinite=True, recipe="steep_logits")
FAILS = of_both(WRONG)
WRONG_FIRST = called("AA AA", "AA AA", wrong="A")
HIDDEN = of_both(Case(passed=0, units=900.0, recipes={"shared_qkv": (10, 1.0)}), recipes=RECIPES)
INFINITE_ON_LARGE = of_both(Case(nonfinite=4, units=1.1, recipes={"large_logits": (0, 9e4)}), recipes=RECIPES)
TIGHT = {"rounding": 1.0, "kernelbench": 1e-2, "strict": 1e-3}


def with_model(units: float, of_model: float, **changes: Any) -> Spec:
    cases = both("kernel", Case(passed=0, units=units)) + both("model", Case(passed=0, units=of_model))
    return spec(*cases, references=("model",), **changes)


ALWAYS = {
    "wrong in both, by the same bits": Known(FAILS, [], causes.WRONG_EVERYWHERE, SUGGESTIVE),
    "the same, and all was tried": Known(
        FAILS,
        [
            lambda run: clean(run, passed=0.0),
            tried("inputs", result("AA", 0.0), result("BB", 0.0, recipe="halved_4", scales=True)),
            WRONG_FIRST,
            tried("lengths", *(result("A", 0.0, seq_len=length) for length in (1, 64, 100))),
        ],
        causes.WRONG_EVERYWHERE,
        STRONG,
    ),
    "the same, but neither its range nor the calls before were asked about": Known(
        FAILS, [lambda run: clean(run, passed=0.2)], causes.WRONG_EVERYWHERE, SUGGESTIVE
    ),
    "wrong in both, by other bits": Known(
        spec((BASE, "kernel", WRONG), (NEXT, "kernel", Case(passed=2, units=380.0, bits="new"))),
        [],
        causes.WRONG_EVERYWHERE,
        SUGGESTIVE,
    ),
    "wrong on every input: not masked": Known(of_both(WRONG, recipes=RECIPES), [], causes.WRONG_EVERYWHERE),
    "one tensor three times hides it": Known(HIDDEN, [WRONG_FIRST], causes.MASKED_BY_INPUTS, DECISIVE),
    "the same, and whether earlier calls did it was not asked": Known(HIDDEN, [], causes.MASKED_BY_INPUTS, STRONG),
    "the same, seen by the experiment on inputs": Known(
        FAILS,
        [tried("inputs", result("AA", 0.0), result("BB", recipe="shared_qkv")), WRONG_FIRST],
        causes.MASKED_BY_INPUTS,
        DECISIVE,
    ),
    "it is wrong on strided inputs alone": Known(
        spec(), [tried("inputs", result("AA"), result("BB", 0.0, layout="strided"))], causes.MASKED_BY_INPUTS, DECISIVE
    ),
    "it overflows": Known(
        INFINITE_ON_LARGE, [called("BB", "BB", wrong="B", recipe="large_logits")], causes.RANGE_OVERFLOW, DECISIVE
    ),
    "it overflows, and whether earlier calls did it was not asked": Known(
        INFINITE_ON_LARGE, [], causes.RANGE_OVERFLOW, STRONG
    ),
    "it loses its digits where logits are large": Known(
        of_both(Case(recipes={"large_logits": (3, 60.0)}), recipes=RECIPES), [], causes.RANGE_OVERFLOW, STRONG
    ),
    "large and shared alike, since both have large logits": Known(
        of_both(Case(recipes={"large_logits": (0, 60.0), "shared_qkv": (1, 20.0)}), recipes=RECIPES),
        [],
        causes.RANGE_OVERFLOW,
        STRONG,
    ),
    "it overflows on larger logits than validation has": Known(
        spec(),
        [tried("inputs", result("AA"), OVERFLOWS), called("BB", "BB", wrong="B", recipe="steep_logits")],
        causes.RANGE_OVERFLOW,
        DECISIVE,
    ),
    "large, and larger still, in the experiment on inputs": Known(
        spec(),
        [
            tried("inputs", result("AA"), result("BB", 0.0, recipe="large_logits"), OVERFLOWS),
            called("BB", "BB", wrong="B", recipe="large_logits"),
        ],
        causes.RANGE_OVERFLOW,
        DECISIVE,
    ),
    "the rule refuses what rounding costs": Known(
        spec(*both("kernel", Case(passed=3, units=1.1)), *both("math", Case(passed=3, units=1.0)), **BF16_STRICT),
        [],
        causes.TOLERANCE_TOO_TIGHT,
        DECISIVE,
    ),
    "the same, though no reference fails": Known(
        of_both(Case(passed=3, units=1.1), **BF16_STRICT), [], causes.TOLERANCE_TOO_TIGHT, STRONG
    ),
    "the rule of rounding itself, set below one unit": Known(
        of_both(Case(passed=3, units=0.9), limits=TIGHT | {"rounding": 0.5}), [], causes.TOLERANCE_TOO_TIGHT, STRONG
    ),
    "a regression under a tight rule is the build that moved": Known(
        here(Case(passed=3, bits="new", units=1.1), machine_code=CODE, flags=FLAGS, **BF16_STRICT),
        [clean],
        causes.BUILD_MOVED,
    ),
    "the model that it replaces fails the rule by about as much": Known(
        with_model(4.3, 3.2, limits=TIGHT), [], causes.TOLERANCE_TOO_TIGHT, STRONG
    ),
    "it fails the rule by much more than the model that it replaces": Known(
        with_model(9.0, 3.2, limits=TIGHT), [], causes.WRONG_EVERYWHERE, SUGGESTIVE
    ),
    "the model fails the rule by more than any rounding": Known(
        with_model(400.0, 390.0), [], causes.WRONG_EVERYWHERE, SUGGESTIVE
    ),
    "the rule lets forty units pass": Known(
        of_both(Case(units=40.0), decides="kernelbench"), [], causes.TOLERANCE_TOO_LOOSE, DECISIVE
    ),
    "the rule lets ten units pass": Known(
        of_both(Case(units=10.0), decides="strict"), [], causes.TOLERANCE_TOO_LOOSE, STRONG
    ),
    "a limit of a thousand units": Known(
        of_both(Case(units=700.0), limits=TIGHT | {"rounding": 1e3}), [], causes.TOLERANCE_TOO_LOOSE, STRONG
    ),
    "a rule that is a little wide is not too loose": Known(
        of_both(Case(units=7.9), decides="kernelbench"), [], causes.NOTHING_MOVED
    ),
    "nothing": Known(spec(**TIMED), [], causes.NOTHING_MOVED, DECISIVE),
    "nothing, in too few launches to tell of times": Known(spec(), [], causes.NOTHING_MOVED, STRONG),
    "other code, the same bits": Known(
        spec(machine_code=CODE, flags=FLAGS, **TIMED), [], causes.NOTHING_MOVED, DECISIVE
    ),
    "other code, other bits within rounding": Known(
        here(Case(bits="new"), machine_code=CODE), [], causes.NOTHING_MOVED, STRONG
    ),
    "a reference drifted within rounding": Known(
        spec((NEXT, "math", Case(bits="new", units=1.4)), (NEXT, "kernel", Case(agrees=9)), **TIMED),
        [],
        causes.NOTHING_MOVED,
        DECISIVE,
    ),
    "another kernel ran before": Known(
        spec(device="cuda", **TIMED),
        [on_gpu(conditions, "predecessor", [result("AA"), result("AA", before="flash")])],
        causes.NOTHING_MOVED,
        DECISIVE,
    ),
    "one environment and its memory": Known(
        spec((BASE, "kernel", WRONG), environments=(BASE,)),
        [lambda run: poison(run, {"output": FOLLOWS}, environment=BASE)],
        causes.UNINITIALISED_HOST,
        DECISIVE,
    ),
}


@pytest.mark.parametrize("name", ALWAYS)
def test_what_was_always_so_is_found(name: str, tmp_path: Path) -> None:
    check(ALWAYS[name], tmp_path)


@pytest.mark.parametrize(
    ("case", "results"),
    [
        (Case(), [result("AA"), result("BB", 0.0, recipe="offset_logits")]),  # as PyTorch's own does in float16
        (Case(), [result("AA"), result("BB", 0.0, recipe="constant_v"), OVERFLOWS]),
        (Case(), [OVERFLOWS]),
        (WRONG_ON_LARGE, [result("AA"), OVERFLOWS]),
    ],
    ids=["finite", "and on other inputs", "nothing else tried", "what moved is the question"],
)
def test_larger_logits_alone_blame_nobody(case: Case, results: list[Any], tmp_path: Path) -> None:
    found = of_kernel(tmp_path, here(case, recipes=RECIPES), tried("inputs", *results))
    assert found and all(causes.RANGE_OVERFLOW not in cause.causes for cause in found)


def test_a_reference_wrong_in_every_version_is_said_to_be(tmp_path: Path) -> None:
    found = causes_of(tmp_path, spec(*both("math", WRONG)))
    wrong = [cause for cause in found if cause.reference == "math"]
    assert [cause.cause for cause in wrong] == [causes.WRONG_EVERYWHERE] and wrong[0].kernel == ""


def test_one_environment_alone_says_what_it_can(tmp_path: Path) -> None:
    made = spec((BASE, "kernel", WRONG), environments=(BASE,))
    assert first(tmp_path, made).grade in (SUGGESTIVE, causes.UNDECIDED)


@pytest.mark.parametrize(
    ("before", "here", "lead"), [(0, 6, causes.TOLERANCE_TOO_TIGHT), (6, 0, causes.REFERENCE_MOVED)]
)
def test_a_reference_leads_over_what_is_wrong_where_it_agrees_less_now(
    before: int, here: int, lead: str, tmp_path: Path
) -> None:
    agreed = [(name, "kernel", Case(passed=0, units=1.2, agrees=n)) for name, n in ((BASE, before), (NEXT, here))]
    found = first(tmp_path, spec(*agreed, (NEXT, "math", Case(bits="new", units=1.1)), **BF16_STRICT))
    assert found.cause == lead and causes.REFERENCE_MOVED in found.causes


def test_a_time_that_leans_is_undecided_and_not_unmoved(tmp_path: Path) -> None:
    found = of_kernel(tmp_path, here(Case(slowdown=1.1), launches=3, spread=0.03))
    assert [cause.cause for cause in found] == [causes.UNDECIDED, causes.NOTHING_MOVED]
    assert "--launches 20" in found[0].next_command and found[0].about == "latency"
    assert found[1].grade == STRONG and "undecided whether its time changed" in found[1].statement
