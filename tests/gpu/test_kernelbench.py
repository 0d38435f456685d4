"""The ways to cheat on a real GPU: streams, timers, and those of the CPU that a GPU could make easier."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest

from tests.candidates.cheats import GPU_CHEATS, check_cheat, run_cheats
from tests.gpu.conftest import HERE, Here

pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def cheated(here: Here, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run_cheats(Path(here._pythons[HERE]), tmp_path_factory.mktemp("ways"), "cuda", GPU_CHEATS)


def median_us(seen: dict[str, Any], target: str) -> float:
    return statistics.median(next(row for row in seen["timings"] if row["target"] == target)["samples_us"])


@pytest.mark.parametrize("name", GPU_CHEATS)
def test_a_way_to_cheat_is_found_out(cheated: dict[str, Any], name: str) -> None:
    check_cheat(GPU_CHEATS[name], cheated[name], "cuda")


def test_the_events_that_are_asked_are_not_those_that_python_can_replace(cheated: dict[str, Any]) -> None:
    honest, patched = (median_us(cheated[name], "kernel") for name in ("honest", "patches_and_restores_event"))
    assert patched == pytest.approx(honest, rel=0.5)


def test_a_stream_that_is_joined_is_timed_whole(cheated: dict[str, Any]) -> None:
    honest, forked = (median_us(cheated[name], "kernel") for name in ("honest", "forks_and_joins"))
    assert forked > 0.7 * honest
