"""Factor experiments: one thing is varied between two environments while all else is held. What follows it?

Each environment (the home) runs the kernel on validation's own inputs with the level of either environment: the object
code that it compiled, its variables, or its version of PyTorch, as a kernel in Python reads it. So there are four
outcomes. What follows the level is the factor's doing, and what follows the home is that of all else. A process that
loads none of the kernel's code judges the outputs.

Object code is the `.o` files of a build without the binding's, linked in the environment that compiled them. A package
is a factor too, whose levels need environments of their own (`harness.experiments.packages`).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from typing_extensions import assert_never

from harness.config.kernels import Kernel
from harness.experiments.base import CellExperiment
from harness.run.context import Context, answer_of, checked, failure, fields_of
from harness.run.device import run_task
from harness.run.requests import files_of, kernel_request, workload_request
from harness.run.validate import candidate_result, keep_outputs
from harness.schema.environment_records import BuildRecord, EnvironmentRecord
from harness.schema.experiment_records import ExperimentFactor, FactorRecord, FactorResult
from harness.schema.records import Outcome, RecipeResult, TargetResult
from harness.schema.run_records import WorkloadInfo
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
    majors = {}
    for name, build in builds.items():
        if not build.own_objects:
            return f"{name}: its build recorded no object file"
        if build.device == "cuda":
            seen = environments[name].observed
            majors[name] = (seen.torch_cuda or "").partition(".")[0] if seen is not None else ""
    if len(set(majors.values())) > 1:
        versions = ", ".join(f"{name}: {major or 'none'}" for name, major in majors.items())
        return f"the CUDA major versions differ ({versions}): object code runs within one"
    return ""


@dataclass(frozen=True, kw_only=True)
class FactorExperiment(CellExperiment):
    """One factor on one cell, whose environment is compared with `baseline`. `failing`: by recipe, trials of
    validation in which the kernel fails in one of the two."""

    factor: ExperimentFactor
    baseline: str
    failing: Mapping[str, tuple[int, ...]]
    record = FactorRecord

    @property
    def name(self) -> str:
        return self.factor.value

    @property
    def homes(self) -> tuple[str, str]:
        return self.baseline, self.cell.environment

    @property
    def folder(self) -> Path:
        name = f"{self.factor.value}-{self.cell.environment}-{self.about}"
        return self.context.run.folder / "scratch" / "factors" / name

    @property
    def workload(self) -> WorkloadInfo:
        """Return the workload with fewer trials."""
        info = self.context.plan.workload(self.cell.workload)
        wanted = {recipe: max(TRIALS, 1 + min(trials)) for recipe, trials in self.failing.items() if trials}
        return replace(info, trials={name: min(n, wanted.get(name, TRIALS)) for name, n in info.trials.items()})

    @property
    def key(self) -> str:
        asked = {
            "factor": self.factor.value,
            "environments": list(self.homes),
            "trials": self.workload.trials,
            "threads": [self.context.plan.threads_in(home) for home in self.homes],
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

    def measure(self) -> dict[str, Any]:
        """Run each home with each level."""
        shutil.rmtree(self.folder, ignore_errors=True)
        obstacle, libraries, results = self.find_obstacle(), dict[str, Path](), list[FactorResult]()
        outcome = Outcome(status=protocol.NOT_RUN if obstacle else protocol.OK, message=obstacle)
        try:
            for name, build in self.builds.items() if self.factor is ExperimentFactor.CODE else ():
                if outcome.status == protocol.OK:
                    libraries[name] = self.folder / name / "out" / "kernel.so"
                    linked = link(self.context, build, libraries[name])
                    outcome = replace(linked, message=f"{name}: {linked.message}" if linked.message else "")
            if outcome.status == protocol.OK:
                results = [self._call(level, home, libraries) for level in self.homes for home in self.homes]
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
        return {**vars(outcome), "factor": self.factor, "baseline": self.baseline, "results": results}

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
        task = context.task(
            "candidate",
            request,
            home,
            timeout_s=context.plan.limits.validation_s,
            scratch=place / "scratch",
            log=f"{self.name}-{self.about}-of-{level}",
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
        judged = self._judge(candidate, home, out)
        return replace(result, runtime=runtime[:RUNTIME_CHARACTERS], **judged)

    def _judge(self, candidate: wire.CandidateResult, home: str, out: Path) -> dict[str, Any]:
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
            log=f"{self.name}-{self.about}-judge",
            reads=(*files_of(None, asked), out, truth),
            writes=(truth,),
        )
        result = checked(wire.JudgeResult, answer_of(context, task), "the judge", holds_subject=False)
        shutil.rmtree(out, ignore_errors=True)
        if not isinstance(result, wire.JudgeResult):
            return fields_of(result)
        every = [(recipe, target) for recipe in result.recipes for target in recipe.targets]
        log = next((target.log_excerpt for _, target in every if target.log_excerpt), "")
        own = [(recipe, target) for recipe, target in every if target.target == protocol.KERNEL]
        said = {"status": result.status, "message": result.message, "log_excerpt": log}
        return said | sum_up(own, request.decides)


def link(context: Context, build: BuildRecord, library: Path) -> Outcome:
    """Make a plain shared object of what an environment compiled, there."""
    folder = context.build_folder(build, build.key) / "out"
    objects = {folder / name: code for name, code in build.own_objects.items()}
    library.parent.mkdir(parents=True)
    request = wire.LinkRequest(
        objects=[wire.ObjectRequest(path=str(path), sha256=code) for path, code in objects.items()],
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
        reads=tuple(objects),
        writes=(library.parent,),
    )
    outcome = Outcome(**fields_of(checked(wire.Outcome, answer_of(context, task), "linking its objects")))
    if outcome.status == protocol.OK and not (library.is_file() and not library.is_symlink()):
        return Outcome(status=protocol.CRASHED, message="linking its objects left no shared object")
    return outcome


def sum_up(rows: list[tuple[RecipeResult, TargetResult]], decides: str) -> dict[str, Any]:
    """Return what a target's outputs of all recipes come to, against the ground truth where there is one. Trials of a
    recipe that failed are no runs."""
    judged = [(recipe, target, target.against[0]) for recipe, target in rows if target.against and target.output_sha256]
    units = [agreement.max_units for _, _, agreement in judged if agreement.max_units is not None]
    return {
        "runs": sum(recipe.trials for recipe, _, _ in judged),
        "passed": sum(each.passed.get(decides, each.passed.get("kernelbench", 0)) for _, _, each in judged),
        "max_units": max(units, default=None),
        "output_sha256": [sha256 or "" for _, target, _ in judged for sha256 in target.output_sha256],
    }
