"""Which processors a launch on the CPU may use."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.run.processors import Bound, bind


@pytest.fixture
def siblings(tmp_path: Path) -> Path:
    """Four cores of two processors each: 0 and 4, 1 and 5, and so on."""
    for processor in range(8):
        folder = tmp_path / f"cpu{processor}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{processor % 4},{processor % 4 + 4}\n")
    return tmp_path


def test_kernel_and_references_have_cores_of_their_own_where_there_are_enough(siblings: Path) -> None:
    assert bind(1, range(8), siblings) == Bound((2,), (3,))
    assert bind(2, range(8), siblings) == Bound((0, 1), (2, 3))


def test_else_they_share_them(siblings: Path) -> None:
    assert bind(3, range(8), siblings) == Bound((1, 2, 3), (1, 2, 3))


def test_where_every_core_is_wanted_nothing_is_bound(siblings: Path) -> None:
    assert bind(4, range(8), siblings) == bind(16, range(8), siblings) == Bound()
    assert bind(1, [5], siblings) == Bound()


def test_only_processors_that_are_allowed(siblings: Path, tmp_path: Path) -> None:
    assert bind(1, [4, 6], siblings) == Bound((4,), (6,))
    assert bind(1, [0, 1], tmp_path / "none") == Bound((0,), (1,)), "a machine that tells nothing of its cores"
