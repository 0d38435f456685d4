"""What validation would not have seen: from records to sentences, and verdicts of what decides nothing."""

from __future__ import annotations

from harness.schema.records import KnownWrong, RecipeResult, ValidationRecord
from reports import model
from reports.compare import correctness, properties
from reports.model import Bits, CorrectnessSide


def wrong(name: str, seen: bool) -> KnownWrong:
    return KnownWrong(kind="row", name=name, seen=seen)


def record(*recipes: list[KnownWrong]) -> ValidationRecord:
    results = [
        RecipeResult(
            recipe=f"r{number}", trials=1, input_sha256=[], truth_sha256=[], rounding_cost=[], targets=[], power=power
        )
        for number, power in enumerate(recipes)
    ]
    return ValidationRecord(
        environment="e",
        kernel="k",
        workload="w",
        device="cpu",
        key="x",
        decides="rounding",
        limits={},
        status="ok",
        recipes=results,
        started_utc="2026-01-01T00:00:00+00:00",
        duration_s=0,
    )


def test_a_fault_is_seen_where_one_recipe_sees_it() -> None:
    both = [wrong("a key", False), wrong("zeros", True), wrong("a row", True)]
    found = record(both, [wrong("a key", False), wrong("zeros", False)])
    assert properties.undetected(found) == ["a key"]
    assert properties.undetected_text(found) == "a key"
    assert properties.undetected_text(record([wrong("zeros", True)])) == "none of those tried"
    assert properties.undetected_text(record([])) == "\N{EM DASH}", "an older record says nothing of it"


def test_what_it_was_judged_as_is_said() -> None:
    assert properties.precision_text([]) == "plain arithmetic in the dtype"
    both = properties.precision_text(["tf32_convolution", "float16_sums"])
    assert both == "TF32 in convolutions and float16 accumulators"


def verdict(before: str, now: str) -> tuple[str, str]:
    sides = [
        CorrectnessSide(environment=name, status=status, message=f"{status} it is")
        for name, status in (("base", before), ("this", now))
    ]
    bits = Bits(compared=0, identical=0, inputs_differ=0)
    seen = correctness.OutputsSeen(base=sides[0], this=sides[1], bits=bits)
    judged = correctness.judge(seen, None, 0.05, {"base": "A", "this": "B"})
    return judged.verdict, judged.why


def test_what_decides_nothing_is_undecided_and_what_is_wrong_is_wrong() -> None:
    assert verdict("undecidable", "undecidable") == (model.UNDECIDED, "it passes: undecidable it is")
    assert verdict("undecidable", "ok")[0] == verdict("wrong", "undecidable")[0] == model.UNDECIDED
    assert verdict("undecidable", "wrong")[0] == model.REGRESSED
    assert verdict("undecidable", "unsupported")[0] == model.NO_LONGER_SUPPORTED
