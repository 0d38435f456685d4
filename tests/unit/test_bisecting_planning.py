"""Which version is asked next: every position of a step is found within the bound, two steps are both found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.search.bisect import plan
from harness.search.bisect.plan import GOOD, UNKNOWN


def bisect(
    truth: list[int], *, every: bool = False, skipped: frozenset[int] = frozenset()
) -> tuple[list[int | None], list[int]]:
    """(labels, versions asked) of a bisection whose versions answer with their label."""
    labels: list[int | None] = [UNKNOWN if index in skipped else None for index in range(len(truth))]
    asked = []
    while (index := plan.next_version(labels, every=every)) is not None:
        assert labels[index] is None, "a version is asked twice"
        asked.append(index)
        labels[index] = truth[index]
    return labels, asked


def test_one_step_is_found_at_every_position_of_every_length_within_the_bound() -> None:
    for count in range(2, 70):
        for first_bad in range(1, count):
            truth = [int(index >= first_bad) for index in range(count)]
            labels, asked = bisect(truth)
            assert plan.steps(labels) == [(first_bad - 1, first_bad)]
            assert len(asked) <= plan.most_environments(count), (count, first_bad)
            assert plan.is_monotonic(labels)


@st.composite
def story(draw: st.DrawFn) -> tuple[int, int, frozenset[int]]:
    """(versions, the first bad one, some between the ends)."""
    count = draw(st.integers(2, 60))
    some = draw(st.frozensets(st.integers(1, max(1, count - 2))))
    return count, draw(st.integers(1, count - 1)), some - {0, count - 1}


@given(story())
def test_skipped_versions_cost_nothing_and_the_step_is_still_bracketed(drawn: tuple[int, int, frozenset[int]]) -> None:
    count, first_bad, skipped = drawn
    labels, asked = bisect([int(i >= first_bad) for i in range(count)], skipped=skipped)
    usable = [i for i in range(count) if i not in skipped]
    before, after = max(i for i in usable if i < first_bad), min(i for i in usable if i >= first_bad)
    assert plan.steps(labels) == [(before, after)]
    assert not skipped & set(asked)
    assert len(asked) <= plan.most_environments(len(usable))


@given(story())
def test_versions_that_turn_out_unknown_cost_one_environment_each(drawn: tuple[int, int, frozenset[int]]) -> None:
    count, first_bad, broken = drawn
    labels, asked = bisect([UNKNOWN if index in broken else int(index >= first_bad) for index in range(count)])
    [(before, after)] = plan.steps(labels)
    assert before < first_bad <= after
    assert all(labels[index] == UNKNOWN for index in range(before + 1, after)), "what could be asked was not"
    assert len(asked) <= plan.most_environments(count) + len(broken & set(asked))


@given(st.integers(3, 60), st.data())
def test_two_steps_are_both_found_when_the_middle_is_unlike_both_ends(count: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(1, count - 2))
    second = data.draw(st.integers(first + 1, count - 1))
    truth = [0 if index < first else 2 if index < second else 1 for index in range(count)]
    labels, asked = bisect(truth)
    assert plan.steps(labels) == [(first - 1, first), (second - 1, second)]
    assert len(asked) <= 2 * plan.most_environments(count)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=40))
def test_every_version_is_asked_once_where_all_are_wanted_and_what_returns_is_said(truth: list[int]) -> None:
    truth[0] = GOOD
    labels, asked = bisect(truth, every=True)
    assert labels == truth and sorted(asked) == list(range(len(truth)))
    runs = [label for index, label in enumerate(truth) if index == 0 or truth[index - 1] != label]
    assert plan.is_monotonic(labels) == (len(runs) == len(set(runs)))
    assert len(plan.steps(labels)) == len(runs) - 1


def test_ends_that_are_alike_end_the_bisection() -> None:
    labels, asked = bisect([0, 1, 1, 0])
    assert asked == [0, 3] and plan.steps(labels) == []


@pytest.mark.parametrize("labels", [[UNKNOWN, None, 1], [0, None, UNKNOWN]])
def test_an_end_that_cannot_be_told_leaves_nothing_to_ask(labels: list[int | None]) -> None:
    assert plan.next_version(labels) is None


def test_neighbours_are_the_nearest_that_are_known() -> None:
    assert plan.neighbours([0, UNKNOWN, None, 2, 1], 2) == (0, 2)


def test_the_bound() -> None:
    assert [plan.most_environments(count) for count in (2, 3, 4, 5, 8, 9, 11)] == [3, 4, 4, 5, 5, 6, 6]
