"""Checkers: the kernel's C entry point in an executable of its own, under sanitizers, each with a planted fault.

On the CPU kernel and driver are compiled anew with the build's own flags and each sanitizer's; on a GPU the build's
very objects run under compute-sanitizer. A tool that does not find the fault planted for it says nothing by silence.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from harness.experiments import findings as parse
from harness.experiments.executable import call_request, call_task, driver_sha256, unavailable
from harness.experiments.plan import failing_trials
from harness.run.context import Context, answer_of, checked
from harness.run.device import check_device
from harness.run.folders import now_utc
from harness.run.requests import EXPECTED_RECIPE
from harness.schema.experiment_records import CheckerFinding, CheckerResult, CheckersRecord
from harness.schema.records import Device, ValidationRecord
from harness.schema.run_records import Cell, WorkloadInfo
from harness.schema.storage import load_record
from harness.worker import protocol, wire

MOST_FLOPS: dict[Device, float] = {"cpu": 2e9, "cuda": 3e8}  # of a call; a checker slows it by ten to a thousand
RUN_S = 60.0
TOTAL_S = 1500.0
DONE, REFUSED = "call: done", 3  # what the driver prints at its end, and its exit status where the kernel refuses
EXCERPT_CHARACTERS = 8000
FREE_ARITHMETIC = {"-ffast-math", "-Ofast", "-funsafe-math-optimizations", "-fassociative-math"}
OPENMP = "the kernel uses OpenMP, whose runtime this tool cannot see into: it would report races that are none"
PLANTED = {
    "short": "the output's allocation is one element too small",
    "overflow": "a signed integer overflows",
    "race": "two threads write to one variable",
    "uninitialised": "something that was never set is read",
    "barrier": "half of each warp waits at a barrier",
}
# Of each sanitizer: its build, the fault planted for it, what reads its reports, and as what they show that fault.
SANITIZERS: dict[str, tuple[str, str, Callable[[str], list[CheckerFinding]], str]] = {
    "address": ("memory", "short", parse.parse_address, "out_of_bounds"),
    "undefined_behaviour": ("memory", "overflow", parse.parse_undefined, "undefined_behaviour"),
    "thread": ("thread", "race", parse.parse_thread, "race"),
}
COMPUTE = {"memcheck": "out_of_bounds", "racecheck": "race", "initcheck": "uninitialised", "synccheck": "misuse"}


def run_of(printed: wire.CheckResult, tool: str, fault: str) -> wire.Called | None:
    return next((run for run in printed.runs if (run.tool, run.fault) == (tool, fault)), None)


def checkers_key(context: Context, cell: Cell) -> str:
    """Digest of all that determines what the tools find."""
    return context.key("checkers", **vars(cell), asked=[*inputs_of(context, cell), driver_sha256(context)])


def inputs_of(context: Context, cell: Cell) -> tuple[str, int]:
    """(recipe, trial) of the first inputs on which the kernel fails in validation; else of the very first."""
    path = context.run.validation_path(cell)
    record = load_record(path, ValidationRecord) if path.is_file() else None
    recipes = [recipe.recipe for recipe in record.recipes] if record is not None else []
    failing = ((recipe, trial) for recipe in recipes if record for trial in failing_trials(record, recipe))
    return next(failing, (EXPECTED_RECIPE, 0))


def run_checkers(context: Context, cell: Cell) -> CheckersRecord:
    """Every tool of the cell's device on one trial's inputs: of one that fails, if any does."""
    plan = context.plan
    workload = plan.workload(cell.workload)
    identity: dict[str, Any] = {**vars(cell), "key": checkers_key(context, cell), "started_utc": now_utc()}
    if reason := unavailable(context, cell):
        return CheckersRecord(**identity, status=protocol.NOT_RUN, message=reason, duration_s=0)
    recipe, trial = inputs_of(context, cell)
    request, reads = call_request(context, cell, called_shape(workload, cell.device), recipe, trial, RUN_S)
    answer = answer_of(context, call_task(context, cell, "check", request, reads, TOTAL_S))
    if cell.device == "cuda":
        check_device(context, cell.environment)
    identity["duration_s"] = round(answer.ended.duration_s, 3)
    printed = checked(wire.CheckResult, answer, "the checkers' process")
    outcome = vars(printed.ended())
    if not isinstance(printed, wire.CheckResult) or printed.status != protocol.OK:
        return CheckersRecord(**identity, **outcome)
    free = FREE_ARITHMETIC & set(request.flags.cxx)
    results = cuda_results(printed) if cell.device == "cuda" else cpu_results(printed, free_arithmetic=bool(free))
    return CheckersRecord(**identity, **outcome, results=results)


def called_shape(workload: WorkloadInfo, device: Device) -> tuple[int, int]:
    """(batch, heads) of the call: the workload's own, halved until a checker can afford it; rows stay as they are."""
    batch, heads = workload.batch or 1, workload.heads or 1
    flops = (workload.flops or 0.0) / (batch * heads)
    while flops * batch * heads > MOST_FLOPS[device] and batch * heads > 1:
        batch, heads = (batch, heads // 2) if heads > 1 else (batch // 2, heads)
    return batch, heads


def cpu_results(printed: wire.CheckResult, *, free_arithmetic: bool) -> list[CheckerResult]:
    results = [
        _sanitized(printed, tool, build, build, planted, findings_in, expected)
        for tool, (build, planted, findings_in, expected) in SANITIZERS.items()
    ]
    if printed.openmp:
        results[-1] = CheckerResult(tool="thread", status=protocol.NOT_RUN, message=OPENMP)
    return [*results, _auto_var_init(printed, free_arithmetic)]


def cuda_results(printed: wire.CheckResult) -> list[CheckerResult]:
    parse_compute = partial(parse.parse_compute, bulk_copies=printed.bulk_copies)
    planted = {run.tool: run.fault for run in printed.runs if run.fault}
    return [
        _sanitized(printed, tool, "call", tool, planted.get(tool, ""), parse_compute, kind)
        for tool, kind in COMPUTE.items()
    ]


def _sanitized(
    printed: wire.CheckResult,
    tool: str,
    build: str,
    runs_as: str,
    planted: str,
    findings_in: Callable[[str], list[CheckerFinding]],
    expected: str,
) -> CheckerResult:
    """One tool's result from its run and its control."""
    run, control = (run_of(printed, runs_as, fault) for fault in ("", planted))
    if run is None or control is None:
        return _not_built(printed, tool, build)
    # A hazard in code that copies in bulk is still the tool at work.
    control_found = bool({expected, "other"} & {finding.kind for finding in findings_in(control.output)})
    return _concluded(printed, tool, build, planted, run, findings_in(run.output), control_found)


def _concluded(
    printed: wire.CheckResult,
    tool: str,
    build: str,
    planted: str,
    run: wire.Called,
    findings: list[CheckerFinding],
    control_found: bool,
) -> CheckerResult:
    status, message = outcome_of(run, findings, control_found)
    return CheckerResult(
        tool=tool,
        control=PLANTED[planted],
        control_found=control_found,
        command=f"{printed.builds[build].command} && {run.command}",
        findings=findings,
        status=status,
        message=message,
        log_excerpt="" if status == protocol.OK else run.output[:EXCERPT_CHARACTERS],
    )


def outcome_of(run: wire.Called, findings: list[CheckerFinding], control_found: bool) -> tuple[Any, str]:
    """(status, message) of a tool."""
    if findings:
        return protocol.WRONG, "; ".join(f"{f.kind.replace('_', ' ')}: {f.text}" for f in findings[:3])
    if run.returncode is None:
        return protocol.TIMED_OUT, "it did not end in time under the checker"
    if run.returncode == REFUSED:
        refusal = re.search(r"^call: (attention_forward: .+)$", run.output, re.MULTILINE)
        return protocol.UNSUPPORTED, refusal[1] if refusal else "it refuses the problem"
    if DONE not in run.output:
        message = f"it ended with {run.returncode} before the call was done, and the checker reported nothing"
        return protocol.CRASHED, message
    if not control_found:
        return protocol.NOT_RUN, "it did not find the fault planted for it here: its silence means nothing"
    return protocol.OK, ""


def _not_built(printed: wire.CheckResult, tool: str, build: str) -> CheckerResult:
    failed = [built for name, built in printed.builds.items() if built.errors and (name == build or build == "call")]
    errors = failed[0].errors if failed else ""
    first = next((line for line in errors.splitlines() if "error" in line), "its executable was not run")
    command = failed[0].command if failed else ""
    return CheckerResult(
        tool=tool,
        status=protocol.NOT_RUN,
        message=f"cannot be built with it: {first.strip()}"[:500],
        log_excerpt=errors,
        command=command,
    )


def _auto_var_init(printed: wire.CheckResult, free_arithmetic: bool) -> CheckerResult:
    """Two builds that differ only in what automatic variables hold before they are set: bits that differ read one."""
    tool = "auto_var_init"
    if free_arithmetic:
        message = "its flags let the compiler change results, so two builds may differ for that"
        return CheckerResult(tool=tool, status=protocol.NOT_RUN, message=message)
    zero, again, pattern = (run_of(printed, *at) for at in (("zero", ""), ("zero", "again"), ("pattern", "")))
    controls = [run_of(printed, build, "uninitialised") for build in ("zero", "pattern")]
    if zero is None or again is None or pattern is None:
        return _not_built(printed, tool, "zero" if zero is None else "pattern")
    control_found = all(controls) and len({run.sha256 for run in controls if run is not None}) == 2
    findings = []
    if zero.sha256 and zero.sha256 == again.sha256 and zero.sha256 != pattern.sha256:
        differs = "other bits" if pattern.sha256 else "no output"
        text = f"{differs} where automatic variables start as a pattern instead of zero"
        findings = [CheckerFinding(kind="uninitialised", text=text)]
    elif zero.sha256 != again.sha256:
        message = "one build gives other bits when it runs again: what two builds give cannot be compared"
        return CheckerResult(tool=tool, status=protocol.NOT_RUN, message=message, control=PLANTED["uninitialised"])
    return _concluded(printed, tool, "pattern", "uninitialised", zero, findings, control_found)
