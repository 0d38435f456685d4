"""Kernels that are wrong at some sequence lengths: what the lengths say, and what they leave open."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.schema.storage import Run
from reports.attribute.model import RANGE_OVERFLOW, STRONG, SUGGESTIVE, WRONG_EVERYWHERE, Cause
from reports.attribute.observed import Conditions
from reports.attribute.ranges import Lengths
from tests.unit.attributed import UNSTEADY, both, first, spec
from tests.unit.experiments import conditions, result
from tests.unit.spec import Case

ALWAYS = Case(passed=0, units=412.0)
BEYOND = [513, 544, 559, 560, 576]
UP_TO_512 = dict.fromkeys([1, 16, 64, 257, 511, 512], True) | dict.fromkeys(BEYOND, False)
TILES = {each: each % 32 == 0 for each in (1, 16, 32, 64, 96, 128, 500, 512, 513, 544)}


def told(folder: Path, right: dict[int, bool], shape: tuple[int, int, int, int], case: Case = ALWAYS) -> Cause:
    def make(run: Run) -> None:
        conditions(run, "lengths", [result("A", float(each), seq_len=length) for length, each in right.items()])

    return first(folder, spec(*both("kernel", case), shapes={"seed-fp16": shape}), make)


def test_an_offset_that_leaves_its_type(tmp_path: Path) -> None:
    found = told(tmp_path, UP_TO_512, (1, 1, 560, 128))
    assert (found.cause, found.grade) == (RANGE_OVERFLOW, SUGGESTIVE) and WRONG_EVERYWHERE not in found.causes
    assert "right up to 512 rows and wrong from 513 on, where there are more elements of one head's K than 65,536" in (
        found.statement
    )
    assert any("a limit of its own that ends at 512 rows" in seen.text for seen in found.evidence)


def test_a_limit_that_nobody_would_have_chosen_is_strong(tmp_path: Path) -> None:
    right = {each: each <= 170 for each in (1, 16, 64, 128, 170, 171, 192, 256, 512)}
    found = told(tmp_path, right, (1, 3, 512, 64))
    assert (found.cause, found.grade) == (RANGE_OVERFLOW, STRONG)
    assert "all heads' K than 32,768" in found.statement


@pytest.mark.parametrize(
    ("right", "shape", "case"),
    [
        (UP_TO_512, (1, 8, 560, 80), ALWAYS),  # nothing leaves a type there
        (UP_TO_512 | {512: False}, (1, 1, 560, 128), ALWAYS),  # not side by side
        (UP_TO_512 | {544: True}, (1, 1, 560, 128), ALWAYS),
        ({1: True, 512: True, 513: False, 560: False, 576: False}, (1, 1, 560, 128), ALWAYS),  # too few
        (UP_TO_512, (1, 1, 560, 128), UNSTEADY),
    ],
)
def test_what_is_no_count(right: dict[int, bool], shape: tuple[int, int, int, int], case: Case, tmp_path: Path) -> None:
    assert RANGE_OVERFLOW not in told(tmp_path, right, shape, case).causes


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
    found = told(tmp_path, right, (1, 8, 560, 80))
    assert found.cause == WRONG_EVERYWHERE
    assert any(said in seen.text for seen in found.evidence)


def test_a_process_that_died_was_not_right() -> None:
    dead = result("", 0.0, seq_len=100).model_copy(update={"status": "crashed", "message": "died by SIGSEGV"})
    refused = result("", 0.0, seq_len=7).model_copy(
        update={"status": "crashed", "message": "trial 0 raised ValueError"}
    )
    record = type("Record", (), {"results": [result("A", seq_len=64), dead, refused]})()
    lengths = Lengths(conditions=Conditions(record=record, path="p"))
    assert (lengths.right, lengths.wrong) == ([64], [100])
