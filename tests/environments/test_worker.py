"""The verbs of the worker, run as the harness runs them, by the interpreters of real pinned environments."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from harness.schema.environment_records import BuildRecord, Observation
from harness.schema.records import Load, TargetTiming
from harness.worker import codec
from tests.environments.verbs import REFERENCES, Environment, workload

pytestmark = [pytest.mark.environments, pytest.mark.timeout(600)]

# A plain float32 attention that, when asked by an environment variable, does one thing wrong. Its headers compile in
# half the time of torch/extension.h.
KERNEL = r"""
#include <ATen/ATen.h>
#include <torch/csrc/utils/pybind.h>
#include <cmath>
#include <cstdlib>
#include <string>
static int calls = 0;
static bool wants(const char* fault) {
    const char* asked = std::getenv("TOY_FAULT");
    return asked && std::string(asked) == fault;
}
static at::Tensor attention(at::Tensor q, at::Tensor k, at::Tensor v, double scale) {
    return at::softmax(at::matmul(q, k.transpose(-2, -1)) * scale, -1).matmul(v);
}
#ifdef RETURNS_YES
at::Tensor forward(at::Tensor q, at::Tensor k, at::Tensor v, bool, double scale) {
    auto out = attention(q, k, v, scale);
    if (wants("shape")) return out.narrow(2, 0, 3);
    if (wants("dtype")) return out.to(at::kDouble);
    return out;
}
#else
void forward(at::Tensor q, at::Tensor k, at::Tensor v, at::Tensor out, bool, double scale) {
    if (wants("abort")) std::abort();
    TORCH_CHECK(!wants("raise"), "no such shape");
    TORCH_CHECK_NOT_IMPLEMENTED(!wants("refuse"), "head_dim is not a multiple of 8");
    auto result = attention(q, k, v, scale);
    if (wants("nan")) result.view(-1)[7] = NAN;
    if (wants("small")) result.view(-1)[7] += 1e-3;
    if (wants("race")) result.view(-1)[7] += 1e-9 * (++calls % 2) + result.view(-1)[7] * 1e-6 * (calls % 2);
    if (wants("second")) result.view(-1)[7] += 1e-3 * (calls++ % 2);
    if (wants("late")) result.view(-1)[7] += ++calls > 6 ? 1e-3 : 0;
    if (wants("jitter") || wants("kept")) {
        static const at::Tensor first = result.clone();
        if (wants("kept")) result = first.clone();
        result.view(-1)[7] *= 1 + 1.2e-7 * (1 + ++calls % 2);
    }
    if (wants("mutate")) q.view(-1)[3] += 1;
    if (wants("unwritten")) { out.narrow(2, 1, out.size(2) - 1).copy_(result.narrow(2, 1, out.size(2) - 1)); return; }
    out.copy_(result);
}
#endif
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.def("forward", &forward);
#ifdef RETURNS_YES
    module.attr("RETURNS_OUTPUT") = true;
#endif
}
"""


@pytest.fixture(scope="module")
def built(environments: list[Environment]) -> list[Environment]:
    def build(environment: Environment) -> None:
        result = environment.build("toy", KERNEL)
        record = BuildRecord(environment="e", kernel="k", device="cpu", key="", runnable=True, **result)
        assert record.status == "ok", record.log_excerpt
        assert Path(record.artifact).is_absolute() and "-std=c++17" in record.build_ninja
        assert set(record.objects) == {"toy.o"} and record.build_s
        environment.artifact = record.artifact
        if environment is environments[0]:
            environment.returning = environment.build("returning", KERNEL, defines={"RETURNS": "yes"})["artifact"]

    with ThreadPoolExecutor(len(environments)) as pool:  # a compiler of one file uses one core
        list(pool.map(build, environments))
    return environments


def test_observation(environments: list[Environment]) -> None:
    versions = set()
    for environment in environments:
        observed = environment.result("observe", {"threads": 1})
        assert observed.pop("damaged") == []
        record = codec.checked(Observation, observed, "observed")
        assert record.torch and record.numpy and record.cpu_capability and record.threads == 1
        assert record.wheels["torch"].version == record.torch.split("+")[0]
        versions.add((record.torch, record.wheels["torch"].record_sha256))
    assert len(versions) == len(environments)


def test_compile_error_is_a_row(environments: list[Environment]) -> None:
    result = environments[0].build("faulty", "int x = nothing_of_that_name;\n")
    assert result["status"] == "build_failed"
    assert result["message"].startswith("faulty.cpp:") and "nothing_of_that_name" in result["message"]
    assert "nothing_of_that_name" in result["log_excerpt"] and len(result["log_excerpt"]) <= 8000


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_inputs_and_truth_are_the_same_in_every_environment(environments: list[Environment], dtype: str) -> None:
    seen = set()
    for environment in environments:
        result = environment.judge(workload(dtype), None)
        assert result["status"] == "not_run"
        seen.add(tuple(digest for recipe in result["recipes"] for digest in recipe.input_sha256))
        for recipe in result["recipes"]:
            for target in recipe.targets:
                assert target.status in ("ok", "wrong", "unsupported")
                if target.status == "unsupported":
                    assert target.message and not target.against
                else:
                    mark = {"flash": "flash_attention", "math": "attention_math"}.get(target.target, "attention")
                    assert any(mark in operator for operator in target.operators)
                    assert target.against[0].nonfinite_trials == 0
    assert len(seen) == 1


def test_a_right_kernel_passes_and_is_timed(built: list[Environment]) -> None:
    for environment in built:
        case = workload()
        candidate, _ = environment.candidate(case)
        result = environment.judge(case, candidate)
        assert (result["status"], result["message"]) == ("ok", "")
        kernel = result["recipes"][0].targets[-1]
        assert [item.against for item in kernel.against] == ["truth", *REFERENCES]
        assert kernel.against[0].passed == {"rounding": 3, "kernelbench": 3, "strict": 3}
        assert 0 < kernel.against[0].max_units < 4
        with np.load(environment.folder / "arrays.npz") as arrays:
            assert arrays["independent/0/truth"].dtype == np.float64
            assert np.abs(arrays["independent/0/kernel"] - arrays["independent/0/truth"]).max() < 1e-5
            assert "independent/1/truth" not in arrays
        timed = environment.time(case, ["kernel", *REFERENCES], kernel.output_sha256[:2])
        codec.checked(Load, timed["load"], "load")
        rows = [codec.checked(TargetTiming, row, "timing") for row in timed["timings"]]
        assert {row.target for row in rows} == {"kernel", *REFERENCES}
        assert [row.order for row in rows] == [0, 1, 2, 3]
        assert all(row.status == "ok" and len(row.samples_us) >= 5 and min(row.samples_us) > 0 for row in rows)
        assert next(row for row in rows if row.target == "kernel").correct is True
        measured = [(row.memory, row.memory_message) for row in rows]
        assert all(memory and memory.peak_bytes > memory.kept_bytes >= 0 for memory, _ in measured), measured
        (row,) = environment.time(case, ["kernel"], ["0" * 64], other_bits=False)["timings"]
        assert codec.checked(TargetTiming, row, "timing").correct is False


@pytest.mark.parametrize(
    ("fault", "asked", "correct", "words"),
    [
        ("jitter", False, True, ""),
        ("jitter", True, False, "not the validated one"),  # determinism was asked for
        ("late", False, False, "in a timed call"),  # right once, and wrong in a loop
        ("kept", False, False, "in a timed call"),  # the first answer again, with other bits
    ],
)
def test_outputs_of_timed_calls_are_judged_where_the_kernel_is_not(
    built: list[Environment], fault: str, asked: bool, correct: bool, words: str
) -> None:
    environment, case = built[0], workload()
    candidate, _ = environment.candidate(case)
    kernel = environment.judge(case, candidate)["recipes"][0].targets[-1]
    timed = environment.time(case, ["kernel"], kernel.output_sha256[:1], fault, other_bits=not asked)
    (row,) = (codec.checked(TargetTiming, row, "timing") for row in timed["timings"])
    assert row.correct is correct and words in row.message and row.status == "ok"
    assert asked or row.checked > 0


@pytest.mark.parametrize(
    ("fault", "status", "words"),
    [
        ("raise", "crashed", "no such shape"),
        ("refuse", "unsupported", "head_dim is not a multiple of 8"),
        ("nan", "wrong", "NaN or infinity in"),
        ("small", "wrong", "rounding rule"),
        ("race", "ok", "not bit-repeatable: 5 of 5 trials gave other bits when run again"),
        ("second", "wrong", "0 of 3 trials pass the rounding rule"),
        ("mutate", "wrong", "changed their inputs"),
        ("unwritten", "wrong", "left output unwritten"),
    ],
)
def test_faults(built: list[Environment], fault: str, status: str, words: str) -> None:
    candidate, code = built[0].candidate(workload(), fault)
    assert code == 0
    result = built[0].judge(workload(), candidate)
    assert result["status"] == status and words in result["message"]


@pytest.mark.parametrize(
    ("fault", "words"), [("shape", "returned (1, 2, 3, 16) float32"), ("dtype", "(1, 2, 37, 16) float64")]
)
def test_wrong_shape_and_dtype(built: list[Environment], fault: str, words: str) -> None:
    candidate, _ = built[0].candidate(workload(), fault, built[0].returning)
    assert candidate["status"] == "wrong" and words in candidate["message"]


def test_a_kernel_that_returns_its_output(built: list[Environment]) -> None:
    candidate, _ = built[0].candidate(workload(), "", built[0].returning)
    assert built[0].judge(workload(), candidate)["status"] == "ok"


def test_an_abort_leaves_no_result(built: list[Environment]) -> None:
    result, code = built[0].candidate(workload(), "abort")
    assert result is None and code < 0


def test_a_missing_artifact_is_a_crash_with_a_reason(environments: list[Environment]) -> None:
    result, code = environments[0].candidate(workload(), artifact="/nowhere/toy.so")
    assert code == 0 and result["status"] == "crashed" and "toy.so" in result["message"]


@pytest.mark.parametrize("change", ["missing", "short", "long"])
def test_output_files_that_do_not_fit(built: list[Environment], change: str) -> None:
    candidate, _ = built[0].candidate(workload())
    path = built[0].folder / "out" / "shared_qkv" / "0.bin"
    if change == "missing":
        path.unlink()
    else:
        data = path.read_bytes()
        path.write_bytes(data[:-1] if change == "short" else data + b"x")
    result = built[0].judge(workload(), candidate)
    assert result["status"] == ("crashed" if change == "missing" else "wrong")
    assert "shared_qkv/0.bin" in result["message"]


def test_cuda_sources_without_a_fitting_toolkit_are_not_a_failure(environments: list[Environment]) -> None:
    architectures = ["sm_80", "sm_90a"]
    result = environments[0].build("x.cu", "__global__ void f() {}\n", architectures=architectures, cxx=(), load=False)
    assert result["status"] in ("ok", "not_run"), result["log_excerpt"]
    if result["status"] == "not_run":
        assert "nvcc" in result["message"]


MAPPED = """
import torch
from worker import memory
def missing_kib():
    missing, counts = 0, False
    for line in open("/proc/self/smaps"):
        if "-" in line.split()[0]:
            counts = "libtorch_cpu.so" in line and line.split()[1][0] == "r"
        elif counts and line.startswith(("Size:", "Rss:")):
            missing += int(line.split()[1]) * (1 if line.startswith("Size:") else -1)
    return missing
before = missing_kib()
memory.map_libraries()
print(before > 0, missing_kib())
"""


def test_every_page_of_the_libraries_is_mapped(environments: list[Environment]) -> None:
    for environment in environments:
        assert environment.script(MAPPED).split() == ["True", "0"]
