"""The verbs of `inside` on problem files and kernels in Python, by the interpreters of real pinned environments."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.experiments.condition_list import conditions_of
from harness.worker import protocol
from tests.environments.verbs import LIMITS, Environment
from tests.messages import left

pytestmark = [pytest.mark.environments, pytest.mark.timeout(600)]

STORED = {"dtype": "float32", "most_bytes": 1 << 30}

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
        left = sorted(path.name for path in (environment.folder / "out" / "independent").iterdir())
        assert left == ["0.bin", "1.bin"], "a second output of the same bits is not kept"
        result = environment.judge(case, candidate, [protocol.MODEL])
        assert result["status"] == "ok", result["message"]
        digests.add(tuple(result["recipes"][0].input_sha256))
        assert len(result["recipes"][0].truth_sha256) == 2
    assert len(digests) == 1


DRAWN = """
import random
import torch

class Model(torch.nn.Module):
    def forward(self, x, *others):
        return x * others[1]

def get_inputs():
    lower = torch.tril(torch.rand(64, 64) * 2 - 1)
    return [lower, {"more": [torch.randn(3, 5).T, 3.5]}, (lower + lower.T) / 2, torch.randperm(9),
            torch.empty(6).uniform_(-1, 1), torch.randint(0, 2, (70,)).bool(), torch.rand(7, dtype=torch.float16)]

def get_init_inputs():
    return []
"""
OTHER = {
    "its own arithmetic": ("torch.rand(64, 64).softmax(-1)", "_softmax"),
    "another generator": ("torch.full((4,), random.random())", "random"),
    "another distribution": ("torch.empty(4).exponential_()", "exponential_"),
    "elsewhere": ("torch.from_numpy(__import__('numpy').random.default_rng(0).normal(size=3))", "lift_fresh"),
    "nothing known": ("torch.frombuffer(bytearray(8), dtype=torch.float32)", "PyTorch did not make"),
}


def arrays_of(environments: list[Environment], case: dict[str, Any]) -> list[list[str]]:
    """By environment, the digests of three trials' inputs."""
    script = (
        "import json, sys\nfrom worker import codec, inputs, wire, workload\n"
        "known = workload.parse_workload(codec.checked(wire.WorkloadRequest, json.loads(sys.argv[1]), 'case'))\n"
        "print(json.dumps([inputs.digest(known.arrays('independent', trial, 0)) for trial in (2, 0, 1)]))"
    )
    found = []
    for environment in environments:
        command = [str(environment.python), "-c", script, json.dumps(case)]
        done = subprocess.run(command, cwd=environment.folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    return found


def stored_problem(environment: Environment, folder: Path, text: str, most_bytes: int) -> tuple[Any, dict[str, Any]]:
    """(what `store` says, the workload)."""
    path, store = folder / "problem.py", folder / "store"
    path.write_text(text)
    request = {"problem": str(path), "out": str(store), "seed": 3, "trials": 3, **STORED, "most_bytes": most_bytes}
    case = {
        **dict.fromkeys(("batch", "heads", "seq_len", "head_dim", "causal", "scale")),
        "id": "problem",
        "dtype": "bfloat16",
        "recipes": {"independent": 3},
        "problem": {"file": str(path), "store": str(store)},
    }
    return environment.result("store", request), case


def test_what_a_problem_draws_is_the_same_everywhere_and_not_kept(
    environments: list[Environment], tmp_path: Path
) -> None:
    stored, case = stored_problem(environments[0], tmp_path, DRAWN, most_bytes=1000)
    assert (stored["status"], stored["message"], list(stored["files"])) == ("ok", "", ["index.json"])
    found = arrays_of(environments, case)
    assert all(each == found[0] for each in found), "the same bytes"
    assert len(set(found[0])) == 3, "of each trial others"


def test_sums_of_normal_numbers_are_not_exact_in_float32(environments: list[Environment]) -> None:
    """Else the order of additions would never show."""
    script = (
        "import numpy as np\nfrom inside.draws import Draws\n"
        "drawn = Draws(0, 0).normals(1 << 14)\n"
        "print(np.sum(drawn, dtype=np.float64) != float(drawn.cumsum(dtype=np.float32)[-1]), drawn.std())"
    )
    for environment in environments:
        said = subprocess.run([str(environment.python), "-c", script], cwd=environment.folder, capture_output=True)
        inexact, deviation = said.stdout.split()
        assert inexact == b"True" and 0.97 < float(deviation) < 1.03


@pytest.mark.parametrize("what", OTHER)
def test_what_may_differ_between_versions_is_kept(environments: list[Environment], what: str, tmp_path: Path) -> None:
    drawn, named = OTHER[what]
    text = DRAWN.replace("torch.randperm(9)", drawn)
    for most_bytes, count, said in ((1 << 20, 3 * 7, "is stored"), (1000, 0, "does not fit")):
        stored, case = stored_problem(environments[0], tmp_path, text, most_bytes)
        assert stored["status"] == "ok" and said in stored["message"] and named in stored["message"]
        assert len(stored["files"]) == 1 + count, "index.json, and every tensor of three trials"
        found = arrays_of(environments, case)
        assert all(each == found[0] for each in found) or what == "its own arithmetic"


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
             "done": left(out / str(job["number"]) / "done.json")}
            for job in jobs
        ]  # fmt: skip
        weighed = environment.result(
            "weigh",
            {**common, "candidate_out": str(out), "truth_dir": str(tmp_path / "truth"), "decides": "rounding",
             "device": "cpu",
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
