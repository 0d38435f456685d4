"""What a step's records may say of a kernel, and what of this machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import InfrastructureError
from harness.run.context import Context
from harness.schema.environment_records import BuildRecord
from harness.schema.records import LaunchRecord, TargetTiming
from harness.worker import protocol
from harness.worker.protocol import CRASHED, OK

PLACE: dict[str, Any] = {"environment": "e", "kernel": "k", "device": "cpu"}
LAUNCH: dict[str, Any] = PLACE | {"key": "x", "index": 0, "position": 0, "started_utc": "", "duration_s": 1.0}


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"other")])
def test_a_build_that_is_gone_is_no_crash_of_the_kernel(tmp_path: Path, damage: Any) -> None:
    artifact = tmp_path / "k.so"
    artifact.write_bytes(b"built")
    built = BuildRecord(**PLACE, runnable=True, key="x", status=OK, artifact_sha256=protocol.sha256_file(str(artifact)))
    context: Any = SimpleNamespace(builds={("e", "k", "cpu"): built}, artifact=lambda _built, _key: artifact)
    row = TargetTiming(workload="w", target="kernel", order=0, status=CRASHED)
    crashed = LaunchRecord(**LAUNCH, status=OK, timings=[row])
    Context._refuse_changed(context, crashed)
    damage(artifact)
    Context._refuse_changed(context, replace(crashed, timings=[]))
    with pytest.raises(InfrastructureError, match=r"k\.so: was removed or damaged while it was in use"):
        Context._refuse_changed(context, crashed)
