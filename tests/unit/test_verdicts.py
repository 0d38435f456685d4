"""The simulation of benchmarks/verdicts.py, made small: it can fail, and its seeds are fixed."""

from __future__ import annotations

import pytest

from benchmarks import verdicts
from benchmarks.noises import RECORDED, SYNTHETIC, recorded
from benchmarks.verdicts import BIMODAL, Setting, simulate


@pytest.mark.parametrize("noise", SYNTHETIC)
@pytest.mark.parametrize("launches", [5, 20])
def test_where_nothing_moved_few_pages_are_wrong_and_intervals_hold(noise: str, launches: int) -> None:
    count = simulate(Setting(noise=noise, rows=24, launches=launches, shared=False), 60)
    assert count.wrong <= 8, "with 5% of pages wrong, 9 of 60 are seen once in a thousand times"
    assert count.held / count.rows >= 0.93


def test_a_lone_change_is_found_in_a_default_run() -> None:
    three = simulate(Setting(noise="0.9%", rows=24, launches=None, shared=False, effect=0.03), 25)
    five = simulate(Setting(noise=BIMODAL, rows=24, launches=None, shared=True, effect=0.05), 25)
    assert three.found >= 23 and five.found >= 21 and len(three.launches) == 25


@pytest.mark.parametrize("rows", [12, 200])
def test_a_lone_doubling_is_found_with_three_launches(rows: int) -> None:
    assert simulate(Setting(noise="3%", rows=rows, launches=3, shared=False, effect=1.0), 10).found == 10


def test_noise_of_records_is_of_whole_launches_and_centred() -> None:
    for name in RECORDED:
        for table in recorded(name):
            assert table.shape[0] > 20 and table.shape[1] >= 10 and abs(float(table.mean())) < 0.05


def test_a_rule_that_calls_everything_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts.decide, "adjust", lambda p_values, looks: [0.0 for _ in p_values])
    count = simulate(Setting(noise="3%", rows=24, launches=5, shared=False), 10)
    assert count.wrong >= 5 and len(count.held_of_page) == 10
    setting = Setting(noise="3%", rows=24, launches=5, shared=False)
    assert "**missed**" in "\n".join(verdicts.alarm_lines({setting: count}, ["3%"]))
