"""Which part of a script is recorded, and what an answer says of a part."""

from __future__ import annotations

import argparse

import pytest

from harness.cli.options import span
from harness.trace import outcome as o
from harness.trace.runs import parse_script
from harness.tracer.part import Part, is_below
from reports.trace.page import verdict_text
from tests.unit.test_trace_answer import outcome


@pytest.mark.parametrize(
    ("module", "only", "found"),
    [
        ("Net.encoder.layers.3", "encoder.layers.3", True),
        ("Net.encoder.layers.3.norm", "encoder.layers.3", True),
        ("Net.encoder.layers.3.norm", "Net.encoder", True),
        ("Net.encoder.layers.30", "encoder.layers.3", False),
        ("Net.encoder", "encoder.layers.3", False),
        ("Net", "Net", True),
        ("", "Net", False),
    ],
)
def test_a_module_is_named_with_its_outermost_class_or_without(module: str, only: str, found: bool) -> None:
    assert is_below(module, only) is found


def test_steps_are_counted_from_nought_and_the_last_is_left_out() -> None:
    part = Part({"steps": [1, 3], "only": "head"})
    seen = []
    for part.step in range(4):
        seen.append(part.has("Net.head"))
    assert seen == [False, True, True, False] and not Part({"steps": [1, None]}).has("")
    assert Part({}).is_all and not part.is_all


def test_what_was_missed_is_told_with_the_names_that_there_are() -> None:
    part = Part({"only": "layer.1"})
    assert not any(map(part.has, ("Net", "Net.layers.1")))
    assert "there are layers.1, Net" in part.missed()
    assert "called 0 times" in Part({"steps": [5, 6]}).missed()


def test_a_span_is_written_as_a_slice() -> None:
    assert (span("10:12"), span(":2"), span("3:")) == ((10, 12), (0, 2), (3, None))
    for text in ("3", ":", "3:3", "a:b"):
        with pytest.raises(argparse.ArgumentTypeError):
            span(text)


def test_a_part_is_named_in_words() -> None:
    words = ["pytest"]
    assert parse_script(words).part == ""
    assert parse_script(words, only="head", steps=(2, 3)).part == "head in step 2"
    assert parse_script(words, steps=(2, 5)).part == "steps 2 to 4"
    last = parse_script(words, steps=(2, None))
    assert last.part == "steps 2 to the last" and last.options == ["--steps=2:"]


def test_an_answer_about_a_part_says_so() -> None:
    found = outcome(o.NOTHING_MOVED, part="head", elsewhere=0.5)
    assert "3 matched operators of head none" in found.answer and "in this part" in verdict_text(vars(found))
    told = dict(found.rest)
    assert "of the rest nothing is said" in told["Part"] and "elsewhere differ by up to 0.5" in told["Part"]
    assert told["Do"].startswith("Trace another part")
    found = outcome(o.NOT_EXPLAINED, part="head", entry=["data that no operator made", "a.py:3"], numbers=0.1)
    assert found.answer == "What goes into head differs already, first at a.py:3"
