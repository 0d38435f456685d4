"""A second GPU, where there is one: which it is, that no other run measures on it, and how a process sees both."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import filelock

from harness.gpu import VISIBLE, gpus, lock_path, named
from harness.schema.run_records import GpuFacts

GIVEN = os.environ.get(VISIBLE)  # by the user, before a run narrows it to one
PATIENCE_S = 60.0  # bounded, for who holds the second one may wait for the first


def of(first: GpuFacts | None) -> GpuFacts | None:
    """Another whole GPU of the same model that the user leaves to us; None where there is none."""
    others = (gpu for gpu in named(gpus(), GIVEN) if first is not None and gpu.uuid != first.uuid and not gpu.mig)
    return next((gpu for gpu in others if first is not None and gpu.name == first.name), None)


def variables(first: GpuFacts | None) -> dict[str, str]:
    """For a process that may use both, the one that is in use before the other."""
    other = of(first)
    return {VISIBLE: f"{first.uuid},{other.uuid}"} if first is not None and other is not None else {}


@contextmanager
def held_for(first: GpuFacts | None) -> Iterator[bool]:
    """Hold it; False where another run keeps it, or its lock cannot be had."""
    other = of(first)
    if other is None:
        yield False
        return
    lock = filelock.FileLock(lock_path(other.uuid), mode=0o666)
    try:
        lock.acquire(timeout=PATIENCE_S)
    except (filelock.Timeout, PermissionError):
        yield False
        return
    try:
        yield True
    finally:
        lock.release()
