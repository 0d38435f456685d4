"""The shrinker, in scripted worlds: it finds a small failure, tries nothing twice, and stops."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.experiments.condition_list import size_conditions, sized
from harness.stats.shrink import MOST_ROUNDS, MOST_TRIED, Point, own_sizes, shrink, smallest
from tests.unit.hand_made import workload

World = Callable[[int, int, int], bool | None]  # batch, heads, length: is it wrong? None: refused
OWN = {"batch": 2, "heads": 8, "seq_len": 239, "head_dim": 64}


def explored(wrong: World) -> list[Point]:
    """Try what the experiment tries, and then shrink as `Session.shrink` does."""

    def point(sizes: dict[str, int]) -> Point:
        found = wrong(sizes["batch"], sizes["heads"], sizes["seq_len"])
        return Point(sizes, None if found is None else not found)

    planned = workload(**OWN)
    assert own_sizes(planned) == OWN
    points = [point({name: getattr(each, name) or OWN[name] for name in OWN}) for each in size_conditions(planned)]
    most = len(points) + MOST_TRIED
    for _ in range(MOST_ROUNDS):
        chosen = shrink(points, OWN)[: most - len(points)]
        assert len(chosen) == len(sized(chosen, OWN)), "all of them can be computed"
        assert all(each not in [dict(point.sizes) for point in points] for each in chosen), "nothing is tried twice"
        points += map(point, chosen)
    return points


@pytest.mark.parametrize(
    ("wrong", "least"),
    [
        (lambda b, h, s: True, (1, 1, 1)),
        (lambda b, h, s: s % 2 == 1 and s > 1, (1, 1, 3)),
        (lambda b, h, s: s % 32 == 0, (1, 1, 32)),
        (lambda b, h, s: s > 128, (1, 1, 129)),
        (lambda b, h, s: h > 1, (1, 2, 1)),
        (lambda b, h, s: b > 1, (2, 1, 1)),
        (lambda b, h, s: None if s < 16 else s % 16 != 0, (1, 1, 17)),
        (lambda b, h, s: s == 239 and b == 2, (2, 1, 239)),
        (lambda b, h, s: False, None),
        (lambda b, h, s: None, None),
    ],
)
def test_the_smallest_failure_is_found(wrong: World, least: tuple[int, int, int] | None) -> None:
    found = smallest(explored(wrong), OWN)
    assert (found and tuple(found.values())[:3]) == least


def test_a_failure_with_another_head_dimension_is_not_the_smallest() -> None:
    points = [Point(OWN, False), Point({**OWN, "seq_len": 1, "head_dim": 32}, False)]
    assert smallest(points, OWN) == OWN


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 600), st.sampled_from([True, False, None])), max_size=20))
def test_only_smaller_sizes_are_tried_and_only_after_a_failure(tried: list[tuple[int, int, bool | None]]) -> None:
    own = {"batch": 1, "heads": 4, "seq_len": 600, "head_dim": 64}
    points = [Point({**own, "heads": heads, "seq_len": length}, right) for heads, length, right in tried]
    least = smallest(points, own)
    for chosen in shrink(points, own):
        assert least is not None and chosen not in [point.sizes for point in points]
        assert sum(chosen[name] != least[name] for name in own) == 1 and all(0 < chosen[n] <= least[n] for n in own)
