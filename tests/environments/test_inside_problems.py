"""The verbs of `inside` on problem files and kernels in Python, by the interpreters of real pinned environments."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.experiments.conditions_list import conditions_of
from harness.inside import protocol
from tests.environments.verbs import LIMITS, Environment

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
