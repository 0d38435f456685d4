"""Counters: what the hardware did during one call of a kernel, by Nsight Compute, where it is installed.

Only where it is asked for (`--profile`), and apart from every timing: the tool runs each device function several times
over. It has the C entry point in an executable of its own, as the checkers have.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from typing import Any

from harness.experiments.executable import call_request, call_task, driver_sha256, unavailable
from harness.run.context import Context, checked
from harness.run.device import run_task
from harness.run.folders import now_utc
from harness.run.requests import EXPECTED_RECIPE
from harness.schema.experiment_records import CountersRecord, FunctionCounters
from harness.schema.run_records import Cell
from harness.worker import protocol, wire

RUN_S, TOTAL_S = 180.0, 600.0
COUNTERS = "counters"
NO_PERMISSION = "ERR_NVGPUCTRPERM"
PERMISSION_REMEDY = (
    f"the driver lets only administrators read the GPU's counters ({NO_PERMISSION}); what to do about it: "
    f"https://developer.nvidia.com/{NO_PERMISSION}"
)
STALLED, PER_ISSUE = "smsp__average_warps_issue_stalled_", "_per_issue_active"
METRIC_OF = {
    "tensor_pct": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "dram_pct": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram_bytes": "dram__bytes.sum",
    "occupancy_pct": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "bank_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "shared_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
}


def counters_key(context: Context, cell: Cell) -> str:
    """Digest of all that determines what is counted."""
    return context.key("counters", **vars(cell), asked=driver_sha256(context))


def run_counters(context: Context, cell: Cell) -> CountersRecord:
    """Count one call on the first trial's inputs. Whatever prevents it is a status with its reason."""
    workload = context.plan.workload(cell.workload)
    identity: dict[str, Any] = {**vars(cell), "key": counters_key(context, cell), "started_utc": now_utc()}
    if reason := unavailable(context, cell):
        return CountersRecord(**identity, status=protocol.NOT_RUN, message=reason, duration_s=0)
    shape = workload.batch or 1, workload.heads or 1
    request, reads = call_request(context, cell, shape, EXPECTED_RECIPE, 0, RUN_S)
    answer = run_task(context, call_task(context, cell, COUNTERS, request, reads, TOTAL_S), "cuda")
    identity["duration_s"] = round(answer.ended.duration_s, 3)
    printed = checked(wire.CountersResult, answer, "the process that counts")
    outcome = vars(printed.ended())
    if not isinstance(printed, wire.CountersResult) or printed.status != protocol.OK:
        return CountersRecord(**identity, **outcome)
    return CountersRecord(**identity, **read_run(printed))


def read_run(printed: wire.CountersResult) -> dict[str, Any]:
    """The fields of a record that the tool's run decides."""
    run = printed.run
    if run is None:
        errors = next(built.errors for built in printed.builds.values() if built.errors)
        return {"status": protocol.NOT_RUN, "message": "its executable cannot be built", "log_excerpt": errors}
    common = {"tool": printed.tool, "command": f"{printed.builds['call'].command} && {run.command}"}
    functions = parse(run.output)
    if NO_PERMISSION in run.output:
        status, message = protocol.NOT_RUN, PERMISSION_REMEDY
    elif run.returncode is None:
        status, message = protocol.TIMED_OUT, f"it did not end within {RUN_S:.0f} s under ncu"
    elif run.returncode != 0 or not functions:
        status, message = protocol.CRASHED, f"ncu ended with {run.returncode} and counted no device function"
    else:
        return {**common, "status": protocol.OK, "functions": functions}
    return {**common, "status": status, "message": message, "log_excerpt": run.output[-2000:]}


def parse(output: str) -> list[FunctionCounters]:
    """ncu's raw page as CSV: a row of names, a row of units, and one row for each launch; other lines stand around."""
    lines = [line for line in output.splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(lines))
    return [_function(row) for row in rows[1:]] if rows and "Kernel Name" in rows[0] else []


def _function(row: Mapping[str, str]) -> FunctionCounters:
    nanoseconds = _number(row.get("gpu__time_duration.sum"))
    registers = _number(row.get("launch__registers_per_thread"))
    return FunctionCounters(
        name=row["Kernel Name"],
        duration_us=None if nanoseconds is None else nanoseconds / 1e3,
        registers=None if registers is None else int(registers),
        stalls=_stalls(row.items()),
        **{field: _number(row.get(metric)) for field, metric in METRIC_OF.items()},
    )


def _stalls(columns: Iterable[tuple[str, str]]) -> dict[str, float]:
    """By reason, the most frequent first. `selected` is no stall: it is the warp that issues."""
    stalls = {}
    for name, text in columns:
        metric = name.partition(".")[0]
        if metric.startswith(STALLED) and metric.endswith(PER_ISSUE):
            reason, value = metric[len(STALLED) : -len(PER_ISSUE)], _number(text)
            if reason != "selected" and value is not None:
                stalls[reason] = value
    return dict(sorted(stalls.items(), key=lambda item: -item[1]))


def _number(text: str | None) -> float | None:
    """None where it was not counted."""
    try:
        value = float((text or "").replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None
