"""matrix.yaml: the one file people edit, as typed models.

`parse_matrix` is pure: text in, a frozen `Matrix` out, or an `InputError` that names the path, the value and the
remedy. Paths in the file are relative to the file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, field_validator, model_validator

from harness.config.environments import Environment, Packages, package_versions
from harness.config.kernels import Kernel
from harness.config.operators import Groups, OperatorEntry, as_kernel, groups
from harness.config.requirements import usual_requirements
from harness.config.workloads import Dtypes, Shape, Workload
from harness.config.yaml_files import YamlModel, parse_yaml
from harness.config.yaml_problems import EXAMPLES, RefusedValue
from harness.errors import InputError, meant
from harness.schema.run_records import Thresholds

Reference = Literal["flash", "math", "efficient", "cudnn", "default"]


class Tolerances(YamlModel):
    """The rules of correctness. All are shown; one decides."""

    decides: Literal["rounding", "kernelbench", "strict"] = Field(
        default="rounding", description="the rule that decides whether an output is correct"
    )
    rounding_units: float = Field(
        default=4.0,
        gt=0,
        description="largest error that passes, in each norm, in units of straightforward arithmetic's",
    )
    strict: float = Field(default=1e-3, gt=0, description="the strict tolerance, absolute and relative, elementwise")
    kernelbench_half: float = Field(
        default=1e-2, gt=0, description="KernelBench's tolerance for float16 and bfloat16, absolute and relative"
    )
    kernelbench_float32: float = Field(default=1e-4, gt=0, description="the same for float32")

    def limits(self, dtype: str) -> dict[str, float]:
        """Each rule's limit for a workload of that dtype."""
        kernelbench = self.kernelbench_float32 if dtype == "float32" else self.kernelbench_half
        return {"rounding": self.rounding_units, "strict": self.strict, "kernelbench": kernelbench}


class TimingRules(YamlModel):
    """How one target is sampled within a launch."""

    warmup_s: float = Field(
        default=0.2, ge=0, description="seconds of warm-up; on a GPU at most, until times are stable"
    )
    warmup_calls: int = Field(default=3, ge=1, description="calls of warm-up, at least")
    target_s: float = Field(default=0.3, gt=0, description="seconds of sampling of one target, at most")
    min_samples: int = Field(default=10, ge=3, description="samples of one target in a launch, at least")
    max_samples: int = Field(default=2000, ge=3, le=4000, description="samples of one target in a launch, at most")
    relative_error: float = Field(
        default=0.005, gt=0, description="relative error of the median at which sampling stops"
    )
    relative_error_cuda: float = Field(default=0.003, gt=0, description="the same on a GPU, where times spread less")


class Limits(YamlModel):
    """What a process may use. Time is limited everywhere, the rest where kernels run in sandboxes."""

    build_s: float = Field(default=900, gt=0, description="seconds for one build")
    validation_s: float = Field(default=900, gt=0, description="seconds for one validation")
    launch_s: float = Field(default=600, gt=0, description="seconds for one launch")
    memory_gib: float | None = Field(
        default=None, gt=0, description="GiB of memory; default: 45% of what the container engine's machine has"
    )
    processes: int = Field(
        default=1024,
        ge=32,
        description="processes and threads; sandboxes that root starts without a container share it, once for every "
        "eight processors",
    )
    output_gib: float | None = Field(
        default=None,
        gt=0,
        description="GiB of files that it may write to its folder, which is in memory; default: as much as memory_gib",
    )


ENVIRONMENTS = tuple(Environment(torch=version, cuda="12.1", python="3.11") for version in ("2.1.0", "2.5.0"))
ATTENTION = Workload(
    name="seed",
    shape=Shape(batch=1, heads=8, seq_len=512, head_dim=64),
    dtypes=Dtypes(cpu=["float32"], cuda=["float16", "float32"]),
)


class Matrix(YamlModel):
    schema_version: Literal[1] = Field(default=1, description="version of this file's format")
    baseline: str = Field(
        default="",
        description="what all others are compared with, by version or id; default: the first environment",
    )
    environments: list[Environment] = Field(
        default=list(ENVIRONMENTS),
        min_length=1,
        description="what is compared; default: PyTorch 2.1.0 and 2.5.0 for CUDA 12.1, on Python 3.11",
    )
    packages: Packages = Field(
        default=[],
        description="exact versions of packages that every environment holds besides torch; where numpy, ninja or "
        "setuptools is not among them, each environment gets one that its PyTorch and its Python take",
    )
    kernels: list[Kernel] = Field(default=[], description="the code under test")
    operators: list[OperatorEntry] = Field(
        default=[], description="PyTorch's own operators, and models, that are measured by themselves"
    )
    workloads: list[Workload] = Field(
        default=[ATTENTION],
        description="attention problems; default, where a kernel needs one: 8 heads, 512 keys, head_dim 64",
    )
    references: list[Reference] = Field(
        default=["flash", "math", "default"],
        min_length=1,
        description="PyTorch's attention backends that are validated and timed too; `default` is what PyTorch picks",
    )
    references_cuda: list[Reference] | None = Field(
        default=None, min_length=1, description="the same on a GPU; default: those of `references`"
    )
    tolerances: Tolerances = Field(default=Tolerances(), description="when an output is correct")
    thresholds: Thresholds = Field(default=Thresholds(), description="when a difference counts")
    timing: TimingRules = Field(default=TimingRules(), description="how a launch samples")
    limits: Limits = Field(default=Limits(), description="what a process may use")
    launches: int = Field(
        default=10, ge=1, le=1000, description="launches (fresh processes) of each environment and kernel, in blocks"
    )
    most_launches: int | None = Field(
        default=None,
        ge=1,
        le=4000,
        description="launches at most, while more could decide undecided rows; default: 4 times `launches`",
    )
    seed: int = Field(default=0, ge=0, lt=2**63, description="decides all inputs, and the order of launches")
    cpu_threads: int | None = Field(
        default=None,
        ge=1,
        description="threads of PyTorch and of the kernels; default: the physical cores of this process",
    )
    slurm: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$")], bool | int | str] = Field(
        default={},
        description="options of sbatch for `--on slurm`, by their long names: partition, time, account, qos, "
        "constraint, mem, exclusive and any other; those of the command line win",
    )

    @field_validator("slurm", mode="before")
    @classmethod
    def _one_value_each(cls, value: Any) -> Any:
        for name, given in value.items() if isinstance(value, dict) else ():
            if not isinstance(given, bool | int | str):
                raise RefusedValue(
                    f"{name}: expected text, a whole number, true or false, got {given!r}",
                    f"put it in quotes, or, of an option without a value: {name}: true",
                )
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Matrix:
        if self.most_launches is not None and self.most_launches < self.launches:
            raise RefusedValue(
                f"most_launches: {self.most_launches} are fewer than launches, {self.launches}", "raise it"
            )
        remedy = "give one of them another version, or a replica number for an A/A control"
        _unique("environments", [environment.id() for environment in self.environments], remedy)
        if not self.kernels and not self.operators:
            raise RefusedValue("kernels: is empty", f"add at least one entry, such as kernels: {EXAMPLES['kernels']}")
        _unique("kernels", [*self.groups, *(kernel.name for kernel in self.kernels)], "rename one")
        named = [operator.called for operator in self.operators]
        _unique("operators", named, "give one of them a name of its own, such as name: {}_large")
        _unique("workloads", [workload.name for workload in self.workloads], "rename one")
        _unique("references", list(self.references), "remove one")
        _unique("references_cuda", list(self.references_cuda or []), "remove one")
        if not any(self.is_baseline(environment) for environment in self.environments):
            known = [environment.torch for environment in self.environments]
            remedy = f'{meant(self.baseline.strip("“”"), known)}such as baseline: "{known[0]}", in plain quotes'
            raise RefusedValue(f"baseline: {self.baseline!r} is none of the environments ({', '.join(known)})", remedy)
        names = {workload.name for workload in self.workloads}
        for index, kernel in enumerate(self.kernels):
            unknown = set(kernel.workloads or []) - names
            if unknown:
                first = sorted(unknown)[0]
                remedy = f"{meant(first, names)}take some of {', '.join(sorted(names)) or 'those that you add'}"
                raise RefusedValue(f"kernels[{index}].workloads: {first!r} is none of the workloads", remedy)
            if kernel.problem is None and not self.workloads:
                raise RefusedValue(
                    f"workloads: kernel {kernel.name!r} needs at least one", "add one, or leave the key out"
                )
        return self

    def is_baseline(self, environment: Environment) -> bool:
        if not self.baseline:
            return environment.id() == self.environments[0].id()
        if self.baseline in (environment.id(), environment.id(environment.fallback_index)):
            return True
        same = [other for other in self.environments if other.torch == self.baseline]
        return bool(same) and same[0] is environment

    def with_base(self, base_image: str) -> Matrix:
        """The same on another container base."""
        base = {"base_image": base_image}
        changed = [each if each.is_host else each.model_copy(update=base) for each in self.environments]
        return self.model_copy(update={"environments": changed})

    def packages_in(self, environment: Environment) -> list[str]:
        """Return the exact pins of an environment besides torch: its own packages over those of the file."""
        found = package_versions(self.packages) | package_versions(environment.packages)
        return [f"{name}=={version}" for name, version in found.items()]

    def requirements_in(self, environment: Environment) -> list[str]:
        """Return all that an environment needs besides torch: its exact pins, and ranges of what nobody pins."""
        pins = self.packages_in(environment)
        return [*pins, *usual_requirements(environment.torch, package_versions(pins).keys())]

    @property
    def pinned_environments(self) -> list[Environment]:
        """Those that are installed: all but the host's."""
        return [environment for environment in self.environments if not environment.is_host]

    @property
    def has_host(self) -> bool:
        return any(environment.is_host for environment in self.environments)

    @property
    def groups(self) -> Groups:
        """Operators by the subject of their launches."""
        return groups(self.operators)

    def kernel(self, name: str) -> Kernel:
        return next((kernel for kernel in self.kernels if kernel.name == name), None) or as_kernel(name)

    @property
    def baseline_environment(self) -> Environment:
        return next(environment for environment in self.environments if self.is_baseline(environment))


def _unique(where: str, ids: list[str], remedy: str) -> None:
    for index, value in enumerate(ids):
        if value in ids[:index]:
            raise RefusedValue(f"{where}[{index}]: {value!r} stands twice", remedy.format(value))


def parse_matrix(text: str, path: str = "matrix.yaml") -> Matrix:
    """A matrix from the text of matrix.yaml. InputError names `path`, the place in it, the value and the remedy."""
    like = f"such as kernels: {EXAMPLES['kernels']}; `kernel-matrix init` writes one"
    return parse_yaml(text, path, Matrix, like=like)


def load_matrix(path: Path, base_image: str | None = None) -> tuple[Matrix, str]:
    """The matrix, on another container base if one is given, and its text.

    InputError where the file is missing or unacceptable.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        if path.is_dir():
            problem = "a folder; a matrix file belongs here"
            raise InputError(f"{path}: {problem}", f"such as {path / 'matrix.yaml'}") from None
        if isinstance(error, PermissionError):
            raise InputError(f"{path}: {error.strerror}", "make it readable for this user") from None
        there = [each.name for each in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
        remedy = f"{meant(path.name, there)}create one: kernel-matrix init; or name yours: --matrix FILE"
        raise InputError(f"{path}: {error.strerror}", remedy) from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text", "save it as UTF-8") from None
    matrix = parse_matrix(text, str(path))
    return matrix.with_base(base_image) if base_image else matrix, text


def matrix_text(matrix: Matrix) -> str:
    """A matrix as the text of a matrix.yaml."""
    return yaml.safe_dump(matrix.model_dump(mode="json", exclude_defaults=True), sort_keys=False)


def without_slurm(text: str, matrix: Matrix) -> str:
    """The text of a matrix.yaml without its `slurm`: that says where a run is queued, and nothing of the run."""
    rest = re.sub(r"(?ms)^slurm:.*?(?=^[^\s#]|\Z)", "", text)
    try:
        same = parse_matrix(rest) == matrix.model_copy(update={"slurm": {}})
    except InputError:
        same = False
    return rest if same else text


def json_schema() -> dict[str, Any]:
    """JSON Schema of matrix.yaml, for editors."""
    schema = Matrix.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return schema
