"""Which sequence lengths a wrong kernel is tried at."""

from __future__ import annotations

from harness.experiments.lengths import MOST_SCORES, lengths


def test_its_own_comes_first_and_each_tile_has_whole_ones_and_others() -> None:
    found = lengths(1, 8, 512, 64)
    assert found[0] == 512 and len(found) == len(set(found)) and min(found) == 1
    for tile in (16, 32, 64, 128):
        assert any(each % tile == 0 for each in found) and any(each % tile for each in found)
        assert any(each % tile == 0 and each // tile % 2 for each in found), "or a tile of twice that would fit as well"


def test_both_sides_of_each_count_that_leaves_a_type_below_its_own() -> None:
    found = lengths(1, 1, 560, 128)
    assert {256, 257, 512, 513} <= set(found), "elements of K, in 15 and 16 bits"
    assert {181, 182} <= set(found), "scores, in 15 bits"
    assert {64, 65} <= set(lengths(2, 4, 560, 64)), "elements of K, of all heads and sequences, in 15 bits"
    assert {90, 91} <= set(lengths(1, 4, 560, 64)), "scores of all heads, in 15 bits"


def test_what_would_take_too_long_in_float64_is_left_out() -> None:
    found = lengths(4, 16, 4096, 128)
    assert found and max(found) ** 2 * 64 <= MOST_SCORES
