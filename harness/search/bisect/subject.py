"""What a bisection is about, as an ordinary matrix of two environments that differ in PyTorch. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.config.environments import Environment, channel
from harness.config.matrix import Matrix
from harness.config.planner import chosen
from harness.errors import InputError, meant
from harness.schema.bisection_records import Aspect
from harness.schema.records import Device
from harness.schema.run_records import Selection
from harness.worker import protocol

REPLICATES = 12  # of each version, where times are asked for
TIMED_TRIALS = 2  # where times are asked for, outputs are only checked


@dataclass(frozen=True, kw_only=True)
class BisectSubject:
    """`kernels` and `workloads` as given; none: all."""

    good: str
    bad: str
    what: Aspect
    target: str = protocol.KERNEL
    kernels: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ("cpu",)
    trials: int | None = None

    @property
    def selection(self) -> Selection:
        return Selection(kernels=self.kernels, workloads=self.workloads, devices=self.devices)


def environment_of(matrix: Matrix, torch: str, good: str) -> Environment:
    """Return the environment of a version: matrix.yaml's own where that differs from the good one's in nothing else,
    else the good one's with another PyTorch, so that nothing else can be what differs."""
    pinned = [spec for spec in matrix.pinned_environments if spec.wheel is None]
    if not pinned:
        raise InputError("matrix.yaml pins no environment by its version", "add the good version under `environments`")
    like = next((spec for spec in pinned if spec.torch == good), None)
    like = like or (matrix.baseline_environment if matrix.baseline_environment in pinned else pinned[0])
    other = {"fallback_index": None} if channel(torch) and not channel(like.torch) else {}
    return like.model_copy(update={"torch": torch, "replica": 0, **other})


def choose_target(subject: BisectSubject, matrix: Matrix, files: Mapping[str, Sequence[str]]) -> BisectSubject:
    """Return the subject with its kernels by name: those under test, or those that a reference is measured beside, one
    for each workload. Where only operators are left, the target is their `Model`. InputError where nothing is left."""
    candidates, _ = chosen(matrix, subject.selection, files)
    here = [kernel for kernel in candidates if set(kernel.devices) & set(subject.devices)]
    if not here:
        problem = f"no kernel of those asked for runs there on {' or '.join(subject.devices)}"
        raise InputError(problem, "give another --kernel, --workload or --device")
    own = tuple(kernel.name for kernel in here if not kernel.pytorch)
    if subject.target == protocol.KERNEL and own:
        return replace(subject, kernels=own)
    target = protocol.MODEL if subject.target == protocol.KERNEL else subject.target
    names, covered = [], set[str]()
    for kernel in here:
        has_target = any(target in kernel.references_on(device) for device in subject.devices)
        if has_target and not set(kernel.workloads) <= covered:
            names.append(kernel.name)
            covered |= set(kernel.workloads)
    if not names:
        known = list(dict.fromkeys(name for kernel in here for name in kernel.references))
        remedy = f"{meant(target, known)}choose from: kernel, {', '.join(known)}"
        raise InputError(f"--target {target}: not a reference of what is selected", remedy)
    return replace(subject, target=target, kernels=tuple(names))


def _set_trials(item: Any, subject: BisectSubject) -> Any:
    """Return a workload, kernel or operator with the trials that are asked for."""
    changes: dict[str, int] = {}
    if subject.what is Aspect.LATENCY:
        changes = {"trials": TIMED_TRIALS, "extra_trials": 0}
    elif subject.trials is not None:
        changes = {"trials": subject.trials}
    return item.model_copy(update={name: count for name, count in changes.items() if hasattr(item, name)})


def derive_matrix(matrix: Matrix, subject: BisectSubject, versions: Sequence[str]) -> Matrix:
    """Return the matrix of one look at these versions. The first is the baseline."""
    replicates = REPLICATES if subject.what is Aspect.LATENCY else 1
    environments = [environment_of(matrix, version, subject.good) for version in versions]
    changes: dict[str, Any] = {
        "baseline": environments[0].id(),
        "environments": environments,
        # Sources of other devices would be compiled for nothing.
        "kernels": [
            _set_trials(kernel.on_devices(subject.devices), subject)
            for kernel in matrix.kernels
            if kernel.name in subject.kernels
        ],
        "operators": [_set_trials(operator, subject) for operator in matrix.operators],
        "workloads": [_set_trials(workload, subject) for workload in matrix.workloads],
        "launches": replicates,
        "most_launches": replicates,
    }
    if subject.what is Aspect.LATENCY:
        # Of correctness all references stay: so the ends are found again where an ordinary run has judged them.
        known = (*matrix.references, *(matrix.references_cuda or ()))
        changes |= {"references": [subject.target] if subject.target in known else [], "references_cuda": None}
    return matrix.model_copy(update=changes)
