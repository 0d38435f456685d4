"""Binary swap: the object code that one environment compiled, called inside another. Machine code, or runtime?

The very `.o` files of the build, without the binding's, become a plain shared object in the environment that compiled
them, and are called there and in the others on validation's own inputs: every combination. A process that loaded none
of it judges the outputs. What follows the code is the code's fault, what follows the place is the runtime's.
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.config.kernels import Kernel
from harness.run.context import Context, answer_of, checked, failure, fields_of
from harness.run.device import run_task
from harness.run.folders import now_utc
from harness.run.requests import files_of, workload_request
from harness.run.validate import candidate_result, keep_outputs
from harness.schema.environment_records import BuildRecord, EnvironmentRecord
from harness.schema.experiment_records import SwapRecord, SwapResult
from harness.schema.records import Device, Outcome
from harness.schema.run_records import WorkloadInfo
from harness.worker import protocol, wire

TRIALS = 10  # of each recipe, at most: validation's first ones
LINK_S = 300.0
RUNTIME_CHARACTERS = 300


def no_entry_point(kernel: Kernel) -> str:
    """'' where a kernel can be called without PyTorch, else why not."""
    if kernel.model_new is not None:
        return "it is a Python file: there is no C entry point to call, and no object code of its own"
    if kernel.prebuilt is not None:
        return "it is the same file in every environment, and there are no objects to link anew"
    if kernel.binding != "shipped":
        return "it brings a binding of its own: without PyTorch there is no C entry point to call"
    return ""


def unavailable(
    kernel: Kernel, builds: Sequence[BuildRecord], environments: Mapping[str, EnvironmentRecord], *, always: bool
) -> str:
    """'' where object code can be swapped between the builds' environments, else why not, or why it need not be."""
    if reason := no_entry_point(kernel):
        return reason
    if len(builds) < 2:
        return "there is one environment alone: nothing to swap with"
    for build in builds:
        if build.status != protocol.OK:
            return f"{build.environment}: its build is {build.status.replace('_', ' ')}: {build.message}"
        if not build.own_objects:
            return f"{build.environment}: its build recorded no object file"
    if builds[0].device == "cuda":
        seen = {build.environment: environments[build.environment].observed for build in builds}
        majors = {name: (o.torch_cuda or "").split(".")[0] if o is not None else "" for name, o in seen.items()}
        if len(set(majors.values())) > 1:
            versions = ", ".join(f"{name}: {major or 'none'}" for name, major in majors.items())
            return f"the CUDA major versions differ ({versions}): object code runs within one"
    if not always and all(build.own_objects == builds[0].own_objects for build in builds):
        return "every environment compiled the same machine code: there is nothing to swap"
    return ""


def run_swap(
    context: Context, kernel: str, workload: str, device: Device, environments: Sequence[str], *, always: bool = False
) -> SwapRecord:
    """Every combination of whose code and where. `always`: also where all compiled the same machine code."""
    info, builds = swap_inputs(context, kernel, workload, device, environments)
    identity: dict[str, Any] = {
        "kernel": kernel,
        "workload": workload,
        "device": device,
        "key": swap_key(context, builds, info),
        "trials": info.trials,
        "started_utc": now_utc(),
    }
    started = time.monotonic()
    reason = unavailable(context.kernel(kernel), builds, context.environments, always=always)
    if reason:
        return SwapRecord(**identity, status=protocol.NOT_RUN, message=reason, duration_s=0)
    folder = context.run.folder / "scratch" / "swap" / f"{kernel}-{device}-{workload}"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        libraries: dict[str, Path] = {}
        for build in builds:
            linked = _link(context, build, folder / build.environment)
            if isinstance(linked, Outcome):
                failed = vars(linked) | {"message": f"{build.environment}: {linked.message}"}
                return SwapRecord(**identity, **failed, duration_s=round(time.monotonic() - started, 3))
            libraries[build.environment] = linked
        swap = Swap(context=context, kernel=kernel, workload=info, device=device, folder=folder, judge=environments[0])
        pairs = itertools.product(environments, repeat=2)
        requests = {
            code_from: wire.KernelRequest(name=kernel, device=device, library=str(library))
            for code_from, library in libraries.items()
        }
        results = [swap.run(code_from, requests[code_from], run_in) for code_from, run_in in pairs]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return SwapRecord(**identity, status=protocol.OK, results=results, duration_s=round(time.monotonic() - started, 3))


def swap_inputs(
    context: Context, kernel: str, workload: str, device: Device, environments: Sequence[str]
) -> tuple[WorkloadInfo, list[BuildRecord]]:
    """The workload, of which fewer trials are run, and whose object code."""
    info = context.plan.workload(workload)
    info = replace(info, trials={recipe: min(n, TRIALS) for recipe, n in info.trials.items()})
    return info, [context.builds[environment, kernel, device] for environment in environments]


def swap_key(context: Context, builds: Sequence[BuildRecord], workload: WorkloadInfo) -> str:
    """Digest of all that determines a swap's outputs."""
    asked = {"environments": [build.environment for build in builds], "trials": workload.trials}
    return context.key("swap", kernel=builds[0].kernel, device=builds[0].device, workload=workload.id, asked=asked)


def _link(context: Context, build: BuildRecord, folder: Path) -> Path | Outcome:
    """A plain shared object of what an environment compiled, made there; an Outcome says why there is none."""
    objects = context.build_folder(build, build.key) / "out"
    library = folder / "out" / "kernel.so"
    library.parent.mkdir(parents=True)
    request = wire.LinkRequest(
        objects=[wire.ObjectRequest(path=str(objects / name), sha256=code) for name, code in build.own_objects.items()],
        library=str(library),
        cuda=build.device == "cuda",
    )
    answer = answer_of(
        context,
        context.task(
            "link",
            request,
            build.environment,
            f"{build.kernel}-{build.device}",
            timeout_s=LINK_S,
            scratch=folder / "scratch",
            reads=tuple(objects / name for name in build.own_objects),
            writes=(library.parent,),
        ),
    )
    outcome = Outcome(**fields_of(checked(wire.Outcome, answer, "linking its objects")))
    if outcome.status == protocol.OK and not (library.is_file() and not library.is_symlink()):
        return Outcome(status=protocol.CRASHED, message="linking its objects left no shared object")
    return library if outcome.status == protocol.OK else outcome


@dataclass(frozen=True, kw_only=True)
class Swap:
    """One kernel on one workload: runs code that was compiled anywhere in any environment."""

    context: Context
    kernel: str
    workload: WorkloadInfo
    device: Device
    folder: Path
    judge: str  # whose numpy judges all of them

    def run(self, code_from: str, kernel: wire.KernelRequest, run_in: str) -> SwapResult:
        """Call the code, let its process end, and judge the bytes it left where it was never loaded."""
        context, place = self.context, f"{code_from}-in-{run_in}"
        out = self.folder / f"{place}.out"
        out.mkdir(parents=True)
        name = f"{self.kernel}-{self.device}-{self.workload.id}-of-{code_from}"
        request = wire.CandidateRequest(
            workload=workload_request(context, self.workload),
            seed=context.plan.seed,
            threads=context.plan.threads_in(run_in),
            kernel=kernel,
            out=str(out),
        )
        task = context.task(
            "candidate",
            request,
            run_in,
            timeout_s=context.plan.limits.validation_s,
            scratch=self.folder / f"{place}.scratch",
            log=f"swap-{name}",
            reads=files_of(kernel, request.workload),
            writes=(out,),
        )
        answer = run_task(context, task, self.device)
        if answer.result is None:
            failed = failure(answer, "the process that called it")
            return SwapResult(code_from=code_from, run_in=run_in, **vars(failed))
        keep_outputs(out, self.workload)
        candidate = candidate_result(answer)
        runtime = candidate.message[:RUNTIME_CHARACTERS] if candidate.status == protocol.OK else ""
        result = self._judge(candidate, out, f"swap-judge-{name}")
        shutil.rmtree(out, ignore_errors=True)
        return SwapResult(code_from=code_from, run_in=run_in, runtime=runtime, **result)

    def _judge(self, candidate: wire.CandidateResult, out: Path, log: str) -> dict[str, Any]:
        context, plan = self.context, self.context.plan
        truth = self.folder / "truth"
        truth.mkdir(exist_ok=True)
        decides = plan.tolerances.decides
        workload = workload_request(context, self.workload)
        request = wire.JudgeRequest(
            workload=workload,
            seed=plan.seed,
            threads=plan.threads_in(self.judge),
            device="cpu",  # only bytes are looked at; what the outputs of a problem file are like, its model says
            references=[protocol.MODEL] if workload.problem else [],
            candidate=candidate,
            candidate_out=str(out),
            truth_dir=str(truth),
            decides=decides,
            limits=plan.tolerances.limits(self.workload.dtype),
            precision=plan.kernel(self.kernel).precision,
        )
        answer = answer_of(
            context,
            context.task(
                "judge",
                request,
                self.judge,
                timeout_s=plan.limits.validation_s,
                scratch=self.folder / "judge.scratch",
                log=log,
                reads=(*files_of(None, workload), out, truth),
                writes=(truth,),
            ),
        )
        result = checked(wire.JudgeResult, answer, "the judge")
        return judged(result, decides) if isinstance(result, wire.JudgeResult) else fields_of(result)


def judged(result: wire.JudgeResult, decides: str) -> dict[str, Any]:
    """A `SwapResult`'s fields from what the judge gave. Trials of a recipe that failed are no runs."""
    every = ((recipe, target) for recipe in result.recipes for target in recipe.targets)
    rows = [(recipe, own) for recipe, own in every if own.target == protocol.KERNEL and own.output_sha256]
    agreements = [target.against[0] for _, target in rows]
    return {
        "status": result.status,
        "message": result.message,
        "log_excerpt": next((t.log_excerpt for r in result.recipes for t in r.targets if t.log_excerpt), ""),
        "runs": sum(recipe.trials for recipe, _ in rows),
        "passed": sum(agreement.passed[decides] for agreement in agreements),
        "max_units": max((a.max_units for a in agreements if a.max_units is not None), default=None),
        "output_sha256": [sha256 for _, target in rows for sha256 in target.output_sha256],
    }
