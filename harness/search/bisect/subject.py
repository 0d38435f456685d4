"""What a bisection is about, as an ordinary matrix of two environments. They differ in PyTorch, or, with that held, in
one package beside it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.config.environments import Environment, channel, package_versions
from harness.config.kernels import Kernel
from harness.config.matrix import Matrix
from harness.config.operators import Operator
from harness.config.plan import Plan
from harness.config.planner import pick
from harness.config.workloads import Workload
from harness.errors import InputError, meant
from harness.experiments.components import with_package
from harness.schema.bisection_records import Aspect
from harness.schema.records import Device
from harness.schema.run_records import Selection
from harness.search.bisect.oracle import TRIAL_FACTORS
from harness.worker import protocol

MOST_TRIALS, MOST_EXTRA_TRIALS = 10_000, 1000  # as in matrix.yaml
TIMED_TRIALS = 2  # where times are asked for, outputs are only checked


Place = tuple[str, str, Device]  # kernel, workload, device


@dataclass(frozen=True, kw_only=True)
class Subject:
    """`kernels` and `workloads` as given; none: all. `component`: the package whose releases are asked, in the
    environment `held`, by version or id; '' the baseline. `python`: of every version, where it is another than the good
    one's in matrix.yaml; '' the same."""

    good: str
    bad: str
    what: Aspect
    target: str = protocol.KERNEL
    kernels: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ("cpu",)
    trials: int | None = None
    component: str = ""
    held: str = ""
    python: str = ""


def environment_of(matrix: Matrix, torch: str, good: str) -> Environment:
    """The environment of a version: matrix.yaml's own where that differs from the good one's in nothing else, else the
    good one's with another PyTorch, so that nothing else can be what differs."""
    pinned = [spec for spec in matrix.pinned_environments if spec.wheel is None]
    if not pinned:
        raise InputError("matrix.yaml pins no environment by its version", "add the good version under `environments`")
    like = next((spec for spec in pinned if spec.torch == good), None)
    like = like or (matrix.baseline_environment if matrix.baseline_environment in pinned else pinned[0])
    other = {"fallback_index": None} if channel(torch) and not channel(like.torch) else {}
    return like.model_copy(update={"torch": torch, "replica": 0, **other})


def held_environment(matrix: Matrix, held: str) -> Environment:
    """The environment whose package is another each time. InputError where there is none such."""
    known = matrix.pinned_environments
    chosen = matrix.baseline_environment if not held else None
    chosen = chosen or next((spec for spec in known if held in (spec.torch, *map(spec.id, spec.indexes))), None)
    if chosen is None or chosen.is_host:
        ids = ", ".join(spec.id() for spec in known)
        problem = f"--torch {held}: not in matrix.yaml" if held else "the baseline is the host's PyTorch, as it is"
        raise InputError(problem, f"name the environment that is held: --torch V, one of {ids}")
    return chosen


def environment_at(matrix: Matrix, subject: Subject, version: str) -> Environment:
    """The environment of a version of what is bisected: matrix.yaml's own where it has that version."""
    if not subject.component:
        found = environment_of(matrix, version, subject.good)
        return found.model_copy(update={"python": subject.python}) if subject.python else found
    held = held_environment(matrix, subject.held)
    if package_versions(matrix.packages_in(held)).get(subject.component) == version:
        return held
    made = with_package(held, subject.component, version)
    same = (spec for spec in matrix.pinned_environments if spec.id() == made.id())
    return next((spec for spec in same if spec.model_copy(update={"packages": made.packages}) == made), made)


def version_in(matrix: Matrix, spec: Environment, subject: Subject) -> str:
    """Which version of it an environment has."""
    if not subject.component:
        return spec.torch
    return package_versions(matrix.packages_in(spec))[subject.component]


def asked(subject: Subject, matrix: Matrix) -> Subject:
    """Where the workloads that are asked for are operators', or there is nothing else, their target."""
    if subject.target != protocol.KERNEL or not matrix.operators:
        return subject
    chosen = _operators(matrix, subject)
    others = {name for workload in matrix.workloads for name in workload.names} | {k.name for k in matrix.kernels}
    is_operator = bool(chosen) and not (matrix.kernels and (not subject.workloads or others & set(subject.workloads)))
    return replace(subject, target=protocol.MODEL) if is_operator else subject


def _operators(matrix: Matrix, subject: Subject) -> list[Operator]:
    """Those that have a workload that is asked for, by name or by id."""
    wanted = set(subject.workloads)
    return [
        operator
        for operator in matrix.operators
        if not wanted or wanted & {operator.called, *(each.id for each in operator.workloads())}
    ]


def _kernels(matrix: Matrix, subject: Subject) -> list[Kernel]:
    """The kernels to build: of a reference, the one that it is measured beside; of operators, none."""
    if subject.target == protocol.MODEL and _operators(matrix, subject):
        return []
    names = pick("kernel", subject.kernels, [kernel.name for kernel in matrix.kernels])
    chosen = [kernel for kernel in matrix.kernels if kernel.name in names and _runs(kernel, subject, matrix.workloads)]
    if not chosen:
        raise InputError(
            f"no kernel of those asked for runs there on {' or '.join(subject.devices)}",
            "give another --kernel, --workload or --device",
        )
    if subject.target != protocol.KERNEL:
        chosen = [kernel for kernel in chosen if (kernel.problem is not None) == (subject.target == protocol.MODEL)][:1]
        if not chosen:
            raise InputError(
                f"--target {subject.target}: no kernel that it is measured beside", "give another --kernel or --target"
            )
    return [kernel.on_devices(subject.devices) for kernel in chosen]


def _runs(kernel: Kernel, subject: Subject, workloads: Sequence[Workload]) -> bool:
    """Whether it has sources for one of the devices, and a workload that is asked for, by name or by id."""
    if kernel.sources is not None and not any(getattr(kernel.sources, device) for device in subject.devices):
        return False
    if not subject.workloads or kernel.workloads is None:
        return True
    return any(w.name in kernel.workloads and w.names & set(subject.workloads) for w in workloads)


def _references(matrix: Matrix, subject: Subject) -> Sequence[str]:
    known = list(dict.fromkeys([*matrix.references, *(matrix.references_cuda or [])]))
    if subject.target in (protocol.KERNEL, protocol.MODEL):
        return known[:1]
    if subject.target not in known:
        raise InputError(
            f"--target {subject.target}: not a reference of matrix.yaml",
            f"{meant(subject.target, known)}choose from: kernel, {', '.join(known)}",
        )
    return [subject.target]


def derived_matrix(matrix: Matrix, subject: Subject, versions: list[str], look: int, launches: int) -> Matrix:
    """The matrix of one look: these versions, and what tells them apart. InputError where `subject` names what
    matrix.yaml lacks."""
    factor = TRIAL_FACTORS[look]

    def more(item: Workload | Kernel | Operator) -> dict[str, int]:
        if subject.what == "latency":
            return {"trials": TIMED_TRIALS, "extra_trials": 0}
        return {
            "trials": min((subject.trials or item.trials) * factor, MOST_TRIALS),
            "extra_trials": min(getattr(item, "extra_trials", 0) * factor, MOST_EXTRA_TRIALS),
        }

    kernels = _kernels(matrix, subject)
    operators = [] if kernels else _operators(matrix, subject)
    environments = [environment_at(matrix, subject, version) for version in versions]
    return matrix.model_copy(
        update={
            "baseline": environments[0].id() if subject.component else subject.good,
            "environments": environments,
            "kernels": [kernel.model_copy(update={"trials": min(more(kernel)["trials"], 1000)}) for kernel in kernels],
            "operators": [each.model_copy(update={"trials": min(more(each)["trials"], 1000)}) for each in operators],
            "workloads": [workload.model_copy(update=more(workload)) for workload in matrix.workloads],
            "references": _references(matrix, subject),
            "references_cuda": None,
            "launches": launches,
            "most_launches": launches,
        }
    )


def selection_of(subject: Subject) -> Selection:
    return Selection(workloads=subject.workloads, devices=subject.devices)


def cell_names(plan: Plan, environment: str, target: str) -> dict[str, Place]:
    """Every cell of one version that is looked at, by name. A reference is looked at once
    a workload, beside the first kernel that has it."""
    found: dict[str, Place] = {}
    for cell in (cell for cell in plan.cells if cell.environment == environment):
        name = f"{cell.workload}/{cell.device}"
        if target == protocol.KERNEL:
            name = f"{cell.kernel}/{name}"
        elif target not in plan.kernel(cell.kernel).references_on(cell.device):
            continue
        found.setdefault(name, (cell.kernel, cell.workload, cell.device))
    return found
