"""Reports say what tests/unit/golden holds; `python -m tests.unit.golden` writes it anew after a change of words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit import golden

ANSWERS = dict(golden.read_answers())


@pytest.mark.parametrize("name", golden.CASES)
def test_what_the_first_screen_says(name: str, tmp_path: Path) -> None:
    assert golden.lines_of(tmp_path, name) == ANSWERS.get(name)


def test_no_case_is_left_over() -> None:
    assert list(ANSWERS) == list(golden.CASES)


@pytest.mark.parametrize("run", golden.STORED)
def test_the_summary_and_the_page_of_a_stored_run(run: str, tmp_path: Path) -> None:
    for name, text in golden.texts_of_run(tmp_path, run).items():
        assert text == (golden.FOLDER / name).read_text(encoding="utf-8"), name
