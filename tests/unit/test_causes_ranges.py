"""What leaves the range of its type, what only seems to, at which lengths a kernel is wrong, and what nothing may call
wrong everywhere for sure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.schema.experiment_records import ConditionResult
from harness.schema.storage import Run
from reports.attribute import causes
from reports.attribute.causes import FIXES, STRONG, SUGGESTIVE
from reports.attribute.evidence import hidden
from reports.attribute.facts.cells import CellFacts
from reports.attribute.facts.experiments import Conditions, LengthTrials
from reports.attribute.rules.inputs import WIDER_SUMS
from reports.attribute.sizes import reproduced_at, sizes_text
from reports.compare.rows import compare
from reports.load.evidence import load_evidence
from reports.model import Comparison
from tests.unit.attributed import RECIPES, Known, Make, called, check, filled, of_both, tried
from tests.unit.experiments import FOLLOWS, clean, conditions, dead, history, result
from tests.unit.spec import Case, Spec

ALWAYS = of_both(Case(passed=0, units=412.0))
INFINITE = of_both(Case(passed=0, units=412.0, nonfinite=10))
PLAIN, NAN = result("AA", 0.0), result("AA", 0.0, nonfinite=True)


def scaled(recipe: str = "halved_4", passed: float = 0.0, **more: Any) -> ConditionResult:
    return result("BB", passed, recipe=recipe, **more)


def wider(passed: float, **more: Any) -> ConditionResult:
    return result("CC", passed, dtype="float64", **more)


SMALLER = [scaled("halved_4", scales=True), scaled("halved_8", scales=True)]
FLAT = result("BB", recipe="flat_logits")


def asked(
    inputs: list[ConditionResult],
    in_float64: ConditionResult | None = None,
    lengths: tuple[int, ...] = (1, 64, 100, 512),
) -> list[Make]:
    """Of a kernel that is wrong by the same bits in both environments, of whose memory and calls all was tried."""

    def make(run: Run) -> None:
        clean(run, passed=0.0)
        history(run, "AA AA", "AA AA", wrong="A")
        conditions(run, "inputs", inputs)
        conditions(run, "lengths", [result("A", 0.0, seq_len=length) for length in lengths])
        if in_float64 is not None:
            conditions(run, "wider", [inputs[0], in_float64])

    return [make]


def on_sizes(other: str) -> Spec:
    return of_both(Case(passed=0, units=412.0), workloads=("seed-fp16", other))


EXCLUDED = ["it is wrong by as much on smaller inputs"]
IN_FLOAT64 = ["it is wrong on smaller inputs, and on the same numbers in float64, too"]
ONE_SIZE = "a fault that depends on the size is possible"
KNOWN = {
    "as wrong on smaller inputs": Known(
        ALWAYS, asked([PLAIN, *SMALLER]), causes.WRONG_EVERYWHERE, STRONG, says=EXCLUDED
    ),
    "wrong in float64": Known(
        ALWAYS, asked([PLAIN, scaled(scales=False)], wider(0.0)), causes.WRONG_EVERYWHERE, STRONG, says=IN_FLOAT64
    ),
    "what larger logits do besides is another question": Known(
        ALWAYS,
        asked([PLAIN, *SMALLER, result("DD", 0.0, nonfinite=True, recipe="steep_logits")]),
        causes.WRONG_EVERYWHERE,
        STRONG,
        says=EXCLUDED,
    ),
    # A problem file has one length: a count that fits in its type up to some length is not told from an algorithm.
    "no length was tried": Known(
        ALWAYS, asked([PLAIN, *SMALLER], lengths=()), causes.WRONG_EVERYWHERE, SUGGESTIVE, says=["loop's bounds"]
    ),
    # An offset of sixteen bits does that.
    "wrong on one size alone is perhaps not the algorithm": Known(
        on_sizes("long64-fp16"), asked([PLAIN, *SMALLER]), causes.WRONG_EVERYWHERE, SUGGESTIVE, says=[ONE_SIZE]
    ),
    "what is right in another type says nothing of sizes": Known(
        on_sizes("small-fp32"), asked([PLAIN, *SMALLER]), causes.WRONG_EVERYWHERE, STRONG, silent=[ONE_SIZE]
    ),
    "NaN that nobody asked about": Known(INFINITE, [], causes.WRONG_EVERYWHERE, SUGGESTIVE),
    "a wider type makes it right": Known(
        INFINITE,
        asked([NAN, scaled(nonfinite=True)], wider(1.0)),
        causes.RANGE_OVERFLOW,
        STRONG,
        never=[causes.WRONG_EVERYWHERE],
        says=["float64 6/6"],
    ),
    "where the first call is right no type is too narrow": Known(
        INFINITE,
        [tried("wider", NAN, wider(1.0)), tried("inputs", result("BB", 0.0)), called("AB AB", "AB AB", wrong="B")],
        causes.PREDECESSOR_SENSITIVITY,
        never=[causes.RANGE_OVERFLOW],
    ),
    "memory that is read may hold what a wider type does not meet": Known(
        INFINITE,
        [filled(output=FOLLOWS), tried("wider", NAN, wider(1.0))],
        causes.UNINITIALISED_HOST,
        never=[causes.RANGE_OVERFLOW],
    ),
    # A flat softmax hides much that is wrong; where NaN goes with it, its logits had no place in their type.
    "flat logits make right what was not finite": Known(INFINITE, asked([NAN, FLAT]), causes.RANGE_OVERFLOW),
    "flat logits make right what was finite": Known(ALWAYS, asked([PLAIN, FLAT]), causes.WRONG_EVERYWHERE),
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_range_is_told_or_excluded(name: str, tmp_path: Path) -> None:
    found = check(KNOWN[name], tmp_path)
    if found.cause == causes.WRONG_EVERYWHERE and found.grade == STRONG:
        assert any(each.rival == "the range of its type" for each in found.ruled_out)


@pytest.mark.parametrize(
    ("made", "inputs", "in_float64"),
    [
        (INFINITE, [NAN, scaled(nonfinite=True), scaled("halved_8", nonfinite=True)], None),
        (INFINITE, [NAN, scaled(scales=True)], None),
        (ALWAYS, [PLAIN, scaled(scales=True, nonfinite=True)], None),
        (INFINITE, [NAN, scaled(nonfinite=True)], wider(0.0, nonfinite=True)),  # as zero by zero is
        (ALWAYS, [PLAIN, scaled(scales=False)], None),
        (ALWAYS, [PLAIN, replace(scaled(scales=True), max_units=9000.0)], None),
        (ALWAYS, [PLAIN, scaled(scales=False)], wider(1.0)),  # its digits, and not its range
        (ALWAYS, [PLAIN, scaled(scales=False), scaled("halved_8", 0.5, scales=False)], wider(0.0)),
        (ALWAYS, [PLAIN], wider(0.0)),
        (ALWAYS, [PLAIN], None),
    ],
    ids=[
        "nan at any size",
        "nan at full size",
        "nan on smaller",
        "nan in float64",
        "another question",
        "worse",
        "digits",
        "less wrong on smaller",
        "smaller not tried",
        "not asked",
    ],
)
def test_what_does_not_exclude_a_range(
    made: Spec, inputs: list[ConditionResult], in_float64: ConditionResult | None, tmp_path: Path
) -> None:
    known = Known(made, asked(inputs, in_float64), causes.WRONG_EVERYWHERE, SUGGESTIVE, says=["not excluded:"])
    assert all(each.rival != "the range of its type" for each in check(known, tmp_path).ruled_out)


@pytest.mark.parametrize(
    ("more", "decides", "fix"),
    [
        ([result("CC", recipe="steep_logits", label="logits times 64")], "is right with logits times 64", WIDER_SUMS),
        ([result("CC", 0.0, recipe="flat_logits", label="logits a 64th")], "is wrong with logits a 64th", WIDER_SUMS),
        ([result("CC", recipe="flat_logits"), result("DD", recipe="steep_logits")], "", FIXES[causes.RANGE_OVERFLOW]),
        ([], "", FIXES[causes.RANGE_OVERFLOW]),
    ],
)
def test_what_overflows_by_the_size_of_inputs_is_mended_there(
    more: list[ConditionResult], decides: str, fix: str, tmp_path: Path
) -> None:
    small = scaled(passed=1.0, scales=True, label="inputs a sixteenth as large")
    found = check(Known(ALWAYS, asked([PLAIN, small, *more]), causes.RANGE_OVERFLOW, STRONG), tmp_path)
    assert "right on smaller ones (inputs a sixteenth as large)" in found.statement and found.fix == fix
    assert decides in found.statement and ("does not decide" in found.statement) == bool(decides)
    [hiding] = [seen.text for seen in hidden([CellFacts(load_evidence(tmp_path), row) for row in rows_of(tmp_path)])]
    assert "these inputs hide it: " in hiding and hiding.endswith("; do not test with them alone")


def rows_of(folder: Path) -> list[Comparison]:
    return [row for row in compare(load_evidence(folder)) if row.kind == "kernel"]


# -- large logits -------------------------------------------------------------------------------------------

LARGE = of_both(Case(recipes={"large_logits": (0, 400.0)}), recipes=RECIPES)
FINITE = "stay finite however large"
LIMIT = "no floating-point number has overflowed"


@pytest.mark.parametrize(
    ("offset", "steep", "cause", "beside"),
    [
        (result("CC", recipe="offset_logits"), result("DD", 0.0, recipe="steep_logits"), causes.MASKED_BY_INPUTS, ""),
        (result("CC", 0.0, recipe="offset_logits"), None, causes.RANGE_OVERFLOW, ""),  # their size alone is enough
        (
            result("CC", recipe="offset_logits"),
            result("DD", 0.0, True, recipe="steep_logits"),
            causes.RANGE_OVERFLOW,
            "",
        ),
        (None, result("DD", 0.0, recipe="steep_logits"), causes.RANGE_OVERFLOW, ""),  # their size alone was not tried
        # Clipped, or kept as an integer, which wraps: not excluded, and not shown.
        (
            result("CC", 0.0, recipe="offset_logits"),
            result("DD", 0.0, recipe="steep_logits"),
            causes.MASKED_BY_INPUTS,
            causes.RANGE_OVERFLOW,
        ),
        (
            result("CC", 0.0, recipe="offset_logits"),
            result("DD", recipe="steep_logits"),
            causes.MASKED_BY_INPUTS,
            causes.RANGE_OVERFLOW,
        ),
    ],
    ids=[
        "finite, and right on larger ones",
        "wrong on larger ones",
        "infinite somewhere",
        "not tried",
        "finite, and wrong on all",
        "finite, and right on steep ones",
    ],
)
def test_whether_large_logits_are_too_large(
    offset: ConditionResult | None, steep: ConditionResult | None, cause: str, beside: str, tmp_path: Path
) -> None:
    more = [each for each in (offset, steep) if each is not None]
    inputs = tried("inputs", result("AA"), result("BB", 0.0, recipe="large_logits"), *more)
    never = {causes.MASKED_BY_INPUTS, causes.RANGE_OVERFLOW} - {cause, beside}
    known = Known(LARGE, [clean, inputs], cause, STRONG, never=never, says=[FINITE] if beside else [])
    parts = [part for part in check(known, tmp_path).parts if part.cause == beside]
    assert [part.grade for part in parts] == ([SUGGESTIVE] if beside else [])
    assert all(any(LIMIT in seen.text for seen in part.evidence) for part in parts)


# -- lengths ------------------------------------------------------------------------------------------------

ODD = dict.fromkeys([16, 32, 64, 128, 256, 257], True) | dict.fromkeys([129, 181, 255], False)


@pytest.mark.parametrize(
    ("right", "said"),
    [
        (ODD, "wrong at 129, 181, 255; right at 6 of 9 lengths tried"),
        (dict.fromkeys(ODD, False), "wrong at every length tried (9)"),
        (dict.fromkeys(range(1, 15), False) | {1: True}, "12, 13 and 1 more; right at 1 of 14 lengths tried"),
    ],
)
def test_a_wrong_kernel_says_at_which_lengths(right: dict[int, bool], said: str, tmp_path: Path) -> None:
    lengths = tried("lengths", *(result("A", float(each), seq_len=length) for length, each in right.items()))
    found = check(Known(ALWAYS, [lengths], causes.WRONG_EVERYWHERE, says=[said]), tmp_path)
    drawn = next((figure for figure in found.figures if "By size" in figure.title), None)
    assert (drawn is not None) == any(right.values())
    assert drawn is None or len(drawn.rows) == len(right), "the one that is wrong may be any"


def test_a_process_that_died_was_not_right() -> None:
    refused = replace(dead(seq_len=7), message="trial 0 raised ValueError")
    lengths = trials([result("A", seq_len=64), dead(seq_len=100), refused])
    assert (lengths.right, lengths.wrong) == ([64], [100])


def trials(results: list[ConditionResult]) -> LengthTrials:
    record = type("Record", (), {"results": results})()
    own = {"batch": 1, "heads": 8, "seq_len": 255, "head_dim": 64}
    return LengthTrials(conditions=Conditions(record=record, path="p"), own=own)


def sized(wrong: bool, **sizes: int) -> ConditionResult:
    return result("A", 0.0 if wrong else 1.0, seq_len=sizes.pop("seq_len", 255), **sizes)


def test_the_smallest_input_is_named_by_what_is_not_the_workload_s() -> None:
    planned = [sized(length % 2 == 1, seq_len=length) for length in (255, 64, 65, 1)]
    assert reproduced_at(trials([*planned, sized(True, seq_len=1, heads=1)])) == "sequence length 1, number of heads 1"
    assert reproduced_at(trials([sized(True), sized(True, heads=2)])) == "sequence length 255, number of heads 2"
    only_heads = trials([sized(False), sized(True, heads=2)])
    assert sizes_text(only_heads).startswith("wrong at no length of the workload's other sizes; right at 1 of 1")


def test_a_size_at_which_it_crashes_is_one_that_fails_and_is_called_so() -> None:
    def died(message: str, length: int) -> ConditionResult:
        return replace(sized(True, seq_len=length), status="crashed", message=message, runs=0)

    signal, of_gpu = "the kernel's process died by SIGSEGV", "CUDA error: an illegal memory access"
    right = [sized(False, seq_len=length) for length in (66, 94, 128)]
    crashing = [died(signal, 255), died(signal, 65), died(of_gpu, 129)]
    assert sizes_text(trials([*crashing, *right])).startswith("crashes at 65, 129, 255; right at 3 of 6")
    assert sizes_text(trials([*crashing, sized(True, seq_len=3), *right])).startswith("wrong, or crashes, at 3, 65")
    text = sizes_text(trials([died("it raised ValueError", 7), *crashing[:2], *right]))
    assert text.startswith("crashes at 65, 255; right at 3 of 5"), "what raised says nothing of the size"
