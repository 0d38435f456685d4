"""Where each input of a key is (`harness.config.keys`): in the plan, in the matrix, in what was observed here.

Pure: the same plan gives the same keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from harness.config.environments import HOST
from harness.config.keys import DETERMINES, of
from harness.config.matrix import Matrix
from harness.config.plan import Plan, PlannedEnvironment
from harness.schema.records import Device
from harness.worker import protocol


@dataclass(frozen=True, kw_only=True)
class World:
    """All that records can depend on. `environments`: keys of those that were made; of others the planned one's."""

    plan: Plan
    matrix: Matrix
    environments: Mapping[str, str] = field(default_factory=dict)
    stores: Mapping[str, str] = field(default_factory=dict)  # workload to what its store holds, of problem files
    known: dict[Place, str] = field(default_factory=dict, compare=False)  # keys that were asked for before


@dataclass(frozen=True, kw_only=True)
class Place:
    """Which record, of those of a kind. What is not said of it is not asked."""

    kind: str
    environment: str = ""
    kernel: str = ""
    device: Device = "cpu"
    workload: str = ""
    index: int = 0
    asked: Any = None

    def like(self, kind: str) -> Place:
        """The record of another kind at the same place."""
        return replace(self, kind=kind, asked=None)


def key(world: World, place: Place, **given: Any) -> str:
    """The key of a record. `given` are inputs that the plan does not have."""
    plain = not given and (place.asked is None or isinstance(place.asked, int))
    if plain and place in world.known:
        return world.known[place]
    names = DETERMINES[place.kind]
    made = of(place.kind, **{name: given[name] if name in given else INPUTS[name](world, place) for name in names})
    if plain:
        world.known[place] = made
    return made


# -- where the inputs are ---------------------------------------------------------------------------------------


def _environment(world: World, place: Place) -> str:
    made = world.environments.get(place.environment)
    return key(world, place.like("planned")) if made is None else made


def _planned(world: World, place: Place) -> PlannedEnvironment:
    return world.plan.environment(place.environment)


def _interpreter(world: World, place: Place) -> str:
    spec = _planned(world, place).spec
    return world.plan.facts.interpreters.get(HOST if spec.is_host else spec.python, "")


def _files(world: World, place: Place) -> list[list[str]]:
    """Sources, the shipped binding, problem files and headers: those that a build's compiler may read."""
    files = world.plan.facts.files.get(place.kernel, {}).get(place.device, ())
    return [[name, world.plan.facts.sources_sha256[name]] for name in files]


def _binding_files(world: World, _place: Place) -> list[list[str]]:
    facts = world.plan.facts
    return [[name, facts.sources_sha256.get(name, "")] for name in facts.binding_files]


def _cxx_flags(world: World, place: Place) -> list[str]:
    kernel = world.matrix.kernel(place.kernel)
    if not kernel.is_compiled:
        return []  # nothing of it is compiled before it runs
    return [*kernel.flags.cxx, *_planned(world, place).spec.flags.cxx]


def _binds(world: World, place: Place) -> str:
    """How it is called: by which binding, or by the entry point of its wheel."""
    kernel = world.matrix.kernel(place.kernel)
    return kernel.entry or kernel.binding


def _nvcc_flags(world: World, place: Place) -> list[str]:
    kernel = world.matrix.kernel(place.kernel)
    if not kernel.is_compiled or place.device == "cpu":
        return []
    return [*kernel.flags.nvcc, *_planned(world, place).spec.flags.nvcc]


def _on_a_gpu(place: Place, values: Sequence[str]) -> list[str]:
    return list(values) if place.device == "cuda" else []


def _compilers(world: World, place: Place) -> list[str]:
    host = world.plan.facts.host
    return [host.get("compiler", ""), host.get("nvcc", "") if place.device == "cuda" else ""]


def _is_native(flags: list[str]) -> bool:
    return any("native" in flag for flag in flags)


def _processor(world: World, place: Place) -> list[str]:
    """This machine's, where a flag says that code is made for the one that is here: -march=native."""
    facts = world.plan.facts
    flags = _cxx_flags(world, place) + (_nvcc_flags(world, place) if place.kind == "build" else [])
    here = [facts.host.get("cpu", ""), facts.cpu_flags, facts.host.get("machine", "") if facts.engine else ""]
    return here if _is_native(flags) else []


def _native_gpu(world: World, place: Place) -> dict[str, Any]:
    return dict(world.plan.facts.gpu) if _is_native(_nvcc_flags(world, place)) else {}


def _system(world: World, _place: Place) -> list[str]:
    host = world.plan.facts.host
    return [host.get("architecture", ""), host.get("system", "")]


def _machine(world: World, _place: Place) -> dict[str, str]:
    """Without its compilers, which builds depend on, and its GPUs, of which one is in use."""
    facts = world.plan.facts
    own = {name: value for name, value in facts.host.items() if name not in ("compiler", "nvcc", "gpus")}
    return {**own, "cpu_flags": facts.cpu_flags}


def _gpu(world: World, place: Place) -> dict[str, Any]:
    """The one in use, whatever names it: its UUID, driver, power limit, MIG and ECC."""
    return dict(world.plan.facts.gpu) if place.device == "cuda" else {}


def _where(world: World, place: Place) -> str:
    """The executor of its environment; the host's runs beside another."""
    return HOST if _planned(world, place).spec.is_host else world.plan.facts.executor


def _executor(world: World, place: Place) -> list[Any]:
    where = _where(world, place) if place.environment else world.plan.facts.executor
    return [where, {} if where == HOST else dict(world.plan.facts.engine)]


def _inherited(world: World, place: Place) -> dict[str, str]:
    """What processes get of the user's own environment; containers get nothing of it."""
    contained = bool(place.environment) and _where(world, place) == "docker"
    return {} if contained else dict(world.plan.facts.inherited)


def _workload(world: World, place: Place) -> dict[str, Any]:
    """All of it but where else it is run. Experiments choose trials of their own, and say which in `asked`."""
    chosen = {"devices", "trials"} if place.kind in ("conditions", "swap") else {"devices"}
    return {name: value for name, value in asdict(world.plan.workload(place.workload)).items() if name not in chosen}


def _problem_file(world: World, place: Place) -> str:
    problem = world.plan.workload(place.workload).problem
    return world.plan.facts.sources_sha256.get(problem, "") if problem else ""


def _timing(world: World, place: Place) -> dict[str, float]:
    others = "relative_error_cuda" if place.device == "cpu" else "relative_error"
    return {name: value for name, value in world.plan.timing.model_dump().items() if name != others}


def _block(world: World, place: Place) -> list[str]:
    """Every launch of this block on this device, in its order: rows of one block are compared with each other."""
    return [
        key(
            world,
            Place(
                kind="in_block",
                environment=each.environment,
                kernel=each.kernel,
                device=each.device,
                index=each.index,
                asked=each.position,
            ),
        )
        for each in (*world.plan.launches, *world.plan.more_launches)
        if (each.index, each.device) == (place.index, place.device)
    ]


def _swapped(world: World, place: Place) -> list[Any]:
    """Whose object code is called in whose place: `asked` has the environments."""
    places = [replace(place.like("build"), environment=each) for each in place.asked["environments"]]
    return [[each.environment, key(world, each), world.plan.threads_in(each.environment)] for each in places]


def _of_workloads(one: Callable[[World, Place], Any]) -> Callable[[World, Place], Any]:
    """An input of a workload; of a launch, which measures several, of each of them."""

    def inputs(world: World, place: Place) -> Any:
        if place.workload:
            return one(world, place)
        workloads = world.plan.workloads_of(place.kernel, place.device)
        return [one(world, replace(place, workload=each.id)) for each in workloads]

    return inputs


def _records(world: World, _place: Place) -> list[str]:
    """The keys of all that is planned."""
    plan = world.plan
    places = [Place(kind="planned", environment=each.id) for each in plan.environments]
    places += [
        Place(kind=kind, environment=cell.environment, kernel=cell.kernel, device=cell.device, workload=cell.workload)
        for cell in plan.cells
        for kind in ("validation", "conditions")
    ]
    places += [
        Place(kind="build", environment=each.environment, kernel=each.kernel, device=each.device)
        for each in plan.builds
    ]
    found = [key(world, place) for place in places]
    blocks = dict.fromkeys((launch.index, launch.device) for launch in plan.launches)
    return [*found, *(protocol.digest(_block(world, Place(kind="launch", index=i, device=d))) for i, d in blocks)]


INPUTS: Mapping[str, Callable[[World, Place], Any]] = {
    "id": lambda world, place: _planned(world, place).id,
    "wheels_from": lambda world, place: _planned(world, place).index,
    "index": lambda _, place: place.index,
    "replica": lambda world, place: _planned(world, place).spec.replica,
    "python": lambda world, place: _planned(world, place).spec.python,
    "pins": lambda world, place: world.plan.facts.pins_sha256.get(place.environment, ""),
    "interpreter": _interpreter,
    "base": lambda world, place: world.plan.facts.bases.get(_planned(world, place).spec.base_image, ""),
    "bundle": lambda world, _: dict(world.plan.facts.bundle),
    "environment": _environment,
    "variables": lambda world, place: _planned(world, place).spec.variables,
    "kernel": lambda _, place: place.kernel,
    "device": lambda _, place: place.device,
    "files": _files,
    "binding_files": _binding_files,
    "binds": _binds,
    "tunables": lambda world, place: {n: str(v) for n, v in world.matrix.kernel(place.kernel).tunables.items()},
    "flags": lambda world, place: [_cxx_flags(world, place), _nvcc_flags(world, place)],
    "cxx_flags": _cxx_flags,
    "architectures": lambda world, place: _on_a_gpu(place, world.matrix.kernel(place.kernel).architectures),
    "libraries": lambda world, place: _on_a_gpu(place, world.matrix.kernel(place.kernel).libraries),
    "compilers": _compilers,
    "processor": _processor,
    "native_gpu": _native_gpu,
    "system": _system,
    "inherited": _inherited,
    "machine": _machine,
    "gpu": _gpu,
    "executor": _executor,
    "code": lambda world, place: world.plan.facts.code.get(place.kind, ""),
    "every_code": lambda world, _: dict(world.plan.facts.code),
    "build": lambda world, place: key(world, place.like("build")),
    "workload": _of_workloads(_workload),
    "swapped": _swapped,
    "problem_file": _problem_file,
    "problem": _of_workloads(lambda world, place: [_problem_file(world, place), world.stores.get(place.workload, "")]),
    "output_gib": lambda world, _: world.plan.limits.output_gib,
    "trials": lambda world, place: world.plan.workload(place.workload).trials,
    "dtype": lambda world, place: world.plan.workload(place.workload).dtype,
    "references": lambda world, place: world.plan.kernel(place.kernel).references_on(place.device),
    "deterministic": lambda world, place: world.plan.kernel(place.kernel).deterministic,
    "precision": lambda world, place: world.plan.kernel(place.kernel).precision,
    "seed": lambda world, _: world.plan.seed,
    "order_seed": lambda world, _: world.plan.seed,
    "threads": lambda world, place: world.plan.threads_in(place.environment),
    "tolerances": lambda world, _: world.plan.tolerances.model_dump(),
    "timing": _timing,
    "block": _block,
    "position": lambda _, place: place.asked,
    "called": lambda _, place: place.asked,
    "asked": lambda _, place: place.asked,
    "schema": lambda *_: protocol.SCHEMA_VERSION,
    "mode": lambda world, _: world.plan.mode,
    "quick": lambda world, _: world.plan.quick,
    "baseline": lambda world, _: world.plan.baseline,
    "measured": lambda world, _: list(world.plan.measured),
    "cells": lambda world, _: [cell.id for cell in world.plan.cells],
    "kernels": lambda world, _: [asdict(kernel) for kernel in world.plan.kernels],
    "workloads": lambda world, _: [asdict(workload) for workload in world.plan.workloads],
    "fallbacks": lambda world, _: [[each.subject, each.wanted, each.got] for each in world.plan.fallbacks],
    "kernelbench": lambda world, _: asdict(world.plan.kernelbench) if world.plan.kernelbench else {},
    "most_launches": lambda world, _: world.plan.most_launches,
    "records": _records,
}
