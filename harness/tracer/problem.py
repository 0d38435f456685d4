"""Writes a stored region as a problem file: Model, get_inputs and get_init_inputs, by PyTorch's operators.

The inputs lie in the file, as bytes, as far as they fit; a larger tensor is drawn with the same type, sizes, mean and
standard deviation (integers: range). Where the two versions call other operators, the file has both, and each version
runs its own. Where they call the same ones in other ways, there is no file: it would blame the operator for its call.
"""

from __future__ import annotations

import base64
import ctypes
import math
import os
import re
import textwrap
import zlib
from typing import Any

import torch

from .digest import digest
from .programs import EARLIER, STORED

MOST_BYTES = 4 << 20  # of inputs in a file
INPUT = re.compile(r"\bx\d+\b")
FLOATING = (torch.float16, torch.bfloat16, torch.float32)
DTYPES = (*FLOATING, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
HEAD = """
import base64
import zlib

import torch


def tensors(*values):
    flat = []
    for value in values:
        if isinstance(value, (list, tuple)):
            flat += tensors(*value)
        elif isinstance(value, torch.Tensor) and all(value is not other for other in flat):
            flat.append(value)
    return flat


def stored(dtype, shape, text):
    raw = bytearray(zlib.decompress(base64.b64decode(text)))
    return torch.frombuffer(raw, dtype=dtype).reshape(shape) if raw else torch.empty(shape, dtype=dtype)

"""
MODEL = """
class Model(torch.nn.Module):
    def forward(self, {names}):
{layout}        return {call}


def get_init_inputs():
    return []


def get_inputs():
    return [{made}]
"""


class Unwritable(Exception):
    """What a problem file cannot say; the message says why."""


def write_problems(request: dict[str, Any]) -> dict[str, Any]:
    """Of every region (`name`, `title`, `good` and `bad`, its programs, and the `version` of the good one): a file of
    its name, and an entry: `dtype`, `device`, `drawn` (how many inputs are not the stored ones) and `error`."""
    results = {}
    for region in request["regions"]:
        result = results[region["name"]] = {"dtype": "", "device": "", "drawn": 0, "error": ""}
        try:
            good, bad = (torch.load(region[side], weights_only=False) for side in ("good", "bad"))
            text, made = problem_text(region["title"], region["version"], good, bad)
            result.update(made)
            with open(os.path.join(request["out"], region["name"] + ".py"), "w", encoding="utf-8") as file:
                file.write(text)
        except Unwritable as error:
            result["error"] = str(error)
    return results


def problem_text(title: str, version: str, good: dict[str, Any], bad: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """(the file's text, `dtype`, `device` and `drawn` of its workload). Unwritable where it cannot be."""
    inputs = Inputs()
    bodies = [_body(program, inputs) for program in (good, bad)]
    dtype = inputs.dtype()
    made, drawn = inputs.made()
    names = ", ".join(inputs.names())
    same = bodies[0] == bodies[1]
    if not same and [call["name"] for call in good["calls"]] == [call["name"] for call in bad["calls"]]:
        raise Unwritable("it is called with other arguments, or on other strides, in the two versions")
    functions = [("compute", bodies[0])] if same else [("good", bodies[0]), ("bad", bodies[1])]
    is_good = f'torch.__version__.partition("+")[0] == "{version}"'
    call = f"compute({names})" if same else f"good({names}) if {is_good} else bad({names})"
    text = f'"""{title}\n\nWritten by kernel-matrix trace.{_told(drawn)}\n"""\n{HEAD}'
    text += "".join(f"\ndef {name}({names}):\n{body}\n\n" for name, body in functions)
    text += MODEL.format(names=names, layout=inputs.layout(dtype), call=call, made="".join(made))
    return text, {"dtype": str(dtype)[6:], "device": inputs.device(), "drawn": drawn}


def _told(drawn: int) -> str:
    return f" Of its inputs, {drawn} are drawn anew: they were too large to be stored here." if drawn else ""


class Inputs:
    """The tensors that the two programs are given, each once."""

    def __init__(self) -> None:
        self.tensors: dict[Any, Any] = {}

    def name(self, tensor: Any) -> str:
        if tensor.layout != torch.strided or tensor.dtype not in DTYPES:
            raise Unwritable(f"{str(tensor.dtype)[6:]} tensors, {tensor.layout}, are none that a matrix compares")
        key = (tensor.dtype, tensor.shape, tensor.stride(), digest(tensor))
        self.tensors.setdefault(key, tensor)
        return f"x{list(self.tensors).index(key)}"

    def names(self) -> list[str]:
        return [f"x{place}" for place in range(len(self.tensors))]

    def device(self) -> str:
        return "cuda" if any(tensor.is_cuda for tensor in self.tensors.values()) else "cpu"

    def dtype(self) -> Any:
        """What floating-point inputs are cast to: the one that holds all of theirs."""
        found = {tensor.dtype for tensor in self.tensors.values() if tensor.dtype in FLOATING}
        if not found:
            raise Unwritable("it is given no floating-point tensor")
        return found.pop() if len(found) == 1 else torch.float32

    def layout(self, dtype: Any) -> str:
        """Lines that bring inputs into the types and strides that they had."""
        lines = []
        for name, tensor in zip(self.names(), self.tensors.values()):
            order = _order(tensor)
            back = sorted(range(len(order)), key=order.__getitem__)
            changes = f".to({tensor.dtype})" if tensor.dtype in FLOATING and tensor.dtype != dtype else ""
            changes += f".permute({back})" if back != sorted(back) else ""
            lines += [f"        {name} = {name}{changes}\n"] if changes else []
        return "".join(lines)

    def made(self) -> tuple[list[str], int]:
        """Expressions, and how many of them draw: the largest, so that the others fit."""
        sizes = [tensor.numel() * tensor.element_size() for tensor in self.tensors.values()]
        left = sum(sizes)
        drawn = set()
        for place in sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True):
            if left > MOST_BYTES:
                drawn.add(place)
                left -= sizes[place]
        every = [tensor.permute(_order(tensor)).contiguous() for tensor in self.tensors.values()]
        made = [_drawn(tensor) if place in drawn else _stored(tensor) for place, tensor in enumerate(every)]
        return [f"\n        {each}," for each in made] + ["\n    "], len(drawn)


def _order(tensor: Any) -> list[int]:
    """The dimensions as they lie in memory, the outermost first."""
    return sorted(range(tensor.dim()), key=lambda place: (-tensor.stride(place), place))


def _stored(tensor: Any) -> str:
    tensor = tensor.cpu()
    raw = ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size()) if tensor.numel() else b""
    text = base64.b64encode(zlib.compress(raw)).decode()
    return f"stored({tensor.dtype}, {list(tensor.shape)}, {text!r})"


def _drawn(tensor: Any) -> str:
    shape = list(tensor.shape)
    if tensor.dtype in FLOATING:
        finite = tensor.double()[torch.isfinite(tensor)]
        mean, deviation = (finite.mean().item(), finite.std(correction=0).item()) if finite.numel() else (0.0, 1.0)
        return f"(torch.randn({shape}) * {deviation!r} + {mean!r}).to({tensor.dtype})"
    if tensor.dtype == torch.bool:
        return f"torch.rand({shape}) < {tensor.double().mean().item()!r}"
    return f"torch.randint({tensor.min().item()}, {tensor.max().item() + 1}, {shape}).to({tensor.dtype})"


def _body(program: dict[str, Any], inputs: Inputs) -> str:
    """The lines of a function that returns what the program kept."""
    number = {call["index"]: place for place, call in enumerate(program["calls"])}

    def text(value: Any) -> str:
        if isinstance(value, tuple) and value and value[0] == EARLIER:
            return f"r{number[value[1]]}[{value[2]}].reshape({list(value[3])})"
        if isinstance(value, tuple) and value and value[0] == STORED:
            return inputs.name(value[1])
        if isinstance(value, (list, tuple)):
            return "[{}]".format(", ".join(map(text, value)))
        return _literal(value)

    lines: list[str] = []
    for place, call in enumerate(program["calls"]):
        namespace, _, name = call["name"].partition("::")
        if namespace != "aten":
            raise Unwritable(f"{call['name']} is no operator of PyTorch's own")
        if call["state"] is not None:
            raise Unwritable(f"{name} draws random numbers")
        name, _, overload = name.partition(".")
        given: dict[Any, str] = {key: text(value) for key, value in (*enumerate(call["args"]), *call["kwargs"].items())}
        written = [at if at in given else key for at, key in call["written"] if at in given or key in given]
        for key in written:  # to a copy: the next call is given the same inputs
            lines += [f"own{place}_{each} = {each}.clone()" for each in INPUT.findall(given[key])]
            given[key] = INPUT.sub(rf"own{place}_\g<0>", given[key])
        told = ", ".join(value if isinstance(key, int) else f"{key}={value}" for key, value in given.items())
        result = f"torch.ops.aten.{name}.{overload or 'default'}({told})"
        lines.append(f"r{place} = tensors({', '.join([result, *(given[key] for key in written)])})")
    kept = ", ".join(f"r{number[index]}[{slot}]" for index, slot in program["outputs"])
    return textwrap.indent("\n".join([*lines, f"return {kept}"]), "    ")


def _literal(value: Any) -> str:
    if isinstance(value, torch.device):
        return f'torch.device("{value.type}")'
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    raise Unwritable(f"an argument that is {type(value).__name__}")
