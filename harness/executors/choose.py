"""Which executor a run uses, and why: the reason stands in the record, and in the report under its method."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import psutil

from harness.config.matrix import Limits
from harness.config.plan import Plan
from harness.errors import InfrastructureError, InputError
from harness.executors import Executor
from harness.executors.archive import MANIFEST, Bundle, load_bundle
from harness.executors.bwrap import Bwrap, find_bwrap, grant
from harness.executors.engine import NO_BASE_REMEDY, Engine, EngineFacts, EngineGone
from harness.executors.images import base_problem
from harness.executors.sandbox import SandboxLimits
from harness.tools import GIB

Name = Literal["docker", "venv", "bundle"]
Wanted = Literal["auto", Name]
NO_SANDBOX = "kernels run without a sandbox"
BUNDLE_VARIABLE = "KERNEL_MATRIX_BUNDLE"
ENGINE_REMEDY = "start one, or use virtual environments: --executor venv"
MEMORY_SHARE = 0.45  # of the engine's, for a sandbox: two run at once
MOST_FILES = 65536


@dataclass(frozen=True, kw_only=True)
class Choice:
    executor: Name
    reason: str
    remedy: str = ""  # what would give containers, where there are none
    engine: Engine | None = field(default=None, compare=False)
    facts: EngineFacts | None = None
    bundle: Bundle | None = None
    bwrap: Bwrap | None = None  # None: containers are used, or this machine has no bubblewrap that runs

    @property
    def sandboxes(self) -> bool:
        """Return whether kernels run in sandboxes."""
        return self.executor == "docker" or self.bwrap is not None


def choose_venv(reason: str, remedy: str = "") -> Choice:
    bwrap, refusal = grant()
    how = bwrap.describe() if bwrap else f"{NO_SANDBOX}: {refusal}"
    return Choice(executor="venv", reason=f"{reason}; {how}", remedy=remedy, bwrap=bwrap)


def wanted_bundle(wanted: Wanted, folder: Path | None, variables: Mapping[str, str]) -> Path | None:
    """Return the folder of the bundle to use; None for none. A folder that is named asks for its executor.

    InputError where another executor is asked for too, or the bundle's without one.
    """
    if wanted in ("docker", "venv"):
        if folder is not None:
            raise InputError(f"--bundle {folder}: --executor {wanted} uses none", "leave one of them out")
        return None
    if folder is None and variables.get(BUNDLE_VARIABLE):
        folder = Path(variables[BUNDLE_VARIABLE])
        if not (folder / MANIFEST).is_file():
            raise InputError(f"{BUNDLE_VARIABLE}={folder}: not a bundle", f"unset {BUNDLE_VARIABLE}, or correct it")
    if folder is None and wanted == "bundle":
        raise InputError(
            "--executor bundle: which one?", f"name a bundle: --bundle DIR, or export {BUNDLE_VARIABLE}=DIR"
        )
    return folder.resolve() if folder is not None else None


def choose_bundle(folder: Path) -> Choice:
    """Return a bundle, where this machine can run it. InputError or InfrastructureError with what to do where not."""
    bundle = load_bundle(folder)
    machine = bundle.manifest.machine
    if platform.machine() != machine:
        raise InputError(
            f"{folder}: a bundle for {machine}, and this machine is {platform.machine()}", "measure on such a machine"
        )
    bwrap = find_bwrap()
    reason = f"a bundle of {bundle.manifest.created_utc[:10]}; {bwrap.describe()}"
    return Choice(executor="bundle", reason=reason, bundle=bundle, bwrap=bwrap)


def lacking(engine: EngineFacts, *, gpus: int, missing_bases: Iterable[tuple[str, str]]) -> tuple[str, str]:
    """Return (why environments cannot be containers of an engine that answers, what to do); '' where they can.

    `gpus` are those that containers must see. `missing_bases`, base images with what is wrong with each, is looked at
    last, since it may ask a registry.
    """
    if engine.architecture not in ("x86_64", "amd64"):
        return f"the engine's machine is {engine.architecture}; the pins are for x86_64", ENGINE_REMEDY
    if not engine.seccomp:
        return f"{engine.name} has no seccomp profile, so that nothing would be confined", ENGINE_REMEDY
    if gpus and not engine.gpus:
        return (
            f"this machine has a GPU that {engine.name} cannot hand to a container: it has neither NVIDIA's container "
            "toolkit nor CDI",
            "install NVIDIA's container toolkit: nvidia-ctk runtime configure --runtime=docker",
        )
    for base, why in missing_bases:
        return f"the base image {base} is not there, and cannot be fetched: {why}", NO_BASE_REMEDY
    return "", ""


def choose_here(wanted: Literal["auto", "docker", "venv"], bases: list[str], gpus: int) -> Choice:
    """The executor for this machine, and why. InfrastructureError where containers were asked for and cannot be had."""
    if wanted == "venv":
        return choose_venv("virtual environments, as asked for")
    try:
        engine = Engine()
        facts = engine.facts()
        missing = ((base, why) for base in dict.fromkeys(bases) if (why := base_problem(engine, base)))
        problem, remedy = lacking(facts, gpus=gpus if wanted == "auto" else 0, missing_bases=missing)
    except InfrastructureError as error:
        said = error.problem if isinstance(error, EngineGone) else error.message
        problem, remedy = f"no container engine answers: {said}", ENGINE_REMEDY
    if not problem:
        return Choice(executor="docker", reason=f"containers of {facts.name}", engine=engine, facts=facts)
    if wanted == "docker":
        raise InfrastructureError(problem, remedy)
    return choose_venv(f"virtual environments, since {problem}", remedy)


def sandbox_limits(limits: Limits, machine_bytes: int) -> SandboxLimits:
    """Return what a sandbox may use: what matrix.yaml says, else a share of its machine's memory."""
    memory_bytes = int((limits.memory_gib * GIB) if limits.memory_gib else MEMORY_SHARE * machine_bytes)
    return SandboxLimits(
        memory_bytes=memory_bytes,
        processes=limits.processes,
        output_bytes=min(int(limits.output_gib * GIB), memory_bytes) if limits.output_gib else memory_bytes,
        output_files=MOST_FILES,
    )


def own_memory() -> int:
    return int(psutil.virtual_memory().total)


def make_executor(choice: Choice, limits: Limits, plan: Plan, root: Path, cache: Path) -> Executor:
    """Make the chosen one; where the plan has environments of the host, beside theirs."""
    pinned = _make_pinned(choice, limits, plan, root, cache)
    hosts = [environment.id for environment in plan.environments if environment.spec.is_host]
    if not hosts:
        return pinned
    from harness.executors.host import HostExecutor, WithHost

    host = HostExecutor(cache, plan.threads, plan.variables, grant()[0], sandbox_limits(limits, own_memory()))
    return WithHost(pinned, host, hosts)


def _make_pinned(choice: Choice, limits: Limits, plan: Plan, root: Path, cache: Path) -> Executor:
    if choice.bundle is not None and choice.bwrap is not None:
        from harness.executors.archive import ArchiveExecutor

        limit = sandbox_limits(limits, own_memory())
        return ArchiveExecutor(choice.bundle, choice.bwrap, cache, plan.threads, plan.variables, limit)
    if choice.engine is None or choice.facts is None:
        from harness.executors.venv import VenvExecutor

        limit = sandbox_limits(limits, own_memory())
        return VenvExecutor(cache, plan.threads, plan.variables, choice.bwrap, limit)
    from harness.executors.docker import DockerExecutor

    limit = sandbox_limits(limits, choice.facts.memory_bytes)
    return DockerExecutor(
        choice.engine,
        root,
        cache,
        plan.threads,
        limits=limit,
        gpus=choice.facts.gpus if plan.facts.gpus else "",
        variables=plan.variables,
    )
