"""Which executor a run uses, and why: the reason stands in the record, and in the report under its method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from harness.errors import InfrastructureError
from harness.executors import Executor
from harness.executors.docker.cell import CellLimits
from harness.executors.docker.connection import EngineGone
from harness.executors.docker.engine import NO_BASE_REMEDY, Engine, EngineFacts
from harness.executors.images import base_problem
from harness.matrix import Limits
from harness.plan import Plan

Wanted = Literal["auto", "docker", "venv"]
ENGINE_REMEDY = "start one, or use virtual environments: --executor venv"
GIB = 1 << 30
MEMORY_SHARE = 0.45  # of the engine's, for a cell: two run at once
MOST_FILES = 65536


@dataclass(frozen=True, kw_only=True)
class Choice:
    executor: Literal["docker", "venv"]
    reason: str
    remedy: str = ""  # what would give containers, where there are none
    engine: Engine | None = field(default=None, compare=False)
    facts: EngineFacts | None = None


def choose(
    wanted: Wanted,
    *,
    engine: EngineFacts | None,
    engine_problem: str,
    gpus: int,
    missing_bases: Callable[[], dict[str, str]],
) -> Choice:
    """The executor and why. `missing_bases` gives base image to what is wrong with it; it is asked last, since it may
    ask a registry. InfrastructureError where containers were asked for and cannot be had."""
    if wanted == "venv":
        return Choice(executor="venv", reason="virtual environments, as asked for")
    problem, remedy = "", ""
    if engine is None:
        problem, remedy = f"no container engine answers: {engine_problem}", ENGINE_REMEDY
    elif engine.architecture not in ("x86_64", "amd64"):
        problem, remedy = f"the engine's machine is {engine.architecture}; the pins are for x86_64", ENGINE_REMEDY
    elif not engine.seccomp:
        problem, remedy = f"{engine.name} has no seccomp profile, so that cells would not be confined", ENGINE_REMEDY
    elif wanted == "auto" and gpus and not engine.gpus:
        problem = (
            f"this machine has a GPU that {engine.name} cannot hand to a container: it has neither NVIDIA's container "
            "toolkit nor CDI"
        )
        remedy = "install NVIDIA's container toolkit: nvidia-ctk runtime configure --runtime=docker"
    elif missing := missing_bases():
        base, why = next(iter(missing.items()))
        problem, remedy = f"the base image {base} is not there, and cannot be fetched: {why}", NO_BASE_REMEDY
    if not problem:
        assert engine is not None
        return Choice(executor="docker", reason=f"containers of {engine.name}")
    if wanted == "docker":
        raise InfrastructureError(problem, remedy)
    return Choice(executor="venv", reason=f"virtual environments, since {problem}", remedy=remedy)


def choose_here(wanted: Wanted, bases: list[str], gpus: int) -> Choice:
    """The choice for this machine."""
    engine, facts, problem = None, None, ""
    if wanted != "venv":
        try:
            engine = Engine()
            facts = engine.facts()
        except EngineGone as error:
            problem = error.problem
        except InfrastructureError as error:
            problem = error.message

    def missing_bases() -> dict[str, str]:
        assert engine is not None
        problems = {base: base_problem(engine, base) for base in dict.fromkeys(bases)}
        return {base: problem for base, problem in problems.items() if problem}

    try:
        choice = choose(wanted, engine=facts, engine_problem=problem, gpus=gpus, missing_bases=missing_bases)
    except EngineGone as error:  # it went away while it was asked
        choice = choose(wanted, engine=None, engine_problem=error.problem, gpus=gpus, missing_bases=dict)
    return replace(choice, engine=engine, facts=facts) if choice.executor == "docker" else choice


def cell_limits(limits: Limits, engine: EngineFacts) -> CellLimits:
    """What a cell may use: what matrix.yaml says, else a share of what the engine's machine has."""
    memory_bytes = int((limits.memory_gib * GIB) if limits.memory_gib else MEMORY_SHARE * engine.memory_bytes)
    return CellLimits(
        memory_bytes=memory_bytes,
        processes=limits.processes,
        output_bytes=min(int(limits.output_gib * GIB), memory_bytes),
        output_files=MOST_FILES,
    )


def make_executor(choice: Choice, limits: Limits, plan: Plan, root: Path, cache: Path) -> Executor:
    if choice.engine is None or choice.facts is None:
        from harness.executors.venv import VenvExecutor

        return VenvExecutor(cache, plan.threads)
    from harness.executors.containers import DockerExecutor

    limit = cell_limits(limits, choice.facts)
    return DockerExecutor(
        choice.engine, root, cache, plan.threads, limits=limit, gpus=choice.facts.gpus if plan.facts.gpus else ""
    )
