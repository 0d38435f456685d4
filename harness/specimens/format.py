"""specimen.yaml: one specimen as a typed model. Parsing is pure.

A specimen is a matrix with one kernel, in the matrix's own words, and what is true of it. What is true stays in this
file: nothing of it reaches a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, model_validator

from harness.config.environments import ExtraFlags, Variables
from harness.config.kernels import Kernel
from harness.config.matrix import Limits, Reference, Timing, Tolerances
from harness.config.workloads import Workload
from harness.config.yaml_files import Model, parse_yaml
from harness.errors import InputError
from harness.schema.records import Device, Status

Cause = Literal[
    "wrong_everywhere",
    "kernel_code_moved",
    "build_moved",
    "reference_moved",
    "default_backend_moved",
    "inputs_moved",
    "uninitialised_shared",
    "uninitialised_global",
    "uninitialised_host",
    "race",
    "out_of_bounds",
    "wrong_stream",
    "predecessor_sensitivity",
    "masked_by_inputs",
    "range_overflow",
    "not_repeatable",
    "tolerance_too_tight",
    "tolerance_too_loose",
    "unsupported_combination",
    "environment_confounder",
    "latency_operator",
    "latency_launch_overhead",
    "latency_clock_or_load",
    "latency_thread_count",
    "nothing_moved",
]
CAUSES: tuple[str, ...] = get_args(Cause)
HEALTHY: Cause = "nothing_moved"
Half = Literal["development", "held_out"]
FILE = "specimen.yaml"
KERNEL = "attention"  # every specimen's kernel: what it is called tells nothing
QUICK = Timing(warmup_s=0.02, warmup_calls=1, target_s=0.04, min_samples=3)


def _named(kernel: Any) -> Any:
    return {**kernel, "name": KERNEL} if isinstance(kernel, dict) and "name" not in kernel else kernel


class Place(Model):
    """One of the environments that are compared: one of matrix.yaml's, and what differs in it."""

    torch: str = Field(description="a version of the shipped matrix.yaml, quoted; or host")
    replica: int = Field(default=0, ge=0, le=99)
    flags: ExtraFlags = ExtraFlags()
    variables: Variables = {}


class Shows(Model):
    """What a run of it must show, whatever anybody concludes: else it is no specimen."""

    validation: list[list[Status]] = Field(description="by environment: the statuses its worst validation may have")
    unsteady: bool = Field(default=False, description="a run again gives other bits, in some environment")
    slower: float | None = Field(
        default=None, gt=1, description="the kernel's time in the last environment, over that in the first, at least"
    )


class Specimen(Model):
    half: Half
    causes: list[Cause] = Field(min_length=1, description="what is true; the first is the main one")
    story: str = Field(min_length=40, description="what an engineer sees, and what is true")
    shows: Shows
    environments: list[Place] = Field(min_length=2, description="the first is the baseline")
    kernel: Annotated[Kernel, BeforeValidator(_named)]
    workloads: list[Workload] = []
    references: list[Reference] = ["flash", "math", "default"]
    tolerances: Tolerances = Tolerances()
    timing: Timing = QUICK
    launches: int = Field(default=1, ge=1, le=20)
    cpu_threads: int = Field(default=2, ge=1, description="of every environment whose variables do not say otherwise")
    limits: Limits = Limits(validation_s=120, launch_s=120)

    @model_validator(mode="after")
    def _consistent(self) -> Specimen:
        if len(set(self.causes)) < len(self.causes):
            raise ValueError("causes: one stands twice")
        if HEALTHY in self.causes[1:]:
            raise ValueError(f"causes: {HEALTHY} is the main cause, or none")
        if len(self.shows.validation) != len(self.environments):
            raise ValueError(f"shows.validation: one list for each of the {len(self.environments)} environments")
        if self.kernel.name != KERNEL:
            raise ValueError(f"kernel.name: every specimen's kernel is called {KERNEL}; leave it out")
        if self.kernel.folder is not None or self.kernel.control_of is not None:
            raise ValueError("kernel: give sources, or problem with model_new")
        if len(self._devices) != 1:
            raise ValueError(f"kernel: is for one device, not for {' and '.join(self._devices) or 'none'}")
        if (self.kernel.problem is None) != bool(self.workloads):
            raise ValueError("workloads: a problem file brings its own; sources need at least one")
        return self

    @property
    def _devices(self) -> Sequence[Device]:
        if self.kernel.sources is None:
            return self.kernel.devices
        named: dict[Device, list[str]] = {"cpu": self.kernel.sources.cpu, "cuda": self.kernel.sources.cuda}
        return [device for device, files in named.items() if files]

    @property
    def device(self) -> Device:
        return self._devices[0]

    @property
    def healthy(self) -> bool:
        return self.causes[0] == HEALTHY

    @property
    def files(self) -> list[str]:
        """What its kernel is made of: paths in its folder, or shipped ones, below csrc/."""
        if self.kernel.sources is not None:
            return [*self.kernel.sources.cpu, *self.kernel.sources.cuda]
        return [name for name in (self.kernel.problem, self.kernel.model_new) if name]


def parse_specimen(text: str, path: str = FILE) -> Specimen:
    """InputError names `path`, the place in it, the value and the remedy."""
    return parse_yaml(text, path, Specimen, like="csrc/specimens/README.md")


def load_specimens(folder: Path) -> dict[str, Specimen]:
    """Every specimen below `folder`, by its name. InputError where one lacks a file that it names."""
    found = {}
    for path in sorted(folder.glob(f"*/{FILE}")):
        specimen = parse_specimen(path.read_text(encoding="utf-8"), str(path))
        for name in specimen.files:
            place = folder.parent.parent if name.startswith("csrc/") else path.parent
            if not (place / name).is_file():
                raise InputError(f"{path}: kernel: {name}: no such file", f"write it, or correct the name in {FILE}")
        found[path.parent.name] = specimen
    return found
