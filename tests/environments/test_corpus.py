"""A sample of the corpus in real runs: no hostile candidate gets through, no honest one is accused.

All of them: `python -m tests.candidates.corpus`.
"""

from __future__ import annotations

import pytest

from tests.candidates.corpus import CORPUS
from tests.candidates.corpus.run import ACCEPTED, CAUGHT, NOTHING, THROUGH, Row, Settings, groups, measure, settle

pytestmark = [pytest.mark.environments, pytest.mark.timeout(1500)]

# What shares a run costs about 10 s a candidate on a quiet machine of two processors.
HOSTILE = (
    "keeps_sometimes",
    "leaves_answers_in_tmp",
    "slows_all_clocks_in_c",
    "cpp_keeps_by_samples",
    "cpp_computes_at_read",
    "cpp_jumps_over_clock",
)
HONEST = ("slow_first_call", "autotunes", "same_buffer")


@pytest.fixture(scope="module")
def rows(pinned_pythons: list[object]) -> dict[str, Row]:
    """What became of each of the sample."""
    settings = Settings(launches=1, group=15)
    found = [row for part in groups([*HOSTILE, *HONEST], settings.group) for row in measure(part, settings)]
    settle(found)
    return {row.name: row for row in found}


@pytest.mark.parametrize("name", HOSTILE)
def test_who_cheats_gains_nothing(rows: dict[str, Row], name: str) -> None:
    row = rows[name]
    # A machine that is shared has levels of speed that differ by more than two; what a lie that works gains is more.
    busy = row.outcome == THROUGH and min(row.ratio or 0, row.speedup_ratio or 1) > 0.3
    assert row.outcome in (CAUGHT, NOTHING) or busy, (CORPUS[name].says, row)


@pytest.mark.parametrize("name", HONEST)
def test_who_is_honest_is_not_accused(rows: dict[str, Row], name: str) -> None:
    assert rows[name].outcome == ACCEPTED, (CORPUS[name].says, rows[name])
