"""What is asked of checkers, and what is concluded from their runs on a GPU; tests/unit/test_worker_check.py has real
ones on the CPU.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.config.kernels import Kernel
from harness.experiments import checkers
from harness.experiments.checkers import DRIVER, CheckersExperiment, flags_of
from harness.schema.environment_records import BuildRecord
from harness.schema.experiment_records import CheckerResult
from harness.schema.records import Device
from harness.schema.run_records import Cell
from harness.schema.storage import Run, save_record
from harness.worker import check
from harness.worker.check import CUDA_FAULTS
from harness.worker.wire import Called, CheckResult, CompilerCall
from tests.messages import asked
from tests.unit.contexts import FakeContext, FakeExecutor
from tests.unit.hand_made import build, workload
from tests.unit.test_experiments_planning import validation
from tests.unit.test_findings import INITCHECK, MEMCHECK, RACECHECK, SYNCCHECK

DONE = "call: done\n"
FOUND = {"memcheck": MEMCHECK, "racecheck": RACECHECK, "initcheck": INITCHECK, "synccheck": SYNCCHECK}


@pytest.mark.parametrize(
    ("device", "shape", "called"),
    [
        ("cpu", (1, 8, 512), (1, 8)),
        ("cpu", (4, 16, 1024), (4, 1)),
        ("cpu", (4, 16, 4096), (1, 1)),
        ("cpu", (1, 1, 1 << 20), (1, 1)),
        ("cuda", (1, 8, 160), (1, 8)),
        ("cuda", (1, 8, 512), (1, 4)),
    ],
)
def test_a_call_under_a_checker_is_as_large_as_it_can_afford(
    device: Device, shape: tuple[int, int, int], called: tuple[int, int]
) -> None:
    assert checkers.called_shape(workload(*shape), device) == called
    flops = (workload(*shape).flops or 0) / (shape[0] * shape[1])
    assert called == (1, 1) or flops * called[0] * called[1] <= checkers.MOST_FLOPS[device]


def test_flags_are_the_builds_own_with_pytorchs_language_and_abi() -> None:
    given = ["cxx: -O3", "cxx: -DBLOCK_M=32", "nvcc: -gencode=arch=compute_90,code=sm_90", "ld: -pthread"]
    ninja = "cflags = -D_GLIBCXX_USE_CXX11_ABI=0 -fPIC -std=c++17\npost_cflags = -std=c++17 -O3\n"
    flags = flags_of(build(flags=given, build_ninja=ninja))
    assert flags.cxx == ["-D_GLIBCXX_USE_CXX11_ABI=0", "-std=c++17", "-O3", "-DBLOCK_M=32"]
    assert flags.nvcc == ["-gencode=arch=compute_90,code=sm_90"]
    assert flags_of(build(flags=given)).cxx[0] == "-std=c++17"


def called(tool: str, fault: str, output: str, **changes: Any) -> Called:
    values = {"build": "call", "tool": tool, "fault": fault, "command": "./call", "returncode": 0, "sha256": "1"}
    return Called(**{**values, "output": output, **changes})


def on_a_gpu(found: str = "", controls: bool = True, bulk: bool = False, **changes: Any) -> CheckResult:
    runs = []
    for tool, fault in CUDA_FAULTS.items():
        runs.append(called(tool, "", FOUND[tool] if tool == found else DONE, **changes))
        runs.append(called(tool, fault, FOUND[tool] if controls else DONE))
    built = {"driver": CompilerCall(command="nvcc", errors=""), "call": CompilerCall(command="nvcc -o call", errors="")}
    return CheckResult(status="ok", openmp=False, bulk_copies=bulk, builds=built, runs=runs)


def test_silence_on_a_gpu() -> None:
    results = checkers.cuda_results(on_a_gpu())
    assert [result.tool for result in results] == list(checkers.COMPUTE) == list(CUDA_FAULTS)
    assert all(result.status == "ok" and result.control_found and result.control for result in results)
    assert all(result.command == "nvcc -o call && ./call" for result in results)


@pytest.mark.parametrize("tool", checkers.COMPUTE)
def test_a_finding_on_a_gpu_is_that_tools(tool: str) -> None:
    results = {result.tool: result for result in checkers.cuda_results(on_a_gpu(tool))}
    assert [name for name, result in results.items() if result.findings] == [tool]
    assert results[tool].status == "wrong" and results[tool].findings[0].kind == checkers.COMPUTE[tool]


@pytest.mark.process
def test_every_tool_has_its_run_and_its_control_all_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a tool that waits until all others have begun, and a program that writes which call it was."""
    begun, tool, program = tmp_path / "begun", tmp_path / "compute-sanitizer", tmp_path / "call"
    begun.mkdir()
    tool.write_text(
        f'#!/bin/sh\nname=$2; shift 2; [ "$1" = --padding ] && shift 2\n"$@" "$name" && touch {begun}/$$\n'
        f"for i in $(seq 100); do [ $(ls {begun} | wc -l) -ge 8 ] && echo done && exit 0; sleep 0.1; done; exit 1\n"
    )
    program.write_text(
        '#!/bin/sh\nfor last; do :; done\n[ $# = 12 ] && fault=${11}\nprintf "%-48s" "$last $fault" > "${10}"\n'
    )
    for path in (tool, program):
        path.chmod(0o755)
    monkeypatch.setattr(check, "need_cuda", lambda: (str(tmp_path / "nvcc"), str(tool)))
    monkeypatch.setattr(check, "link_cuda", lambda nvcc, request, folder, builds: str(program))
    shape = {"id": "w", "dtype": "float16", "batch": 1, "heads": 1, "seq_len": 3, "head_dim": 8, "causal": False}
    request = {"driver": "", "sources": [], "objects": [], "include_dirs": [], "flags": {}}
    request |= {
        "device": "cuda",
        "workload": {**shape, "scale": 1.0, "recipes": {"independent": 1}},
        "batch": 1,
        "heads": 1,
        "recipe": "independent",
        "trial": 0,
        "seed": 0,
        "threads": 8,
        "run_s": 20,
    }
    runs = check.check(asked("check", request)).runs
    assert [(run.tool, run.fault) for run in runs] == [
        (tool, fault) for tool, planted in CUDA_FAULTS.items() for fault in ("", planted)
    ]
    assert all(run.returncode == 0 and run.output == "done\n" for run in runs)
    outputs = [f"{run.tool} {run.fault}".ljust(48).encode() for run in runs]
    assert [run.sha256 for run in runs] == [hashlib.sha256(output).hexdigest() for output in outputs]
    assert len({run.command for run in runs}) == len(runs)


def test_silence_without_the_control_is_no_result() -> None:
    for result in checkers.cuda_results(on_a_gpu(controls=False)):
        assert result.status == "not_run" and result.control_found is False and "means nothing" in result.message


def test_hazards_where_code_copies_in_bulk_are_of_no_kind_and_still_prove_the_tool() -> None:
    race = next(r for r in checkers.cuda_results(on_a_gpu("racecheck", bulk=True)) if r.tool == "racecheck")
    assert race.control_found and [finding.kind for finding in race.findings] == ["other"]


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"returncode": None}, "timed_out", "in time"),
        ({"returncode": 3, "output": "call: attention_forward: no such head_dim\n"}, "unsupported", "no such head_dim"),
        ({"returncode": 2, "output": "call: cudaMalloc: no device"}, "crashed", "ended with 2"),
    ],
)
def test_a_call_that_did_not_end_well_is_not_silence(changes: dict[str, Any], status: str, words: str) -> None:
    good = on_a_gpu()
    runs = [replace(run, **({} if run.fault else changes)) for run in good.runs]
    for result in checkers.cuda_results(replace(good, runs=runs)):
        assert result.status == status and words in result.message


def test_what_could_not_be_linked_says_why() -> None:
    failed = {"driver": CompilerCall(command="nvcc -c", errors="x.cpp(1): error: no such thing")}
    printed = CheckResult(status="ok", openmp=False, bulk_copies=False, builds=failed, runs=[])
    assert {(r.status, "no such thing" in r.message, r.command) for r in checkers.cuda_results(printed)} == {
        ("not_run", True, "nvcc -c")
    }


def twin(zero: str, again: str, pattern: str, controls: str = "12") -> CheckResult:
    rows = [("zero", "", zero), ("zero", "again", again), ("pattern", "", pattern)]
    rows += [(build, "uninitialised", sha256) for build, sha256 in zip(("zero", "pattern"), controls, strict=True)]
    runs = [called(build, fault, DONE, build=build, sha256=sha256) for build, fault, sha256 in rows]
    builds = {name: CompilerCall(command="c++", errors="") for name in ("memory", "thread", "zero", "pattern")}
    return CheckResult(status="ok", openmp=True, bulk_copies=False, builds=builds, runs=runs)


def last(printed: CheckResult, *, free_arithmetic: bool = False) -> CheckerResult:
    return checkers.cpu_results(printed, free_arithmetic=free_arithmetic)[-1]


def test_builds_that_differ_in_bits_read_what_nobody_set() -> None:
    assert last(twin("a", "a", "a")).status == "ok"
    found = last(twin("a", "a", "b"))
    assert found.status == "wrong" and found.findings[0].kind == "uninitialised"
    assert "no output" in last(twin("a", "a", "")).findings[0].text


def test_where_bits_say_nothing_nothing_is_said() -> None:
    assert "runs again" in last(twin("a", "c", "b")).message and not last(twin("a", "c", "b")).findings
    assert last(twin("a", "a", "a", controls="11")).status == "not_run"
    allowed = last(twin("a", "a", "b"), free_arithmetic=True)
    assert allowed.status == "not_run" and "flags" in allowed.message and not allowed.findings


def context_of(tmp_path: Path, executor: FakeExecutor, built: BuildRecord, kernel: Kernel) -> Any:
    for name in (DRIVER, "csrc/k.cpp", "csrc/attention.h"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    return FakeContext(
        root=tmp_path,
        executor=executor,
        run=Run(tmp_path / "run"),
        sources={"mine": {"cpu": ["csrc/k.cpp"]}},
        builds={("e", "mine", "cpu"): built},
        build_folder=lambda build, key: tmp_path / "build",
        kernel=lambda name: kernel,
        plan=SimpleNamespace(seed=0, threads_in=lambda environment: 2, workload=lambda id: workload(1, 2, 64)),
    )


CELL = Cell(environment="e", kernel="mine", workload="w", device="cpu")
KERNEL = Kernel(name="mine", sources={"cpu": ["csrc/k.cpp"]})


def test_the_verb_is_asked_for_the_kernels_own_sources_and_objects(tmp_path: Path) -> None:
    executor = FakeExecutor(twin("a", "a", "a"))
    record = CheckersExperiment(context=context_of(tmp_path, executor, build(), KERNEL), cell=CELL).make()
    (task,) = executor.tasks
    assert record.status == "ok" and record.duration_s == 2.0 and len(record.results) == 4
    assert task.terms.timeout_s == checkers.TOTAL_S and not task.writes
    assert task.request.objects == [str(tmp_path / "build" / "out" / "kernel.o")]
    assert {tmp_path / name for name in (DRIVER, "csrc/k.cpp", "csrc/attention.h")} <= set(task.reads)


@pytest.mark.parametrize(
    ("built", "kernel", "words"),
    [
        (build(status="build_failed", message="no compiler"), KERNEL, "build failed: no compiler"),
        (build(), Kernel(name="k", sources={"cpu": ["csrc/k.cpp"]}, binding="own"), "no C entry point"),
        (build(), Kernel(name="k", problem="p.py", model_new="m.py"), "Python file"),
    ],
)
def test_what_has_no_entry_point_is_not_run(tmp_path: Path, built: BuildRecord, kernel: Kernel, words: str) -> None:
    executor = FakeExecutor(None)
    record = CheckersExperiment(context=context_of(tmp_path, executor, built, kernel), cell=CELL).make()
    assert record.status == "not_run" and words in record.message and not executor.tasks


LACKS = CheckResult(status="not_run", message="nm is missing", openmp=False, bulk_copies=False, builds={}, runs=[])


@pytest.mark.parametrize(
    ("result", "status", "words"),
    [(None, "crashed", ""), ({"status": "ok", "runs": 7}, "crashed", ""), (LACKS, "not_run", "nm is missing")],
)
def test_a_result_that_cannot_be_read_and_a_tool_that_is_missing_are_rows(
    tmp_path: Path, result: Any, status: str, words: str
) -> None:
    context = context_of(tmp_path, FakeExecutor(result), build(), KERNEL)
    record = CheckersExperiment(context=context, cell=CELL).make()
    assert record.status == status and record.message and words in record.message and not record.results


def test_the_tools_see_inputs_on_which_it_fails(tmp_path: Path) -> None:
    context = context_of(tmp_path, FakeExecutor(twin("a", "a", "a")), build(), KERNEL)
    experiment = CheckersExperiment(context=context, cell=CELL)
    assert experiment.find_inputs() == ("independent", 0), "nothing is known of it"
    for units, trial in (([1.0, 2.0, 9.0, 1.0], 2), ([1.0, None, 9.0, 1.0], 1), ([1.0] * 4, 0)):
        save_record(context.run.validation_path(CELL), validation(units=units))
        assert experiment.find_inputs() == ("independent", trial)
        experiment.make()
        assert context.executor.tasks[-1].request.trial == trial
