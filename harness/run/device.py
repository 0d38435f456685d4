"""The device after a process that faulted or hung on it: it must answer before it measures anything again."""

from __future__ import annotations

import threading
import time

from harness.errors import Unrecorded
from harness.executors import Answer, Task
from harness.run.context import Context, answer_of, checked
from harness.schema.records import Device
from harness.worker import protocol, wire

_asking = threading.Lock()
TIMEOUT_S = 120.0
TRIES = 3
PAUSE_S = 5.0  # a driver that ends a kernel which never would takes seconds


def run_task(context: Context, task: Task, device: Device) -> Answer:
    """Run a task that calls the kernel on a device. Unrecorded where it took the device with it."""
    answer = answer_of(context, task)
    if answer.result is None and device == "cuda":
        check_device(context, task.environment)
    return answer


def check_device(context: Context, environment: str, *, pause_s: float = PAUSE_S) -> None:
    """Unrecorded where the device does not answer a fresh process with the right product. One asks at a time: all have
    one scratch folder."""
    with _asking:
        reason = _ask_device(context, environment, pause_s)
    if not reason:
        return
    name = f"{context.gpu.name} ({context.gpu.uuid})" if context.gpu else "the CUDA device"
    raise Unrecorded(
        f"{name} does not answer after a process that faulted or hung on it: {reason}",
        "look at it: nvidia-smi, dmesg; when it is reset, the same command goes on from here",
    )


def _ask_device(context: Context, environment: str, pause_s: float) -> str:
    """'' where it answers, or why not."""
    reason = ""
    for attempt in range(TRIES):
        if attempt:
            time.sleep(pause_s)
        task = context.task("probe", wire.EmptyRequest(), environment, timeout_s=TIMEOUT_S)
        answer = answer_of(context, task)
        result = checked(wire.Outcome, answer, "it")
        if result.status == protocol.OK:
            return ""
        reason = result.message[:300] or "no answer"
    return reason
