"""Which generated code can run in another environment, and which subjects it is tried for."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.config.matrix import Matrix
from harness.config.plan import Facts
from harness.config.planner import plan_run
from harness.experiments.compiled import implausible, subjects
from harness.experiments.generated import moved_subjects, why_not
from harness.schema.run_records import Selection
from harness.worker import protocol, wire
from harness.worker.generated import CppKernel, cpp_kernels, signature
from tests.unit.spec import BASE, NEXT, Case, Spec
from tests.unit.synthetic import write_run
from tests.unit.test_compiled import record, sample
from tests.unit.test_worker_generated import inductor


def kernel(name: str = "cpp_fused_0", takes: str = "const float*, float*") -> CppKernel:
    return CppKernel(name, takes, "kernel.so")


@pytest.mark.parametrize("integer", ["long", "int64_t"])
def test_both_versions_write_one_signature(integer: str) -> None:
    source = f'extern "C"  void kernel(const float* in_ptr0,\n      float* out_ptr0,\n   const {integer} ks0)\n{{'
    assert signature(source) == "const float*, float*, const long"


def test_kernels_are_found_with_their_shared_objects(tmp_path: Path) -> None:
    inductor(tmp_path / "gpu", call="triton('triton_poi_fused_gelu_0', ")
    (found,) = cpp_kernels(str(inductor(tmp_path)))
    assert (found.name, found.signature) == ("cpp_fused_gelu_0", "const float*") and found.path.endswith(".so")


def test_kernels_that_cannot_stand_for_each_other_say_why() -> None:
    assert why_not({"a": [kernel()], "b": [kernel()]}) == ""
    assert "b generated no C++ kernel" in why_not({"a": [kernel()], "b": []})
    assert "2 and 1 kernels" in why_not({"a": [kernel(), kernel("cpp_fused_1")], "b": [kernel()]})
    other = why_not({"a": [kernel()], "b": [kernel(takes="float*")]})
    assert "cpp_fused_0(const float*, float*) against cpp_fused_0(float*)" in other


@pytest.mark.parametrize(("text", "compiles"), [("torch.compile(f)", True), ("import triton", True), ("", False)])
def test_subjects_are_compiled_operators_and_files_that_name_a_compiler(
    tmp_path: Path, text: str, compiles: bool
) -> None:
    (tmp_path / "new.py").write_text(text)
    (tmp_path / "p.py").write_text("")
    kernel = {"name": "mine", "problem": "p.py", "model_new": "new.py", "devices": ["cpu"]}
    operator = {"operator": "torch.topk", "shapes": [[4, 8]], "compile": True, "devices": ["cpu"]}
    matrix = Matrix.model_validate({"kernels": [kernel], "operators": [operator]})
    plan = plan_run(matrix, Selection(devices=("cpu",)), Facts(executor="venv", executor_reason="a test"))
    found = subjects(tmp_path, matrix, plan)
    assert set(found) == {("pytorch", "topk.compiled-fp32", "cpu")} | ({("mine", "mine", "cpu")} if compiles else set())
    assert {cell.environment for cells in found.values() for cell in cells} == set(plan.measured)


@pytest.mark.parametrize(
    ("bits", "text", "moved"), [("new", "b", True), ("", "b", False), ("new", "a", False), ("", "a", False)]
)
def test_code_is_exchanged_where_it_and_the_outputs_moved(tmp_path: Path, bits: str, text: str, moved: bool) -> None:
    workload = Spec().workloads[0]
    run = write_run(tmp_path, Spec(workloads=(workload,), cases={(NEXT, "kernel", workload): Case(bits=bits)}))
    place = run.load().cells[0].kernel, workload
    records = [
        record(environment, kernel=place[0], workload=workload, samples=[sample(0, 20.0, sha256=made)])
        for environment, made in ((BASE, "a"), (NEXT, text))
    ]
    found = moved_subjects(run.load(), records, run.validations())
    assert found == ({(*place, "cpu"): (BASE, NEXT)} if moved else {})


@pytest.mark.parametrize(("first_s", "later_us"), [(0.0, 5.0), (-1.0, 5.0), (11.0, 5.0), (2.0, 0.0), (2.0, None)])
def test_times_that_no_process_can_have_taken_are_refused(first_s: float, later_us: float | None) -> None:
    claimed = wire.CompiledResult(protocol.OK, first_s=first_s, later_us=later_us)
    assert "it claims a first call of" in implausible(claimed, 10.0)
    assert implausible(wire.CompiledResult(protocol.OK, first_s=2.0, later_us=5.0), 10.0) == ""
