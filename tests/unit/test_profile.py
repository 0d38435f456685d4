from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.config.kernels import Kernel, Sources
from harness.config.matrix import Limits
from harness.experiments.profile import ProfileExperiment
from harness.schema.run_records import Cell
from harness.schema.storage import Run
from harness.worker import operators
from tests.unit.contexts import FakeContext, FakeExecutor
from tests.unit.hand_made import workload

HOST, GPU = "cpu", "cuda"


def event(name: str, start: float, end: float, self_us: float = 0.0, where: str = HOST) -> Any:
    span = SimpleNamespace(start=start, end=end, elapsed_us=lambda: end - start)
    return SimpleNamespace(name=name, device_type=where, time_range=span, self_cpu_time_total=self_us)


def calls(count: int, *, slow: int = -1, doubled: int = -1) -> list[Any]:
    """So many calls of 100 us, each with two products and a kernel on the GPU."""
    events = []
    for number in range(count):
        start, factor = 1000.0 * number, 50 if number == slow else 1
        events += [
            event(operators.CALL, start, start + 100 * factor, 10.0 * factor),
            event("aten::mm", start + 10, start + 40, 30.0 * factor),
            event("aten::mm", start + 50, start + 80, 30.0 * factor),
            event("cudaDeviceSynchronize", start + 90, start + 99, 9.0),
            event("gemm", start + 60, start + 85, where=GPU),
            event(operators.CALL, start, start + 99, where=GPU),
        ]
        if number == doubled:
            events.append(event("aten::mm", start + 51, start + 80, 29.0))
    return [*events, event("aten::elsewhere", -50.0, -40.0, 10.0), event("Activity Buffer Request", 20.0, 21.0, 1.0)]


def summed(events: list[Any]) -> list[tuple[str, str, float, float]]:
    return [(r.name, r.kind, r.calls, r.self_us) for r in operators.summed(events, HOST)]


EXPECTED = [
    ("aten::mm", "operator", 2.0, 60.0),
    ("gemm", "device_function", 1.0, 25.0),
    (operators.REST, "operator", 1.0, 10.0),
]


@pytest.mark.parametrize("disturbed", [{}, {"slow": 2}, {"doubled": 3}])
def test_an_operators_time_is_that_of_a_usual_call(disturbed: dict[str, int]) -> None:
    assert summed(calls(5, **disturbed)) == EXPECTED


def test_what_few_calls_do_is_left_out_and_nothing_divides_by_zero() -> None:
    assert summed([*calls(5), event("aten::once", 10.0, 12.0, 500.0)]) == EXPECTED
    assert summed([]) == [] and summed([event("gemm", 0.0, 1.0, where=GPU)]) == []


def test_names_are_cut_and_printable_and_their_number_is_bounded() -> None:
    many = [event(f"f{i}\n" + "x" * 1000, 10.0, 11.0, 1.0) for i in range(operators.MOST_ROWS + 50)]
    rows = operators.summed([event(operators.CALL, 0.0, 100.0, 1.0), *many], HOST)
    assert len(rows) == operators.MOST_ROWS
    assert all(len(row.name) <= operators.NAME_CHARACTERS and "\n" not in row.name for row in rows)


def context_of(tmp_path: Path, executor: FakeExecutor, built: str = "ok", environment: str = "ok") -> Any:
    return FakeContext(
        root=tmp_path,
        executor=executor,
        run=Run(tmp_path),
        stores={},
        environments={"e": SimpleNamespace(status=environment, message="no wheel", key="1")},
        builds={("e", "k", "cpu"): SimpleNamespace(status=built, message="no compiler", key="2")},
        kernel=lambda name: Kernel(name="k", sources=Sources(cpu=["k.cpp"])),
        artifact=lambda build, key: tmp_path / "k.so",
        plan=SimpleNamespace(
            seed=0, threads_in=lambda environment: 2, limits=Limits(launch_s=60), workload=lambda id: workload()
        ),
    )


def profiled(tmp_path: Path, executor: FakeExecutor, target: str, **changes: Any) -> Any:
    context = context_of(tmp_path, executor, **changes)
    cell = Cell(environment="e", kernel="k", workload="w", device="cpu")
    return ProfileExperiment(context=context, cell=cell, target=target).make()


def result(self_us: float = 100.0, **changes: Any) -> dict[str, Any]:
    row = {"name": "aten::mm", "kind": "operator", "calls": 2.0, "self_us": self_us}
    return {"status": "ok", "threads": 2, "profiled_calls": 20, "operators": [row], **changes}


def test_a_profile_is_a_record(tmp_path: Path) -> None:
    executor = FakeExecutor(result())
    record = profiled(tmp_path, executor, "math")
    assert (record.status, record.target, record.profiled_calls, record.duration_s) == ("ok", "math", 20, 2.0)
    assert executor.tasks[0].request.kernel is None and executor.tasks[0].reads == ()
    profiled(tmp_path, executor, "kernel")
    assert executor.tasks[1].reads == (tmp_path / "k.so",)


def test_a_reference_needs_no_kernel(tmp_path: Path) -> None:
    assert profiled(tmp_path, FakeExecutor(result()), "math", built="build_failed").status == "ok"
    record = profiled(tmp_path, FakeExecutor(None), "kernel", built="build_failed")
    assert record.status == "not_run" and record.message == "its build is build failed: no compiler"
    broken = profiled(tmp_path, FakeExecutor(None), "math", environment="broken")
    assert broken.status == "not_run" and "no wheel" in broken.message


@pytest.mark.parametrize(
    ("given", "status", "words"),
    [
        (None, "crashed", "exited with 1"),
        (result(surprise=1), "crashed", "cannot be read"),
        (result(self_us=2e5), "wrong", "claims 4 s of calls, and took 2 s"),
    ],
)
def test_what_cannot_be_believed_is_a_row(tmp_path: Path, given: Any, status: str, words: str) -> None:
    record = profiled(tmp_path, FakeExecutor(given), "kernel")
    assert record.status == status and words in record.message and not record.operators
