"""Reports say what tests/unit/golden holds; `python -m tests.unit.golden` writes it anew after a change of words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit import golden

ANSWERS = dict(golden.read_answers())


@pytest.mark.parametrize("name", golden.CASES)
def test_what_the_first_screen_says(name: str, tmp_path: Path) -> None:
    assert golden.lines_of(tmp_path, name) == ANSWERS.get(name)


STATES = {
    "fine": ("correct, same time", "two kernels alike", "a slower backward pass"),
    "broke": (
        "incorrect here",
        "incorrect in one of three",
        "incorrect on one workload",
        "incorrect and slower",
        "crashes here",
        "unsupported here",
        "does not build here",
        "not testable, then unsupported",
        "not testable, then crashes",
        "a reference is slower",
    ),
    "wrong": (
        "incorrect here, by chance",
        "incorrect in both",
        "incorrect in both, at some lengths",
        "incorrect at large logits",
        "a proven fault, trials fail",
        "incorrect in both, more often",
        "incorrect in two of three",
        "crashes, then incorrect",
        "unsupported, then incorrect",
        "incorrect when timed",
        "incorrect when timed here",
        "one environment, incorrect",
    ),
    "latent bug": ("a proven fault, every trial passes",),
    "fixed": ("fixed", "builds now"),
    "does not run": ("crashes in both", "builds nowhere"),
    "refused": ("unsupported in both",),
    "newly supported": ("newly supported", "unsupported, then not testable"),
    "slower": (
        "not testable, slower",
        "slower",
        "slower by a factor",
        "slower replays, faster calls",
        "a GPU, three environments",
    ),
    "undecided": ("not testable, faster",),
    "not run": ("skipped here", "no record here"),
    "right": ("one environment",),
    "right but time undecided": (
        "repeats with other bits",
        "time inconclusive",
        "too few replicates",
        "a reference changed",
        "references changed on one workload each",
    ),
    "not repeatable": ("must repeat and does not",),
    "faster": ("faster",),
    "time changed slightly": ("about the threshold",),
    "more memory": ("more memory",),
}


@pytest.mark.parametrize(("state", "name"), [(state, name) for state, names in STATES.items() for name in names])
def test_the_state_of_a_kernel(state: str, name: str, tmp_path: Path) -> None:
    assert golden.answers_of(tmp_path, name).kernels[0].state == state


def test_no_case_is_left_over() -> None:
    assert list(ANSWERS) == list(golden.CASES)


@pytest.mark.parametrize("run", golden.STORED)
def test_the_summary_and_the_page_of_a_stored_run(run: str, tmp_path: Path) -> None:
    for name, text in golden.texts_of_run(tmp_path, run).items():
        assert text == (golden.FOLDER / name).read_text(encoding="utf-8"), name
