"""What faults on a real GPU ends its own process, and the next one finds a device that answers."""

from __future__ import annotations

from typing import Any

import pytest

from harness.run.device import check_device
from harness.schema.run_records import GpuFacts
from harness.schema.storage import Run
from tests.gpu.conftest import HERE, Built, Here, kernel_of, row, workload
from tests.unit.contexts import FakeContext

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

SHAPE = workload(seq_len=64)


def is_usable(here: Here, built: Built) -> bool:
    """Whether the next launch is as any other."""
    answer = here.time(built("NONE"), [SHAPE], ["kernel", "flash"])
    return all(row(answer, t)["status"] == "ok" for t in ("kernel", "flash"))


@pytest.mark.parametrize(
    ("fault", "words"), [("ILLEGAL_ADDRESS", "illegal memory access"), ("ASSERTS", "device-side assert")]
)
def test_a_fault_ends_its_launch_and_no_other(here: Here, built: Built, fault: str, words: str) -> None:
    shapes = [SHAPE, workload(seq_len=96)]
    answer = here.time(built(fault), shapes, ["kernel", "flash"])
    assert answer.result is not None, answer.ended.log
    rows = answer.result["timings"]
    first, second = (r for r in rows if r["target"] == "kernel")
    assert first["status"] == "crashed" and words in first["message"]
    assert second["status"] == "not_run" and "left the device unusable" in second["message"]
    assert all(r["status"] == "ok" for r in rows if r["target"] == "flash"), "they have a process of their own"
    assert is_usable(here, built)


@pytest.mark.parametrize("fault", ["ILLEGAL_ADDRESS", "ASSERTS"])
def test_a_fault_in_validation_is_a_status(here: Here, built: Built, fault: str) -> None:
    assert here.candidate(kernel_of(built(fault)), SHAPE, here.work / "out-fault")["status"] == "crashed"


def test_a_kernel_that_never_ends_is_killed_and_the_device_answers(here: Here, built: Built, gpu: GpuFacts) -> None:
    answer = here.time(built("ENDLESS"), [SHAPE], ["kernel"], timeout_s=12)
    assert answer.result is None and answer.ended.timed_out
    context: Any = FakeContext(executor=here, run=Run(here.work / "run"), gpu=gpu)
    check_device(context, HERE)
    assert is_usable(here, built)
