"""Which settings there are, and the matrices in which some of them are measured beside the incumbent. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.config.kernels import Kernel, Setting
from harness.config.matrix import Matrix
from harness.config.planner import pick
from harness.config.workloads import Workload
from harness.errors import InputError
from harness.schema.records import Device
from harness.schema.run_records import Selection
from harness.worker import protocol

Phase = Literal["search", "final", "confirm"]
SEARCH_TRIALS = 5
SEARCH_LAUNCHES = 1
FINAL_LAUNCHES = 6  # the fewest that support a 95% interval of a median
CONFIRMING_LAUNCHES = 4  # at least: the fewest of each that support a 95% interval of a ratio
FINALISTS = 4
NAME_LENGTH = 55  # of a kernel's name, of which 64 characters are accepted


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is searched: a kernel with a `search`, on workloads as given, on one device."""

    kernel: Kernel
    workloads: tuple[str, ...]
    device: Device
    capability: str = ""  # compute capability of the GPUs here without its dot, where all have the same


def searched_kernel(matrix: Matrix, name: str) -> Kernel:
    pick("kernel", [name], [kernel.name for kernel in matrix.kernels])
    kernel = matrix.kernel(name)
    if kernel.settings < 2:
        example = next(iter(kernel.tunables), "BLOCK_M")
        raise InputError(
            f"--kernel {name}: matrix.yaml names no values to search",
            f"say which beside its tunables, such as: search: {{{example}: [16, 32, 64]}}",
        )
    return kernel


def choose_device(kernel: Kernel, wanted: str, devices: Sequence[Device], gpus: int) -> Device:
    """The device to search on, of those that the kernel has sources for. InputError where it cannot be had."""
    if wanted == "auto":
        return "cuda" if "cuda" in devices and gpus else "cpu" if "cpu" in devices else "cuda"
    device: Device = "cuda" if wanted == "cuda" else "cpu"
    if device not in devices:
        raise InputError(f"--device {device}: kernel {kernel.name} has no source for it", "choose the other one")
    return device


def all_settings(search: Mapping[str, Sequence[int | str]]) -> Iterator[Setting]:
    for values in itertools.product(*search.values()):
        yield dict(zip(search, values, strict=True))


def key_of(setting: Setting) -> tuple[tuple[str, int | str], ...]:
    """A setting as something that can stand in a set."""
    return tuple(sorted(setting.items()))


def incumbent_of(kernel: Kernel) -> Setting:
    """The values in matrix.yaml of what is searched."""
    return {name: kernel.tunables[name] for name in kernel.search}


def variant(kernel: Kernel, setting: Setting) -> Kernel:
    """The kernel at a setting, under a name that depends on nothing else; the incumbent keeps its own."""
    changes: dict[str, object] = {"search": {}}
    if setting != incumbent_of(kernel):
        changes["name"] = f"{kernel.name[:NAME_LENGTH]}.{protocol.digest(setting)[:8]}"
        changes["tunables"] = {**kernel.tunables, **setting}
    return kernel.model_copy(update=changes)


def own_architectures(kernel: Kernel, capability: str) -> list[str]:
    """Those that the GPUs here run: a search need not compile the others. All where none is for them."""
    own = [name for name in kernel.architectures if capability and name.removeprefix("sm_").rstrip("a") == capability]
    return own or kernel.architectures


def launches_of(matrix: Matrix, phase: Phase) -> int:
    if phase == "search":
        return SEARCH_LAUNCHES
    return FINAL_LAUNCHES if phase == "final" else max(matrix.launches, CONFIRMING_LAUNCHES)


def derived_matrix(matrix: Matrix, subject: Subject, settings: Sequence[Setting], phase: Phase) -> Matrix:
    """The incumbent and `settings`, and nothing else, in every environment.

    References are left out: a kernel is judged by the truth, and compared with the incumbent. What confirms has other
    inputs than the search, all the trials and architectures of matrix.yaml, and launches that no other phase can have
    made.
    """
    kernel = subject.kernel.on_devices([subject.device])
    if phase != "confirm":
        kernel = kernel.model_copy(update={"architectures": own_architectures(kernel, subject.capability)})
    kernels = [variant(kernel, setting) for setting in (incumbent_of(kernel), *settings)]

    def fewer(workload: Workload) -> Workload:
        trials = min(workload.trials, SEARCH_TRIALS), min(workload.extra_trials, SEARCH_TRIALS)
        return workload.model_copy(update=dict(zip(("trials", "extra_trials"), trials, strict=True)))

    return matrix.model_copy(
        update={
            "kernels": kernels,
            "workloads": matrix.workloads if phase == "confirm" else [fewer(each) for each in matrix.workloads],
            "references": [],
            "references_cuda": None,
            "launches": launches_of(matrix, phase),
            "most_launches": launches_of(matrix, phase),
            "seed": (matrix.seed + (phase == "confirm")) % 2**63,
        }
    )


def selection_of(subject: Subject) -> Selection:
    return Selection(workloads=subject.workloads, devices=(subject.device,))
