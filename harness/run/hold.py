"""What every phase does alike: hold the device it uses, and save what it found."""

from __future__ import annotations

import tempfile
from contextlib import AbstractContextManager
from pathlib import Path

from harness.gpu import lock_path
from harness.run.context import Context
from harness.run.folders import held
from harness.schema.records import Device
from harness.schema.storage import AnyRecord, refuse_without_space


def save(context: Context, path: Path, record: AnyRecord) -> AnyRecord:
    """Save what was measured; a failure that a full disk explains stops the run, and is no row of it."""
    if context.executor.name != "docker":  # a container has a disk of its own
        refuse_without_space(record, context.run.folder, context.cache, Path(tempfile.gettempdir()))
    return context.save(path, record)


def device_held(context: Context, device: Device) -> AbstractContextManager[None]:
    """One measurement at a time on a GPU, and one on this machine's processors, whoever's run it is."""
    if device == "cpu" or context.gpu is None:
        lock = context.cache / "locks" / "measure.lock"
        return held(lock, "another run is measuring on this machine; waiting for it")
    path = lock_path(context.gpu.uuid)
    waiting = f"another run is measuring on {context.gpu.name} ({context.gpu.uuid}); waiting for it"
    return held(path, waiting, mode=0o666, remedy=f"its owner must let others write it: chmod 666 {path}")
