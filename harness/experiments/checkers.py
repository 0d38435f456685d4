"""Checkers: the kernel's C entry point in an executable of its own, under sanitizers, each with a planted fault.

On the CPU kernel and driver are compiled anew with the build's own flags and each sanitizer's; on a GPU the build's
very objects run under compute-sanitizer. A tool that does not find the fault planted for it says nothing by silence.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from harness.config import shipped
from harness.experiments import findings as parse
from harness.experiments.base import CellExperiment
from harness.experiments.factors import no_entry_point
from harness.experiments.plan import failing_trials
from harness.run.build import kernel_files
from harness.run.context import checked
from harness.run.device import run_task
from harness.run.requests import EXPECTED_RECIPE, workload_request
from harness.schema.environment_records import BuildRecord
from harness.schema.experiment_records import CheckerFinding, CheckerResult, CheckersRecord
from harness.schema.records import Device, ValidationRecord
from harness.schema.run_records import WorkloadInfo
from harness.schema.storage import load_record
from harness.worker import protocol, wire

DRIVER = "csrc/probes/attention_call.cpp"
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
    "address": ("memory", "short", parse.parse_sanitizer, "out_of_bounds"),
    "undefined_behaviour": ("memory", "overflow", parse.parse_undefined, "undefined_behaviour"),
    "thread": ("thread", "race", parse.parse_sanitizer, "race"),
}
COMPUTE = {"memcheck": "out_of_bounds", "racecheck": "race", "initcheck": "uninitialised", "synccheck": "misuse"}


def run_of(printed: wire.CheckResult, tool: str, fault: str) -> wire.Called | None:
    """Return a tool's run, or its control's."""
    return next((run for run in printed.runs if (run.tool, run.fault) == (tool, fault)), None)


@dataclass(frozen=True, kw_only=True)
class CheckersExperiment(CellExperiment):
    """Every tool of the cell's device on one trial's inputs: of one that fails, if any does."""

    name = "checkers"
    record = CheckersRecord

    @property
    def key(self) -> str:
        driver = shipped.located(self.context.root, DRIVER)
        source = protocol.sha256_file(str(driver)) if driver.is_file() else ""
        return self.context.key("checkers", **vars(self.cell), asked=[*self.find_inputs(), source])

    def find_inputs(self) -> tuple[str, int]:
        """Return recipe and trial of the first inputs on which the kernel fails in validation; else of the very
        first."""
        path = self.context.run.validation_path(self.cell)
        if path.is_file():
            record = load_record(path, ValidationRecord)
            for recipe in record.recipes:
                for trial in failing_trials(record, recipe.recipe):
                    return recipe.recipe, trial
        return EXPECTED_RECIPE, 0

    def find_obstacle(self) -> str:
        """Return why the kernel cannot be called from an executable, or ''."""
        if reason := no_entry_point(self.context.kernel(self.cell.kernel)):
            return reason
        if self.context.plan.workload(self.cell.workload).has_options:
            return "its workload has options or gradients, and the executable calls attention_forward alone"
        if self.build.status != protocol.OK:
            return f"its build is {self.build.status.replace('_', ' ')}: {self.build.message}"
        return ""

    def measure(self) -> dict[str, Any]:
        if reason := self.find_obstacle():
            return {"status": protocol.NOT_RUN, "message": reason, "duration_s": 0.0}
        context, cell = self.context, self.cell
        request, reads = self._ask()
        task = context.task("check", request, cell.environment, self.about, timeout_s=TOTAL_S, reads=reads)
        answer = run_task(context, task, cell.device)
        printed = checked(wire.CheckResult, answer, "the checkers' process")
        fields = {**vars(printed.ended()), "duration_s": round(answer.ended.duration_s, 3)}
        if isinstance(printed, wire.CheckResult) and printed.status == protocol.OK:
            is_free = bool(FREE_ARITHMETIC & set(request.flags.cxx))
            on_cpu = cell.device == "cpu"
            fields["results"] = cpu_results(printed, free_arithmetic=is_free) if on_cpu else cuda_results(printed)
        return fields

    def _ask(self) -> tuple[wire.CallRequest, tuple[Path, ...]]:
        """Return what the task needs to call the C entry point from an executable, and the files that it reads."""
        context, cell, plan, root = self.context, self.cell, self.context.plan, self.context.root
        driver, built, own = shipped.located(root, DRIVER), self.build, context.sources[cell.kernel]
        sources = [shipped.located(root, name) for name in own[cell.device]]
        objects = [context.build_folder(built, built.key) / "out" / name for name in built.own_objects]
        files = kernel_files(root, context.kernel(cell.kernel), own, cell.device)
        workload, (recipe, trial) = plan.workload(cell.workload), self.find_inputs()
        batch, heads = called_shape(workload, cell.device)
        request = wire.CallRequest(
            device=cell.device,
            driver=str(driver),
            sources=list(map(str, sources)),
            objects=list(map(str, objects)),
            include_dirs=list(map(str, (*shipped.include_folders(root), *(each.parent for each in sources)))),
            flags=flags_of(built),
            workload=workload_request(context, workload),
            batch=batch,
            heads=heads,
            recipe=recipe,
            trial=trial,
            seed=plan.seed,
            threads=plan.threads_in(cell.environment),
            run_s=RUN_S,
        )
        return request, (driver, *(shipped.located(root, name) for name in files), *objects)


def flags_of(built: BuildRecord) -> wire.FlagsRequest:
    """Return the kernel's own flags and tunables, by compiler, and the language and ABI that PyTorch's helper chose."""
    flags: dict[str, list[str]] = {"cxx": [], "nvcc": [], "ld": []}
    for entry in built.flags:
        kind, _, flag = entry.partition(": ")
        flags[kind].append(flag)
    chosen = dict.fromkeys(re.findall(r"-std=c\+\+\w+|-D_GLIBCXX_USE_CXX11_ABI=\d", built.build_ninja))
    flags["cxx"] = [*(chosen or ["-std=c++17"]), *flags["cxx"]]
    return wire.FlagsRequest(**flags)


def called_shape(workload: WorkloadInfo, device: Device) -> tuple[int, int]:
    """Return batch and heads of the call: the workload's own, halved until a checker can afford it."""
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
    """Return one tool's result from its run and its control."""
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
    """Return status and message of a tool."""
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
    """Compare two builds that differ only in what automatic variables hold before they are set."""
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
