"""A wall clock that jumps: it stamps records and remembers answers of an index, and nothing else follows it."""

from __future__ import annotations

import ast
import datetime
import json
from pathlib import Path

import pytest

from harness.config import indexes
from harness.run import folders
from harness.run.folders import all_runs, find_run, new_run

DIGEST = "0123456789abcdef"
DAY_S = 86400
YEAR_S = 365 * DAY_S
# Who may ask for the wall clock: for stamps, and for how old an answer or a lock is.
STAMPS = {"config/indexes.py", "executors/archive.py", "run/folders.py"}


@pytest.mark.parametrize("jumps", [(0, -DAY_S, -2 * DAY_S), (YEAR_S, 0, 0, 0), (0,) * 13, (0, YEAR_S, -DAY_S, 0)])
def test_the_newest_run_is_the_one_that_was_made_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jumps: tuple[int, ...]
) -> None:
    right = folders.now()
    for number, offset_s in enumerate(jumps):
        monkeypatch.setattr(folders, "now", lambda at=right + datetime.timedelta(seconds=offset_s): at)
        run = new_run(tmp_path, DIGEST)
        (run.folder / "run.json").write_text("{}")
        found = find_run(tmp_path, DIGEST)
        assert found is not None and found.folder == run.folder, f"run {number}"
        assert len(all_runs(tmp_path)) == number + 1


def test_a_folder_without_a_run_in_it_is_removed_and_one_with_anything_else_is_kept(tmp_path: Path) -> None:
    lost = new_run(tmp_path, DIGEST).folder
    (lost / "launches").mkdir()
    killed = new_run(tmp_path, DIGEST).folder
    (killed / ".abc.part").write_text("{")
    assert killed != lost
    new_run(tmp_path, "f" + DIGEST)
    assert killed.exists(), "another plan's"
    new_run(tmp_path, DIGEST)
    assert not list(killed.glob(".*")) and (lost / "launches").is_dir()


def test_durations_and_limits_do_not_ask_for_the_wall_clock(root: Path) -> None:
    asks = set()
    for path in (root / "harness").rglob("*.py"):
        names = {ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)}
        if names & {"time.time", "time.time_ns", "datetime.datetime.now", "datetime.now", "datetime.datetime.utcnow"}:
            asks.add(str(path.relative_to(root / "harness")))
    assert asks <= STAMPS, asks - STAMPS


def test_answers_of_an_index_from_the_future_are_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL_MATRIX_CACHE", str(tmp_path))
    monkeypatch.setattr(indexes, "probe_index", lambda index: "")
    now_s = folders.now().timestamp()
    for when_s, answer in ((now_s, "cannot be reached"), (now_s + YEAR_S, "")):
        (tmp_path / "probes.json").write_text(json.dumps({"https://index": ["cannot be reached", when_s]}))
        assert indexes.remembered_probe("https://index") == answer
