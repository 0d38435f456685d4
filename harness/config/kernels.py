"""Kernels as matrix.yaml has them: the code under test, how it is built, and what it is judged as."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from harness.config.yaml_files import YamlModel
from harness.config.yaml_problems import RefusedValue
from harness.errors import meant
from harness.schema.records import Device

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.]{0,63}$")]
Dtype = Literal["float16", "bfloat16", "float32"]


def _relative(path: str) -> str:
    if path.startswith("/") or ".." in Path(path).parts:
        raise RefusedValue("must be a path inside the folder of matrix.yaml", "move the file there, or link it")
    return path


SourcePath = Annotated[str, AfterValidator(_relative)]


def _host_code(path: str) -> str:
    if path.endswith((".cu", ".cuh")):
        raise RefusedValue("a CUDA file stands under cpu", f"write it under cuda: sources: {{cuda: [{path}]}}")
    return path


class Sources(YamlModel):
    """Source files of a kernel. All files of a device are compiled and linked into one extension."""

    cpu: list[Annotated[SourcePath, AfterValidator(_host_code)]] = Field(
        default=[], description="C++ files for the CPU"
    )
    cuda: list[SourcePath] = Field(default=[], description="CUDA files")


class Flags(YamlModel):
    """Compiler flags. `cxx` reaches host code on both devices, `nvcc` device code."""

    cxx: list[str] = Field(default=["-O3", "-march=native"], description="of the C++ compiler")
    nvcc: list[str] = Field(default=["-O3", "-lineinfo"], description="of nvcc")


class Precision(YamlModel):
    """Arithmetic inside a kernel that is known to be coarser than float32. The kernel is judged as such."""

    products: Literal["float32", "tf32", "tf32x3"] = Field(
        default="float32",
        description="what float32 operands of matrix products and convolutions are rounded to; `tf32x3`: in matrix "
        "products they are split into two TF32 parts, of which three products are added",
    )
    sums: Literal["float32", "float16"] = Field(default="float32", description="what float16 products are added up in")

    @property
    def names(self) -> list[str]:
        """As `harness.worker.rounding` calls them."""
        found = {"tf32": ["tf32_convolution", "tf32_matmul"], "tf32x3": ["tf32x3_matmul"]}.get(self.products, [])
        return found + (["float16_sums"] if self.sums == "float16" else [])


TunableName = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")]
MOST_SETTINGS = 100_000


# What a kernel that is built already has no use for.
ONE_FORM = "give exactly one of: sources, folder, problem with model_new, library, wheel with entry"
OF_BUILDS = ("binding", "tunables", "search", "architectures", "libraries", "flags")


class Kernel(YamlModel):
    """`sources`: files that implement csrc/attention.h. Instead of them: a `folder` of such files; sources that define
    a Python module, with `binding: own`; a `model_new` file beside a `problem` file (KernelBench's form); or what is
    built already: a `library`, or a `wheel` with its `entry`.
    """

    name: Name = Field(description="as it is called on the page and after --kernel")
    folder: SourcePath | None = Field(default=None, description="take every .cpp (CPU) and .cu (CUDA) file in it")
    sources: Sources | None = Field(default=None, description="source files, by device")
    binding: Literal["shipped", "own"] = Field(
        default="shipped", description="own: the sources define a Python module with `forward`"
    )
    tunables: dict[TunableName, int | str] = Field(
        default={}, description="macros that its sources are compiled with, and their values"
    )
    search: dict[TunableName, list[int | str]] = Field(
        default={}, description="values that `kernel-matrix sweep` may give to its tunables"
    )
    architectures: list[Annotated[str, Field(pattern=r"^sm_\d{2,3}a?$")]] = Field(
        default=["sm_80", "sm_89", "sm_90"], description="GPU architectures that its CUDA sources are compiled for"
    )
    libraries: list[Literal["cublas"]] = Field(default=[], description="CUDA libraries that its CUDA sources call")
    flags: Flags = Field(default=Flags(), description="compiler flags, instead of the default ones")
    problem: SourcePath | None = Field(
        default=None,
        description="file with Model, get_inputs and get_init_inputs; with truth, if a definition is to judge Model",
    )
    model_new: SourcePath | None = Field(default=None, description="file with ModelNew, the code under test")
    library: SourcePath | None = Field(
        default=None,
        pattern=r"\.so(\.\d+)*$",
        description="a shared object that is built already, with the C interface or as a Python module with `forward`",
    )
    wheel: SourcePath | None = Field(
        default=None, pattern=r"\.whl$", description="a wheel that is built already; it needs `entry`"
    )
    entry: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_.]*$",
        description="of a wheel: the function that is called, module:function, as forward(q, k, v, causal, scale)",
    )
    devices: list[Device] = Field(
        default=["cpu", "cuda"], description="of a model_new kernel, a library or a wheel: where it runs"
    )
    dtype: Dtype = Field(
        default="float32", description="of a model_new kernel: what its weights and floating-point inputs are cast to"
    )
    trials: int = Field(
        default=5, ge=1, le=1000, description="of a model_new kernel: how many input sets it is validated on"
    )
    workloads: list[str] | None = Field(
        default=None, description="names of the workloads that it runs on; default: all"
    )
    deterministic: bool = Field(
        default=False,
        description="whether every run must give the same bits; if not, other bits are reported, not failed",
    )
    precision: Precision | None = Field(
        default=None,
        description="what it is judged as; default: float32 inside; for a model_new kernel, PyTorch's switches",
    )

    @model_validator(mode="after")
    def _one_form(self) -> Kernel:
        if (self.problem is None) != (self.model_new is None):
            alone = "add model_new: FILE; a Model without a solution stands under operators: [{problem: FILE}]"
            remedy = alone if self.model_new is None else "add problem: FILE"
            raise RefusedValue("problem and model_new belong together", remedy)
        forms = (self.folder, self.sources, self.problem, self.library, self.wheel)
        if sum(form is not None for form in forms) != 1:
            raise RefusedValue("has no code, or more than one kind of it", ONE_FORM)
        if (self.wheel is None) != (self.entry is None):
            raise RefusedValue(
                "wheel and entry belong together", "name a function in the wheel: entry: mine.ops:attention"
            )
        if self.prebuilt and (given := [name for name in OF_BUILDS if name in self.model_fields_set]):
            raise RefusedValue(
                f"{given[0]} does nothing for {self.prebuilt}, which is built already", f"remove {given[0]}"
            )
        if self.sources is not None and not (self.sources.cpu or self.sources.cuda):
            raise RefusedValue("sources names no file", "such as sources: {cpu: [mine/attention.cpp]}")
        return self

    @model_validator(mode="after")
    def _searchable(self) -> Kernel:
        for name, values in self.search.items():
            if name not in self.tunables:
                known = ", ".join(self.tunables) or "there are none"
                remedy = f"{meant(name, self.tunables)}give its value under tunables too"
                raise RefusedValue(f"search.{name}: is none of the kernel's tunables ({known})", remedy)
            twice = next((value for index, value in enumerate(values) if value in values[:index]), None)
            if twice is not None:
                raise RefusedValue(f"search.{name}: {twice!r} stands twice", "remove one")
            if self.tunables[name] not in values:
                raise RefusedValue(f"search.{name}: lacks {self.tunables[name]!r}, its value in tunables", "add it")
        if self.settings > MOST_SETTINGS:
            raise RefusedValue(f"search: {self.settings} settings, at most {MOST_SETTINGS}", "give fewer values")
        return self

    @property
    def prebuilt(self) -> str | None:
        """The file that is loaded as it is, where nothing is compiled."""
        return self.library or self.wheel

    @property
    def is_compiled(self) -> bool:
        return self.sources is not None or self.folder is not None

    @property
    def is_bound(self) -> bool:
        """Whether the shipped binding is linked into it."""
        return self.is_compiled and self.binding == "shipped"

    @property
    def settings(self) -> int:
        """How many settings `search` spans."""
        return math.prod(map(len, self.search.values()))

    def on_devices(self, devices: Sequence[Device]) -> Kernel:
        """Without the sources of other devices, which would be compiled for nothing."""
        if self.sources is None:
            return self
        other: dict[str, object] = {device: [] for device in ("cpu", "cuda") if device not in devices}
        return self.model_copy(update={"sources": self.sources.model_copy(update=other)})
