"""What calls before decide, what a call changes, and what is refused: none of it is a race, a range or an algorithm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.schema.storage import Run
from reports.attribute import causes
from reports.attribute.causes import DECISIVE, STRONG, SUGGESTIVE
from reports.attribute.facts.experiments import settles
from tests.unit.attributed import RECIPES, Known, called, causes_of, check, filled, first, here, of_both, tried
from tests.unit.experiments import FOLLOWS, STILL, clean, conditions, history, poison, result
from tests.unit.spec import NEXT, Case

WRONG = of_both(Case(passed=5, units=400.0))
UNSTEADY = of_both(Case(passed=5, units=400.0, repeats_differ=5))
LARGE = of_both(Case(nonfinite=4, units=1.1, recipes={"large_logits": (0, 9e4)}), recipes=RECIPES)
NONE_RIGHT = of_both(Case(passed=0, units=400.0))
# Large logits are wrong after calls on other inputs, as the experiment on inputs makes them.
POLLUTED = tried("inputs", result("AA"), result("CC", 0.0, nonfinite=True, recipe="large_logits"))
DRAWN = [
    tried("predecessor", result("AA", 0.0), result("DD", 0.0, before="fresh")),
    called("AA AA", "BB BB", wrong="AB"),
]
REFUSED = Case(status="crashed", message="trial 0 raised IndexError: Dimension out of range")
LACKS = "independent: trial 0 raised TypeError: attention() got an unexpected keyword argument 'enable_gqa'"
ALWAYS_BA = dict.fromkeys(("output", "heap"), ("BA", "BA", "BA", "BA"))


def wavering(run: Run) -> None:
    """What state that is kept and a race share: other bits at each call, whatever was filled."""
    poison(run, ALWAYS_BA, passed=0.5)
    conditions(run, "repeat", [result("ABACABA", 0.5)])


KNOWN = {
    "calls before decide, and no race": Known(
        UNSTEADY,
        [wavering, called("AB CD", "AB CD", wrong="BCD")],
        causes.PREDECESSOR_SENSITIVITY,
        STRONG,
        never=[causes.RACE],
        says=["the same sequence of calls gives the same bits"],
    ),
    "another process does not repeat the calls": Known(
        UNSTEADY, [wavering, called("AB CD", "AB CE", wrong="BCDE")], causes.RACE
    ),
    "other bits within rounding": Known(
        of_both(Case(repeats_differ=3)),
        [called("AB CD", "AB CD")],
        causes.NOTHING_MOVED,
        never=[causes.PREDECESSOR_SENSITIVITY],
    ),
    "the first call alone differs": Known(
        UNSTEADY,
        [filled(0.5, **ALWAYS_BA), tried("repeat", result("BAAAAAAA", 0.5))],
        causes.PREDECESSOR_SENSITIVITY,
        STRONG,
        never=[causes.RACE],
    ),
    "calls keep changing": Known(
        UNSTEADY,
        [
            filled(0.5, output=("BA", "AB", "BA", "BB"), heap=("BA", "BA", "AB", "BA")),
            tried("repeat", result("BAABABBA", 0.5)),
        ],
        causes.RACE,
    ),
    "a call that is right first is no overflow": Known(
        LARGE,
        [POLLUTED, clean, called("AA CC", "AA CC", wrong="C", recipe="large_logits")],
        causes.PREDECESSOR_SENSITIVITY,
        DECISIVE,
        never=[causes.RANGE_OVERFLOW],
    ),
    # The sequences are of what fails in either environment: here its first trial never does.
    "a call that is right wherever it is made excludes nothing": Known(
        LARGE,
        [
            tried("inputs", result("AA"), result("AA", recipe="large_logits")),
            called("AA AA", "AA AA", recipe="large_logits"),
        ],
        causes.RANGE_OVERFLOW,
        STRONG,
    ),
    "what is wrong first too overflows": Known(
        LARGE,
        [POLLUTED, clean, called("CC CC", "CC CC", wrong="C", recipe="large_logits")],
        causes.RANGE_OVERFLOW,
        DECISIVE,
    ),
    "each process draws for itself": Known(
        NONE_RIGHT,
        [filled(0.0, output=STILL, heap=STILL), *DRAWN],
        causes.INPUTS_MOVED,
        STRONG,
        never=[causes.PREDECESSOR_SENSITIVITY],
    ),
    "the same, and memory was not filled": Known(NONE_RIGHT, DRAWN, causes.INPUTS_MOVED, SUGGESTIVE),
    "memory that is read may differ by process too": Known(
        WRONG,
        [filled(output=FOLLOWS, heap=STILL), called("AA AA", "BB BB", wrong="AB")],
        causes.UNINITIALISED_HOST,
        never=[causes.INPUTS_MOVED],
    ),
    "it writes to its inputs, whatever its error": Known(
        of_both(Case(passed=0, units=1.1, mutated=3)), [], causes.INPUTS_MOVED, DECISIVE, says=["writes to its inputs"]
    ),
    "memory leads, and no confounder is named where no variable differs": Known(
        here(Case(passed=0, units=400.0, bits="new")),
        [filled(output=FOLLOWS, heap=STILL, stack=STILL)],
        causes.UNINITIALISED_HOST,
        never=[causes.ENVIRONMENT_CONFOUNDER],
    ),
    "an argument that a version lacks": Known(
        here(Case(status="crashed", message=LACKS)), [], causes.UNSUPPORTED_COMBINATION
    ),
    "an exception in one environment alone": Known(here(REFUSED), [], causes.UNSUPPORTED_COMBINATION, STRONG),
    "the same in each call of an experiment": Known(
        here(REFUSED),
        [tried("repeat", replace(result(""), status="crashed", message=REFUSED.message))],
        causes.UNSUPPORTED_COMBINATION,
    ),
    "an exception where variables differ may be theirs": Known(
        here(REFUSED, variables={NEXT: {"ATTENTION_TILE": "0"}}), [], causes.UNSUPPORTED_COMBINATION, SUGGESTIVE
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_it_is_found_and_no_rival_is(name: str, tmp_path: Path) -> None:
    found = check(KNOWN[name], tmp_path)
    if causes.RACE in KNOWN[name].never:
        assert any(each.rival == "a race" for each in found.ruled_out)


@pytest.mark.parametrize(
    ("letters", "settled"), [("BAAAA", True), ("AAAAA", False), ("BACAA", False), ("BA", False), ("BABAB", False)]
)
def test_what_settles_after_the_first_call(letters: str, settled: bool) -> None:
    assert settles([result(letters, 0.5)]) is settled
    assert not settles([result(letters)]), "all of them right"


@pytest.mark.parametrize(
    "processes",
    [
        ("AA AA", "AA BB"),  # on some inputs they agree
        ("AB AB", "CD CD"),  # within a process nothing is settled
    ],
)
def test_processes_that_draw_nothing(processes: tuple[str, str], tmp_path: Path) -> None:
    assert causes.INPUTS_MOVED not in first(tmp_path, WRONG, clean, called(*processes, wrong="ABCD")).causes


# -- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        "trial 3 raised IndexError: Dimension out of range",  # three trials did not
        "trial 0 raised OSError: [Errno 28] No space left on device",
        "trial 0 raised RuntimeError: DefaultCPUAllocator: can't allocate memory",
        "trial 0 raised FileNotFoundError: [Errno 2] weights.bin",
        "trial 0 raised RuntimeError: CUDA error: an illegal memory access was encountered",
        "the kernel's process died by SIGSEGV",
    ],
)
def test_what_is_no_refusal(message: str, tmp_path: Path) -> None:
    found = first(tmp_path, here(Case(status="crashed", message=message)))
    assert found.cause != causes.UNSUPPORTED_COMBINATION


def test_an_exception_that_comes_and_goes_or_is_in_both_environments_is_no_refusal(tmp_path: Path) -> None:
    at_times = causes_of(tmp_path / "at times", here(REFUSED), tried("repeat", result("AA")))
    for found in (at_times[0], first(tmp_path / "both", of_both(REFUSED))):
        assert found.cause != causes.UNSUPPORTED_COMBINATION


@pytest.mark.parametrize("code", [-3, -4, -6, -1, -2, -5, -7, -8, -30, 700])
def test_a_kernels_own_refusal_in_both_environments_and_a_code_for_something_else(code: int, tmp_path: Path) -> None:
    said = f"attention_forward: no (code {code}, shape [1, 2, 128, 80], Float, built with WIDTHS=64)"
    refusal = Case(status="crashed", message=f"independent: trial 0 raised RuntimeError: {said}")
    found = first(tmp_path, of_both(refusal))
    if code in (-3, -4, -6):
        assert (found.cause, found.grade) == (causes.UNSUPPORTED_COMBINATION, STRONG)
        assert "by its own error code" in found.statement and causes.WRONG_EVERYWHERE not in found.causes
    else:
        assert found.cause == causes.OWN_ERROR


# -- smaller inputs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("passed", "scales", "nonfinite", "cause", "grade"),
    [
        (1.0, True, True, causes.RANGE_OVERFLOW, DECISIVE),
        (1.0, True, False, causes.RANGE_OVERFLOW, STRONG),  # an index that is made of it gives finite numbers too
        (1.0, False, True, causes.RANGE_OVERFLOW, STRONG),
        (1.0, False, False, causes.WRONG_EVERYWHERE, ""),  # a flatter softmax hides what is wrong with it
        (0.0, True, False, causes.WRONG_EVERYWHERE, ""),
    ],
)
def test_what_smaller_inputs_tell(
    passed: float, scales: bool, nonfinite: bool, cause: str, grade: str, tmp_path: Path
) -> None:
    def make(run: Run) -> None:
        clean(run, passed=0.0)
        full = result("AA", 0.0, nonfinite=nonfinite)
        small = [result("BB", passed, scales=scales, recipe=recipe) for recipe in ("halved_4", "halved_8")]
        conditions(run, "inputs", [full, *small])
        history(run, "AA AA", "AA AA", wrong="A")

    never = [causes.WRONG_EVERYWHERE] if cause == causes.RANGE_OVERFLOW else []
    check(Known(of_both(Case(passed=0, units=737.0)), [make], cause, grade, never=never), tmp_path)
