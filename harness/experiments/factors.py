"""Factor experiments: one thing is varied between two environments while all else is held. What follows it?

Each environment (the home) runs the kernel on validation's own inputs with the level of either environment: the object
code that it compiled, its variables, or its version of PyTorch, as a kernel in Python reads it. So there are four
outcomes. What follows the level is the factor's doing, and what follows the home is that of all else. A process that
loads none of the kernel's code judges the outputs.

Object code is the `.o` files of a build without the binding's, linked in the environment that compiled them. A package
is a factor too, whose levels need environments of their own (`harness.workflow.packages`).
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from typing_extensions import assert_never

from harness.config.kernels import Kernel
from harness.run.context import Context, answer_of, checked, failure, fields_of
from harness.run.device import run_task
from harness.run.folders import now_utc
from harness.run.requests import files_of, kernel_request, workload_request
from harness.run.validate import candidate_result, keep_outputs
from harness.schema.environment_records import BuildRecord, EnvironmentRecord
from harness.schema.experiment_records import ExperimentFactor, FactorRecord, FactorResult
from harness.schema.records import Outcome
from harness.schema.run_records import Cell, WorkloadInfo
from harness.worker import protocol, wire

TRIALS = 10  # of each recipe: validation's first ones, and as many more as it takes to meet one that fails
LINK_S = 300.0
RUNTIME_CHARACTERS = 300
VERSION_NAMED = re.compile(r"__version__|\bmetadata\b")


def no_entry_point(kernel: Kernel) -> str:
    """Return why a kernel cannot be called without PyTorch; '' where it can."""
    if kernel.model_new is not None:
        return "it is a Python file: there is no C entry point to call, and no object code of its own"
    if kernel.prebuilt is not None:
        return "it is the same file in every environment, and there are no objects to link anew"
    if kernel.binding != "shipped":
        return "it brings a binding of its own: without PyTorch there is no C entry point to call"
    return ""


def cannot_swap(
    kernel: Kernel, builds: Mapping[str, BuildRecord], environments: Mapping[str, EnvironmentRecord]
) -> str:
    """Return why object code cannot run in the other's environment; '' where it can."""
    if reason := no_entry_point(kernel):
        return reason
    for name, build in builds.items():
        if not build.own_objects:
            return f"{name}: its build recorded no object file"
    if any(build.device == "cuda" for build in builds.values()):
        seen = {name: environments[name].observed for name in builds}
        majors = {
            name: (each.torch_cuda or "").split(".")[0] if each is not None else "" for name, each in seen.items()
        }
        if len(set(majors.values())) > 1:
            versions = ", ".join(f"{name}: {major or 'none'}" for name, major in majors.items())
            return f"the CUDA major versions differ ({versions}): object code runs within one"
    return ""


@dataclass(frozen=True, kw_only=True)
class FactorExperiment:
    """One factor on one cell, whose environment is compared with `baseline`. `failing`: by recipe, trials of
    validation in which the kernel fails in one of the two."""

    context: Context
    factor: ExperimentFactor
    cell: Cell
    baseline: str
    failing: Mapping[str, tuple[int, ...]]

    @property
    def homes(self) -> tuple[str, str]:
        return self.baseline, self.cell.environment

    @property
    def path(self) -> Path:
        """Return where the record is stored."""
        cell = self.cell
        return self.context.run.experiment_path(
            cell.environment, cell.kernel, cell.device, cell.workload, self.factor.value
        )

    @property
    def folder(self) -> Path:
        name = f"{self.cell.environment}-{self.cell.kernel}-{self.cell.device}-{self.cell.workload}"
        return self.context.run.folder / "scratch" / "factors" / f"{self.factor.value}-{name}"

    @property
    def workload(self) -> WorkloadInfo:
        """Return the workload with fewer trials."""
        info = self.context.plan.workload(self.cell.workload)
        wanted = {recipe: max(TRIALS, 1 + min(trials)) for recipe, trials in self.failing.items() if trials}
        return replace(info, trials={name: min(n, wanted.get(name, TRIALS)) for name, n in info.trials.items()})

    @property
    def key(self) -> str:
        """Return the digest of all that determines the outcomes."""
        plan = self.context.plan
        asked = {
            "factor": self.factor.value,
            "environments": list(self.homes),
            "trials": self.workload.trials,
            "threads": [plan.threads_in(home) for home in self.homes],
        }
        return self.context.key("factor", **vars(self.cell), asked=asked)

    @property
    def builds(self) -> dict[str, BuildRecord]:
        return {home: self.context.builds[home, self.cell.kernel, self.cell.device] for home in self.homes}

    def find_obstacle(self) -> str:
        """Return why the factor cannot be varied; '' where it can."""
        kernel = self.context.kernel(self.cell.kernel)
        match self.factor:
            case ExperimentFactor.CODE:
                return cannot_swap(kernel, self.builds, self.context.environments)
            case ExperimentFactor.VERSION:
                file = kernel.model_new
                if file is None or not VERSION_NAMED.search((self.context.root / file).read_text("utf-8")):
                    return "its file does not name what says PyTorch's version"
                return ""
            case ExperimentFactor.VARIABLES | ExperimentFactor.PACKAGE:
                return ""
            case _:
                assert_never(self.factor)

    def run(self) -> FactorRecord:
        """Run each home with each level. What the kernel does is a row; nothing is raised for it."""
        started_utc, started = now_utc(), time.monotonic()
        shutil.rmtree(self.folder, ignore_errors=True)
        try:
            obstacle = self.find_obstacle()
            outcome = Outcome(status=protocol.NOT_RUN, message=obstacle) if obstacle else Outcome(status=protocol.OK)
            libraries: dict[str, Path] = {}
            if self.factor is ExperimentFactor.CODE and not obstacle:
                outcome, libraries = self._link_all()
            results = []
            if outcome.status == protocol.OK:
                results = [self._call(level, home, libraries) for level in self.homes for home in self.homes]
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
        return FactorRecord(
            **vars(self.cell),
            **vars(outcome),
            factor=self.factor,
            baseline=self.baseline,
            key=self.key,
            started_utc=started_utc,
            duration_s=round(time.monotonic() - started, 3),
            results=results,
        )

    # -- object code ------------------------------------------------------------------------------------------

    def _link_all(self) -> tuple[Outcome, dict[str, Path]]:
        """Return the shared objects of both environments; or the outcome of the first that cannot be linked."""
        libraries = {}
        for name, build in self.builds.items():
            library = self.folder / name / "out" / "kernel.so"
            outcome = link(self.context, build, library)
            if outcome.status != protocol.OK:
                return replace(outcome, message=f"{name}: {outcome.message}"), {}
            libraries[name] = library
        return Outcome(status=protocol.OK), libraries

    # -- one outcome ------------------------------------------------------------------------------------------

    def _call(self, level: str, home: str, libraries: Mapping[str, Path]) -> FactorResult:
        """Call the kernel, let its process end, and judge the bytes that it left where it was never loaded."""
        context, cell, workload = self.context, self.cell, self.workload
        place = self.folder / f"{level}-in-{home}"
        out = place / "out"
        out.mkdir(parents=True)
        kernel = kernel_request(context, cell.kernel, cell.device, self.builds[home])
        if level in libraries:
            kernel = wire.KernelRequest(name=cell.kernel, device=cell.device, library=str(libraries[level]))
        owner = level if self.factor is ExperimentFactor.VARIABLES else home
        seen = context.environments[level].observed
        request = wire.CandidateRequest(
            workload=workload_request(context, workload),
            seed=context.plan.seed,
            threads=context.plan.threads_in(owner),
            kernel=kernel,
            out=str(out),
            told=seen.torch if self.factor is ExperimentFactor.VERSION and seen is not None else "",
        )
        name = f"{self.factor.value}-{cell.kernel}-{cell.device}-{cell.workload}-of-{level}"
        task = context.task(
            "candidate",
            request,
            home,
            timeout_s=context.plan.limits.validation_s,
            scratch=place / "scratch",
            log=name,
            reads=files_of(kernel, request.workload),
            writes=(out,),
            variables=context.plan.variables[owner],
        )
        answer = run_task(context, task, cell.device)
        result = FactorResult(status=protocol.OK, level=level, home=home, target=protocol.KERNEL)
        if answer.result is None:
            return replace(result, **vars(failure(answer, "the process that called it")))
        keep_outputs(out, workload)
        candidate = candidate_result(answer)
        runtime = candidate.message if level in libraries and candidate.status == protocol.OK else ""
        judged = self._judge(candidate, home, out, f"{name}-judge")
        return replace(result, runtime=runtime[:RUNTIME_CHARACTERS], **judged)

    def _judge(self, candidate: wire.CandidateResult, home: str, out: Path, log: str) -> dict[str, Any]:
        context, plan, workload = self.context, self.context.plan, self.workload
        truth = context.truth_folder(workload, home, "-factors")
        truth.mkdir(parents=True, exist_ok=True)
        asked = workload_request(context, workload)
        request = wire.JudgeRequest(
            workload=asked,
            seed=plan.seed,
            threads=plan.threads_in(home),
            device="cpu",  # only bytes are looked at; what the outputs of a problem file are like, its model says
            references=[protocol.MODEL] if workload.problem else [],
            candidate=candidate,
            candidate_out=str(out),
            truth_dir=str(truth),
            decides=plan.tolerances.decides,
            limits=plan.tolerances.limits(workload.dtype),
            precision=plan.kernel(self.cell.kernel).precision,
        )
        task = context.task(
            "judge",
            request,
            home,
            timeout_s=plan.limits.validation_s,
            scratch=self.folder / "judge.scratch",
            log=log,
            reads=(*files_of(None, asked), out, truth),
            writes=(truth,),
        )
        result = checked(wire.JudgeResult, answer_of(context, task), "the judge", holds_subject=False)
        shutil.rmtree(out, ignore_errors=True)
        return sum_up(result, request.decides) if isinstance(result, wire.JudgeResult) else fields_of(result)


def link(context: Context, build: BuildRecord, library: Path) -> Outcome:
    """Make a plain shared object of what an environment compiled, there."""
    objects = context.build_folder(build, build.key) / "out"
    library.parent.mkdir(parents=True)
    request = wire.LinkRequest(
        objects=[wire.ObjectRequest(path=str(objects / name), sha256=code) for name, code in build.own_objects.items()],
        library=str(library),
        cuda=build.device == "cuda",
    )
    task = context.task(
        "link",
        request,
        build.environment,
        f"{build.kernel}-{build.device}",
        timeout_s=LINK_S,
        scratch=library.parent.with_name("scratch"),
        reads=tuple(objects / name for name in build.own_objects),
        writes=(library.parent,),
    )
    outcome = Outcome(**fields_of(checked(wire.Outcome, answer_of(context, task), "linking its objects")))
    if outcome.status == protocol.OK and not (library.is_file() and not library.is_symlink()):
        return Outcome(status=protocol.CRASHED, message="linking its objects left no shared object")
    return outcome


def sum_up(result: wire.JudgeResult, decides: str) -> dict[str, Any]:
    """Return the fields of a result that the judge fills in. Trials of a recipe that failed are no runs."""
    every = [(recipe, target) for recipe in result.recipes for target in recipe.targets]
    rows = [(recipe, own) for recipe, own in every if own.target == protocol.KERNEL and own.output_sha256]
    agreements = [target.against[0] for _, target in rows]
    return {
        "status": result.status,
        "message": result.message,
        "log_excerpt": next((target.log_excerpt for _, target in every if target.log_excerpt), ""),
        "runs": sum(recipe.trials for recipe, _ in rows),
        "passed": sum(agreement.passed[decides] for agreement in agreements),
        "max_units": max((each.max_units for each in agreements if each.max_units is not None), default=None),
        "output_sha256": [sha256 for _, target in rows for sha256 in target.output_sha256],
    }
