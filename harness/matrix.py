"""matrix.yaml: the one file people edit, as typed models.

`parse_matrix` is pure: text in, a frozen `Matrix` out, or an `InputError` that names the path, the value and the
remedy. Paths in the file are relative to the file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from harness.errors import InputError
from harness.inside import protocol

MAX_BYTES = 1 << 20
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.]{0,63}$")]
Dtype = Literal["float16", "bfloat16", "float32"]
Device = Literal["cpu", "cuda"]
Reference = Literal["flash", "math", "efficient", "cudnn", "default"]
HOST = "host"  # the environment that this machine brings
PYPI = "https://pypi.org/simple"
CUDA_BASE = (
    # 12.1.1-devel-ubuntu22.04
    "nvidia/cuda@sha256:7012e535a47883527d402da998384c30b936140c05e2537158c80b8143ee7425"
)


def _relative(path: str) -> str:
    if path.startswith("/") or ".." in Path(path).parts:
        raise ValueError("must be a path inside the folder of matrix.yaml")
    return path


SourcePath = Annotated[str, AfterValidator(_relative)]


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Environment(Model):
    """One pinned stack, or, with ``torch: host``, the PyTorch that this machine has. Its id is derived, never typed."""

    torch: str = Field(
        pattern=r"^(\d+\.\d+\.\d+|host)$",
        description="PyTorch release, quoted: '2.5.0'; or host: what this machine has, observed and not installed",
    )
    cuda: str = Field(
        default="", pattern=r"^\d+\.\d+$", description="CUDA version of the wheels, quoted: '12.1'; not of host"
    )
    python: str = Field(default="", pattern=r"^3\.\d+$", description="Python version, quoted: '3.11'; not of host")
    index: str | None = Field(
        default=None, pattern=r"^https?://", description="wheel index; default: PyTorch's own for this CUDA"
    )
    fallback_index: str | None = Field(
        default=PYPI, pattern=r"^https?://", description="used, and reported, where the index cannot be reached"
    )
    base_image: str = Field(default=CUDA_BASE, description="container base, by digest")
    replica: int = Field(default=0, ge=0, le=99, description="distinguishes equal environments: the A/A control")

    @model_validator(mode="after")
    def _pinned_or_host(self) -> Environment:
        if not self.is_host:
            missing = [name for name in ("cuda", "python") if not getattr(self, name)]
            if missing:
                raise ValueError(f"needs {' and '.join(missing)} beside torch {self.torch}")
        elif given := self.model_fields_set & {"cuda", "python", "index", "fallback_index", "base_image"}:
            raise ValueError(f"{sorted(given)[0]} is observed where torch is host, not chosen; remove it")
        return self

    @property
    def is_host(self) -> bool:
        return self.torch == HOST

    @property
    def wheel_index(self) -> str:
        """Where its wheels are asked for; '' for the host's, which nobody installs."""
        if self.is_host:
            return ""
        return self.index or f"https://download.pytorch.org/whl/{self.cuda_tag}"

    @property
    def cuda_tag(self) -> str:
        return "cu" + self.cuda.replace(".", "")

    def id(self, index: str | None = None) -> str:
        """Such as ``torch2.1.0-cu121-py310``; wheels of the fallback index are another environment: ``-pypi-``.

        The host's PyTorch is ``host``, whatever its version.
        """
        replica = f"-r{self.replica}" if self.replica else ""
        if self.is_host:
            return HOST + replica
        variant = self.cuda_tag
        if index is not None and index != self.wheel_index:
            variant = "pypi" if index == PYPI else "fallback"
        return f"torch{self.torch}-{variant}-py{self.python.replace('.', '')}{replica}"


class Sources(Model):
    cpu: list[SourcePath] = []
    cuda: list[SourcePath] = []


class Flags(Model):
    """Compiler flags. `cxx` reaches host code on both devices, `nvcc` device code."""

    cxx: list[str] = ["-O3", "-march=native"]
    nvcc: list[str] = ["-O3", "-lineinfo"]


class Kernel(Model):
    """Code under test: `sources` that export the C entry point of csrc/attention.h (or bind themselves, with
    ``binding: own``), a `folder` of such sources, or a `model_new` file beside a `problem` file (KernelBench's form).
    """

    name: Name
    folder: SourcePath | None = Field(default=None, description="take every .cpp (CPU) and .cu (CUDA) file in it")
    sources: Sources | None = None
    binding: Literal["shipped", "own"] = "shipped"
    tunables: dict[Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")], int | str] = {}
    architectures: list[Annotated[str, Field(pattern=r"^sm_\d{2,3}a?$")]] = ["sm_80", "sm_89", "sm_90"]
    flags: Flags = Flags()
    problem: SourcePath | None = None
    model_new: SourcePath | None = None
    devices: list[Device] = Field(default=["cpu", "cuda"], description="of a model_new kernel")
    dtype: Dtype = Field(default="float32", description="of a model_new kernel: chooses its tolerance")
    trials: int = Field(default=5, ge=1, le=1000, description="of a model_new kernel: stored input sets")
    workloads: list[str] | None = Field(default=None, description="names; default: all")
    control_of: str | None = Field(
        default=None, description="a kernel of which this is a slowed copy: does the test of environments find it?"
    )

    @model_validator(mode="after")
    def _one_form(self) -> Kernel:
        if (self.problem is None) != (self.model_new is None):
            raise ValueError("problem and model_new belong together")
        forms = [self.folder is not None, self.sources is not None, self.problem is not None]
        if sum(forms) != 1:
            raise ValueError("give exactly one of: sources, folder, problem with model_new")
        if self.sources is not None and not (self.sources.cpu or self.sources.cuda):
            raise ValueError("sources names no file")
        return self


class Shape(Model):
    batch: int = Field(ge=1)
    heads: int = Field(ge=1)
    seq_len: int = Field(ge=1)
    head_dim: int = Field(ge=1)

    @property
    def elements(self) -> int:
        return self.batch * self.heads * self.seq_len * self.head_dim


class Dtypes(Model):
    cpu: list[Dtype] = []
    cuda: list[Dtype] = []


class Workload(Model):
    name: Name
    shape: Shape
    dtypes: Dtypes
    causal: bool = False
    scale: float | None = Field(default=None, gt=0, description="of the logits; default: 1 / sqrt(head_dim)")
    trials: int = Field(default=20, ge=1, le=10_000, description="of independent Q, K, V")
    extra_trials: int = Field(default=5, ge=0, le=1000, description="of each other recipe: Q = K = V, large logits")


class Tolerances(Model):
    decides: Literal["rounding", "kernelbench", "strict"] = "rounding"
    rounding_units: float = Field(default=4.0, gt=0, description="error, in units of what correct rounding costs")
    problem_rounding_units: float = Field(
        default=64.0, gt=0, description="the same for a problem file, whose arithmetic is not known"
    )
    strict: float = Field(default=1e-3, gt=0, description="absolute and relative, elementwise")
    kernelbench_half: float = Field(default=1e-2, gt=0)
    kernelbench_float32: float = Field(default=1e-4, gt=0)


class Thresholds(Model):
    min_effect_cpu: float = Field(default=0.05, gt=0, lt=1, description="smallest share that counts as a change")
    min_effect_cuda: float = Field(default=0.01, gt=0, lt=1)
    false_discovery_rate: float = Field(default=0.05, gt=0, lt=1)
    confidence: float = Field(default=0.95, gt=0.5, lt=1)


class Timing(Model):
    warmup_s: float = Field(default=0.2, ge=0, description="on a GPU at most: until it is stable")
    warmup_calls: int = Field(default=3, ge=1, description="at least")
    target_s: float = Field(default=0.3, gt=0, description="sampling time of one target, at most")
    min_samples: int = Field(default=10, ge=3)
    max_samples: int = Field(default=2000, ge=3)
    relative_error: float = Field(default=0.005, gt=0, description="of the median, at which sampling stops")
    relative_error_cuda: float = Field(default=0.003, gt=0, description="the same on a GPU, whose times spread less")


class Limits(Model):
    """What a process may use. Time is limited everywhere; the rest where cells are containers."""

    build_s: float = Field(default=900, gt=0)
    validation_s: float = Field(default=900, gt=0)
    launch_s: float = Field(default=600, gt=0)
    memory_gib: float | None = Field(default=None, gt=0, description="default: 45% of the engine's machine")
    processes: int = Field(default=1024, ge=32, description="and threads")
    output_gib: float = Field(default=2.0, gt=0, description="what it may leave in its folder, which is in memory")


class Matrix(Model):
    schema_version: Literal[1]
    baseline: str = Field(description="an environment: its PyTorch version, or its id")
    environments: list[Environment] = Field(min_length=1)
    packages: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+$")]] = Field(
        description="exact versions that every environment holds besides torch"
    )
    kernels: list[Kernel] = Field(min_length=1)
    workloads: list[Workload] = []
    references: list[Reference] = Field(default=["flash", "math", "default"], min_length=1)
    references_cuda: list[Reference] | None = Field(
        default=None, min_length=1, description="on a GPU; default: the same ones"
    )
    tolerances: Tolerances = Tolerances()
    thresholds: Thresholds = Thresholds()
    timing: Timing = Timing()
    limits: Limits = Limits()
    launches: int = Field(default=10, ge=1, le=1000)
    seed: int = Field(default=0, ge=0, lt=2**63)
    cpu_threads: int | None = Field(default=None, ge=1, description="default: the physical cores of this process")

    @field_validator("packages")
    @classmethod
    def _needs_numpy_and_ninja(cls, value: list[str]) -> list[str]:
        names = {package.partition("==")[0].lower() for package in value}
        if "torch" in names:
            raise ValueError("torch belongs under environments")
        missing = {"numpy", "ninja", "setuptools"} - names
        if missing:
            raise ValueError(f"must pin {', '.join(sorted(missing))} too: builds and inputs depend on it")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Matrix:
        _unique(
            "environments",
            [environment.id() for environment in self.environments],
            "give one of them another version, or a replica number for an A/A control",
        )
        _unique("kernels", [kernel.name for kernel in self.kernels], "rename one")
        _unique("workloads", [workload.name for workload in self.workloads], "rename one")
        _unique("references", list(self.references), "remove one")
        _unique("references_cuda", list(self.references_cuda or []), "remove one")
        if not any(self.is_baseline(environment) for environment in self.environments):
            known = ", ".join(environment.torch for environment in self.environments)
            raise ValueError(f"baseline: {self.baseline!r} is none of the environments ({known})")
        names = {workload.name for workload in self.workloads}
        for index, kernel in enumerate(self.kernels):
            unknown = set(kernel.workloads or []) - names
            if unknown:
                raise ValueError(f"kernels[{index}].workloads: {sorted(unknown)[0]!r} is none of the workloads")
            if kernel.control_of is not None and kernel.control_of not in {
                other.name for other in self.kernels if other is not kernel and other.control_of is None
            }:
                raise ValueError(f"kernels[{index}].control_of: {kernel.control_of!r} is no other kernel of this file")
            if kernel.problem is None and not self.workloads:
                raise ValueError(f"workloads: kernel {kernel.name!r} needs at least one")
        return self

    def is_baseline(self, environment: Environment) -> bool:
        if self.baseline in (environment.id(), environment.id(environment.fallback_index)):
            return True
        same = [other for other in self.environments if other.torch == self.baseline]
        return bool(same) and same[0] is environment

    def with_base(self, base_image: str) -> Matrix:
        """The same on another container base."""
        changed = [
            environment if environment.is_host else environment.model_copy(update={"base_image": base_image})
            for environment in self.environments
        ]
        return self.model_copy(update={"environments": changed})

    @property
    def pinned_environments(self) -> list[Environment]:
        """Those that are installed: all but the host's."""
        return [environment for environment in self.environments if not environment.is_host]

    @property
    def has_host(self) -> bool:
        return any(environment.is_host for environment in self.environments)

    @property
    def baseline_environment(self) -> Environment:
        return next(environment for environment in self.environments if self.is_baseline(environment))


def _unique(where: str, ids: list[str], remedy: str) -> None:
    for index, value in enumerate(ids):
        if value in ids[:index]:
            raise ValueError(f"{where}[{index}]: {value!r} stands twice; {remedy}")


class _Loader(yaml.SafeLoader):
    """Safe, and refuses what YAML allows and a configuration never needs: duplicate keys, anchors, tags."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise _Refused(f"line {line}: anchors and aliases are not accepted", "write the value out")
        if getattr(event, "tag", None):
            raise _Refused(f"line {line}: the tag {event.tag!r} is not accepted", "remove it; quote text that needs it")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [key.value for key, _ in node.value]
        for key_node, _ in node.value:
            if keys.count(key_node.value) > 1:
                line = key_node.start_mark.line + 1
                raise _Refused(f"line {line}: the key {key_node.value!r} stands twice", "remove one")
        return super().construct_mapping(node, deep)


class _Refused(Exception):
    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.problem, self.remedy = problem, remedy


_REMEDIES = {
    "extra_forbidden": "remove it, or correct its spelling; harness/matrix.schema.json lists the keys",
    "missing": "add it",
    "string_type": "put it in quotes: YAML reads 2.10 as the number 2.1",
    "too_short": "add at least one entry",
}


def _message(error: ValidationError) -> tuple[str, str]:
    first = error.errors()[0]
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
    problem = re.sub(r"^Value error, ", "", first["msg"])
    kind = first["type"]
    if kind == "extra_forbidden":
        problem = "unknown key"
    elif kind != "missing" and not isinstance(first["input"], (dict, list)):
        problem += f", got {first['input']!r} ({type(first['input']).__name__})"
    more = error.error_count() - 1
    if more:
        problem += f" (and {more} more)"
    return f"{path}: {problem}" if path else problem, _REMEDIES.get(kind, "correct the value")


def parse_matrix(text: str, path: str = "matrix.yaml") -> Matrix:
    """A matrix from the text of matrix.yaml. InputError names `path`, the place in it, the value and the remedy."""
    if len(text.encode()) > MAX_BYTES:
        raise InputError(f"{path}: larger than {MAX_BYTES} bytes", "a matrix is a page of text")
    try:
        value = yaml.load(text, Loader=_Loader)  # a SafeLoader
    except _Refused as error:
        raise InputError(f"{path}: {error.problem}", error.remedy) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}, column {mark.column + 1}:" if mark else ""
        raise InputError(f"{path}:{where} {getattr(error, 'problem', None) or error}", "correct the YAML") from None
    except RecursionError:
        raise InputError(f"{path}: nested too deeply", "a matrix needs four levels") from None
    except ValueError as error:
        raise InputError(f"{path}: {error}", "quote the value") from None
    if not isinstance(value, dict):
        raise InputError(f"{path}: expected a mapping, got {type(value).__name__}", "see the shipped matrix.yaml")
    try:
        return Matrix.model_validate(value)
    except ValidationError as error:
        problem, remedy = _message(error)
        raise InputError(f"{path}: {problem}", remedy) from None


def load_matrix(path: Path) -> tuple[Matrix, str]:
    """The matrix and its text. InputError where the file is missing or unacceptable."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", "run from the repository's root, or name it: --matrix") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text", "save it as UTF-8") from None
    return parse_matrix(text, str(path)), text


def json_schema() -> dict[str, Any]:
    """JSON Schema of matrix.yaml, for editors."""
    schema = Matrix.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return schema


def workload_id(name: str, dtype: str) -> str:
    return f"{name}-{protocol.DTYPES[dtype]}"
