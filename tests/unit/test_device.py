from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.config.matrix import Limits
from harness.errors import Unrecorded
from harness.executors import Answer, Task
from harness.run.ceilings import measure_ceilings
from harness.run.device import TRIES, check_device
from harness.schema.environment_records import CeilingRecord
from harness.schema.run_records import GpuFacts
from harness.schema.storage import Run, load_record, save_record
from tests.messages import answered
from tests.unit.contexts import FakeContext, ended, gpu_facts

GPU = gpu_facts()
HUNG = Answer(result=None, ended=ended(-9, timed_out=True, duration_s=120))


def said(**result: Any) -> Answer:
    return Answer(result=answered(**result), ended=ended())


class Scripted:
    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.tasks: list[Task] = []

    def run(self, task: Task) -> Answer:
        self.tasks.append(task)
        return self.answers.pop(0)


def context_of(tmp_path: Path, executor: Scripted, gpu: GpuFacts | None = GPU, observed: Any = None) -> Any:
    return FakeContext(
        executor=executor,
        run=Run(tmp_path),
        gpu=gpu,
        plan=SimpleNamespace(threads_in=lambda _: 2, limits=Limits(launch_s=60)),
        environments={"e": SimpleNamespace(observed=observed)},
    )


ANSWERS, CRASHED = said(status="ok", message=""), said(status="crashed", message="no device")


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([ANSWERS], ""),
        ([HUNG, CRASHED, ANSWERS], ""),
        ([HUNG] * TRIES, "killed at its time limit"),
        ([said(status="wrong", message="a product is wrong")] * TRIES, "a product is wrong"),
    ],
    ids=["at once", "after a while", "never", "wrongly"],
)
def test_a_device_answers_in_time_or_stops_the_run_and_is_named(
    tmp_path: Path, answers: list[Answer], words: str
) -> None:
    executor = Scripted(*answers)
    refusal = pytest.raises(Unrecorded, match="GPU-1") if words else contextlib.nullcontext()
    with refusal as error:
        check_device(context_of(tmp_path, executor), "e", pause_s=0)
    assert [task.name for task in executor.tasks] == ["probe"] * len(answers)
    if error is not None:
        assert words in error.value.message and "nvidia-smi" in error.value.remedy


def test_ceilings_are_a_record_of_the_run(tmp_path: Path) -> None:
    found = {"matmul_tflops": {"float16": 780.0}, "matmul_size": 8192, "copy_gbps": 4270.0, "copy_bytes": 1 << 32}
    context = context_of(tmp_path, Scripted(said(status="ok", message="", **found)))
    record = measure_ceilings(context, "e")
    assert (record.device_uuid, record.environment, record.status, record.copy_gbps) == ("GPU-1", "e", "ok", 4270.0)
    path = context.run.ceiling_path(record.device_uuid)
    save_record(path, record)
    assert load_record(path, CeilingRecord) == record and context.run.ceilings() == [record]


@pytest.mark.parametrize(("answer", "status"), [(HUNG, "timed_out"), (said(status="ok", nonsense=1), "crashed")])
def test_ceilings_that_could_not_be_measured_say_why(tmp_path: Path, answer: Answer, status: str) -> None:
    seen = SimpleNamespace(gpus=[SimpleNamespace(uuid="GPU-7", name="Elsewhere")])
    record = measure_ceilings(context_of(tmp_path, Scripted(answer), gpu=None, observed=seen), "e")
    assert record.status == status and record.message and record.matmul_tflops == {}
    assert (record.device_uuid, record.device_name) == ("GPU-7", "Elsewhere")
