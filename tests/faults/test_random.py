"""A sample of the random faults of tests/faults/random_faults, the same ones each time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.random_faults.__main__ import run_faults
from tests.faults.random_faults.campaign import OK, Row, difference, lying
from tests.faults.random_faults.damage import WAYS, pick
from tests.faults.random_faults.faults import WEIGHTS, draw_fault, kinds_of
from tests.faults.random_faults.subjects import new_subject

pytestmark = [pytest.mark.process, pytest.mark.timeout(1500)]

COUNT = int(os.environ.get("KERNEL_MATRIX_FAULTS", "60"))
SEED = 1


def test_random_faults_lose_nothing_and_make_nothing_up(tmp_path: Path) -> None:
    rows = list(run_faults(tmp_path / "faults", "scripted", SEED, range(COUNT), at_once=4))
    assert len(rows) == COUNT
    assert not [told(row) for row in rows if row.outcome != OK]
    assert COUNT < 60 or {row.kind for row in rows} >= {"kill -9 of the harness", "kill -9 of a worker"}


def told(row: Row) -> str:
    return f"fault {row.number} of seed {SEED}: {row.kind} ({row.what}; {row.when}): {row.found}"


@pytest.mark.environments
def test_random_faults_of_real_environments(tmp_path: Path) -> None:
    rows = list(run_faults(tmp_path / "faults", "venv", SEED, range(2)))
    assert not [told(row) for row in rows if row.outcome != OK]


@pytest.mark.parametrize("executor", WEIGHTS)
def test_a_fault_is_drawn_alike_whatever_else_is_drawn(executor: str) -> None:
    alone = draw_fault(SEED, 7, executor)
    assert [draw_fault(SEED, number, executor) for number in range(8)][7] == alone
    assert {draw_fault(SEED, number, executor).kind for number in range(2000)} == set(kinds_of(executor))


@pytest.mark.parametrize("way", WAYS)
def test_damage_is_damage(tmp_path: Path, way: str) -> None:
    """Else the faults of records would show nothing."""
    draw = draw_fault(SEED, 0, "scripted").draw
    for number in range(20):
        path = tmp_path / f"{number}.json"
        before = b'{"schema_version": 1, "kind": "run", "digest": "", "body": {"a": "' + b"x" * 600 + b'"}}'
        path.write_bytes(before)
        found = pick(tmp_path, (path.name, "nothing/*"), draw)
        assert found == path and WAYS[way](path, draw)
        assert not path.exists() or path.read_bytes() != before


def test_what_lies_about_is_seen(tmp_path: Path) -> None:
    subject = new_subject(tmp_path / "subject", "scripted")
    assert lying(subject) == []
    left = [
        "cache/.1-x.part",
        "cache/locks/run.lock.holder",
        "cache/asked/observe-1/log",
        "tmp/anything",
        "project/reports/runs/20260101-000000-abc/launches/.2-y.part",
    ]
    for name in left:
        (subject.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (subject.folder / name).touch()
    assert len(lying(subject)) >= len(left)


def test_a_difference_is_named_by_its_place() -> None:
    assert difference({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}) == ".a[1].b: 2 | 3"
