"""Hardware counters: what ncu prints becomes records, and records become rows of the page."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.experiments.counters import METRIC_OF, parse, read_run
from harness.experiments.run import uncounted
from harness.schema.experiment_records import CountersRecord, FunctionCounters
from harness.schema.run_records import Cell
from harness.schema.storage import Run, save_record
from harness.worker import check, wire
from reports.compare.gpus import Counted, counted
from reports.load.evidence import load_evidence
from reports.render.page import render_page
from reports.render.report import Report
from tests.unit.contexts import FakeContext, FakeExecutor
from tests.unit.spec import BASE, NEXT, Spec
from tests.unit.synthetic import write_run

SEED, KERNEL = "seed-fp16", "attention_scalar"
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
# As ncu prints its raw page: what the program says stands around it, and a row of units follows the names.
COLUMNS = {
    "ID": ("", "0"),
    "Process Name": ("", "call"),
    "Kernel Name": ("", "void forward<__half, 64>(const T1 *, int)"),
    "Block Size": ("", "(256, 1, 1)"),
    "dram__bytes.sum": ("byte", "1,572,864"),
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": ("%", "3.5"),
    "gpu__time_duration.sum": ("nsecond", "38,720"),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": ("", "250"),
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": ("", "1,000"),
    "launch__registers_per_thread": ("register/thread", "96"),
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": ("%", "0"),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("%", "n/a"),
    STALL.format("barrier"): ("inst", "0.5"),
    STALL.format("long_scoreboard"): ("inst", "1.5"),
    STALL.format("selected"): ("inst", "1"),
}


def printed_page(launches: int = 1) -> str:
    def line(values: list[str]) -> str:
        return ",".join(f'"{value}"' for value in values)

    rows = [line(list(COLUMNS)), line([unit for unit, _ in COLUMNS.values()])]
    rows += [line([value for _, value in COLUMNS.values()])] * launches
    return "\n".join(["==PROF== Connected to process 7 (/tmp/call)", "call: done", *rows, ""])


def test_each_launch_is_a_row_of_numbers() -> None:
    first, second = parse(printed_page(2))
    assert (
        first
        == second
        == FunctionCounters(
            name="void forward<__half, 64>(const T1 *, int)",
            duration_us=38.72,
            tensor_pct=0.0,
            dram_pct=3.5,
            dram_bytes=1572864.0,
            occupancy_pct=None,
            bank_conflicts=250.0,
            shared_wavefronts=1000.0,
            registers=96,
            stalls={"long_scoreboard": 1.5, "barrier": 0.5},
        )
    )
    assert list(first.stalls) == ["long_scoreboard", "barrier"]


@pytest.mark.parametrize("text", ["", "call: done", "==ERROR== no kernels were profiled", '"a","b"\n"",""\n"1","2"'])
def test_other_words_are_no_counters(text: str) -> None:
    assert parse(text) == []


def test_every_metric_that_is_read_is_asked_for() -> None:
    asked = set(check.METRICS)
    assert set(METRIC_OF.values()) <= asked and "gpu__time_duration.sum" in asked


@pytest.mark.process
@pytest.mark.parametrize("chip", ["ga100", "ad102", "gh100"])
def test_the_metrics_exist(chip: str) -> None:
    ncu = check.find_ncu(os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin"))
    if ncu is None:
        pytest.skip("no ncu here")
    known = subprocess.run([ncu, "--query-metrics", "--chips", chip], capture_output=True, text=True, check=True).stdout
    names = {line.split()[0] for line in known.splitlines() if line.strip()}
    plain = [name for name in check.METRICS if not name.startswith(("regex:", "launch__"))]  # these are always there
    assert not [name for name in plain if name.partition(".")[0] not in names]
    assert any(name.startswith("smsp__average_warps_issue_stalled_") for name in names)


def called(output: str, returncode: int | None = 0) -> wire.CountersResult:
    run = wire.Called("call", "ncu", "", "ncu ./call", returncode, output, "")
    return wire.CountersResult(
        "ok", tool="Version 2025.3.1", builds={"call": wire.Compiled("nvcc driver.o", "")}, run=run
    )


@pytest.mark.parametrize(
    ("printed", "status", "words"),
    [
        (called(printed_page()), "ok", ""),
        (called("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", 1), "not_run", "administrators"),
        (called(printed_page(), None), "timed_out", "180 s"),
        (called("call: done"), "crashed", "counted no device function"),
        (called(printed_page(), 3), "crashed", "ended with 3"),
        (wire.CountersResult("ok", builds={"driver": wire.Compiled("nvcc", "no")}), "not_run", "cannot be built"),
    ],
)
def test_what_prevents_counting_is_said(printed: wire.CountersResult, status: str, words: str) -> None:
    fields = read_run(printed)
    assert fields["status"] == status and words in fields.get("message", "")
    assert ("functions" in fields) is (status == "ok")


def test_ncu_is_found_beside_nvcc_then_on_the_path_then_in_the_newest_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(check, "PACKAGED", str(tmp_path / "opt" / "*" / "ncu"))
    assert check.find_ncu(str(tmp_path / "bin")) is None
    for folder in ("opt/2024.1", "opt/2025.3", "path", "bin"):  # each goes before those that were there
        program = tmp_path / folder / "ncu"
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        assert check.find_ncu(str(tmp_path / "bin")) == str(program)


def record(status: Any = "ok", message: str = "", environment: str = NEXT, **changes: Any) -> CountersRecord:
    functions = parse(printed_page()) if status == "ok" else []
    values: dict[str, Any] = {
        "environment": environment,
        "kernel": KERNEL,
        "workload": SEED,
        "device": "cuda",
        "key": "k",
        "tool": "ncu",
        "functions": functions,
        "started_utc": "2026-01-01T00:00:00+00:00",
        "duration_s": 1.0,
        "status": status,
        "message": message,
    }
    return CountersRecord(**values | changes)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    write_run(tmp_path, Spec(device="cuda", workloads=(SEED,), references=("flash",)))
    return Run(tmp_path)


def save(run: Run, each: CountersRecord) -> None:
    save_record(run.experiment_path(each.environment, KERNEL, "cuda", SEED, "counters"), each)


def test_what_could_not_be_counted_is_asked_for_again(run: Run) -> None:
    assert [cell.environment for cell in uncounted(run)] == [BASE, NEXT]
    for status, missing in (("ok", [BASE]), ("not_run", [BASE, NEXT]), ("crashed", [BASE])):
        save(run, record(status))
        assert [cell.environment for cell in uncounted(run)] == missing


def test_a_run_without_a_gpu_has_nothing_to_count(tmp_path: Path) -> None:
    write_run(tmp_path, Spec())
    assert uncounted(Run(tmp_path)) == []


def test_the_page_shows_them_beside_the_rates(run: Run) -> None:
    assert 'id="counters"' not in render_page(Report(load_evidence(run.folder)))
    save(run, record())
    save(run, record("not_run", "ncu is missing <b>", environment=BASE))
    evidence = load_evidence(run.folder)
    first, second = counted(evidence)
    assert (first.environment, first.function) == (BASE, None) and "ncu is missing" in first.message
    assert second.name == "forward<__half, 64>" and first.name == ""
    assert second.conflicts_per_wavefront == 0.25
    assert second.stalls == [("long scoreboard", 0.75), ("barrier", 0.25)]
    page = render_page(Report(evidence))
    assert "38.7" in page and "long scoreboard 75" in page and "ncu is missing &lt;b&gt;" in page
    assert page.index('id="rates"') < page.index('id="counters"')


def test_shared_memory_that_was_not_used_has_no_conflicts() -> None:
    place: dict[str, Any] = {"workload": "w", "kernel": "k", "environment": "e", "record": "r"}
    for function in (FunctionCounters(name="f"), FunctionCounters(name="f", bank_conflicts=0, shared_wavefronts=0)):
        assert Counted(**place, function=function).conflicts_per_wavefront is None
        assert Counted(**place, function=function).stalls == []


def test_a_cell_is_counted_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not shrunk as for checkers: the counters are of the shape that was timed."""
    from harness.experiments import counters as module

    asked = []

    def request(context: Any, cell: Cell, shape: tuple[int, int], *rest: Any) -> tuple[wire.Request, tuple[()]]:
        asked.append(shape)
        return wire.EmptyRequest(), ()

    monkeypatch.setattr(module, "call_request", request)
    monkeypatch.setattr(module, "unavailable", lambda context, cell: "")
    monkeypatch.setattr(module, "counters_key", lambda context, cell: "key")
    context: Any = FakeContext(
        run=Run(tmp_path),
        plan=SimpleNamespace(workload=lambda id: SimpleNamespace(batch=4, heads=16, flops=1e12)),
        executor=FakeExecutor(called(printed_page())),
    )
    got = module.run_counters(context, Cell(environment="e", kernel="k", workload="w", device="cuda"))
    assert asked == [(4, 16)] and got.status == "ok" and got.functions[0].registers == 96
    assert got.tool == "Version 2025.3.1" and got.command == "nvcc driver.o && ncu ./call" and got.duration_s == 2.0
