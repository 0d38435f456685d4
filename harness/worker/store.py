"""`store`: the weights of a problem file, made once, as bytes that every environment replays.

PyTorch's generator, whose stream is not promised to stay the same between versions, draws them. Inputs are not kept:
every environment makes them anew (`draws`). Where something has a say in their bytes that might differ between
environments they are stored, as long as they fit; else the digests tell. Floating-point tensors are cast to the
request's dtype, all others stay what they are. Layout of the folder: `index.json`, and one .bin per tensor, in C order.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from . import blame, kernels, outputs, problem_files, protocol, tensors, wire
from .blame import enters_subject

INDEX = "index.json"


def store(request: wire.StoreRequest) -> wire.StoreResult:
    torch.manual_seed(request.seed)
    try:
        module = problem_files.module_of(request.problem, request.operator)
        dtype = getattr(torch, request.dtype)
        writer = Writer(request.out, request.most_bytes)
        initial = tensors.each_float(_initial(module), lambda tensor: tensor.to(dtype))
        # KernelBench's own order: the seed, then the model, and the seed again before the inputs.
        torch.manual_seed(request.seed)
        model = _model(module, initial, dtype)
        state = {name: writer.encode(value, "weight") for name, value in model.state_dict().items()}
        sets, note, inputs = _inputs(module, request, writer)
        returned, writes = _outputs(model, problem_files.lay_out(request.operator, inputs))
        index = {
            "seed": request.seed,
            "init": [writer.encode(item, "init") for item in initial],
            "state": state,
            "inputs": sets,
            "note": note,
            "trial_bytes": sum(map(_size_bytes, tensors.flat([*inputs, *returned]))),
            "writes": writes,
        }
    except TooLarge as error:
        raise wire.Failed(protocol.KILLED, blame.skipped(str(error), blame.ROOM), fault=protocol.Fault.LIMIT) from None
    except Exception as error:
        failed = kernels.failure(error, protocol.MAKING + (os.path.basename(request.problem) or "an operator"))
        if failed.status == protocol.UNSUPPORTED:
            failed.status = protocol.CRASHED
        raise failed from None
    path = os.path.join(request.out, INDEX)
    protocol.write_json(path, index)
    writer.files[INDEX] = protocol.sha256_file(path)
    return wire.StoreResult(protocol.OK, note, files=writer.files)


@enters_subject
def _initial(module: Any) -> list[Any]:
    return list(module.get_init_inputs())


@enters_subject
def _model(module: Any, initial: list[Any], dtype: Any) -> Any:
    return problem_files.construct(module.Model, initial).to(dtype)


def _inputs(module: Any, request: wire.StoreRequest, writer: Writer) -> tuple[list[Any], str, list[Any]]:
    """(the sets that are stored, a note, a trial's inputs): none where every environment makes the same ones anew."""
    sets: list[Any] = []
    for trial in range(request.trials):
        values, foreign, _ = problem_files.made(module, request.seed, trial, request.dtype)
        if not foreign:
            return [], "", values
        note = "get_inputs() needs {}".format(", ".join(foreign))
        if sum(map(_size_bytes, tensors.flat(values))) * (request.trials - trial) > writer.left_bytes:
            note += ", and what it gives does not fit into limits.output_gib: each environment makes its own"
            return [], note, values
        sets.append([writer.encode(item, "input") for item in values])
    return sets, f"{note}: what it gives is stored", values


def _outputs(model: Any, inputs: list[Any]) -> tuple[list[Any], dict[int, str]]:
    """Return what the model gives, without its elements, and `outputs.Writes`; nothing where it does not run without
    elements: then each environment finds out by itself what the model writes to."""
    try:
        with torch.no_grad():
            given = [tensors.each_tensor(value, lambda tensor: tensor.to("meta")) for value in inputs]
            held = outputs.by_argument(model, given)
            before = [tensor._version for tensor in held.values()]
            returned = [model.to("meta")(*given)]
        changed = (tensor._version != version for tensor, version in zip(held.values(), before))
        return returned, {place: name for place, (name, is_so) in enumerate(zip(held, changed)) if is_so}
    except Exception:
        return [], {}


def _size_bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


class TooLarge(Exception):
    """More than `limits.output_gib`."""


class Writer:
    """Turns values into JSON, with tensors as files beside it."""

    def __init__(self, folder: str, most_bytes: int) -> None:
        self.folder = folder
        self.left_bytes = most_bytes
        self.files: dict[str, str] = {}
        os.makedirs(folder, exist_ok=True)

    def encode(self, value: Any, kind: str) -> dict[str, Any]:
        if isinstance(value, torch.Tensor):
            name = f"{kind}-{len(self.files)}.bin"
            path = os.path.join(self.folder, name)
            self.left_bytes -= _size_bytes(value)
            if self.left_bytes < 0:
                raise TooLarge("its weights do not fit into limits.output_gib: give it more")
            protocol.write_atomically(path, tensors.to_array(value).data)
            self.files[name] = protocol.sha256_file(path)
            return {"tensor": name, "dtype": tensors.dtype_name(value), "shape": list(value.shape)}
        if isinstance(value, (list, tuple)):
            return {type(value).__name__: [self.encode(item, kind) for item in value]}
        if isinstance(value, dict):
            return {"dict": {key: self.encode(item, kind) for key, item in value.items()}}
        if value is None or isinstance(value, (bool, int, float, str)):
            return {"value": value}
        return _refuse(value)


@enters_subject
def _refuse(value: Any) -> dict[str, Any]:
    """Raise what a problem file made that is no input."""
    raise TypeError(f"{type(value)} cannot be stored: only tensors, numbers, texts and lists of them")
