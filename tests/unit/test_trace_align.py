"""Two traces matched."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from harness.trace.align import Region, align, changes, gaps, match
from harness.trace.model import Operator, Value
from tests.unit.traced import op, trace


def test_what_is_alike_is_matched_and_what_was_replaced_is_a_region() -> None:
    good = trace(op("a"), op("softmax", gives=["1"]), op("c"))
    bad = trace(op("a"), op("safe_softmax", gives=["1"]), op("mul", gives=["2"]), op("c"))
    found = align(good, bad)
    assert found.pairs == ((0, 0), (2, 3))
    assert found.regions == (Region(range(1, 2), range(1, 3)),)
    assert changes(good, bad, found) == [
        {"what": "replaced", "before": ["softmax"], "after": ["safe_softmax", "mul"], "line": "s.py:1", "times": 1}
    ]


def test_operators_in_another_order_are_one_region() -> None:
    good, bad = trace(op("a"), op("cast"), op("softmax"), op("z")), trace(op("a"), op("softmax"), op("cast"), op("z"))
    found = align(good, bad)
    assert found.regions == (Region(range(1, 3), range(1, 3)),) and found.pairs == ((0, 0), (3, 3))


def test_branches_on_other_lines_are_matched_by_name() -> None:
    found = align(trace(op("gelu", line="s.py:3")), trace(op("gelu", line="s.py:5")))
    assert found.pairs == ((0, 0),) and not found.regions


def test_what_reads_nothing_is_known_by_what_it_makes() -> None:
    one, other = (trace(replace(op("randn"), outputs=(Value("x", kind, (1,)),))) for kind in ("f[2]", "f[3]"))
    assert align(one, one).pairs and not align(one, other).pairs


def test_casts_on_other_lines_are_no_pair_where_one_is_before_and_one_behind() -> None:
    def cast(digest: str, source: int, gives: str, line: str) -> Operator:
        return op("cast", [(digest, (source, 0))], [gives], line)

    start = op("mul", gives=["x"])
    cosine, sine = op("cos32", [("x", (0, 0))], ["c"]), op("sin32", [("x", (0, 0))], ["s"])
    good = trace(start, cosine, cast("c", 1, "h", "s.py:3"), sine, cast("s", 3, "g", "s.py:3"))
    low = [op(name, [("y", (1, 0))], [gives]) for name, gives in (("cos16", "h"), ("sin16", "g"))]
    bad = trace(start, cast("x", 0, "y", "s.py:2"), *low)
    assert align(good, bad).regions == (Region(range(1, 5), range(1, 4)),)


def test_views_of_what_a_region_made_belong_to_it() -> None:
    start, read = op("randn", gives=["x"]), op("add", [("m", (1, 0))], ["a"])
    good = trace(start, op("mm16", [("x", (0, 0))], ["m"]), read)
    bad = trace(start, op("mm32", [("x", (0, 0))], ["m"]), read, op("t", [("m", (1, 0))], [""]))
    assert align(good, bad).regions == (Region(range(1, 3), range(1, 4)),)


def test_an_insertion_among_equal_keys_leaves_one_gap() -> None:
    keys = [("mul", "add")[place % 2] for place in range(40)]
    other = [*keys[:20], "new", *keys[20:]]
    pairs = match(keys, other)
    assert len(pairs) == 40
    assert gaps(pairs, 40, 41) == [Region(range(20, 20), range(20, 21))]


@given(st.lists(st.sampled_from("abcd"), max_size=40), st.lists(st.sampled_from("abcd"), max_size=40))
def test_pairs_are_equal_and_ascend_and_regions_are_the_rest(good: list[str], bad: list[str]) -> None:
    pairs = match(good, bad)
    assert all(good[i] == bad[j] for i, j in pairs)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(pairs))
    rest = gaps(pairs, len(good), len(bad))
    assert len(pairs) + sum(len(region.good) for region in rest) == len(good)
    assert len(pairs) + sum(len(region.bad) for region in rest) == len(bad)


class Key(str):
    """Counts how often keys are looked at."""

    looks = 0

    def __eq__(self, other: object) -> bool:
        Key.looks += 1
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        Key.looks += 1
        return str.__hash__(self)


def test_twenty_thousand_operators_are_matched_in_few_looks() -> None:
    """Repeated keys, a layer that appeared in every step, and another one that was replaced."""
    step = [f"op{place % 37}" for place in range(1000)]
    good = step * 20
    bad = [*step[:500], "extra", "extra", *step[500:900], "other", *step[901:]] * 20
    pairs = match(list(map(Key, good)), list(map(Key, bad)))
    assert Key.looks < 30 * len(good)
    assert len(pairs) > 19_900
