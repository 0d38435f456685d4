"""An environment as matrix.yaml asks for it: its PyTorch, CUDA and Python, its own flags and variables, and its id."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, Field, model_validator

from harness.config import wheel_files
from harness.config.yaml_files import YamlModel
from harness.config.yaml_problems import EXAMPLES, RefusedValue
from harness.worker import protocol
from harness.worker.wheels import normalise

HOST = "host"  # the environment that this machine brings
PYPI = "https://pypi.org/simple"
CUDA_BASE = (
    # 12.1.1-devel-ubuntu22.04
    "nvidia/cuda@sha256:7012e535a47883527d402da998384c30b936140c05e2537158c80b8143ee7425"
)
LONGEST_PACKAGES = 60  # characters in an id, which is in the names of files and images
# What the harness itself sets, and what loads code into every process that it starts.
_RESERVED = re.compile(
    r"LD_.*|DYLD_.*|PYTHON.*|KERNEL_MATRIX_.*|GCONV_PATH|BASH_ENV|ENV|IFS|PATH|HOME|USER|LOGNAME|TMPDIR|VIRTUAL_ENV|"
    r"CUDA_HOME|CUDA_VISIBLE_DEVICES|CUDA_INJECTION.*|NVIDIA_.*|TORCH_EXTENSIONS_DIR|TORCH_EXTENSION_NAME|"
    r"TORCHINDUCTOR_CACHE_DIR|TRITON_CACHE_DIR"
)
_FLAGS_BY_VARIABLE = re.compile(r"NVCC_(AP|PRE)PEND_FLAGS|C(XX|PP)?FLAGS|LDFLAGS")


def _variables(variables: dict[str, str]) -> dict[str, str]:
    for name, value in variables.items():
        if _RESERVED.fullmatch(name):
            raise RefusedValue(f"{name} is the harness's to set, or loads code into its processes", "remove it")
        if _FLAGS_BY_VARIABLE.fullmatch(name):
            raise RefusedValue(f"{name} would add compiler flags past the records", "give them under flags")
        if "\0" in value or "\n" in value or len(value) > 1000:
            raise RefusedValue(f"{name}: more than one line, or than 1000 characters", "shorten it")
    if protocol.THREADS in variables and not re.fullmatch(r"[1-9]\d{0,3}", variables[protocol.THREADS]):
        raise RefusedValue(
            f"{protocol.THREADS}: {variables[protocol.THREADS]!r} is no number of threads", "such as '4'"
        )
    return variables


Variables = Annotated[dict[Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]{0,63}$")], str], AfterValidator(_variables)]


def threads_in(variables: Mapping[str, str], threads: int) -> int:
    """The threads of an environment's processes: what its variables say, else the run's."""
    return int(variables.get(protocol.THREADS, threads))


NIGHTLY, CANDIDATE = "nightly/", "test/"
NOUNS = {NIGHTLY: "nightlies", CANDIDATE: "candidates", "": "releases"}


def channel(torch: str) -> str:
    """The folder of PyTorch's index that has this version: nightly/ or test/; empty for releases."""
    return NIGHTLY if ".dev" in torch else CANDIDATE if "rc" in torch else ""


def _packages(value: list[str]) -> list[str]:
    every = [normalise(package.partition("==")[0]) for package in value]
    if "torch" in every:
        raise RefusedValue("torch belongs under environments", "remove it here; the release stands there: torch: ...")
    for package in value:
        try:
            Version(package.partition("==")[2])
        except InvalidVersion:
            raise RefusedValue(
                f"{package}: not a version", "write it as NAME==VERSION, such as numpy==1.26.4"
            ) from None
    if twice := [package for package, name in zip(value, every, strict=True) if every.count(name) > 1]:
        name = normalise(twice[0].partition("==")[0])
        raise RefusedValue(f"{name} stands twice: {' and '.join(twice)}", "remove one")
    return value


Package = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+$")]
Packages = Annotated[list[Package], AfterValidator(_packages)]


def package_versions(packages: Iterable[str]) -> dict[str, str]:
    """Name, as PyPA's specification compares it, to version."""
    return {normalise(name): version for name, _, version in (package.partition("==") for package in packages)}


NOT_OF_HOST = {"cuda", "python", "wheel", "index", "fallback_index", "packages", "base_image"}


class ExtraFlags(YamlModel):
    """Compiler flags on top of a kernel's own."""

    cxx: list[str] = Field(default=[], description="of the C++ compiler")
    nvcc: list[str] = Field(default=[], description="of nvcc")


class Environment(YamlModel):
    """One pinned stack, or, with ``torch: host``, the PyTorch that this machine has. Its id is derived, never typed."""

    torch: str = Field(
        pattern=r"^(\d+\.\d+\.\d+(a\d+|b\d+|rc\d+|\.post\d+|\.dev\d{8})?|host)$",
        description="PyTorch release, quoted: '2.5.0'; a nightly, '2.9.0.dev20250801'; a release candidate, "
        "'2.9.0rc3'; or host: what this machine has, observed and not installed. Of a wheel its name says it",
    )
    cuda: str = Field(
        default="",
        pattern=r"^1[0-3]\.\d+$",
        description="CUDA version of the wheels, quoted: '12.1'; not of host; of a wheel, if it is to be checked",
    )
    python: str = Field(
        default="", pattern=r"^3\.([89]|1[0-5])$", description="Python version, quoted: '3.11'; not of host"
    )
    wheel: str | None = Field(
        default=None,
        description="a file to install PyTorch from, such as wheels/torch-2.9.0a0-cp311-cp311-linux_x86_64.whl, "
        "relative to this file or absolute. It is pinned by its SHA-256; what it needs comes from the index",
    )
    index: str | None = Field(
        default=None,
        pattern=r"^https?://",
        description="wheel index; default: PyTorch's own for this CUDA, of nightlies and release candidates its "
        "nightly and its test index; beside a wheel: PyPI",
    )
    fallback_index: str | None = Field(
        default=PYPI,
        pattern=r"^https?://",
        description="used, and reported, where the index cannot be reached; no default for nightlies and release "
        "candidates, which PyPI does not have",
    )
    packages: Packages = Field(
        default=[],
        description="exact versions of packages here, over the file's own `packages` and over what PyTorch asks for, "
        "such as nvidia-cudnn-cu12==9.1.0.70",
    )
    base_image: str = Field(default=CUDA_BASE, description="container base, by digest")
    replica: int = Field(default=0, ge=0, le=99, description="distinguishes equal environments: the A/A control")
    flags: ExtraFlags = Field(
        default=ExtraFlags(), description="added to every kernel's here, as a project's setup.py may do by version"
    )
    variables: Variables = Field(
        default={}, description="environment variables of its processes, such as OMP_NUM_THREADS: '1'"
    )

    @model_validator(mode="before")
    @classmethod
    def _as_named(cls, value: Any) -> Any:
        """What the name of a wheel says need not be said again; and no other index has a nightly."""
        if not isinstance(value, dict):
            return value
        value = dict(value)
        if isinstance(wheel := value.get("wheel"), str):
            name = wheel_files.named(wheel)
            for key, has in (("torch", name.torch), ("python", name.python), ("cuda", name.cuda)):
                if has and value.setdefault(key, has) != has and isinstance(value[key], str):
                    problem = f"{key}: {value[key]!r} is asked for, and {Path(wheel).name} is for {key} {has}"
                    raise RefusedValue(problem, f'write {key}: "{has}", or name another wheel')
        if isinstance(value.get("torch"), str) and channel(value["torch"]):
            value.setdefault("fallback_index", None)
        return value

    @model_validator(mode="after")
    def _pinned_or_host(self) -> Environment:
        if not self.is_host:
            missing = [name for name in ("cuda", "python")[bool(self.wheel) :] if not getattr(self, name)]
            if missing:
                lines = " and ".join(f"{name}: {EXAMPLES[f'environments.{name}']}" for name in missing)
                raise RefusedValue(f"needs {' and '.join(missing)} beside torch {self.torch}", f"add {lines}, say")
        elif given := self.model_fields_set & NOT_OF_HOST:
            raise RefusedValue(f"{sorted(given)[0]} is observed where torch is host, not chosen", "remove it")
        return self

    @property
    def is_host(self) -> bool:
        return self.torch == HOST

    @property
    def wheel_index(self) -> str:
        """Where its wheels are asked for; '' for the host's, which nobody installs."""
        if self.is_host:
            return ""
        own = PYPI if self.wheel else f"https://download.pytorch.org/whl/{channel(self.torch)}{self.cuda_tag}"
        return self.index or own

    @property
    def indexes(self) -> list[str]:
        """Where its wheels may come from, its own index first."""
        return [index for index in (self.wheel_index, self.fallback_index) if index]

    @property
    def cuda_tag(self) -> str:
        return "cu" + self.cuda.replace(".", "")

    def id(self, index: str | None = None) -> str:
        """Such as ``torch2.1.0-cu121-py310``; wheels of the fallback index are another environment: ``-pypi-``. Its own
        packages follow: ``torch2.1.0-cu121-py310-numpy-1.26.4``.

        The host's PyTorch is ``host``, whatever its version; a wheel's local version is in its id.
        """
        replica = f"-r{self.replica}" if self.replica else ""
        if self.is_host:
            return HOST + replica
        variant = self.cuda_tag
        if self.wheel:
            local = re.sub(r"[^a-z0-9.]+", "-", wheel_files.named(self.wheel).local)
            variant = f"wheel-{local}" if local else "wheel"
        elif index is not None and index != self.wheel_index:
            variant = "pypi" if index == PYPI else "fallback"
        own = sorted(package_versions(self.packages).items())
        packages = re.sub(r"[+!]", ".", "".join(f"-{name}-{version}" for name, version in own)).lower()
        if len(packages) > LONGEST_PACKAGES:
            packages = f"-packages-{hashlib.sha256(packages.encode()).hexdigest()[:12]}"
        return f"torch{self.torch}-{variant}-py{self.python.replace('.', '')}{packages}{replica}"
