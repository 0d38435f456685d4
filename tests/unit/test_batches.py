"""Tasks that share a process: which, and that each has its own end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.executors import Task, Terms
from harness.run.batches import MOST, in_batches, run_batch
from harness.schema.records import Device
from harness.worker import codec, wire
from tests.messages import answered
from tests.unit.contexts import FakeContext, FakeExecutor


def tasks(folder: Path, count: int) -> list[Task]:
    common = folder / "common"
    return [
        Task(
            environment="here",
            name="probe",
            request=wire.EmptyRequest(),
            scratch=folder / f"probe-{number}",
            log=folder / f"probe-{number}.log",
            terms=Terms(timeout_s=5.0),
            reads=(common,),
            writes=(folder / str(number),),
        )
        for number in range(count)
    ]


LATE = "took too long"


def result_of(*messages: str | None) -> wire.BatchResult:
    """Return a batch's result: of each task its message; None: it died."""
    results = [None if message in (None, LATE) else answered(wire.Outcome("ok", message)) for message in messages]
    return wire.BatchResult(
        [wire.Answered(1.5, result, message == LATE) for result, message in zip(results, messages, strict=True)]
    )


def run(folder: Path, result: Any, count: int = 3, device: Device = "cpu") -> tuple[list[str], list[Task]]:
    """(the messages of the answers, the tasks that ran). By itself a task says "alone"."""
    executor = FakeExecutor(lambda task: result if task.name == "batch" else wire.Outcome("ok", "alone"))
    context: Any = FakeContext(executor=executor)
    answers = run_batch(context, tasks(folder, count), device)
    assert all(answer.ended.returncode == 0 for answer in answers)
    return [(answer.result or {})["message"] for answer in answers], executor.tasks


def test_one_process_answers_all(tmp_path: Path) -> None:
    messages, ran = run(tmp_path, result_of("a", "b", "c"))
    assert messages == ["a", "b", "c"] and [task.name for task in ran] == ["batch"]
    (batch,) = ran
    assert isinstance(batch.request, wire.BatchRequest)
    assert (batch.request.task, batch.request.timeout_s) == ("probe", 5.0) and batch.terms.timeout_s > 3 * 5.0
    assert [codec.read(wire.EmptyRequest, each) for each in batch.request.requests] == [wire.EmptyRequest()] * 3
    assert batch.reads == (tmp_path / "common",) and batch.writes == tuple(tmp_path / str(n) for n in range(3))
    assert all(batch.scratch != task.scratch and batch.log != task.log for task in tasks(tmp_path, 3))


def test_the_seconds_of_each_are_its_own(tmp_path: Path) -> None:
    context: Any = FakeContext(executor=FakeExecutor(result_of("a", "b")))
    assert [answer.ended.duration_s for answer in run_batch(context, tasks(tmp_path, 2), "cpu")] == [1.5, 1.5]


def test_what_died_runs_again_by_itself_and_the_others_stay(tmp_path: Path) -> None:
    messages, ran = run(tmp_path, result_of("a", None, "c"))
    assert messages == ["a", "alone", "c"]
    assert [task.scratch.name for task in ran] == ["batch-probe-0", "probe-1"]


def test_what_took_too_long_does_not_run_again(tmp_path: Path) -> None:
    executor = FakeExecutor(result_of("a", LATE, "c"))
    context: Any = FakeContext(executor=executor)
    answers = run_batch(context, tasks(tmp_path, 3), "cpu")
    assert [answer.ended.timed_out for answer in answers] == [False, True, False] and answers[1].result is None
    assert [task.name for task in executor.tasks] == ["batch"]


def test_on_a_gpu_what_follows_the_dead_is_not_believed(tmp_path: Path) -> None:
    assert run(tmp_path, result_of("a", None, "c"), device="cuda")[0] == ["a", "alone", "alone"]


@pytest.mark.parametrize("result", [None, {"answers": [{"duration_s": "long"}]}], ids=["it died", "it is unreadable"])
def test_without_a_batch_s_answer_each_runs_by_itself(tmp_path: Path, result: Any) -> None:
    messages, ran = run(tmp_path, result)
    assert messages == ["alone"] * 3 and [task.name for task in ran] == ["batch", "probe", "probe", "probe"]


def test_a_single_task_is_no_batch(tmp_path: Path) -> None:
    assert [task.name for task in run(tmp_path, None, count=1)[1]] == ["probe"]
    assert run(tmp_path, None, count=0) == ([], [])


def test_those_of_a_name_share_in_equal_parts_and_others_share_nothing() -> None:
    items = [f"a{number}" for number in range(MOST + 4)] + ["x", "y", "b0", "b1"]
    batches = in_batches(items, lambda item: item[0] if item[0] in "ab" else "")
    assert [len(batch) for batch in batches] == [1, 1, (MOST + 4) // 2, (MOST + 4) // 2, 2]
    assert batches[0] == ["x"] and [item for batch in batches[2:4] for item in batch] == items[: MOST + 4]
    assert in_batches([], str) == []


@pytest.mark.parametrize(
    ("count", "at_once", "sizes"),
    [(8, 1, [8]), (8, 2, [4, 4]), (3, 2, [3]), (5, 2, [3, 2]), (5, 4, [3, 2]), (1, 2, [1])],
)
def test_batches_side_by_side_have_at_least_two_tasks(count: int, at_once: int, sizes: list[int]) -> None:
    assert [len(batch) for batch in in_batches(["a"] * count, str, at_once)] == sizes
