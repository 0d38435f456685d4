"""Who failed: faults planted in kernel-matrix's own code at every step are never the subject's, and vice versa.

All tasks of an environment run in one process, which puts a stub in the place of one function after another.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.worker import protocol
from harness.worker.protocol import Fault
from tests.environments.verbs import LIMITS, TIMING, Environment, kernel_of

pytestmark = [pytest.mark.environments, pytest.mark.timeout(900)]

# Runs tasks, each with a stub that raises in place of a function of the worker, where one is named.
RUN = """
import importlib, json, sys
from worker import codec, tasks, wire

def place_of(name):
    module, *names = name.split(":")
    found = importlib.import_module(f"worker.{module}")
    *outer, last = names[0].split(".")
    for each in outer:
        found = getattr(found, each)
    return found, last

def stub(*arguments, **named):
    raise ValueError("planted")

answers = []
for task, planted, request in json.load(open(sys.argv[1])):
    perform = tasks.prepared(task)
    if planted:
        place, name = place_of(planted)
        own = place.__dict__[name]
        setattr(place, name, stub)
    try:
        result = perform(codec.read(wire.TASKS[task].request, {"version": codec.VERSION, **request}))
        answers.append(codec.dump(result))
    finally:
        if planted:
            setattr(place, name, own)
json.dump(answers, open(sys.argv[2], "w"))
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
    pass
def get_inputs():
    return [torch.randn(4, 32)]
def get_init_inputs():
    return [32]
"""
# Step to the task that takes it, and functions of kernel-matrix in which it may fail.
PLANTED = {
    "inputs": ("store", ["tensors:to_array", "draws:_spread", "store:_inputs", "protocol:write_atomically"]),
    "candidate": (
        "candidate",
        ["problem:ProblemWorkload.arguments", "tensors:has_poison", "candidate:store", "candidate:_changed"],
    ),
    "truth": ("judge", ["problem:ProblemWorkload.exact", "truth:Cache.get", "problem:ProblemWorkload._computed_by"]),
    "judging": ("judge", ["judge:look", "judging:_as_output", "judge:read_output", "power:prove"]),
    "timing": ("time", ["target:Target.sample", "host:Callee.map", "fresh:Fresh.draw"]),
    "memory": ("time", ["memory:on_cpu", "memory:_status"]),
    "experiments": ("conditions", ["conditions:_call", "conditions:ConditionJob.arguments", "conditions:_run_job"]),
    "profile": ("profile", ["operators:summed", "profile:_events"]),
}
SKIPPED = "kernel-matrix could not measure this here, because ValueError: planted (help: report it with this log"
STEPS = [(step, name) for step, (_, names) in PLANTED.items() for name in names]


class Steps:
    """The requests of every step on one problem file."""

    def __init__(self, environment: Environment, folder: Path, text: str = PROBLEM) -> None:
        self.environment, self.folder = environment, folder
        path, store = folder / "problem.py", folder / "store"
        path.write_text(text)
        problem = {"file": str(path), "store": str(store)}
        case = {"id": "problem", "dtype": "float32", "recipes": {"independent": 2}, "problem": problem}
        common = {"workload": case, "seed": 0, "threads": 1}
        kernel, self.out = kernel_of(model=str(path)), folder / "out"
        job = {"number": 0, "condition": {}, "trials": [0], "repeats": 1, "patience_s": 5.0}
        self.requests: dict[str, dict[str, Any]] = {
            "store": {
                "problem": str(path),
                "out": str(store),
                "seed": 0,
                "trials": 2,
                "dtype": "float32",
                "most_bytes": 1 << 30,
                "operator": None,
            },
            "candidate": {**common, "kernel": kernel, "out": str(self.out)},
            "judge": {
                **common,
                "device": "cpu",
                "references": [protocol.MODEL],
                "candidate_out": str(self.out),
                "truth_dir": str(folder / "truth"),
                "arrays": "",
                "array_trials": 0,
                "decides": "rounding",
                "limits": LIMITS,
                "power": True,
                "precision": None,
                "candidate": None,
            },
            "time": {
                "workloads": [case],
                "seed": 0,
                "threads": 1,
                "device": "cpu",
                "rows": [["problem", protocol.MODEL]],
                "order_seed": 3,
                "timing": TIMING,
                "expected_sha256": {},
                "limits": {},
                "memory": True,
            },
            "conditions": {
                **common,
                "kernel": kernel,
                "out": str(folder / "conditions"),
                "jobs": [job],
                "libraries": {},
            },
            "profile": {
                **common,
                "kernel": kernel,
                "target": protocol.KERNEL,
                "device": "cpu",
                "calls": 3,
                "most_s": 0.1,
            },
        }

    def run(self, *steps: tuple[str, str]) -> list[dict[str, Any]]:
        """The results of tasks, in their order, each with a fault planted in a function, or in none."""
        asked, answers = self.folder / "asked.json", self.folder / "answers.json"
        truths = [
            {"truth_dir": str(self.folder / f"truth-{number}")} if task == "judge" else {}  # each computes its own
            for number, (task, _) in enumerate(steps)
        ]
        requests = [{**self.requests[task], **truth} for (task, _), truth in zip(steps, truths, strict=True)]
        asked.write_text(json.dumps([(*step, request) for step, request in zip(steps, requests, strict=True)]))
        self.environment.script(RUN, str(asked), str(answers))
        found: list[dict[str, Any]] = json.loads(answers.read_text())
        return found


def faults(result: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(status, fault, message) of a result, and of all that it holds, where that is not well."""
    own = [result] if "status" in result else []
    own += [each for recipe in result.get("recipes", []) if isinstance(recipe, dict) for each in recipe["targets"]]
    own += result.get("timings", [])
    return [(each["status"], each["fault"], each["message"]) for each in own if each["status"] != protocol.OK]


@pytest.fixture(scope="module")
def planted(environments: list[Environment], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """By function, what its task gave when it failed; and by task, what that gave when none did."""
    steps = Steps(environments[0], tmp_path_factory.mktemp("planted"))
    (stored, candidate) = steps.run(("store", ""), ("candidate", ""))
    assert stored["status"] == candidate["status"] == protocol.OK, (stored, candidate)
    del candidate["version"]
    steps.requests["judge"]["candidate"] = candidate
    tasks = [(task, name) for task, names in PLANTED.values() for name in ["", *names]]
    tasks.sort(key=lambda each: each[0] in ("store", "candidate"))  # which take away what the others read
    return {name or task: answer for (task, name), answer in zip(tasks, steps.run(*tasks), strict=True)}


@pytest.mark.parametrize("task", dict.fromkeys(task for task, _ in PLANTED.values()))
def test_nothing_fails_where_nothing_is_planted(planted: dict[str, Any], task: str) -> None:
    assert faults(planted[task]) == []


@pytest.mark.parametrize(("step", "function"), STEPS)
def test_a_fault_of_kernel_matrix_is_no_status_of_the_subject(
    planted: dict[str, Any], step: str, function: str
) -> None:
    result = planted[function]
    found = faults(result)
    assert {status for status, _, _ in found} <= {protocol.NOT_RUN, protocol.UNDECIDABLE}
    if step == "truth":  # what has none is held against Model, and says so
        assert "there is no truth (ValueError: planted)" in result["message"]
    elif step == "memory":
        assert found == [] and result["timings"][0]["memory"] is None
        assert SKIPPED in result["timings"][0]["memory_message"]
    else:
        assert found and all(fault == Fault.TOOL and message.startswith(SKIPPED) for _, fault, message in found)


# The subject's own failures: what is replaced in the problem file and by what, the task, its status, its words.
OWN = {
    "its inputs": ("return [torch.randn(4, 32)]", "return [torch.randn(4, 32) @ 1]", "store", "crashed", "TypeError"),
    "its arguments": ("return [32]", "return [32, 32]", "store", "crashed", "takes 2 positional arguments"),
    "its name": ("class Model(", "class Other(", "store", "crashed", "NameError"),
    "its syntax": ("def get_inputs():", "def get_inputs(:", "store", "crashed", "SyntaxError"),
    "what it returns": (
        "return [torch.randn(4, 32)]",
        "return [torch.rand(4).sort()[0], object()]",
        "store",
        "crashed",
        "cannot be stored",
    ),
    "a module of torch": ("import torch\n", "import torch.nothing\n", "store", "crashed", "torch.nothing"),
    "its constructor": ("    pass", "    def __init__(self, n):\n        1 / 0", "candidate", "crashed", "Division"),
    "its call": ("    pass", "    def forward(self, x):\n        return x @ x", "candidate", "crashed", "RuntimeError"),
    "its signature": ("    pass", "    def forward(self):\n        return 0", "candidate", "crashed", "TypeError"),
    "its refusal": (
        "    pass",
        "    def forward(self, x):\n        raise NotImplementedError",
        "candidate",
        "unsupported",
        "NotImplementedError",
    ),
    "no forward": ("(Model):\n    pass", "(torch.nn.Module):\n    pass", "candidate", "crashed", "TypeError"),
    "no ModelNew": ("class ModelNew", "class Else", "candidate", "crashed", "defines no ModelNew"),
    "its model's call": ("torch.relu(self", "torch.relu(1 / 0 * self", "judge", "unsupported", "ZeroDivisionError"),
    "what an operator refuses": ("torch.relu(", "torch.linalg.inv(", "judge", "unsupported", "inv"),
}
# What keeps it from running and is no failure of its own: the same columns, with who failed and what to do.
KEPT = {
    "a package": ("import torch\n", "import torch, nothere.part\n", Fault.ENVIRONMENT, "package that brings nothere"),
    "memory": ("return [32]", "raise MemoryError", Fault.LIMIT, "limits.memory_gib"),
    "allocation": ("return [32]", "torch.empty(1 << 60)", Fault.LIMIT, "limits.memory_gib"),
    "rights": ("return [32]", "raise PermissionError(13, 'no')", Fault.LIMIT, "TMPDIR"),
    "threads": ("return [32]", 'raise RuntimeError("can\'t start new thread")', Fault.LIMIT, "limits.processes"),
    "a cause": (
        "return [32]",
        "try:\n        import nothere\n    except ImportError as e:\n        raise ValueError('no') from e",
        Fault.ENVIRONMENT,
        "nothere",
    ),
}


@pytest.mark.parametrize("name", OWN)
def test_a_failure_of_the_subject_stays_its_own(environments: list[Environment], tmp_path: Path, name: str) -> None:
    old, new, task, status, words = OWN[name]
    steps = Steps(environments[0], tmp_path, PROBLEM if task == "judge" else PROBLEM.replace(old, new, 1))
    answers = steps.run(*[(each, "") for each in ("store", "candidate") if task != "store"] or [(task, "")])
    result = answers[-1]
    if task == "judge":
        (tmp_path / "problem.py").write_text(PROBLEM.replace(old, new, 1))
        steps.requests[task]["subject"] = protocol.MODEL
        (result,) = steps.run((task, ""))
    assert (result["status"], result["fault"]) == (status, Fault.SUBJECT), result
    assert words in result["message"]


@pytest.mark.parametrize("name", KEPT)
def test_what_a_limit_or_the_environment_refuses_is_skipped(
    environments: list[Environment], tmp_path: Path, name: str
) -> None:
    old, new, fault, words = KEPT[name]
    (result,) = Steps(environments[0], tmp_path, PROBLEM.replace(old, new, 1)).run(("store", ""))
    assert (result["status"], result["fault"]) == (protocol.NOT_RUN, fault), result
    assert result["message"].startswith("kernel-matrix could not measure this here, because ")
    assert words in result["message"].partition("(help: ")[2]
