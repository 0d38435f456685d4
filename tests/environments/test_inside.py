"""The verbs of `inside`, run as the harness runs them, by the interpreters of real pinned environments."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.experiments.conditions_list import conditions_of
from harness.inside import protocol
from harness.records import BuildRecord, Load, Observation, RecipeResult, Timing

pytestmark = [pytest.mark.environments, pytest.mark.timeout(600)]

INSIDE = Path(__file__).resolve().parents[2] / "harness" / "inside"
LIMITS = {"rounding": 4.0, "strict": 1e-3, "kernelbench": 1e-4}
TIMING = {
    "warmup_s": 0.01,
    "warmup_calls": 2,
    "target_s": 0.02,
    "min_samples": 5,
    "max_samples": 50,
    "relative_error": 0.005,
}
REFERENCES = ["flash", "math", "default"]
STORED = {"dtype": "float32", "most_bytes": 1 << 30}

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

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = torch.nn.Linear(size, 8)
    def forward(self, x):
        return torch.relu(self.linear(x))
class ModelNew(Model):
    def forward(self, x):
        return (x @ self.linear.weight.t() + self.linear.bias).clamp(min=0)
def get_inputs():
    return [torch.randn(4, 32)]
def get_init_inputs():
    return [32]
"""


@dataclass
class Environment:
    """One interpreter with a staged copy of `inside`, as the harness would stage it."""

    python: Path
    folder: Path
    artifact: str = ""
    returning: str = ""

    def run(self, verb: str, request: dict[str, Any], fault: str = "") -> tuple[dict[str, Any] | None, int, str]:
        scratch = self.folder / "scratch"
        scratch.mkdir(exist_ok=True)
        paths = [self.folder / name for name in ("request.json", "result.json")]
        paths[0].write_text(json.dumps(request))
        paths[1].unlink(missing_ok=True)
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "TOY_FAULT": fault}
        done = subprocess.run(
            [str(self.python), "-m", "inside", verb, *map(str, paths)],
            cwd=scratch,
            env=environment,
            capture_output=True,
            text=True,
        )
        return json.loads(paths[1].read_text()) if paths[1].exists() else None, done.returncode, done.stderr

    def result(self, verb: str, request: dict[str, Any], fault: str = "") -> dict[str, Any]:
        result, code, errors = self.run(verb, request, fault)
        assert result is not None and code == 0, errors
        return result

    def build(self, name: str, source: str, defines: dict[str, str]) -> dict[str, Any]:
        path = self.folder / f"{name}.cpp"
        path.write_text(source)
        folder = self.folder / f"build-{name}"
        folder.mkdir(exist_ok=True)
        (folder / "lock").touch()  # as a killed build leaves it
        return self.result(
            "build",
            {
                "device": "cpu",
                "name": name,
                "sources": [str(path)],
                "include_dirs": [],
                "flags": {"cxx": ["-O1"], "nvcc": [], "ld": []},
                "defines": defines,
                "architectures": [],
                "build_dir": str(folder),
                "load": True,
            },
        )

    def candidate(self, workload: dict[str, Any], fault: str = "", artifact: str = "", model: str | None = None) -> Any:
        out = self.folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        kernel = {"name": "toy", "device": "cpu", "artifact": artifact or self.artifact, "model_new": model}
        request = {"kernel": kernel, "workload": workload, "seed": 0, "threads": 1, "out": str(out)}
        return self.run("candidate", request, fault)[:2]

    def judge(self, workload: dict[str, Any], candidate: Any, references: list[str] | None = None) -> dict[str, Any]:
        request = {
            "workload": workload,
            "device": "cpu",
            "seed": 0,
            "threads": 2,
            "references": REFERENCES if references is None else references,
            "candidate": candidate,
            "candidate_out": str(self.folder / "out"),
            "truth_dir": str(self.folder / "truth"),
            "arrays": str(self.folder / "arrays.npz"),
            "array_trials": 1,
            "decides": "rounding",
            "limits": LIMITS,
        }
        result = self.result("judge", request)
        result["recipes"] = [RecipeResult(**recipe) for recipe in result["recipes"]]
        return result


def workload(dtype: str = "float32") -> dict[str, Any]:
    return {
        "id": f"tiny-{dtype}",
        "dtype": dtype,
        "batch": 1,
        "heads": 2,
        "seq_len": 37,
        "head_dim": 16,
        "causal": False,
        "scale": 0.25,
        "recipes": {"independent": 3, "shared_qkv": 1, "large_logits": 1},
        "problem": None,
    }


def stage(python: Path, folder: Path) -> Environment:
    shutil.copytree(INSIDE, folder / "inside", ignore=shutil.ignore_patterns("__pycache__"))
    return Environment(python, folder)


@pytest.fixture(scope="module")
def environments(pinned_pythons: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Environment]]:
    yield [stage(python, tmp_path_factory.mktemp(f"environment{i}")) for i, python in enumerate(pinned_pythons)]


@pytest.fixture(scope="module")
def built(environments: list[Environment]) -> list[Environment]:
    def build(environment: Environment) -> None:
        result = environment.build("toy", KERNEL, {})
        record = BuildRecord(environment="e", kernel="k", device="cpu", key="", runnable=True, **result)
        assert record.status == "ok", record.log_excerpt
        assert Path(record.artifact).is_absolute() and "-std=c++17" in record.build_ninja
        assert set(record.objects) == {"toy.o"} and record.build_s
        environment.artifact = record.artifact
        if environment is environments[0]:
            environment.returning = environment.build("returning", KERNEL, {"RETURNS": "yes"})["artifact"]

    with ThreadPoolExecutor(len(environments)) as pool:  # a compiler of one file uses one core
        list(pool.map(build, environments))
    return environments


def test_observation(environments: list[Environment]) -> None:
    versions = set()
    for environment in environments:
        record = Observation(**environment.result("observe", {"threads": 1}))
        assert record.torch and record.numpy and record.cpu_capability and record.threads == 1
        assert record.wheels["torch"].version == record.torch.split("+")[0]
        versions.add((record.torch, record.wheels["torch"].record_sha256))
    assert len(versions) == len(environments)


def test_compile_error_is_a_row(environments: list[Environment]) -> None:
    result = environments[0].build("faulty", "int x = nothing_of_that_name;\n", {})
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
        request = {
            "kernel": {"name": "toy", "device": "cpu", "artifact": environment.artifact, "model_new": None},
            "kernel_workloads": [case["id"]],
            "workloads": [case],
            "targets": ["kernel", *REFERENCES],
            "seed": 0,
            "threads": 1,
            "order_seed": 3,
            "timing": TIMING,
            "expected_sha256": {case["id"]: kernel.output_sha256[:2]},
            "held_back": False,
        }
        timed = environment.result("time", request)
        Load(**timed["load"])
        rows = [Timing(**row) for row in timed["timings"]]
        assert {row.target for row in rows} == {"kernel", *REFERENCES}
        assert [row.order for row in rows] == [0, 1, 2, 3]
        assert all(row.status == "ok" and len(row.samples_us) >= 5 and min(row.samples_us) > 0 for row in rows)
        assert next(row for row in rows if row.target == "kernel").correct is True
        request["expected_sha256"] = {case["id"]: ["0" * 64]}
        rows = [Timing(**row) for row in environment.result("time", request)["timings"]]
        assert next(row for row in rows if row.target == "kernel").correct is False


@pytest.mark.parametrize(
    ("fault", "status", "words"),
    [
        ("raise", "crashed", "no such shape"),
        ("refuse", "unsupported", "head_dim is not a multiple of 8"),
        ("nan", "wrong", "NaN or infinity in"),
        ("small", "wrong", "rounding rule"),
        ("race", "wrong", "other bits when run again"),
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
    environment = environments[0]
    source = environment.folder / "x.cu"
    source.write_text("__global__ void f() {}\n")
    request = {
        "device": "cuda",
        "name": "x",
        "sources": [str(source)],
        "include_dirs": [],
        "flags": {"cxx": [], "nvcc": [], "ld": []},
        "defines": {},
        "architectures": ["sm_80", "sm_90a"],
        "build_dir": str(environment.folder / "build-x"),
        "load": False,
    }
    result = environment.result("build", request)
    assert result["status"] in ("ok", "not_run"), result["log_excerpt"]
    if result["status"] == "not_run":
        assert "nvcc" in result["message"]


def test_a_problem_file_is_replayed(environments: list[Environment]) -> None:
    first = environments[0]
    path = first.folder / "problem.py"
    path.write_text(PROBLEM)
    store = first.folder / "store"
    stored = first.result("store", {"problem": str(path), "out": str(store), "seed": 1, "trials": 2, **STORED})
    assert stored["status"] == "ok" and "index.json" in stored["files"]
    case = {
        **dict.fromkeys(("batch", "heads", "seq_len", "head_dim", "causal", "scale")),
        "id": "problem",
        "dtype": "float32",
        "recipes": {"independent": 2},
        "problem": {"file": str(path), "store": str(store)},
    }
    digests = set()
    for environment in environments:
        candidate, _ = environment.candidate(case, model=str(path))
        result = environment.judge(case, candidate, [protocol.MODEL])
        assert result["status"] == "ok", result["message"]
        digests.add(tuple(result["recipes"][0].input_sha256))
        assert len(result["recipes"][0].truth_sha256) == 2
    assert len(digests) == 1


ELEMENTWISE = """import torch

class {name}(torch.nn.Module):
    def forward(self, x):
        return {computed}

def get_inputs():
    return [torch.linspace(-4, 4, 4096).reshape(4, 1024)]

def get_init_inputs():
    return []
"""


FAR = "torch.nn.functional.softplus(60 * x)"


@pytest.mark.parametrize(
    ("model", "solution", "seen"),
    [
        (FAR, "torch.log1p(torch.exp(60 * x))", [("wrong", 1), ("ok", 0), ("wrong", 1), ("wrong", 1)]),
        (FAR, "torch.log1p(torch.exp(-x))", [("wrong", 0)] * 4),
        (
            "x + 300",
            "x + torch.tensor(300).to(dtype=torch.int8)",
            [*[("wrong", 0)] * 3, ("ok", 0)],
        ),
        ("x + 300", "x + torch.arange(300, 301).byte()", [*[("wrong", 0)] * 3, ("ok", 0)]),
    ],
    ids=["leaves float32's range", "a wrong sign", "leaves a byte's range by argument", "and by method"],
)
def test_a_problems_kernel_is_asked_in_wider_types(
    environments: list[Environment], model: str, solution: str, seen: list[tuple[str, int]], tmp_path: Path
) -> None:
    """As validated, in float64, made anew, and so with integers of 64 bits."""
    path, store, new = tmp_path / "problem.py", tmp_path / "store", tmp_path / "solution.py"
    path.write_text(ELEMENTWISE.format(name="Model", computed=model))
    new.write_text(ELEMENTWISE.format(name="ModelNew", computed=solution))
    request = {"problem": str(path), "out": str(store), "seed": 1, "trials": 1, **STORED}
    assert environments[0].result("store", request)["status"] == "ok"
    case = {
        **dict.fromkeys(("batch", "heads", "seq_len", "head_dim", "causal", "scale")),
        "id": "problem",
        "dtype": "float32",
        "recipes": {"independent": 1},
        "problem": {"file": str(path), "store": str(store)},
    }
    common = {"workload": case, "seed": 1, "threads": 1}
    listed = conditions_of("wider", "cpu", [protocol.MODEL], problem=True)
    jobs = [
        {"number": n, "condition": c.model_dump(), "trials": [0], "repeats": 1, "patience_s": 60.0}
        for n, c in enumerate(listed)
    ]
    kernel = {"name": "k", "device": "cpu", "artifact": None, "model_new": str(new)}
    for environment in environments:
        out = tmp_path / environment.folder.name
        environment.result("conditions", {**common, "kernel": kernel, "out": str(out), "jobs": jobs, "libraries": {}})
        ended = [
            {**{key: job[key] for key in ("number", "condition", "trials", "repeats")},
             "done": protocol.read_json(str(out / str(job["number"]) / "done.json"))}
            for job in jobs
        ]  # fmt: skip
        weighed = environment.result(
            "weigh",
            {**common, "candidate_out": str(out), "truth_dir": str(tmp_path / "truth"), "decides": "rounding",
             "limits": LIMITS, "jobs": ended},
        )["results"]  # fmt: skip
        assert [(row["status"], row["nonfinite"]) for row in weighed] == seen


FOLLOWED = """import torch

FAST = {fast}

class {name}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        if FAST:
            torch.randn(3)
        self.weights = torch.randn(8)

    def forward(self, x):
        if FAST:
            return x * self.weights
        raise RuntimeError("slow")

def get_inputs():
    return [torch.ones(4, 8)]

def get_init_inputs():
    return []
"""


def test_a_kernel_in_python_is_followed(environments: list[Environment]) -> None:
    """Which lines run, the module's own too and those before an exception; and what making it draws."""
    first = environments[0].folder
    path, store = first / "drawn.py", first / "drawn"
    path.write_text(FOLLOWED.format(name="Model", fast=True))
    request = {"problem": str(path), "out": str(store), "seed": 1, "trials": 1, **STORED}
    assert environments[0].result("store", request)["status"] == "ok"
    case = {
        **dict.fromkeys(("batch", "heads", "seq_len", "head_dim", "causal", "scale")),
        "id": "problem",
        "dtype": "float32",
        "recipes": {"independent": 1},
        "problem": {"file": str(path), "store": str(store)},
    }
    for environment in environments:
        for fast in (True, False):
            solution = first / f"drawn_{fast}.py"
            solution.write_text(FOLLOWED.format(name="ModelNew", fast=fast))
            kernel = {"name": "k", "device": "cpu", "artifact": None, "model_new": str(solution)}
            asked = {"kernel": kernel, "workload": case, "target": "kernel", "seed": 1, "device": "cpu", "threads": 1}
            result = environment.result("profile", {**asked, "calls": 3, "most_s": 0.1})
            assert result["status"] == ("ok" if fast else "crashed")
            assert result["draws_as_model"] is fast
            ran = {line["text"] for line in result["lines"]}
            assert f"FAST = {fast}" in ran and ("torch.randn(3)" in ran) is fast
            assert ('raise RuntimeError("slow")' in ran) is not fast


def test_a_broken_problem_file_says_so(environments: list[Environment]) -> None:
    path = environments[0].folder / "broken.py"
    path.write_text("def get_init_inputs():\n    return []\n")
    request = {"problem": str(path), "out": str(environments[0].folder / "none"), "seed": 0, "trials": 1, **STORED}
    result = environments[0].result("store", request)
    assert result["status"] == "crashed" and "Model" in result["message"]
