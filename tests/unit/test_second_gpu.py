"""Which GPU is the second one, who may use it, and how a process sees both."""

from __future__ import annotations

from pathlib import Path

import filelock
import pytest

from harness import gpu
from harness.experiments import second_device
from harness.schema.run_records import GpuFacts
from tests.unit.contexts import gpu_facts

FIRST, SECOND = gpu_facts("GPU-0a"), gpu_facts("GPU-1a")


@pytest.fixture(autouse=True)
def two(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(second_device, "gpus", lambda: [FIRST, SECOND])
    monkeypatch.setattr(second_device, "GIVEN", None)
    monkeypatch.setattr(second_device, "PATIENCE_S", 0.01)
    monkeypatch.setattr(gpu, "LOCKS", tmp_path / "locks")


@pytest.mark.parametrize(
    ("given", "first", "other"),
    [(None, FIRST, SECOND), ("1,0", SECOND, FIRST), ("0", FIRST, None), ("0,7,1", FIRST, None), (None, None, None)],
)
def test_it_is_one_that_the_user_leaves_to_us(
    monkeypatch: pytest.MonkeyPatch, given: str | None, first: GpuFacts | None, other: GpuFacts | None
) -> None:
    monkeypatch.setattr(second_device, "GIVEN", given)
    assert second_device.of(first) == other
    both = {gpu.VISIBLE: f"{first.uuid},{other.uuid}"} if first and other else {}
    assert second_device.variables(first) == both


@pytest.mark.parametrize("another", [gpu_facts("GPU-1a", name="H100"), gpu_facts("GPU-1a", mig=True)])
def test_another_model_and_a_divided_one_are_none(monkeypatch: pytest.MonkeyPatch, another: GpuFacts) -> None:
    monkeypatch.setattr(second_device, "gpus", lambda: [FIRST, another])
    assert second_device.of(FIRST) is None


def test_it_is_held_meanwhile_and_whoever_has_it_keeps_it() -> None:
    other = filelock.FileLock(gpu.lock_path(SECOND.uuid), mode=0o666)
    with second_device.held_for(FIRST) as ours:
        assert ours
        with pytest.raises(filelock.Timeout):
            other.acquire(timeout=0)
    with other, second_device.held_for(FIRST) as ours:
        assert not ours
    with second_device.held_for(None) as ours:
        assert not ours
