"""Kernels that are wrong at some sequence lengths: what the lengths say, and what they leave open."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.schema.storage import Run
from reports.attribute.causes import WRONG_EVERYWHERE
from reports.attribute.facts.experiments import Conditions, LengthTrials
from tests.unit.attributed import both, first, spec
from tests.unit.experiments import conditions, result
from tests.unit.spec import Case

ALWAYS = Case(passed=0, units=412.0)
BEYOND = [513, 544, 559, 560, 576]
UP_TO_512 = dict.fromkeys([1, 16, 64, 257, 511, 512], True) | dict.fromkeys(BEYOND, False)
TILES = {each: each % 32 == 0 for each in (1, 16, 32, 64, 96, 128, 500, 512, 513, 544)}


@pytest.mark.parametrize(
    ("right", "said"),
    [
        (TILES, "right where 32 divides the length, wrong where it does not (10 lengths tried)"),
        (UP_TO_512, "right up to 512 rows, wrong from 513 on (11 lengths tried)"),
        (dict.fromkeys(TILES, False), "wrong at every length (10 lengths tried)"),
        (TILES | {500: True}, "right at 7 of 10 lengths tried: 32, 64, 96, 128, 500, 512, ...; wrong at 1, 16, 513"),
    ],
)
def test_a_wrong_kernel_says_at_which_lengths(right: dict[int, bool], said: str, tmp_path: Path) -> None:
    def make(run: Run) -> None:
        conditions(run, "lengths", [result("A", float(each), seq_len=length) for length, each in right.items()])

    found = first(tmp_path, spec(*both("kernel", ALWAYS)), make)
    assert found.cause == WRONG_EVERYWHERE
    assert any(said in seen.text for seen in found.evidence)


def test_a_process_that_died_was_not_right() -> None:
    dead = result("", 0.0, seq_len=100).model_copy(update={"status": "crashed", "message": "died by SIGSEGV"})
    refused = result("", 0.0, seq_len=7).model_copy(
        update={"status": "crashed", "message": "trial 0 raised ValueError"}
    )
    record = type("Record", (), {"results": [result("A", seq_len=64), dead, refused]})()
    lengths = LengthTrials(conditions=Conditions(record=record, path="p"))
    assert (lengths.right, lengths.wrong) == ([64], [100])
