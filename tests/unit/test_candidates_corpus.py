"""The corpus: that it is what it says, and that its judge can tell what gets through from what does not."""

from __future__ import annotations

import ast
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.candidates.corpus import CORPUS
from tests.candidates.corpus.run import (
    ACCEPTED,
    ACCUSED,
    BREAKS,
    CAUGHT,
    NOTHING,
    THROUGH,
    Row,
    Settings,
    groups,
    judge,
    render_kernel,
    settle,
)


def test_there_are_many_of_each_kind() -> None:
    counts = Counter(candidate.hostile for candidate in CORPUS.values())
    forms = Counter(candidate.form for candidate in CORPUS.values())
    assert counts[True] >= 90 and counts[False] >= 30
    assert forms["cpp"] >= 20 and forms["cuda"] + forms["python_cuda"] >= 20


@pytest.mark.parametrize("name", CORPUS)
def test_each_says_what_it_does_and_has_an_honest_twin_of_its_form(name: str) -> None:
    candidate = CORPUS[name]
    assert candidate.says and not candidate.says.endswith(".")
    if candidate.twin:
        twin = CORPUS[candidate.twin]
        assert not twin.hostile and (twin.form, twin.problem) == (candidate.form, candidate.problem)
    if candidate.file.endswith(".py"):
        ast.parse(candidate.source)
    assert name in render_kernel(candidate)


def test_a_run_has_the_twins_of_its_candidates_and_attackers_have_their_own() -> None:
    found = list(groups([name for name in CORPUS if CORPUS[name].device == "cpu"], 10))
    for part in found:
        names = [candidate.name for candidate in part]
        assert len({(c.form, c.problem) for c in part}) == 1
        assert all(candidate.twin in names for candidate in part if candidate.twin)
        if any(candidate.alone for candidate in part):
            assert len(part) == 2
    assert {c.name for part in found for c in part} == {c.name for c in CORPUS.values() if c.device == "cpu"}


# -- the judge -----------------------------------------------------------------------------------------------------


def write(path: Path, body: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schema_version": 1, "body": body}))


def record(
    run: Path, name: str, us: list[float], *, status: str = "ok", correct: bool = True, model: float = 100
) -> None:
    write(run / "validations" / name / "w.json", {"kernel": name, "status": status, "message": ""})
    for index, median in enumerate(us):
        rows = [
            {"target": "kernel", "status": "ok", "correct": correct, "samples_us": [median] * 3},
            {"target": "model", "status": "ok", "samples_us": [model] * 3},
        ]
        launch = {"kernel": name, "index": index, "status": "ok", "message": "", "timings": rows}
        write(run / "launches" / name / f"{index}.json", launch)


def judged(run: Path, name: str, **options: Any) -> Row:
    twin = CORPUS[name].twin
    return judge([CORPUS[twin], CORPUS[name]], run, Settings(), **options)[0]


@pytest.mark.parametrize(
    ("us", "options", "outcome", "doubtful"),
    [
        ([50, 51, 52], {}, THROUGH, False),
        ([96, 99, 97], {}, NOTHING, False),
        ([50, 51, 52], {"status": "wrong"}, CAUGHT, False),
        ([50, 51, 52], {"correct": False}, CAUGHT, False),
        ([85, 191, 84], {}, THROUGH, False),  # the least counts: a machine that is shared makes none short
        ([50], {}, THROUGH, True),
        ([100, 100, 100], {"model": 200}, THROUGH, False),
        ([], {"status": "crashed"}, CAUGHT, False),
    ],
)
def test_a_gain_is_ten_percent_of_time_or_of_speed_up(
    tmp_path: Path, us: list[float], options: dict[str, Any], outcome: str, doubtful: bool
) -> None:
    record(tmp_path, "twin_chain", [100, 99, 101])
    record(tmp_path, "keeps_sometimes", us, **options)
    row = judged(tmp_path, "keeps_sometimes")
    assert (row.outcome, row.doubtful) == (outcome, doubtful), row


def test_what_cannot_be_compared_is_doubtful(tmp_path: Path) -> None:
    record(tmp_path, "keeps_sometimes", [99, 100, 101])
    assert judged(tmp_path, "keeps_sometimes").doubtful


def test_one_is_held_against_all_launches_of_its_twin(tmp_path: Path) -> None:
    rows = []
    for run, twin in ((tmp_path / "one", 100.0), (tmp_path / "busy", 300.0)):
        record(run, "twin_chain", [twin])
        record(run, "keeps_sometimes", [101])
        rows.append(judged(run, "keeps_sometimes"))
    assert [row.outcome for row in rows] == [NOTHING, THROUGH]
    settle(rows)
    assert [row.outcome for row in rows] == [NOTHING, NOTHING]


def test_markup_on_the_page_gets_through_whatever_else_was_found(tmp_path: Path) -> None:
    record(tmp_path, "twin_chain", [100])
    record(tmp_path, "markup_in_type", [], status="wrong")
    assert judged(tmp_path, "markup_in_type").outcome == CAUGHT
    assert judged(tmp_path, "markup_in_type", shown=[CORPUS["markup_in_type"].hidden]).outcome == THROUGH


def test_a_run_that_did_not_end_is_told_as_such(tmp_path: Path) -> None:
    assert judged(tmp_path, "stops_its_parent", failed="exit code -1").outcome == BREAKS


def test_an_honest_one_is_accused_where_it_is_not_correct(tmp_path: Path) -> None:
    record(tmp_path, "twin_chain", [100])
    record(tmp_path, "autotunes", [300])
    assert judged(tmp_path, "autotunes").outcome == ACCEPTED
    record(tmp_path, "autotunes", [100], correct=False)
    assert judged(tmp_path, "autotunes").outcome == ACCUSED
