"""Operators as matrix.yaml has them: PyTorch's own, measured by themselves, without anybody's kernel."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from harness.config.kernels import Dtype, Flags, Kernel, Name, SourcePath
from harness.config.yaml_files import YamlModel
from harness.config.yaml_problems import RefusedValue, problem_and_remedy
from harness.schema.records import Device
from harness.worker import layouts, protocol, wire
from harness.worker.protocol import BACKWARD

PYTORCH = "pytorch"  # as --kernel has it: all groups of operators
GROUP = 50  # workloads that share a launch: more would take longer than a launch may
COMPILED_GROUP = 5  # of those that are compiled in it
SHAPE = "a shape, such as [64, 4096]; or with its values: {shape: [64], values: integers, below: 100}"
Values = Literal["normal", "uniform", "positive", "integers", "boolean", "positive_definite"]
Size = Annotated[int, Field(ge=0)]


class TensorEntry(YamlModel):
    """A tensor that an operator is given."""

    shape: list[Size]
    values: Values = "normal"
    below: int | None = Field(default=None, ge=1)
    layout: Literal["channels_last", "transposed", "offset"] | None = None
    strides: list[Size] = Field(default=[])
    requires_grad: bool = True

    @model_validator(mode="after")
    def _consistent(self) -> TensorEntry:
        if (self.values == "integers") != (self.below is not None):
            raise RefusedValue("values: integers are drawn from 0 up to `below`", f"write {SHAPE}")
        if self.values == "positive_definite":
            if self.shape[-2:-1] != self.shape[-1:]:
                raise RefusedValue("values: positive_definite matrices are square", "make the last two sizes equal")
            if self.layout or self.strides:
                raise RefusedValue("values: positive_definite matrices are contiguous", "remove layout, or strides")
        if self.layout and self.strides:
            raise RefusedValue("layout and strides say the same", "remove one")
        if self.strides and len(self.strides) != len(self.shape):
            way_out = "such as shape: [64, 4096], strides: [0, 1] of 64 rows that are one in memory"
            raise RefusedValue("strides are numbers of elements, one for each size of the shape", way_out)
        try:
            layouts.strides(self.layout or layouts.OFFSET, self.shape)
        except ValueError as error:
            raise RefusedValue(f"layout: {error}", "take another layout, or give strides") from None
        return self

    @property
    def request(self) -> wire.TensorRequest:
        strides = layouts.strides(self.layout, self.shape) if self.layout else self.strides
        offset = int(self.layout == layouts.OFFSET)
        return wire.TensorRequest(self.shape, self.values, self.below or 2, strides, offset, self.requires_grad)


def _tensor(value: object) -> wire.TensorRequest:
    if not isinstance(value, (list, dict)):
        raise RefusedValue("not a shape", f"write {SHAPE}")
    try:
        return TensorEntry.model_validate({"shape": value} if isinstance(value, list) else value).request
    except ValidationError as error:
        raise RefusedValue(*problem_and_remedy(error, TensorEntry)) from None


def _argument(value: object, name: str = "") -> wire.ArgumentRequest:
    if isinstance(value, list) and value and all(isinstance(each, (list, dict)) for each in value):
        return wire.ArgumentRequest(name=name, tensors=[_tensor(each) for each in value], several=True)
    return wire.ArgumentRequest(name=name, tensors=[_tensor(value)])


def parse_shapes(value: list[Any] | dict[str, Any]) -> list[wire.ArgumentRequest]:
    """Tensors in their order, or by name. ValueError where one is no shape."""
    if isinstance(value, Mapping):
        return [_argument(each, name) for name, each in value.items()]
    if value and all(type(size) is int for size in value):
        raise RefusedValue("one shape, where a list of shapes belongs", f"write [{value}]")
    return [_argument(each) for each in value]


def _checked(value: Any) -> Any:
    parse_shapes(value)
    return value


def _is_operator(name: str) -> str:
    if not re.fullmatch(r"torch(\.[A-Za-z_][A-Za-z0-9_]*)+", name):
        raise RefusedValue(f"{name!r} is no name below torch", "write it in full, such as torch.nn.functional.softmax")
    return name


def _is_direction(value: object) -> object:
    if type(value) is not bool and value not in layouts.DIRECTIONS:
        raise RefusedValue("neither true nor false nor a direction", f"directions are {', '.join(layouts.DIRECTIONS)}")
    return value


class OperatorEntry(YamlModel):
    """An operator of PyTorch's, or a problem file whose Model is all there is: measured in each environment."""

    operator: Annotated[str, AfterValidator(_is_operator)] | None = Field(
        default=None, description="its name, such as torch.topk"
    )
    problem: SourcePath | None = Field(
        default=None,
        description="instead of it: a file with Model, get_inputs and get_init_inputs; with truth, if a definition "
        "is to judge Model",
    )
    name: Name | None = Field(default=None, description="as the page calls it; default: the last part of its name")
    shapes: Annotated[list[Any] | dict[str, Any], AfterValidator(_checked)] = Field(
        default=[],
        description="of each tensor that it is given, in turn or by name; instead of a shape a list of shapes, for a "
        f"list of tensors, or its keys: shape; values ({', '.join(get_args(Values))}), with below, the end of "
        f"integers; layout ({', '.join(layouts.NAMES)}), or strides in elements; "
        "requires_grad, false of what has no gradient",
    )
    arguments: dict[str, Any] = Field(
        default={}, description="what else it is given, by name; a text such as torch.float64 is what is called so"
    )
    dtypes: list[Dtype] = Field(
        default=["float32"], min_length=1, description="what floating-point tensors, and a Model's weights, are cast to"
    )
    backward: Annotated[bool | Literal["sum", "channels_last", "transposed"], BeforeValidator(_is_direction)] = Field(
        default=False,
        description="whether gradients are compared, and a call with them, and its backward pass by itself, are timed, "
        "too; true: the gradient of the output is contiguous; sum: it is that of its sum, with strides of zero; or its "
        "layout",
    )
    compile: bool = Field(
        default=False, description="whether it is measured under torch.compile, too, beside the plain call"
    )
    devices: list[Device] = Field(default=["cpu", "cuda"], min_length=1, description="where it runs")
    trials: int = Field(default=3, ge=1, le=1000, description="input sets that it is validated on")

    @model_validator(mode="after")
    def _one_form(self) -> OperatorEntry:
        if (self.operator is None) == (self.problem is None):
            raise RefusedValue("give one of: operator, problem", "such as operator: torch.topk")
        if self.problem is not None and (self.shapes or self.arguments):
            raise RefusedValue("shapes and arguments are an operator's", "remove them: the file has get_inputs")
        if self.problem is not None and not isinstance(self.backward, bool):
            raise RefusedValue(
                f"backward: {self.backward} is an operator's", "write true, and do it in the file's Model"
            )
        if self.operator is not None and not self.shapes:
            raise RefusedValue(f"{self.operator} is given no tensor", "add them: shapes: [[64, 4096]]")
        if self.called.endswith(protocol.COMPILED):
            raise RefusedValue(
                f"name: {protocol.COMPILED} ends the names of what `compile: true` adds", "give it another name"
            )
        if len(set(self.dtypes)) < len(self.dtypes):
            raise RefusedValue("dtypes: one stands twice", "remove it")
        return self

    @property
    def called(self) -> str:
        """Its name on the page, and what its workloads begin with."""
        if self.name is not None:
            return self.name
        if self.operator is not None:
            last = self.operator.rpartition(".")[2].lower()
            in_place = last.endswith("_") and not last.endswith("__")  # which is named beside the other one
            return last.strip("_") + "_" * in_place
        return re.sub(r"[^a-z0-9_.]", "_", str(self.problem).rpartition("/")[2].removesuffix(".py").lower())

    @property
    def subject(self) -> str:
        """What is measured, in full."""
        return self.operator or str(self.problem)

    @property
    def request(self) -> wire.OperatorRequest | None:
        """None of a problem file."""
        if self.operator is None:
            return None
        direction = "" if isinstance(self.backward, bool) else self.backward
        return wire.OperatorRequest(self.operator, parse_shapes(self.shapes), dict(self.arguments), direction)

    def workloads(self) -> list[OperatorWorkload]:
        """Such as topk-fp32, layer_norm.backward-fp32, layer_norm.compiled-fp32."""
        return [
            OperatorWorkload(self, dtype, backward, compiled)
            for compiled in ([False, True] if self.compile else [False])
            for backward in ([False, True] if self.backward else [False])
            for dtype in self.dtypes
        ]


class OperatorWorkload(NamedTuple):
    """One way to call an operator: in one dtype, with gradients or without, compiled or not."""

    operator: OperatorEntry
    dtype: Dtype
    backward: bool
    compiled: bool

    @property
    def name(self) -> str:
        """What is compiled is a subject of its own on the page."""
        return self.operator.called + protocol.COMPILED * self.compiled

    @property
    def id(self) -> str:
        return f"{self.name}{BACKWARD if self.backward else ''}-{protocol.DTYPES[self.dtype]}"


Groups = dict[str, list[OperatorWorkload]]


def groups(operators: list[OperatorEntry]) -> Groups:
    """What shares a launch, by the name of the subject: each has at most `GROUP` workloads, or so few of those that
    every launch compiles."""
    parts: list[list[OperatorWorkload]] = []
    weight = GROUP
    for each in (each for operator in operators for each in operator.workloads()):
        own = (GROUP // COMPILED_GROUP if each.compiled else 1) * (2 if each.backward else 1)  # so many are timed
        if weight + own > GROUP:
            parts.append([])
            weight = 0
        parts[-1].append(each)
        weight += own
    return {PYTORCH if len(parts) == 1 else f"{PYTORCH}.{number}": part for number, part in enumerate(parts, 1)}


def as_kernel(name: str) -> Kernel:
    """What stands in a kernel's place: as one in Python nothing of it is compiled."""
    return Kernel.model_construct(name=name, problem="", model_new="", flags=Flags(cxx=[], nvcc=[]))
