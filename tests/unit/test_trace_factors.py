"""What runs of a region with one factor changed say of it."""

from __future__ import annotations

from collections.abc import Sequence

from harness.trace.factors import EXPLAINS, NOTHING, OTHER, Bits, effects, sentence

Pair = tuple[Sequence[str | None], Sequence[str | None]]
PLAIN: Pair = (["a"], ["b"])


def seen(plain: Pair = PLAIN, **more: Pair) -> dict[str, list[Bits]]:
    """Each side twice the same."""
    found: dict[str, list[Bits]] = {name: [[side, side] for side in pair] for name, pair in more.items()}
    return {"": [[side, side] for side in plain for _ in (0, 1)], **found}


def test_a_factor_explains_where_both_give_the_same_bits_with_it_alone() -> None:
    found = effects(seen(onednn=(["c"], ["c"]), threads=(["a"], ["b"]), vector=(["d"], ["e"]), mkl=(["a"], ["a"])))
    assert found == {"onednn": EXPLAINS, "threads": NOTHING, "vector": OTHER, "mkl": EXPLAINS}
    said = sentence(found)
    assert said.startswith("With oneDNN off or with MKL held to its compatible code both versions give the same bits")
    assert "(decisive)" in said and "change with: one thread." in said and "vector" not in said


def test_nothing_is_said_where_the_versions_do_not_differ_again_or_do_not_repeat() -> None:
    pair = (["c"], ["c"])
    again = seen(onednn=pair)
    again[""][3] = [["a"], ["a"]]
    unstable, refused = seen(onednn=pair), seen(onednn=pair)
    unstable["onednn"][0], refused["onednn"][0] = [["c"], ["d"]], None
    for bits in (again, unstable, refused, seen((["a"], ["a"]), onednn=pair)):
        assert effects(bits) == {}
    assert sentence({}) == ""


def test_what_matters_in_one_version_alone_leaves_the_other_as_it_is() -> None:
    math = seen(math=(["a"], ["a"]))
    math["math"][0] = []  # another operator there
    assert effects(math) == {"math": EXPLAINS}
    math["math"][1] = []
    assert effects(math) == {}, "it can matter for neither"


def test_an_output_of_which_a_factor_says_nothing_must_be_the_same_without_it() -> None:
    same_second, other_second = (["a", "s"], ["b", "s"]), (["a", "s"], ["b", "t"])
    math = (["c", None], ["c", None])
    assert effects(seen(same_second, math=math)) == {"math": EXPLAINS}
    assert effects(seen(other_second, math=math)) == {"math": OTHER}
    assert effects(seen(same_second, math=(["a", None], ["b", None]))) == {"math": NOTHING}
