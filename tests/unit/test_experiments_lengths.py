"""Which sequence lengths a wrong kernel is tried at."""

from __future__ import annotations

from harness.experiments.condition_list import conditions_of
from harness.experiments.jobs import plan_jobs
from harness.experiments.lengths import LIMITS, MOST_SCORES, counts, lengths


def test_its_own_comes_first_and_each_tile_has_whole_ones_and_others() -> None:
    found = lengths(1, 8, 512, 64)
    assert found[0] == 512 and len(found) == len(set(found)) and min(found) == 1
    for tile in (16, 32, 64, 128):
        assert any(each % tile == 0 for each in found) and any(each % tile for each in found)
        assert any(each % tile == 0 and each // tile % 2 for each in found), (
            "or twice as large a tile would fit as well"
        )


def test_both_sides_of_each_count_that_leaves_a_type_below_its_own() -> None:
    found = lengths(1, 1, 560, 128)
    assert {256, 257, 512, 513} <= set(found), "elements of K, in 15 and 16 bits"
    assert {181, 182} <= set(found), "scores, in 15 bits"


def test_equal_counts_are_named_once_and_by_the_smaller_thing() -> None:
    assert [count.what for count in counts(1, 1, 64)] == ["elements of one head's K", "scores of one head"]
    assert len(counts(2, 4, 64)) == 6
    for count in counts(2, 4, 64):
        for limit in LIMITS:
            assert count.at(count.last(limit)) <= limit < count.at(count.last(limit) + 1)


def test_what_would_take_too_long_in_float64_is_left_out() -> None:
    found = lengths(4, 16, 4096, 128)
    assert found and max(found) ** 2 * 64 <= MOST_SCORES


def test_each_length_is_called_once() -> None:
    listed = [("lengths", each) for each in conditions_of("lengths", "cpu", [], problem=False, lengths=[96, 1, 64])]
    planned = plan_jobs(listed, {"independent": (3, 0, 1)}, 1000)  # type: ignore[arg-type]
    assert [(job.condition.seq_len, job.trials, job.repeats) for job in planned] == [
        (96, (3,), 1), (1, (3,), 1), (64, (3,), 1),
    ]  # fmt: skip
