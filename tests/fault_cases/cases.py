"""index.yaml: every fault case and negative control as a typed model. Parsing is pure.

A case is a matrix with one kernel, in the matrix's own words, and its true causes. These stay here: nothing of them
reaches a run.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, model_validator

from harness.config.environments import ExtraFlags, Packages, Variables
from harness.config.kernels import Kernel
from harness.config.matrix import Limits, Reference, TimingRules, Tolerances
from harness.config.operators import OperatorEntry
from harness.config.shipped import ROOT
from harness.config.workloads import Workload
from harness.config.yaml_files import YamlModel, parse_yaml
from harness.errors import InputError
from harness.schema.records import Device, Status
from tests.archives import SUFFIX, read_archive

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
    "operator_moved",
    "component_moved",
    "environment_confounder",
    "latency_operator",
    "latency_launch_overhead",
    "latency_clock_or_load",
    "latency_thread_count",
    "memory_use",
    "nothing_moved",
]
CAUSES: tuple[str, ...] = get_args(Cause)
NOTHING_MOVED: Cause = "nothing_moved"
Split = Literal["development", "held_out"]
HERE = Path(__file__).parent
INDEX = "index.yaml"
SOURCES = "sources"  # a folder with an archive for each cause
KERNEL = "attention"  # every case's kernel has this name, which says nothing about it


def _statuses(shows: Any) -> Any:
    return [[one] if isinstance(one, str) else one for one in shows] if isinstance(shows, list) else shows


class Variant(YamlModel):
    """One of the environments that are compared: one of matrix.yaml's, and what differs in it."""

    torch: str = Field(description="a version of the shipped matrix.yaml, quoted; or host")
    packages: Packages = []
    flags: ExtraFlags = ExtraFlags()
    variables: Variables = {}


class FaultCase(YamlModel):
    path: str = Field(description="its file, or its folder with a slash at the end; without either: shipped sources")
    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$", description="what stored results call it")
    round: str | None = Field(default=None, description="the stored results it was first run for")
    split: Split = "development"
    causes: list[Cause] = Field(min_length=1, description="what is true; the first is the main one")
    scenario: str = Field(min_length=40, description="what an engineer sees, and what is true")
    shows: Annotated[list[list[Status]], BeforeValidator(_statuses)] = Field(
        description="by environment: the status, or statuses, that its worst validation may have"
    )
    unsteady: bool = Field(default=False, description="another run gives other bits, in some environment")
    slower: float | None = Field(
        default=None, gt=1, description="the kernel's time in the last environment, over that in the first, at least"
    )
    memory: float | None = Field(
        default=None, gt=1, description="its peak memory in the last environment, over that in the first, at least"
    )
    environments: list[Variant] = Field(min_length=2, description="the first is the baseline")
    kernel: Kernel | None = None
    operator: OperatorEntry | None = Field(
        default=None, description="in place of a kernel: one of PyTorch's, or a Model"
    )
    workloads: list[Workload] = []
    references: list[Reference]
    tolerances: Tolerances = Tolerances()
    timing: TimingRules
    launches: int = Field(ge=1, le=20)
    cpu_threads: int = Field(ge=1, description="of every environment whose variables do not say otherwise")
    limits: Limits

    @model_validator(mode="after")
    def _consistent(self) -> FaultCase:
        if len(set(self.causes)) < len(self.causes):
            raise ValueError("also: a cause is given twice")
        if NOTHING_MOVED in self.causes[1:]:
            raise ValueError(f"also: {NOTHING_MOVED} is the main cause, or none")
        if len(self.shows) != len(self.environments):
            raise ValueError(f"shows: one for each of the {len(self.environments)} environments")
        if (self.kernel is None) == (self.operator is None):
            raise ValueError("kernel: give one of: kernel, operator")
        if self.kernel is not None and self.kernel.name != KERNEL:
            raise ValueError(f"kernel.name: every case's kernel is called {KERNEL}")
        if len(self._devices) != 1:
            raise ValueError(f"kernel: is for one device, not for {' and '.join(self._devices) or 'none'}")
        if (self.kernel is not None and self.kernel.problem is None) != bool(self.workloads):
            raise ValueError("workloads: problem files and operators bring their own; sources need at least one")
        return self

    @property
    def _devices(self) -> Sequence[Device]:
        if self.operator is not None:
            return self.operator.devices
        assert self.kernel is not None
        if self.kernel.sources is None:
            return self.kernel.devices
        named: dict[Device, list[str]] = {"cpu": self.kernel.sources.cpu, "cuda": self.kernel.sources.cuda}
        return [device for device, files in named.items() if files]

    @property
    def device(self) -> Device:
        return self._devices[0]

    @property
    def subject(self) -> str:
        """The kernel that its causes name; those of an operator name none."""
        return KERNEL if self.operator is None else ""

    @property
    def negative_control(self) -> bool:
        return self.causes[0] == NOTHING_MOVED

    @property
    def named_files(self) -> list[str]:
        """The files that its kernel or operator names: its own, or shipped ones, below csrc/."""
        if self.kernel is None:
            return [self.operator.problem] if self.operator and self.operator.problem else []
        if self.kernel.sources is not None:
            return [*self.kernel.sources.cpu, *self.kernel.sources.cuda]
        return [name for name in (self.kernel.problem, self.kernel.model_new) if name]

    def own_files(self, folder: Path = HERE) -> dict[str, str]:
        """Return its sources by the names that its kernel gives them: an entry's path tells the cause, these do not."""
        cause, _, entry = self.path.partition("/")
        files = read_sources(folder / SOURCES / f"{cause}{SUFFIX}")
        if entry.endswith("/"):
            return {name[len(entry) :]: text for name, text in files.items() if name.startswith(entry)}
        if entry not in files:
            return {}
        return dict.fromkeys((name for name in self.named_files if not name.startswith("csrc/")), files[entry])


@functools.cache
def read_sources(path: Path) -> dict[str, str]:
    """Return the sources of one cause's cases, by their paths in its archive; none where there is no archive."""
    return read_archive(path) if path.is_file() else {}


def _over(default: Any, own: Any) -> Any:
    """`own` laid over a default: mappings key by key, lists of mappings one by one (those beyond over the last)."""
    if isinstance(default, dict) and isinstance(own, dict):
        return {**default, **{key: _over(default.get(key), value) for key, value in own.items()}}
    if isinstance(own, list) and isinstance(default, list) and default and isinstance(default[0], dict):
        return [_over(default[min(number, len(default) - 1)], one) for number, one in enumerate(own)]
    return own


def _kind(path: str, entry: dict[str, Any]) -> str:
    """Which defaults are a case's: operator, cpp, cu, problem, or shipped."""
    if "operator" in entry:
        return "operator"
    if path.endswith("/"):
        return "cpp" if "sources" in entry.get("kernel", {}) else "problem"
    return Path(path).suffix[1:] or "shipped"


class Index(YamlModel):
    """Cases by path. An entry is laid over the defaults of `all`, of its kind, and of what `like` names."""

    defaults: dict[str, dict[str, Any]]
    cases: dict[str, FaultCase]

    @model_validator(mode="before")
    @classmethod
    def _whole(cls, value: dict[str, Any]) -> dict[str, Any]:
        defaults, whole = value.get("defaults", {}), {}
        for path, entry in value.get("cases", {}).items():
            own = {key: given for key, given in entry.items() if key not in ("also", "like")}
            own |= {"path": path, "causes": [path.partition("/")[0], *entry.get("also", [])]}
            base: Any = {}
            for name in ("all", _kind(path, entry), entry.get("like")):
                base = _over(base, defaults.get(name, {}))
            whole[path] = _over(base, own)
        return {**value, "cases": whole}


def parse_index(text: str, path: str = INDEX) -> dict[str, FaultCase]:
    """Cases by name. InputError names `path`, the place in it, the value and the remedy."""
    cases = parse_yaml(text, path, Index, like="see tests/fault_cases/README.md").cases.values()
    by_name = {case.name: case for case in cases}
    for case in cases:
        if by_name[case.name] is not case:
            raise InputError(f"{path}: {case.path}: name: {case.name} is another case's too", "choose another name")
    return by_name


@functools.cache
def load_cases(folder: Path = HERE) -> dict[str, FaultCase]:
    """Every case of `folder`, by name. InputError where one lacks a file that it names."""
    index = folder / INDEX
    cases = parse_index(index.read_text(encoding="utf-8"), str(index))
    for case in cases.values():
        own = case.own_files(folder)
        for name in case.named_files:
            there = (ROOT / name).is_file() if name.startswith("csrc/") else name in own
            if not there:
                raise InputError(f"{index}: {case.path}: {name}: no such file", "write it, or correct the name")
    return cases
