from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.config.kernels import Kernel
from harness.executors import Answer, Task
from harness.experiments.swap import _link, judged, unavailable
from harness.schema.environment_records import BINDING_OBJECT, BuildRecord
from harness.schema.records import Outcome
from harness.schema.storage import Run
from harness.worker import agreement, protocol, wire
from tests.messages import answered
from tests.unit.contexts import FakeContext, ended
from tests.unit.hand_made import build


def kernel(**form: Any) -> Kernel:
    return Kernel(**{"name": "k", "sources": {"cpu": ["k.cpp"]}, **form})


def environments(**cuda: str | None) -> Any:
    return {name: SimpleNamespace(observed=SimpleNamespace(torch_cuda=version)) for name, version in cuda.items()}


def reason(*builds: BuildRecord, of: Kernel | None = None, always: bool = False, seen: Any = None) -> str:
    return unavailable(of or kernel(), builds, seen or {}, always=always)


PAIR = build("a", "x"), build("b", "y")
ON_A_GPU = build("a", "x", device="cuda"), build("b", "y", device="cuda")


@pytest.mark.parametrize(
    ("builds", "how", "said"),
    [
        (PAIR, {}, []),
        ((build("a"), build("b")), {}, ["same machine code"]),
        ((build("a"), build("b")), {"always": True}, []),
        (PAIR, {"of": Kernel(name="k", problem="p.py", model_new="m.py")}, ["Python file"]),
        (PAIR, {"of": kernel(binding="own")}, ["binding of its own"]),
        (PAIR[:1], {}, ["one environment alone"]),
        ((PAIR[0], build("b", status="build_failed", message="no nvcc")), {}, ["b: its build is build failed: no "]),
        ((PAIR[0], build("b", objects={BINDING_OBJECT: "b"})), {}, ["no object file"]),
        # Object code stays within a CUDA major version.
        (ON_A_GPU, {"seen": environments(a="12.1", b="12.4")}, []),
        (ON_A_GPU, {"seen": environments(a="12.1", b="13.0")}, ["major versions differ", "a: 12", "b: 13"]),
        (ON_A_GPU, {"seen": environments(a="12.1", b=None)}, ["b: none"]),
    ],
)
def test_what_cannot_or_need_not_be_swapped_says_why(builds: Any, how: dict[str, Any], said: list[str]) -> None:
    why = reason(*builds, **how)
    assert all(words in why for words in said) and bool(why) == bool(said)


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
    found = judged(wire.JudgeResult("wrong", "said", recipes=rows), "rounding")
    assert (found["runs"], found["passed"], found["max_units"]) == (4, 3, 9.0)
    assert found["output_sha256"] == ["a", "b", "c", "d"]
    assert (found["status"], found["message"], found["log_excerpt"]) == ("wrong", "said", "trace")


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


def linked(tmp_path: Path, linker: Linker) -> Path | Outcome:
    context: Any = FakeContext(
        executor=linker, run=Run(tmp_path), build_folder=lambda build, key: tmp_path / f"build-{build.environment}"
    )
    return _link(context, build("a", "x"), tmp_path / "folder")


OK = {"status": "ok", "message": "", "log_excerpt": ""}


def test_linking_is_asked_for_the_kernels_objects_alone(tmp_path: Path) -> None:
    linker = Linker(tmp_path, OK)
    assert linked(tmp_path, linker) == tmp_path / "folder" / "out" / "kernel.so"
    assert linker.task is not None
    assert linker.task.request.objects == [
        wire.ObjectRequest(path=str(tmp_path / "build-a" / "out" / "kernel.o"), sha256="x")
    ]
    assert linker.task.reads == (tmp_path / "build-a" / "out" / "kernel.o",)


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
    assert isinstance(found, Outcome) and found.status == status and found.message
