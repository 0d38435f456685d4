"""The verbs of the worker on problem files and kernels in Python, by the interpreters of real pinned environments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.experiments.condition_list import conditions_of
from harness.worker import protocol
from tests.environments.verbs import Environment, kernel_of

pytestmark = [pytest.mark.environments, pytest.mark.timeout(600)]

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


def test_a_problem_file_is_replayed(environments: list[Environment], tmp_path: Path) -> None:
    stored, case = environments[0].store(tmp_path, PROBLEM, trials=2)
    assert stored["status"] == "ok" and "index.json" in stored["files"]
    digests = set()
    for environment in environments:
        candidate, _ = environment.candidate(case, model=case["problem"]["file"])
        left = sorted(path.name for path in (environment.folder / "out" / "independent").iterdir())
        assert left == ["0.bin", "1.bin"], "a second output of the same bits is not kept"
        result = environment.judge(case, candidate, [protocol.MODEL])
        assert result["status"] == "ok", result["message"]
        digests.add(tuple(result["recipes"][0].input_sha256))
        assert len(result["recipes"][0].truth_sha256) == 2
    assert len(digests) == 1


TRITON = """
import torch, triton, triton.language as tl
@triton.jit
def relu(x, out, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(out + at, tl.maximum(tl.load(x + at), 0.0))
class ModelNew(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = torch.nn.Linear(size, 8)
    def forward(self, x):
        x = self.linear(x)
        out = torch.empty_like(x)
        relu[(1,)](x, out, SIZE=32)
        return out
"""


def test_a_kernel_of_triton_is_refused_on_a_cpu(environments: list[Environment], tmp_path: Path) -> None:
    solution = tmp_path / "solution.py"
    solution.write_text(TRITON)
    _, case = environments[0].store(tmp_path, PROBLEM, trials=1)
    for environment in environments:
        result, _ = environment.candidate(case, model=str(solution))
        assert result["status"] == "unsupported"
        assert result["message"].startswith("Triton's kernels run on a GPU alone: trial 0 raised "), result["message"]


SIZED = "    def __init__(self, size):\n        super().__init__()\n"
LACKING = {  # a solution, what it says, and a line of its traceback
    "forward": (f"class ModelNew(torch.nn.Module):\n{SIZED}", 'is missing the required "forward" function', "Module"),
    "ModelNew": ("class Other:\n    pass\n", "solution.py defines no ModelNew", "AttributeError"),
    "a name of PyTorch's": (
        f"class ModelNew(torch.nn.Module):\n{SIZED}    def forward(self, x):\n        return torch.sofmax(x)\n",
        "module 'torch' has no attribute 'sofmax'",
        "return torch.sofmax(x)",
    ),
    "a colon": ("class ModelNew(torch.nn.Module)\n    pass\n", "raised SyntaxError", "solution.py"),
}


@pytest.mark.parametrize("what", LACKING)
def test_a_solution_that_lacks_something_ends_by_itself_and_is_not_refused(
    environments: list[Environment], what: str, tmp_path: Path
) -> None:
    text, said, line = LACKING[what]
    solution = tmp_path / "solution.py"
    solution.write_text(f"import torch\n{text}")
    _, case = environments[0].store(tmp_path, PROBLEM, trials=1)
    for environment in environments:
        candidate, _ = environment.candidate(case, model=str(solution))
        assert (candidate["status"], said in candidate["message"]) == (protocol.CRASHED, True), candidate
        assert line in candidate["log_excerpt"] and "worker/kernels.py" not in candidate["log_excerpt"]


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
        "import json, sys\nfrom worker import codec, inputs, subjects, wire\n"
        "known = subjects.parse_workload(codec.checked(wire.WorkloadRequest, json.loads(sys.argv[1]), 'case'))\n"
        "print(json.dumps([inputs.digest(known.arrays('independent', trial, 0)) for trial in (2, 0, 1)]))"
    )
    return [json.loads(environment.script(script, json.dumps(case))) for environment in environments]


def test_what_a_problem_draws_is_the_same_everywhere_and_not_kept(
    environments: list[Environment], tmp_path: Path
) -> None:
    stored, case = environments[0].store(tmp_path, DRAWN, trials=3, most_bytes=1000)
    assert (stored["status"], stored["message"], list(stored["files"])) == ("ok", "", ["index.json"])
    found = arrays_of(environments, case)
    assert all(each == found[0] for each in found), "the same bytes"
    assert len(set(found[0])) == 3, "of each trial others"


def test_sums_of_normal_numbers_are_not_exact_in_float32(environments: list[Environment]) -> None:
    """Else the order of additions would never show."""
    script = (
        "import numpy as np\nfrom worker.draws import Draws\n"
        "drawn = Draws(0, 0).normals(1 << 14)\n"
        "print(np.sum(drawn, dtype=np.float64) != float(drawn.cumsum(dtype=np.float32)[-1]), drawn.std())"
    )
    for environment in environments:
        inexact, deviation = environment.script(script).split()
        assert inexact == "True" and 0.97 < float(deviation) < 1.03


@pytest.mark.parametrize("what", OTHER)
def test_what_may_differ_between_versions_is_kept(environments: list[Environment], what: str, tmp_path: Path) -> None:
    drawn, named = OTHER[what]
    text = DRAWN.replace("torch.randperm(9)", drawn)
    for most_bytes, count, said in ((1 << 20, 3 * 7, "is stored"), (1000, 0, "does not fit")):
        stored, case = environments[0].store(tmp_path, text, trials=3, most_bytes=most_bytes)
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
        (FAR, "torch.log1p(torch.exp(60 * x))", [("wrong", 1), ("ok", 0)]),
        (FAR, "torch.log1p(torch.exp(-x))", [("wrong", 0)] * 2),
        ("x + 300", "(x + 300).double()", [("wrong", 0), ("ok", 0)]),
    ],
    ids=["leaves float32's range", "a wrong sign", "wider"],
)
def test_a_problems_kernel_is_asked_in_a_wider_type(
    environments: list[Environment], model: str, solution: str, seen: list[tuple[str, int]], tmp_path: Path
) -> None:
    """As validated, and in float64."""
    new = tmp_path / "solution.py"
    new.write_text(ELEMENTWISE.format(name="ModelNew", computed=solution))
    stored, case = environments[0].store(tmp_path, ELEMENTWISE.format(name="Model", computed=model))
    assert stored["status"] == "ok"
    listed = conditions_of("wider", "cpu", [protocol.MODEL], problem=True)
    for environment in environments:
        results, _ = environment.conditions(
            kernel_of(model=str(new)),
            case,
            listed,
            tmp_path / environment.folder.name,
            trials=1,
            repeats=1,
            seed=1,
            threads=1,
        )
        assert [(result.status, result.nonfinite) for result in results] == seen


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


def test_a_kernel_in_python_is_followed(environments: list[Environment], tmp_path: Path) -> None:
    """Which lines run, the module's own too and those before an exception; and what making it draws."""
    stored, case = environments[0].store(tmp_path, FOLLOWED.format(name="Model", fast=True))
    assert stored["status"] == "ok"
    for environment in environments:
        for fast in (True, False):
            solution = tmp_path / f"drawn_{fast}.py"
            solution.write_text(FOLLOWED.format(name="ModelNew", fast=fast))
            asked = {"kernel": kernel_of(model=str(solution)), "workload": case, "target": "kernel", "seed": 1}
            result = environment.result("profile", {**asked, "device": "cpu", "threads": 1, "calls": 3, "most_s": 0.1})
            assert result["status"] == ("ok" if fast else "crashed")
            assert result["draws_as_model"] is fast
            ran = {line["text"] for line in result["lines"]}
            assert f"FAST = {fast}" in ran and ("torch.randn(3)" in ran) is fast
            assert ('raise RuntimeError("slow")' in ran) is not fast


ASKS = {
    "by attribute": "import torch\nNEW = torch.__version__ >= '2.3'",
    "by name": "import torch\nfrom torch.version import __version__ as own\nNEW = int(own.split('.')[1]) > 2",
    "in the call": "import torch\nclass A:\n    def __bool__(_):\n        return torch.__version__ > '2.3'\nNEW = A()",
    "by its wheel": "import torch\nfrom importlib import metadata\nNEW = metadata.version('torch') > '2.3'",
    "not at all": "import torch\nNEW = hasattr(torch.nn, 'RMSNorm')",
}
CHOOSES = """
class ModelNew(torch.nn.Module):
    def forward(self, x):
        torch.ones(2) @ torch.ones(2)
        return x + 3 if NEW else x + 2
"""


@pytest.mark.parametrize(
    ("asks", "seen"),
    [
        *[(asks, ["ok", "wrong"]) for asks in ("by attribute", "by name", "in the call", "by its wheel")],
        ("not at all", ["not_run", "not_run"]),
    ],
)
def test_a_file_is_told_another_version_and_nobody_else_is(
    environments: list[Environment], asks: str, seen: list[str], tmp_path: Path
) -> None:
    new = tmp_path / "solution.py"
    new.write_text(ASKS[asks] + CHOOSES)
    stored, case = environments[0].store(tmp_path, ELEMENTWISE.format(name="Model", computed="x + 2"))
    assert stored["status"] == "ok"
    asked = {"kernel": kernel_of(model=str(new)), "workload": case, "seed": 0, "threads": 1}
    for environment in environments:
        statuses = []
        for version in ("2.1.0", "2.5.0"):
            out = tmp_path / environment.folder.name / version
            left = environment.result("candidate", {**asked, "out": str(out), "told": version})
            judging = environment.judging(case, left, ["model"], candidate_out=str(out), truth_dir=str(out / "truth"))
            statuses.append(environment.result("judge", judging)["status"])
        assert statuses == seen


WRITES = """import torch

class {name}(torch.nn.Module):
    def forward(self, x, rows, y):
        {body}

def get_inputs():
    return [torch.randn(8, 96), torch.randperm(8)[:5], torch.randn(8, 96)]

def get_init_inputs():
    return []
"""
CHANGED = "2 of 2 trials changed their inputs"
EAGER = "y[rows] += y[rows]; return x + y"
FORGETS = """from torch.utils._python_dispatch import _get_current_dispatch_mode
        if x.is_meta or _get_current_dispatch_mode():
            y[rows] += y[rows]
        return x + 1"""


@pytest.mark.parametrize(
    ("model", "solution", "status", "said"),
    [
        (EAGER, EAGER, "ok", ""),
        (EAGER, "y.index_put_((rows,), 2 * y[rows]); return y.add(x)", "ok", ""),
        (EAGER, "y = y.clone(); y[rows] += y[rows]; return x + y", "wrong", "(written to y)"),
        (EAGER, "y[rows] += y[rows]; out = x + y; y[0, 0] = 9; return out", "wrong", "(written to y)"),
        (EAGER, "y[rows] += y[rows]; out = x + y; x.zero_(); return out", "wrong", CHANGED),
        ("return x + y", "y += x; return y.clone()", "wrong", CHANGED),
    ],
    ids=["as Model", "otherwise", "does not write", "writes another number", "writes more", "Model does not write"],
)
def test_what_a_model_writes_to_its_inputs_is_an_output_like_others(
    environments: list[Environment], model: str, solution: str, status: str, said: str, tmp_path: Path
) -> None:
    new = tmp_path / "solution.py"
    new.write_text(WRITES.format(name="ModelNew", body=solution))
    _, case = environments[0].store(tmp_path, WRITES.format(name="Model", body=model), trials=2)
    for environment in environments:
        candidate, _ = environment.candidate(case, model=str(new))
        result = environment.judge(case, candidate, [protocol.MODEL])
        reference, kernel = result["recipes"][0].targets
        assert (reference.status, reference.message, reference.repeats_differ) == ("ok", "", 0)
        assert reference.writes == (["y"] if model == EAGER else []) == kernel.writes
        assert (kernel.status, said in kernel.message) == (status, True), kernel.message


def test_a_kernel_that_writes_what_its_model_writes_is_timed(environments: list[Environment], tmp_path: Path) -> None:
    new = tmp_path / "solution.py"
    new.write_text(WRITES.format(name="ModelNew", body=EAGER))
    _, case = environments[0].store(tmp_path, WRITES.format(name="Model", body=EAGER))
    environment = environments[-1]
    candidate, _ = environment.candidate(case, model=str(new))
    kernel = environment.judge(case, candidate, [protocol.MODEL])["recipes"][0].targets[-1]
    timed = environment.time(
        case,
        ["kernel", protocol.MODEL],
        kernel.output_sha256[:1],
        kernel=kernel_of(model=str(new)),
        other_bits=True,
        memory=True,
    )
    rows = {row["target"]: row for row in timed["timings"]}
    assert (rows[protocol.MODEL]["status"], rows[protocol.MODEL]["message"]) == ("ok", "")
    assert rows[protocol.MODEL]["memory"] is not None
    assert rows["kernel"]["correct"] is True


@pytest.mark.parametrize("known", [True, False], ids=["seen by store", "seen when it runs"])
def test_a_model_that_returns_nothing_is_judged_by_what_it_writes(
    environments: list[Environment], known: bool, tmp_path: Path
) -> None:
    body = "y.add_(x)" if known else "y.add_(x[x.sum() > -1e9][0])"  # which needs elements
    _, case = environments[0].store(tmp_path, WRITES.format(name="Model", body=body), trials=2)
    index = json.loads((tmp_path / "store" / "index.json").read_text())
    assert index["writes"] == ({"2": "y"} if known else {})
    for environment in environments:
        result = environment.judge(case, None, [protocol.MODEL], subject=protocol.MODEL, power=False)
        (target,) = result["recipes"][0].targets
        assert (target.status, target.message, target.writes) == ("ok", "", ["y"])
        assert [output.name for output in target.outputs] == ["written to y"]


def test_what_is_written_in_float64_and_not_here_is_wrong(environments: list[Environment], tmp_path: Path) -> None:
    _, case = environments[0].store(tmp_path, WRITES.format(name="Model", body=FORGETS), trials=2)
    for environment in environments:
        result = environment.judge(case, None, [protocol.MODEL], subject=protocol.MODEL, power=False)
        (target,) = result["recipes"][0].targets
        assert target.status == "wrong" and target.message.endswith("(written to y)")
