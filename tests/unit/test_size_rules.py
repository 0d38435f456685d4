"""Rules of sizes, in scripted worlds: what is told, what is asked to refute it, and what is never told."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.experiments.condition_list import size_conditions, sized
from harness.experiments.size_rules import (
    MOST_ASKED,
    MOST_ROUNDS,
    STEPS,
    Point,
    Rule,
    Tried,
    ask,
    fitting,
    own_sizes,
    roundest,
    smallest,
)
from tests.unit.hand_made import workload

World = Callable[[int, int, int, int], bool | None]  # batch, heads, length, head dimension: is it wrong? None: refused
OWN = {"batch": 2, "heads": 8, "seq_len": 239, "head_dim": 64}


def explored(wrong: World, own: dict[str, int] = OWN) -> list[Point]:
    """What the experiment tries, and then what is asked, as `Session.ask_on` does."""

    def point(chosen: dict[str, int], asked: bool) -> Point:
        found = wrong(chosen["batch"], chosen["heads"], chosen["seq_len"], chosen["head_dim"])
        return Point(chosen, None if found is None else not found, asked)

    planned = workload(**own)
    assert own_sizes(planned) == own
    first = ({name: getattr(each, name) or own[name] for name in own} for each in size_conditions(planned))
    points = [point(each, asked=False) for each in first]
    left = MOST_ASKED
    for _ in range(MOST_ROUNDS):
        chosen = ask(points, own, left)
        assert all(each not in [dict(point.sizes) for point in points] for each in chosen), "nothing is tried twice"
        assert len(chosen) == len(sized(chosen, own)) <= left
        points += [point(each, asked=True) for each in chosen]
        left -= len(chosen)
    assert left >= 0 and (not ask(points, own) or left < 2), "what is open is asked, as long as there is room"
    return points


def rule(dimension: str, kind: str, number: int, but_one: bool = False) -> Rule:
    return Rule(dimension=dimension, kind=kind, number=number, but_one=but_one)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "told", "least"),
    [
        (lambda b, h, s, d: s % 2 == 1, rule("seq_len", "off", 2), (1, 1, 1)),
        (lambda b, h, s, d: s % 2 == 1 and s > 1, rule("seq_len", "off", 2, but_one=True), (1, 1, 3)),
        (lambda b, h, s, d: s % 16 != 0, rule("seq_len", "off", 16), (1, 1, 1)),
        (lambda b, h, s, d: s % 4 != 0 and s > 1, rule("seq_len", "off", 4, but_one=True), (1, 1, 2)),
        (lambda b, h, s, d: s % 32 == 0, rule("seq_len", "on", 32), (1, 1, 32)),
        (lambda b, h, s, d: s > 128, rule("seq_len", "above", 128), (1, 1, 129)),
        (lambda b, h, s, d: s > 1, rule("seq_len", "above", 1), (1, 1, 2)),
        (lambda b, h, s, d: h == 1, rule("heads", "up_to", 1), (1, 1, 1)),
        (lambda b, h, s, d: s > 150, rule("seq_len", "above", 148), (1, 1, 152)),  # all was asked that may be
        (lambda b, h, s, d: h > 1, rule("heads", "above", 1), (1, 2, 1)),
        (lambda b, h, s, d: h % 2 == 1, rule("heads", "off", 2), (1, 1, 1)),
        (lambda b, h, s, d: b > 1, rule("batch", "above", 1), (2, 1, 1)),
        (lambda b, h, s, d: None if s < 16 else s % 16 != 0, rule("seq_len", "off", 16), (1, 1, 17)),
        (lambda b, h, s, d: s > 64 and h > 2, None, (1, 3, 65)),
        (lambda b, h, s, d: True, None, (1, 1, 1)),
        (lambda b, h, s, d: False, None, None),
        (lambda b, h, s, d: None, None, None),
        (lambda b, h, s, d: s == 239 and b == 2, None, (2, 1, 239)),
    ],
)
def test_a_world_of_one_rule_is_told_by_it_alone_and_its_smallest_failure_is_found(
    wrong: World, told: Rule | None, least: tuple[int, int, int] | None
) -> None:
    points = explored(wrong)
    assert fitting(points, OWN) == [told] * (told is not None)
    assert {point.sizes["head_dim"] for point in points} > {32, 48, 64, 80, 128}
    bad = [tuple(point.sizes.values())[:3] for point in points if point.right is False]
    assert min(bad, key=math.prod, default=None) == least


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda d: d % 32 != 0, rule("head_dim", "off", 32)),
        (lambda d: d > 64, rule("head_dim", "above", 64)),
        (lambda d: None if d % 16 else d > 64, rule("head_dim", "above", 64)),  # of others all are refused
        (lambda d: None if d != 80 else True, None),
    ],
)
def test_the_head_dimension_is_a_size_too(wrong: Callable[[int], bool | None], told: Rule | None) -> None:
    own = OWN | {"head_dim": 80}
    points = explored(lambda b, h, s, d: wrong(d), own)
    assert fitting(points, own) == [told] * (told is not None)
    assert smallest(points, own) == {"batch": 2, "heads": 8, "seq_len": 239, "head_dim": 80} | {
        name: 1 for name in ("batch", "heads", "seq_len")
    }
    asked = {point.sizes["head_dim"] for point in points if point.asked}
    assert all(size % 8 == 0 for size in asked) and (told is None or asked), "what could refute it was tried"


def test_what_is_right_at_length_1_alone_is_no_word_for_the_other_dimensions() -> None:
    own = {"batch": 1, "heads": 1, "seq_len": 239, "head_dim": 64}
    points = explored(lambda b, h, s, d: h == 1 and s > 1, own)
    assert fitting(points, own) == [rule("heads", "up_to", 1)]


def test_a_size_that_was_asked_may_refute_the_rule_and_then_none_is_told() -> None:
    planned = {point.sizes["seq_len"] for point in explored(lambda b, h, s, d: s % 2 == 1) if not point.asked}
    points = explored(lambda b, h, s, d: s % 2 == 1 and s in planned)
    assert fitting([point for point in points if not point.asked], OWN) == [rule("seq_len", "off", 2)]
    assert any(point.asked for point in points) and not fitting(points, OWN)


def test_what_would_tell_two_rules_apart_is_asked_first() -> None:
    points = [Point({"seq_len": n}, n % 32 == 0) for n in (32, 64, 96, 65, 91, 129)]
    fits = [each.number for each in fitting(points, {"seq_len": 129})]
    assert {2, 4, 8, 16, 32} == set(fits)
    for chosen in ask(points, {"seq_len": 129})[:3]:
        assert len({chosen["seq_len"] % number == 0 for number in fits}) == 2


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ([2, 4, 6], [1, 3, 5], True),
        ([2, 4], [1, 3, 5, 7], False),
        ([2, 4, 6], [1, 3], False),
        ([1, 2, 4], [3, 5, 7], False),  # what is right at 1 says nothing of an odd length
        ([1, 2, 4, 8], [3, 5, 7], True),
    ],
)
def test_a_rule_rests_on_three_sizes_of_either_kind(right: list[int], wrong: list[int], told: bool) -> None:
    points = [Point({"seq_len": n}, n in right) for n in (*right, *wrong)]
    assert any((each.kind, each.number) == ("off", 2) for each in fitting(points, {"seq_len": 9})) == told


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 600), st.sampled_from([True, False, None])), max_size=30),
    st.booleans(),
)
def test_no_point_contradicts_what_is_told_and_nothing_that_was_tried_is_asked(
    tried: list[tuple[int, int, bool | None]], asked: bool
) -> None:
    points = [Point({"heads": h, "seq_len": s}, right, asked and n > 9) for n, (h, s, right) in enumerate(tried)]
    own = {"heads": 4, "seq_len": 600}
    for told in fitting(points, own):
        found = Tried(told.dimension, points)
        assert found.right and found.wrong
        for point in points:
            alone = point.right and point.sizes["seq_len"] == 1 and told.dimension == "heads"
            assert point.right is None or alone or told.wrong_at(point.sizes[told.dimension]) != point.right
    chosen = ask(points, own)
    assert all(each not in [point.sizes for point in points] for each in chosen)
    if not any(point.right is False for point in points):
        assert not chosen and not fitting(points, own) and set(smallest(points, own).values()) == {1}


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["above", "up_to", "on", "off"]),
    st.sampled_from([*STEPS, 100, 200, 513]),
    st.booleans(),
    st.sampled_from([60, 100, 239, 512, 560]),
)
def test_what_is_told_of_any_world_of_the_language_holds_beyond_what_was_tried(
    kind: str, number: int, but_one: bool, length: int
) -> None:
    world, own = rule("seq_len", kind, number, but_one), {"batch": 1, "heads": 2, "seq_len": length, "head_dim": 64}
    points = explored(lambda b, h, s, d: world.wrong_at(s), own)
    told = fitting(points, own)
    for each in told:
        if each.kind in ("on", "off"):
            assert all(each.wrong_at(size) == world.wrong_at(size) for size in range(1, length)), (world, each)
        else:  # the limit lies between what is right and what is wrong
            found = Tried("seq_len", points)
            assert all(each.wrong_at(size) == world.wrong_at(size) for size in found.right | found.wrong)


@given(st.integers(0, 5000), st.integers(1, 5000))
def test_the_roundest_number_lies_where_it_is_looked_for(first: int, more: int) -> None:
    found = roundest(first, first + more)
    assert first <= found < first + more
