"""The device after a process that faulted or hung on it: it must answer before it measures anything again."""

from __future__ import annotations

import time

from harness.errors import Unrecorded
from harness.isolate import Task
from harness.run.context import Context, checked
from harness.worker import protocol, wire

TIMEOUT_S = 120.0
TRIES = 3
PAUSE_S = 5.0  # a driver that ends a kernel which never would takes seconds


def check_device(context: Context, environment: str, *, pause_s: float = PAUSE_S) -> None:
    """Unrecorded where the device does not answer a fresh process with the right product."""
    said = ""
    for attempt in range(TRIES):
        if attempt:
            time.sleep(pause_s)
        answer = context.executor.run(
            Task(
                environment=environment,
                name="probe",
                request=wire.EmptyRequest(),
                scratch=context.run.folder / "scratch" / environment / "probe",
                log=context.run.folder / "logs" / environment / "probe.log",
                timeout_s=TIMEOUT_S,
            )
        )
        result = checked(wire.Result, answer, "it")
        if result.status == protocol.OK:
            return
        said = result.message[:300]
    name = f"{context.gpu.name} ({context.gpu.uuid})" if context.gpu else "the CUDA device"
    raise Unrecorded(
        f"{name} does not answer after a process that faulted or hung on it: {said}",
        "look at it: nvidia-smi, dmesg; when it is reset, the same command goes on from here",
    )
