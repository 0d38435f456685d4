"""Hostile kernels in one real run: each is a row with its status and message, and takes nothing else with it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psutil
import pytest

from harness.isolate.logs import LOG_LIMIT_BYTES
from harness.schema.records import LaunchRecord, Timing, ValidationRecord
from harness.schema.storage import Run
from tests.conftest import ROOT
from tests.environments.test_run import head, make_project, report, start
from tests.hostile import HOSTILE, PROBLEM, SCRIPT, SLEEP_S, check_launch

pytestmark = [pytest.mark.environments, pytest.mark.timeout(1500)]

PATCHES = """
import builtins, hashlib, importlib, json, os, sys, time
sys.path.insert(0, sys.argv[1])
import torch
from worker import integrity, kernels, sampling, tensors, timing
look = integrity.Snapshot().replaced

import torch._dynamo, torch._inductor, torch.utils.cpp_extension, torch.library, torch.func, torch.onnx
import torch.distributed, torch.fx
compiled = torch.compile(lambda x: torch.nn.functional.softmax(x.exp(), -1), backend="eager")
compiled(torch.ones(4, 4))
torch.jit.trace(torch.nn.Linear(3, 3), torch.ones(1, 3))
torch.nn.functional.scaled_dot_product_attention(*[torch.ones(1, 1, 4, 8)] * 3)
with torch.profiler.profile():
    torch.ones(3) + 1
torch.backends.cuda.matmul.allow_tf32 = True
time.mine = lambda: 0
assert look() == "", "what PyTorch does itself: " + look()

def trips(owner, name, value, said):
    had = name in vars(owner)
    before = getattr(owner, name, None)
    setattr(owner, name, value)
    found = look()
    setattr(owner, name, before) if had else delattr(owner, name)
    assert found == "replaced " + said, (found, said)
    assert look() == ""

fake = lambda *_, **__: 0
trips(time, "perf_counter", fake, "time.perf_counter")
trips(builtins, "open", fake, "builtins.open")
trips(hashlib, "sha256", fake, "hashlib.sha256")
trips(json, "dumps", fake, "json.dumps")
trips(torch, "empty_like", fake, "torch.empty_like")
trips(torch.cuda, "synchronize", fake, "torch.cuda.synchronize")
trips(torch.cuda.Event, "elapsed_time", fake, "torch.cuda.streams.Event.elapsed_time")
trips(torch.nn.functional, "softmax", fake, "torch.nn.functional.softmax")
trips(torch.nn.Linear, "forward", fake, "torch.nn.modules.linear.Linear.forward")
trips(torch.Tensor, "copy_", fake, "torch.Tensor.copy_")  # hides what the class inherits
trips(sampling, "sample", fake, "worker.sampling.sample")
trips(sampling, "len", fake, "worker.sampling.len")  # hides a builtin
trips(integrity.Snapshot, "replaced", fake, "worker.integrity.Snapshot.replaced")
trips(sampling, "time", os, "worker.sampling.time")
code, sampling.median_error.__code__ = sampling.median_error.__code__, fake.__code__
assert look() == "replaced worker.sampling.median_error"
sampling.median_error.__code__ = code
real, sys.modules["time"] = time, os
assert look() == "replaced sys.modules['time']"
sys.modules["time"] = real
time.perf_counter = time.monotonic = fake
assert look().endswith("(and 1 more)")

# What a GPU's times are asked of: a type in C, which takes no other method from Python, in any version.
from worker import events
event = events._Event(enable_timing=True)
assert event.query() and callable(event.record) and callable(event.elapsed_time)
for name in ("record", "query", "synchronize", "elapsed_time"):
    try:
        setattr(events._Event, name, None)
    except TypeError:
        continue
    raise AssertionError(name + " can be replaced")
"""


def test_what_is_replaced_is_named_and_what_pytorch_changes_itself_is_not(pinned_pythons: list[Path]) -> None:
    for python in pinned_pythons:
        done = subprocess.run(
            [str(python), "-c", PATCHES, str(ROOT / "harness")], capture_output=True, text=True, cwd=python.parent
        )
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Run]:
    kernels = "".join(
        f"  - {{name: {name}, problem: faults/problem.py, model_new: faults/{name}.py, devices: [cpu], trials: 2}}\n"
        for name in HOSTILE
    )
    matrix = head("2.5.0") + "kernels:\n" + kernels + "limits: {validation_s: 60, launch_s: 60}\n"
    project = make_project(tmp_path_factory.mktemp("hostile"), matrix)
    (project / "faults").mkdir()
    (project / "faults" / "problem.py").write_text(PROBLEM)
    for name, case in HOSTILE.items():
        (project / "faults" / f"{name}.py").write_text(case.source)
    code, printed, run = start(project, "matrix", "--launches=1", "--device=cpu")
    assert code == 0, printed
    return printed, run


def validation_of(run: Run, name: str) -> ValidationRecord:
    return next(v for v in run.validations() if v.kernel == name)


def launch_of(run: Run, name: str) -> tuple[LaunchRecord, Timing | None]:
    launch = next(x for x in run.launches() if x.kernel == name)
    return launch, next((t for t in launch.timings if t.target == "kernel"), None)


@pytest.mark.parametrize("name", HOSTILE)
def test_each_is_a_row_with_its_status_and_message(hostile: tuple[str, Run], name: str) -> None:
    case, (printed, run) = HOSTILE[name], hostile
    validation = validation_of(run, name)
    assert validation.status == case.status, (validation.message, printed)
    assert case.said in validation.message and len(validation.message) < 700
    assert case.status == "ok" or validation.message


@pytest.mark.parametrize("name", [name for name, case in HOSTILE.items() if case.timed])
def test_each_is_told_in_its_launch(hostile: tuple[str, Run], name: str) -> None:
    case, (_, run) = HOSTILE[name], hostile
    check_launch(case, launch_of(run, name)[0])


def test_the_inputs_of_their_problem_are_made_once(hostile: tuple[str, Run]) -> None:
    assert len(list((hostile[1].folder / "logs").rglob("store-*.log"))) <= 1, "0 where an earlier run has made them"


def test_what_was_measured_before_a_clock_was_replaced_stays(hostile: tuple[str, Run]) -> None:
    launch, row = launch_of(hostile[1], "replaces_clock_when_timed")
    assert row is not None
    others = [other for other in launch.timings if other.target != "kernel"]
    assert others and all(other.order < row.order and (other.status, other.message) == ("ok", "") for other in others)


def test_a_failed_kernel_shows_its_traceback(hostile: tuple[str, Run]) -> None:
    validation = validation_of(hostile[1], "script")
    target = validation.recipes[0].targets[-1]
    assert target.status == "crashed" and "Traceback" in target.log_excerpt
    assert target.message == validation.message.partition(": ")[2]


def test_a_loud_kernel_fills_no_disk(hostile: tuple[str, Run]) -> None:
    logs = list((hostile[1].folder / "logs").rglob("candidate-shouts-*.log"))
    assert len(logs) == 1 and logs[0].stat().st_size < LOG_LIMIT_BYTES + 100
    assert b"bytes dropped here" in logs[0].read_bytes()


def test_no_process_is_left(hostile: tuple[str, Run]) -> None:
    assert not [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", SLEEP_S]]


def test_the_page_shows_what_they_say_and_runs_none_of_it(hostile: tuple[str, Run]) -> None:
    run = hostile[1]
    code, printed = report(run)
    assert code in (0, 20), printed
    page = (run.folder / "index.html").read_text()
    assert "<script>alert" not in page
    assert SCRIPT.replace("<", "&lt;").replace(">", "&gt;") in page
    assert "exited with 0 before it gave a result" in page
