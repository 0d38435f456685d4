"""What runs of a region with one factor changed say of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.trace.factors import AGAIN, EXPLAINS, NOTHING, OTHER, effects, sentence

PLAIN = (["a"], ["b"])


def side(*times: Sequence[str | None], error: str = "") -> dict[str, Any]:
    return {"applies": True, "bits": [list(each) for each in times], "error": error}


def seen(**more: tuple[Sequence[str | None], Sequence[str | None]]) -> dict[str, list[dict[str, Any]]]:
    """Each side twice the same."""
    every = {"": PLAIN, AGAIN: PLAIN, **more}
    return {name: [side(one, one), side(other, other)] for name, (one, other) in every.items()}


def test_a_factor_explains_where_both_give_the_same_bits_with_it_alone() -> None:
    found = effects(seen(onednn=(["c"], ["c"]), threads=(["a"], ["b"]), vector=(["d"], ["e"]), mkl=(["a"], ["a"])))
    assert found == {"onednn": EXPLAINS, "threads": NOTHING, "vector": OTHER, "mkl": EXPLAINS}
    said = sentence(found)
    assert said.startswith("With oneDNN off or with MKL held to its compatible code both versions give the same bits")
    assert "(decisive)" in said and "changes with one thread." in said and "vector" not in said


def test_nothing_is_said_where_the_versions_do_not_differ_again_or_do_not_repeat() -> None:
    pair = (["c"], ["c"])
    assert effects(seen(**{"onednn": pair, AGAIN: (["a"], ["a"])})) == {}
    assert effects(seen(**{"onednn": pair, "": (["a"], ["a"]), AGAIN: (["a"], ["a"])})) == {}
    unstable = seen(onednn=pair)
    unstable["onednn"][0]["bits"] = [["c"], ["d"]]
    assert effects(unstable) == {} and sentence({}) == ""
    refused = seen(onednn=pair)
    refused["onednn"][1] = side(error="RuntimeError: no")
    assert effects(refused) == {}


def test_an_output_of_which_a_factor_says_nothing_must_be_the_same_without_it() -> None:
    same_second = {"": (["a", "s"], ["b", "s"]), AGAIN: (["a", "s"], ["b", "s"])}
    other_second = {"": (["a", "s"], ["b", "t"]), AGAIN: (["a", "s"], ["b", "t"])}
    math = (["c", None], ["c", None])
    assert effects(seen(**same_second, math=math)) == {"math": EXPLAINS}
    assert effects(seen(**other_second, math=math)) == {"math": OTHER}
    assert effects(seen(**same_second, math=(["a", None], ["b", None]))) == {"math": NOTHING}
