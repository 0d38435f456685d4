"""What is done once is not done again: the key of each job.

A job's key is the digest of what it is asked, of the environment that it runs in, of the facts of this machine that its
kind depends on, and of the code that does it (`harness.config.code`). Files count by their content, and what another
job makes counts by that job's key. A record is taken again, from this run or from another, where its key is the same.

In no key are thresholds, which only judge, and limits, which only stop: what ended at a limit is taken from no other
run (`harness.run.memo`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from harness.config import code
from harness.config.environments import HOST
from harness.config.kernels import Kernel
from harness.config.matrix import Matrix
from harness.config.plan import Plan, PlannedLaunch
from harness.schema.records import Device
from harness.worker import protocol
from harness.worker.tasks import MODULES

HARNESS = Path(__file__).parents[1]
# Of a plan, what changes no run: what only judges, what the rest of the plan says too, and reasons.
NOT_OF_RUNS: Mapping[str, Any] = {
    **dict.fromkeys(("thresholds", "builds", "launches", "more_launches", "digest"), True),
    "facts": {
        **dict.fromkeys(("executor_reason", "index_reasons", "threads", "gpus"), True),
        "host": {"gpus"},
    },
    "environments": {"__all__": {"spec": {"fallback_index", "base_image"}}},
    "fallbacks": {"__all__": {"reason"}},
}
ALWAYS = ("__init__.py", "__main__.py", "protocol.py")  # what any task starts with


_PLAN = TypeAdapter(Plan)


@dataclass(frozen=True, kw_only=True)
class JobKind:
    """A kind of job: the worker's tasks that do it, and modules of ours that change what is recorded of them."""

    tasks: tuple[str, ...]
    modules: tuple[str, ...] = ()
    compiles: bool = False  # whether it depends on compilers, and not on what runs beside it


# How a task is confined, and how its request is made, changes what comes back, as the code of the task does.
STARTS = ("executors/bwrap.py", "executors/docker.py", "executors/sandbox.py")
ASKS = ("run/context.py", "run/requests.py", *STARTS)
KINDS: Mapping[str, JobKind] = {
    "build": JobKind(tasks=("build", "take"), modules=("run/build.py", *STARTS), compiles=True),
    "binding": JobKind(tasks=("build",), modules=("run/build.py", *STARTS), compiles=True),
    "probe": JobKind(tasks=("library",), modules=("experiments/probes.py", *STARTS), compiles=True),
    "store": JobKind(tasks=("store", "batch"), modules=("run/stores.py", "run/batches.py", *STARTS)),
    "validation": JobKind(tasks=("candidate", "judge", "batch"), modules=("run/validate.py", "run/batches.py", *ASKS)),
    "launch": JobKind(
        tasks=("time", "host"),
        modules=("run/launch.py", "run/processors.py", "run/believed.py", "run/throttling.py", "gpu.py", *ASKS),
    ),
    "ceiling": JobKind(tasks=("ceilings",), modules=("run/ceilings.py", *STARTS)),
    "conditions": JobKind(
        tasks=("conditions", "weigh", "library"),
        modules=(
            "experiments/conditions.py",
            "experiments/condition_list.py",
            "experiments/probes.py",
            "stats/shrink.py",
            *ASKS,
        ),
    ),
    "checkers": JobKind(
        tasks=("check",),
        modules=("experiments/checkers.py", "experiments/findings.py", *ASKS),
    ),
    "compiled": JobKind(tasks=("compiled",), modules=("experiments/compiled.py", *ASKS)),
    "profile": JobKind(tasks=("profile",), modules=("experiments/profile.py", *ASKS)),
    "profile_of_reference": JobKind(tasks=("profile",), modules=("experiments/profile.py", *ASKS)),
    "factor": JobKind(
        tasks=("link", "candidate", "judge"), modules=("experiments/factors.py", "run/validate.py", *ASKS)
    ),
}


@dataclass(frozen=True, kw_only=True)
class JobId:
    """Something to do once. What is not said of it is not asked."""

    kind: str
    environment: str = ""
    kernel: str = ""
    device: Device = "cpu"
    workload: str = ""
    index: int = 0
    asked: Any = None


def of(kind: str, **inputs: Any) -> str:
    """Return the digest of what determines something."""
    return protocol.digest([kind, inputs])


@functools.cache
def code_digests(harness: Path = HARNESS) -> dict[str, str]:
    """Return the digest of the code behind each kind of job."""
    return {kind: code.digest_of(files_of(kind, harness)) for kind in KINDS}


def files_of(kind: str, harness: Path = HARNESS) -> set[Path]:
    """Return the files with the code behind a kind of job."""
    starts = [*ALWAYS, *(f"{MODULES[task].replace('.', '/')}.py" for task in KINDS[kind].tasks)]
    return code.closure(harness / "worker" / name for name in starts) | {harness / name for name in KINDS[kind].modules}


def plan_digest(plan: Plan, matrix: Matrix) -> str:
    """Return the digest of a run: of all that is planned, and all that was observed before."""
    planned = {kernel.name for kernel in plan.kernels}
    body = _PLAN.dump_python(plan, mode="json", exclude=NOT_OF_RUNS)
    if not any(cell.device == "cuda" for cell in plan.cells):
        del body["facts"]["gpu"]
    kernels = [_compiled_as(kernel) for kernel in matrix.kernels if kernel.name in planned]
    return of("run", schema=protocol.SCHEMA_VERSION, plan=body, kernels=kernels)


def _compiled_as(kernel: Kernel) -> dict[str, Any]:
    """Return what matrix.yaml says of how a kernel is built and called."""
    return {
        "name": kernel.name,
        "called": kernel.entry or kernel.binding,
        "flags": kernel.flags.model_dump(),
        "tunables": {name: str(value) for name, value in kernel.tunables.items()},
        "architectures": list(kernel.architectures),
        "libraries": list(kernel.libraries),
    }


class Keys:
    """The keys of a plan's jobs. `environments`: keys of those that were made. `stores`: by workload, what is in its
    store."""

    def __init__(self, plan: Plan, matrix: Matrix, environments: Mapping[str, str], stores: Mapping[str, str]) -> None:
        self.plan, self.matrix = plan, matrix
        self.environments, self.stores = dict(environments), dict(stores)
        self._rounds: dict[tuple[int, Device], list[Any]] = {}

    def key(self, job: JobId, **given: Any) -> str:
        """Return the key of a job. `given`: what the plan does not have."""
        parts = {"asked": job.asked, "code": self.plan.facts.code.get(job.kind, ""), **given, **self._machine(job)}
        if job.environment:
            parts["environment"] = self._environment(job.environment)
        if job.kind == "launch":
            parts |= {"place": [job.environment, job.kernel, job.device, job.index]}
            parts |= {"round": self._round(job.index, job.device)}
        elif job.kind == "build":
            parts |= self._build(job)
        elif job.kind == "binding":
            parts |= self._binding(job)
        elif job.kind == "store":
            parts |= self._store(job)
        elif job.kind == "factor":
            owners = [replace(job, environment=each) for each in job.asked["environments"]]
            parts |= {"case": [self._case(each) for each in owners]}
        elif job.workload:
            parts |= {"case": self._case(job)}
        return of(job.kind, **parts)

    def _environment(self, id: str) -> list[Any]:
        """An environment by its key, and, before it is made, by what determines that; with its processes' variables."""
        planned, facts = self.plan.environment(id), self.plan.facts
        made = self.environments.get(id) or [
            id,
            planned.index,
            facts.pins_sha256.get(id, ""),
            facts.interpreters.get(HOST if planned.spec.is_host else planned.spec.python, ""),
            facts.bases.get(planned.spec.base_image, ""),
            dict(facts.bundle),
        ]
        return [made, planned.spec.variables]

    # -- what runs ------------------------------------------------------------------------------------------

    def _case(self, job: JobId) -> list[Any]:
        """A kernel, or PyTorch's own code, on a workload, and the rule by which it is judged."""
        plan = self.plan
        build = JobId(kind="build", environment=job.environment, kernel=job.kernel, device=job.device)
        info = plan.kernel(job.kernel)
        return [
            self.key(build) if job.kernel and job.kind != "profile_of_reference" else "",
            self._workload(job.workload),
            [plan.seed, plan.tolerances.model_dump()],
            [info.references_on(job.device), info.deterministic, info.precision, info.pytorch],
        ]

    def _workload(self, id: str) -> list[Any]:
        workload = asdict(self.plan.workload(id))
        del workload["devices"]  # where else it is run
        problem = workload["problem"]
        return [workload, self._file(problem) if problem else "", self.stores.get(id, "")]

    def _file(self, name: str) -> str:
        return self.plan.facts.sources_sha256.get(name, "")

    def _round(self, index: int, device: Device) -> list[Any]:
        """Every launch of a round on a device, in its order: its rows are compared with each other."""
        if (index, device) not in self._rounds:
            every = (*self.plan.launches, *self.plan.more_launches)
            launches = [each for each in every if (each.index, each.device) == (index, device)]
            self._rounds[index, device] = [self._launch(each) for each in launches]
        return self._rounds[index, device]

    def _launch(self, launch: PlannedLaunch) -> list[Any]:
        job = JobId(kind="in_round", environment=launch.environment, kernel=launch.kernel, device=launch.device)
        workloads = self.plan.workloads_of(launch.kernel, launch.device)
        others = "relative_error_cuda" if launch.device == "cpu" else "relative_error"
        return [
            launch.position,
            self._environment(launch.environment),
            self._machine(job),
            [self._case(replace(job, workload=each.id)) for each in workloads],
            {name: value for name, value in self.plan.timing.model_dump().items() if name != others},
        ]

    # -- what is built --------------------------------------------------------------------------------------

    def _build(self, job: JobId) -> dict[str, Any]:
        kernel, spec = self.matrix.kernel(job.kernel), self.plan.environment(job.environment).spec
        files = self.plan.facts.files.get(job.kernel, {}).get(job.device, ())
        nvcc = [*kernel.flags.nvcc, *spec.flags.nvcc] if kernel.is_compiled and job.device == "cuda" else []
        return {
            "kernel": _compiled_as(kernel) | {"flags": [self._cxx_flags(job), nvcc]},
            "device": job.device,
            "files": [[name, self._file(name)] for name in files],
            "native": self._native([*self._cxx_flags(job), *nvcc], nvcc),
        }

    def _binding(self, job: JobId) -> dict[str, Any]:
        flags = self._cxx_flags(job)  # those for C++ may change the ABI
        files = [[name, self._file(name)] for name in self.plan.facts.binding_files]
        return {"device": job.device, "files": files, "flags": flags, "native": self._native(flags, [])}

    def _cxx_flags(self, job: JobId) -> list[str]:
        kernel, spec = self.matrix.kernel(job.kernel), self.plan.environment(job.environment).spec
        return [*kernel.flags.cxx, *spec.flags.cxx] if kernel.is_compiled else []

    def _native(self, flags: Sequence[str], nvcc: Sequence[str]) -> list[Any]:
        """This processor, and this GPU, where a flag says that code is made for the one that is here."""
        facts = self.plan.facts
        own = [facts.host.get("cpu", ""), facts.cpu_flags, facts.host.get("machine", "") if facts.engine else ""]
        return [own if _is_native(flags) else [], dict(facts.gpu) if _is_native(nvcc) else {}]

    def _store(self, job: JobId) -> dict[str, Any]:
        """A problem's inputs do not depend on who solves it."""
        workload = self.plan.workload(job.workload)
        return {
            "problem": [self._file(workload.problem or ""), workload.operator],
            "trials": [workload.trials, workload.dtype, self.plan.seed],
            "room": self.plan.limits.output_gib,
        }

    # -- this machine ---------------------------------------------------------------------------------------

    def _machine(self, job: JobId) -> dict[str, Any]:
        """The facts of this machine that a kind of job depends on."""
        facts, kind = self.plan.facts, KINDS.get(job.kind)
        where = self._where(job)
        found: dict[str, Any] = {"inherited": {} if where == "docker" else dict(facts.inherited)}
        if kind is not None and kind.compiles:
            nvcc = facts.host.get("nvcc", "") if job.device == "cuda" else ""
            found["compilers"] = [facts.host.get("compiler", ""), nvcc]
            found["system"] = [facts.host.get("architecture", ""), facts.host.get("system", "")]
        elif job.kind != "store":
            own = {name: value for name, value in facts.host.items() if name not in ("compiler", "nvcc", "gpus")}
            found["host"] = [own, facts.cpu_flags]
            found["gpu"] = dict(facts.gpu) if job.device == "cuda" else {}
            found["executor"] = [where, {} if where == HOST else dict(facts.engine)]
        if job.environment and not (kind is not None and kind.compiles):
            found["threads"] = self.plan.threads_in(job.environment)
        return found

    def _where(self, job: JobId) -> str:
        """The executor of a job's environment; the host's runs beside another."""
        is_host = bool(job.environment) and self.plan.environment(job.environment).spec.is_host
        return HOST if is_host else self.plan.facts.executor


def _is_native(flags: Sequence[str]) -> bool:
    return any("native" in flag for flag in flags)
