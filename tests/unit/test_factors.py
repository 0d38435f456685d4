"""Factor experiments: what cannot be varied, what is asked of the worker, and what is recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.config.kernels import Kernel
from harness.executors import Answer, Task
from harness.experiments.factors import FactorExperiment, cannot_swap, link, sum_up
from harness.schema.environment_records import BINDING_OBJECT
from harness.schema.experiment_records import ExperimentFactor, FactorRecord
from harness.schema.run_records import Cell
from harness.schema.storage import Run
from harness.worker import agreement, protocol, wire
from tests.messages import answered
from tests.unit.contexts import FakeContext, FakeExecutor, ended
from tests.unit.hand_made import build


def kernel(**form: Any) -> Kernel:
    return Kernel(**{"name": "k", "sources": {"cpu": ["k.cpp"]}, **form})


def environments(**cuda: str | None) -> Any:
    return {name: SimpleNamespace(observed=SimpleNamespace(torch_cuda=version)) for name, version in cuda.items()}


PAIR = build("a", "x"), build("b", "y")
ON_A_GPU = build("a", "x", device="cuda"), build("b", "y", device="cuda")


@pytest.mark.parametrize(
    ("builds", "how", "said"),
    [
        (PAIR, {}, []),
        (PAIR, {"of": Kernel(name="k", problem="p.py", model_new="m.py")}, ["Python file"]),
        (PAIR, {"of": kernel(binding="own")}, ["binding of its own"]),
        ((PAIR[0], build("b", objects={BINDING_OBJECT: "b"})), {}, ["b: its build recorded no object file"]),
        # Object code stays within a CUDA major version.
        (ON_A_GPU, {"seen": environments(a="12.1", b="12.4")}, []),
        (ON_A_GPU, {"seen": environments(a="12.1", b="13.0")}, ["major versions differ", "a: 12", "b: 13"]),
        (ON_A_GPU, {"seen": environments(a="12.1", b=None)}, ["b: none"]),
    ],
)
def test_object_code_that_cannot_be_swapped_says_why(builds: Any, how: dict[str, Any], said: list[str]) -> None:
    why = cannot_swap(how.get("of", kernel()), {each.environment: each for each in builds}, how.get("seen", {}))
    assert all(words in why for words in said) and bool(why) == bool(said)


class Plan(SimpleNamespace):
    def workload(self, _: str) -> Any:
        return hand_made_workload()

    def kernel(self, _: str) -> Any:
        return SimpleNamespace(precision=[])

    def threads_in(self, environment: str) -> int:
        return {"a": 1, "b": 2}[environment]


def hand_made_workload() -> Any:
    from tests.unit.spec import Spec
    from tests.unit.synthetic import run_record

    return replace(run_record(Spec()).workloads[0], trials={"independent": 100, "shared_qkv": 3})


def experiment(root: Path, factor: ExperimentFactor, executor: Any, of: Kernel, **failing: Any) -> FactorExperiment:
    limits = SimpleNamespace(validation_s=60.0)
    tolerances = SimpleNamespace(decides="rounding", limits=lambda _: {"rounding": 4.0})
    context: Any = FakeContext(
        root=root,
        executor=executor,
        run=Run(root / "run"),
        plan=Plan(seed=0, limits=limits, tolerances=tolerances, variables={"a": {}, "b": {"FAST": "1"}}),
        builds={(name, "k", "cpu"): build(name, name) for name in "ab"},
        environments={
            name: SimpleNamespace(observed=SimpleNamespace(torch=version))
            for name, version in (("a", "2.1.0"), ("b", "2.5.0"))
        },
        stores={},
        kernel=lambda _: of,
        build_folder=lambda made, _: root / f"build-{made.environment}",
        artifact=lambda made, _: root / f"{made.environment}.so",
    )
    cell = Cell(environment="b", kernel="k", workload="seed-fp16", device="cpu")
    return FactorExperiment(context=context, factor=factor, cell=cell, baseline="a", failing=failing)


def reply(task: Task) -> Any:
    if task.name == "link":
        Path(task.request.library).write_bytes(b"x")
        return wire.Outcome(protocol.OK)
    if task.name == "candidate":
        return wire.CandidateResult(protocol.OK, "libgomp")
    return wire.JudgeResult(protocol.OK, recipes=[recipe("independent", 1, target(1, 1.0, ["bits"]))])


def asked(root: Path, factor: ExperimentFactor, of: Kernel | None = None) -> tuple[FactorRecord, dict[Any, Task]]:
    """The record, and the task of each (home, level)."""
    executor = FakeExecutor(reply)
    record = experiment(root, factor, executor, of or kernel()).make()
    tasks = [task for task in executor.tasks if task.name == "candidate"]
    return record, {(r.home, r.level): task for r, task in zip(record.results, tasks, strict=True)}


def test_each_home_runs_each_level_and_all_else_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("import torch\nNEW = torch.__version__ > '2.3'\n")
    homes = {("a", "a"), ("b", "a"), ("a", "b"), ("b", "b")}
    record, tasks = asked(tmp_path, ExperimentFactor.CODE)
    assert set(tasks) == homes and record.status == "ok" and record.baseline == "a"
    for (home, level), task in tasks.items():
        assert task.environment == home and task.request.kernel.library.endswith(f"{level}/out/kernel.so")
        assert task.request.threads == {"a": 1, "b": 2}[home]
    assert all(row.runtime == "libgomp" and row.output_sha256 == ["bits"] for row in record.results)
    record, tasks = asked(tmp_path, ExperimentFactor.VARIABLES)
    for (home, level), task in tasks.items():
        assert task.environment == home and task.request.kernel.artifact.endswith(f"{home}.so")
        assert task.terms.variables == {"a": {}, "b": {"FAST": "1"}}[level]
        assert task.request.threads == {"a": 1, "b": 2}[level] and not task.request.told
    python = Kernel(name="k", problem="p.py", model_new="m.py")
    record, tasks = asked(tmp_path, ExperimentFactor.VERSION, python)
    assert {(home, level): task.request.told for (home, level), task in tasks.items()} == {
        (home, level): {"a": "2.1.0", "b": "2.5.0"}[level] for home, level in homes
    }
    (tmp_path / "m.py").write_text("import torch\n")
    record, tasks = asked(tmp_path, ExperimentFactor.VERSION, python)
    assert record.status == "not_run" and "does not name" in record.message and not tasks


def test_a_process_that_dies_is_a_row_and_leaves_nothing(tmp_path: Path) -> None:
    executor = FakeExecutor(lambda task: None if task.name == "candidate" else reply(task))
    one = experiment(tmp_path, ExperimentFactor.VARIABLES, executor, kernel())
    record = one.make()
    assert record.status == "ok" and {row.status for row in record.results} == {"crashed"}
    assert not one.folder.exists()


def test_trials_reach_the_first_that_fails(tmp_path: Path) -> None:
    def trials(**failing: Any) -> dict[str, int]:
        one = experiment(tmp_path, ExperimentFactor.CODE, None, kernel(), **failing)
        return one.workload.trials

    assert trials() == {"independent": 10, "shared_qkv": 3}
    assert trials(independent=(57, 12)) == {"independent": 13, "shared_qkv": 3}


def target(passed: int, units: float, digests: list[str]) -> wire.TargetResult:
    passing = {"rounding": passed, "strict": 0, "kernelbench": 0}
    against = replace(agreement.combine("truth", []), passed=passing, max_units=units)
    return wire.TargetResult("ok", target="kernel", against=[against], output_sha256=digests)


def recipe(name: str, trials: int, *targets: wire.TargetResult) -> wire.RecipeResult:
    return wire.RecipeResult(name, trials, [], [], [], list(targets))


def test_recipes_are_added_up_and_those_that_failed_are_no_runs() -> None:
    rows = [
        recipe("independent", 3, target(2, 9.0, ["a", "b", "c"])),
        recipe("shared_qkv", 1, target(1, 1.0, ["d"])),
        recipe("large_logits", 1, wire.TargetResult("crashed", "no", "trace", target="kernel")),
    ]
    found = sum_up([(each, each.targets[0]) for each in rows], "rounding")
    assert (found["runs"], found["passed"], found["max_units"]) == (4, 3, 9.0)
    assert found["output_sha256"] == ["a", "b", "c", "d"]


class Linker:
    def __init__(self, root: Path, result: dict[str, Any] | None, *, leaves: str = "file") -> None:
        self.result, self.leaves, self.root, self.task = result, leaves, root, None

    def run(self, task: Task) -> Answer:
        self.task, library = task, Path(task.request.library)
        if self.leaves == "file":
            library.write_bytes(b"x")
        elif self.leaves == "link":
            library.symlink_to(self.root / "elsewhere")
            (self.root / "elsewhere").write_bytes(b"x")
        return Answer(result=self.result and answered(**self.result), ended=ended())


def linked(tmp_path: Path, linker: Linker) -> wire.Outcome:
    context: Any = FakeContext(
        executor=linker, run=Run(tmp_path), build_folder=lambda build, key: tmp_path / f"build-{build.environment}"
    )
    return link(context, build("a", "x"), tmp_path / "folder" / "out" / "kernel.so")


OK = {"status": "ok", "message": "", "log_excerpt": ""}


def test_linking_is_asked_for_the_kernels_objects_only(tmp_path: Path) -> None:
    linker = Linker(tmp_path, OK)
    assert linked(tmp_path, linker).status == protocol.OK
    assert linker.task is not None
    path = tmp_path / "build-a" / "out" / "kernel.o"
    assert linker.task.request.objects == [wire.ObjectRequest(path=str(path), sha256="x")]
    assert linker.task.reads == (path,)


@pytest.mark.parametrize(
    ("result", "leaves", "status"),
    [
        (OK, "nothing", protocol.CRASHED),
        (OK, "link", protocol.CRASHED),
        ({**OK, "status": "not_run", "message": "needs PyTorch"}, "nothing", protocol.NOT_RUN),
        ({"status": "fine"}, "file", protocol.CRASHED),
        (None, "file", protocol.CRASHED),
    ],
)
def test_what_was_not_linked_is_an_outcome(tmp_path: Path, result: Any, leaves: str, status: str) -> None:
    found = linked(tmp_path, Linker(tmp_path, result, leaves=leaves))
    assert found.status == status and found.message
