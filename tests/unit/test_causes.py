"""What was always so is found, and is not blamed where a rival is; and what holds for every cause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reports.attribute.causes import (
    BUILD_MOVED,
    DECISIVE,
    MASKED_BY_INPUTS,
    NOTHING_MOVED,
    RANGE_OVERFLOW,
    REFERENCE_MOVED,
    STRONG,
    SUGGESTIVE,
    TOLERANCE_TOO_LOOSE,
    TOLERANCE_TOO_TIGHT,
    UNDECIDED,
    UNINITIALISED_HOST,
    WRONG_EVERYWHERE,
)
from tests.unit.attributed import (
    BF16_STRICT,
    CODE,
    FLAGS,
    RECIPES,
    TIMED,
    WRONG,
    Make,
    both,
    causes_of,
    first,
    of_kernel,
    on_gpu,
    spec,
)
from tests.unit.experiments import FOLLOWS, KERNEL, clean, conditions, history, poison, result
from tests.unit.spec import BASE, NEXT, Case, Spec
from tests.unit.test_causes_memory import MEMORY
from tests.unit.test_causes_moved import MOVERS

WRONG_ON_LARGE = Case(bits="new", recipes={"large_logits": (0, 60.0)})
OVERFLOWS = result("CC", 0.0, nonfinite=True, recipe="steep_logits")
ALWAYS: dict[str, tuple[Spec, tuple[Make, ...], str, str]] = {
    "wrong in both, by the same bits": (spec(*both("kernel", WRONG)), (), WRONG_EVERYWHERE, SUGGESTIVE),
    "the same, and all was tried": (
        spec(*both("kernel", WRONG)),
        (
            lambda run: clean(run, passed=0.0),
            lambda run: conditions(
                run, "inputs", [result("AA", 0.0), result("BB", 0.0, recipe="halved_4", scales=True)],
            ),
            lambda run: history(run, "AA AA", "AA AA", wrong="A"),
            lambda run: conditions(run, "lengths", [result("A", 0.0, seq_len=length) for length in (1, 64, 100)]),
        ),
        WRONG_EVERYWHERE, STRONG,
    ),
    "the same, but neither its range nor the calls before were asked about": (
        spec(*both("kernel", WRONG)), (lambda run: clean(run, passed=0.2),), WRONG_EVERYWHERE, SUGGESTIVE,
    ),
    "wrong in both, by other bits": (
        spec((BASE, "kernel", WRONG), (NEXT, "kernel", Case(passed=2, units=380.0, bits="new"))), (), WRONG_EVERYWHERE,
        SUGGESTIVE,
    ),
    "one tensor three times hides it": (
        spec(*both("kernel", Case(passed=0, units=900.0, recipes={"shared_qkv": (10, 1.0)})), recipes=RECIPES),
        (lambda run: history(run, "AA AA", "AA AA", wrong="A"),), MASKED_BY_INPUTS, DECISIVE,
    ),
    "the same, and whether earlier calls did it was not asked": (
        spec(*both("kernel", Case(passed=0, units=900.0, recipes={"shared_qkv": (10, 1.0)})), recipes=RECIPES), (),
        MASKED_BY_INPUTS, STRONG,
    ),
    "the same, seen by the experiment on inputs": (
        spec(*both("kernel", WRONG)),
        (
            lambda run: conditions(run, "inputs", [result("AA", 0.0), result("BB", recipe="shared_qkv")]),
            lambda run: history(run, "AA AA", "AA AA", wrong="A"),
        ),
        MASKED_BY_INPUTS, DECISIVE,
    ),
    "it is wrong on strided inputs alone": (
        spec(), (lambda run: conditions(run, "inputs", [result("AA"), result("BB", 0.0, layout="strided")]),),
        MASKED_BY_INPUTS, DECISIVE,
    ),
    "it overflows": (
        spec(*both("kernel", Case(nonfinite=4, units=1.1, recipes={"large_logits": (0, 9e4)})), recipes=RECIPES),
        (lambda run: history(run, "BB", "BB", wrong="B", recipe="large_logits"),), RANGE_OVERFLOW, DECISIVE,
    ),
    "it overflows, and whether earlier calls did it was not asked": (
        spec(*both("kernel", Case(nonfinite=4, units=1.1, recipes={"large_logits": (0, 9e4)})), recipes=RECIPES), (),
        RANGE_OVERFLOW, STRONG,
    ),
    "it loses its digits where logits are large": (
        spec(*both("kernel", Case(recipes={"large_logits": (3, 60.0)})), recipes=RECIPES), (), RANGE_OVERFLOW, STRONG,
    ),
    "large and shared alike, since both have large logits": (
        spec(*both("kernel", Case(recipes={"large_logits": (0, 60.0), "shared_qkv": (1, 20.0)})), recipes=RECIPES), (),
        RANGE_OVERFLOW, STRONG,
    ),
    "it overflows on larger logits than validation has": (
        spec(),
        (
            lambda run: conditions(run, "inputs", [result("AA"), OVERFLOWS]),
            lambda run: history(run, "BB", "BB", wrong="B", recipe="steep_logits"),
        ),
        RANGE_OVERFLOW, DECISIVE,
    ),
    "large, and larger still, in the experiment on inputs": (
        spec(),
        (
            lambda run: conditions(run, "inputs", [result("AA"), result("BB", 0.0, recipe="large_logits"), OVERFLOWS]),
            lambda run: history(run, "BB", "BB", wrong="B", recipe="large_logits"),
        ),
        RANGE_OVERFLOW, DECISIVE,
    ),
    "the rule refuses what rounding costs": (
        spec(*both("kernel", Case(passed=3, units=1.1)), *both("math", Case(passed=3, units=1.0)), **BF16_STRICT), (),
        TOLERANCE_TOO_TIGHT, DECISIVE,
    ),
    "the same, though no reference fails": (
        spec(*both("kernel", Case(passed=3, units=1.1)), **BF16_STRICT), (), TOLERANCE_TOO_TIGHT, STRONG,
    ),
    "the rule of rounding itself, set below one unit": (
        spec(*both("kernel", Case(passed=3, units=0.9)), limits={"rounding": 0.5, "kernelbench": 1e-2, "strict": 1e-3}),
        (), TOLERANCE_TOO_TIGHT, STRONG,
    ),
    "the model that it replaces fails the rule by about as much": (
        spec(
            *both("kernel", Case(passed=0, units=4.3)), *both("model", Case(passed=0, units=3.2)),
            references=("model",), limits={"rounding": 1.0, "kernelbench": 1e-2, "strict": 1e-3},
        ),
        (), TOLERANCE_TOO_TIGHT, STRONG,
    ),
    "it fails the rule by much more than the model that it replaces": (
        spec(
            *both("kernel", Case(passed=0, units=9.0)), *both("model", Case(passed=0, units=3.2)),
            references=("model",), limits={"rounding": 1.0, "kernelbench": 1e-2, "strict": 1e-3},
        ),
        (), WRONG_EVERYWHERE, SUGGESTIVE,
    ),
    "the model fails the rule by more than any rounding": (
        spec(
            *both("kernel", Case(passed=0, units=400.0)), *both("model", Case(passed=0, units=390.0)),
            references=("model",),
        ),
        (), WRONG_EVERYWHERE, SUGGESTIVE,
    ),
    "the rule lets forty units pass": (
        spec(*both("kernel", Case(units=40.0)), decides="kernelbench"), (), TOLERANCE_TOO_LOOSE, DECISIVE,
    ),
    "the rule lets ten units pass": (
        spec(*both("kernel", Case(units=10.0)), decides="strict"), (), TOLERANCE_TOO_LOOSE, STRONG,
    ),
    "a limit of a thousand units": (
        spec(*both("kernel", Case(units=700.0)), limits={"rounding": 1e3, "kernelbench": 1e-2, "strict": 1e-3}), (),
        TOLERANCE_TOO_LOOSE, STRONG,
    ),
    "nothing": (spec(**TIMED), (), NOTHING_MOVED, DECISIVE),
    "nothing, in too few launches to tell of times": (spec(), (), NOTHING_MOVED, STRONG),
    "other code, the same bits": (spec(machine_code=CODE, flags=FLAGS, **TIMED), (), NOTHING_MOVED, DECISIVE),
    "other code, other bits within rounding": (
        spec((NEXT, "kernel", Case(bits="new")), machine_code=CODE), (), NOTHING_MOVED, STRONG,
    ),
    "a reference drifted within rounding": (
        spec((NEXT, "math", Case(bits="new", units=1.4)), (NEXT, "kernel", Case(agrees=9)), **TIMED), (), NOTHING_MOVED,
        DECISIVE,
    ),
    "another kernel ran before": (
        spec(device="cuda", **TIMED),
        (on_gpu(conditions, "predecessor", [result("AA"), result("AA", before="flash")]),), NOTHING_MOVED, DECISIVE,
    ),
}  # fmt: skip


KNOWN = {**MEMORY, **MOVERS, **ALWAYS}


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_cause_is_found_and_can_be_checked(name: str, tmp_path: Path) -> None:
    made, experiments, cause, grade = KNOWN[name]
    found = causes_of(tmp_path, made, *experiments)
    lead = next(each for each in found if each.kernel == KERNEL)
    assert (lead.cause, lead.grade) == (cause, grade), lead.statement
    assert name not in MEMORY or WRONG_EVERYWHERE not in lead.causes
    for each in found:
        assert each.statement and each.evidence and each.next_command.startswith("nox -s ") and each.workloads
        cited = [seen.record for seen in each.evidence] + [figure.record for figure in each.figures]
        assert all((tmp_path / record).exists() for record in cited if record)
        for figure in each.figures:
            assert all(len(entries) == len(figure.columns) for _, entries in figure.rows)


def test_known_causes_have_names_of_their_own() -> None:
    assert len(KNOWN) == len(MEMORY) + len(MOVERS) + len(ALWAYS)


@pytest.mark.parametrize(
    ("case", "tried"),
    [
        (Case(), [result("AA"), result("BB", 0.0, recipe="offset_logits")]),  # as PyTorch's own does in float16
        (Case(), [result("AA"), result("BB", 0.0, recipe="constant_v"), OVERFLOWS]),
        (Case(), [OVERFLOWS]),
        (WRONG_ON_LARGE, [result("AA"), OVERFLOWS]),
    ],
    ids=["finite", "and on other inputs", "nothing else tried", "what moved is the question"],
)
def test_larger_logits_alone_blame_nobody(case: Case, tried: list[Any], tmp_path: Path) -> None:
    made = spec((NEXT, "kernel", case), recipes=RECIPES)
    found = of_kernel(tmp_path, made, lambda run: conditions(run, "inputs", tried))
    assert found and RANGE_OVERFLOW not in {each.cause for cause in found for each in (cause, *cause.parts)}


@pytest.mark.parametrize("units", [4.0, 7.9])
def test_a_rule_that_is_a_little_wide_is_not_too_loose(units: float, tmp_path: Path) -> None:
    found = of_kernel(tmp_path, spec(*both("kernel", Case(units=units)), decides="kernelbench"))
    assert [cause.cause for cause in found] == [NOTHING_MOVED]


def test_a_regression_under_a_tight_rule_is_the_build_that_moved(tmp_path: Path) -> None:
    made = spec((NEXT, "kernel", Case(passed=3, bits="new", units=1.1)), machine_code=CODE, flags=FLAGS, **BF16_STRICT)
    assert first(tmp_path, made, clean).cause == BUILD_MOVED


def test_wrong_on_every_input_is_not_masked(tmp_path: Path) -> None:
    found = first(tmp_path, spec(*both("kernel", WRONG), recipes=RECIPES))
    assert found.cause == WRONG_EVERYWHERE


def test_a_reference_wrong_in_every_version_is_said_to_be(tmp_path: Path) -> None:
    found = causes_of(tmp_path, spec(*both("math", WRONG)))
    wrong = [cause for cause in found if cause.reference == "math"]
    assert [cause.cause for cause in wrong] == [WRONG_EVERYWHERE] and wrong[0].kernel == ""


def test_one_environment_alone_says_what_it_can(tmp_path: Path) -> None:
    made = spec((BASE, "kernel", WRONG), environments=(BASE,))
    assert first(tmp_path, made).grade in (SUGGESTIVE, UNDECIDED)


def test_one_environment_and_its_memory(tmp_path: Path) -> None:
    made = spec((BASE, "kernel", WRONG), environments=(BASE,))
    found = first(tmp_path, made, lambda run: poison(run, {"output": FOLLOWS}, environment=BASE))
    assert (found.cause, found.grade) == (UNINITIALISED_HOST, DECISIVE)


def test_a_reference_that_agrees_more_now_does_not_lead_over_what_is_wrong(tmp_path: Path) -> None:
    made = spec(
        (BASE, "kernel", Case(passed=0, units=1.2, agrees=0)),
        (NEXT, "kernel", Case(passed=0, units=1.2, agrees=6)),
        (NEXT, "math", Case(bits="new", units=1.1)),
        **BF16_STRICT,
    )
    found = first(tmp_path / "more", made)
    assert found.cause == TOLERANCE_TOO_TIGHT and REFERENCE_MOVED in found.causes
    fewer = spec(
        (BASE, "kernel", Case(passed=0, units=1.2, agrees=6)),
        (NEXT, "kernel", Case(passed=0, units=1.2, agrees=0)),
        (NEXT, "math", Case(bits="new", units=1.1)),
        **BF16_STRICT,
    )
    assert first(tmp_path / "fewer", fewer).cause == REFERENCE_MOVED


def test_a_time_that_leans_is_undecided_and_not_unmoved(tmp_path: Path) -> None:
    made = spec((NEXT, "kernel", Case(slowdown=1.1)), launches=3, spread=0.03)
    found = of_kernel(tmp_path, made)
    assert [cause.cause for cause in found] == [UNDECIDED, NOTHING_MOVED]
    assert "--launches 20" in found[0].next_command and found[0].about == "latency"
    assert found[1].grade == STRONG and "these launches cannot show" in found[1].statement
