"""`calls`: the operators that problem files call, forward and backward.

Each model is run once on the meta device, which computes nothing; where that cannot be done, on the CPU. The profiler
has the names of composite operators too, such as ``aten::lstm``, which a GPU does not take apart.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

import torch
from torch.autograd import profiler

from . import problem_files, protocol, tensors, wire


def calls(request: wire.CallsRequest) -> wire.CallsResult:
    result = wire.CallsResult(protocol.OK)
    for path in request.problems:
        found, why = set(), ""
        for device in ("meta", "cpu"):
            try:
                found = _called(path, device)
                break
            except Exception as error:
                why = f"{type(error).__name__}: {error}"[: protocol.MESSAGE_CHARACTERS]
        if found:
            result.operators[path] = sorted(found)
        else:
            result.failures[path] = f"{os.path.basename(path)} does not run on the CPU: {why}"
    return result


def _called(path: str, device: str) -> set[str]:
    """Names such as ``aten::conv2d``."""
    module = problem_files.load_module(path)
    torch.manual_seed(0)
    model = problem_files.construct(module.Model, module.get_init_inputs()).to(device)
    inputs = [tensors.each_tensor(value, lambda tensor: tensor.to(device)) for value in module.get_inputs()]
    with profiler.profile() as profile:
        outputs = [value for value in tensors.flat([model(*inputs)]) if value.requires_grad]
        if outputs:
            with contextlib.suppress(RuntimeError):  # it has no backward on this device
                torch.autograd.backward([_total(value) for value in outputs])
    return {event.name for event in profile.function_events if "::" in event.name}


def _total(value: Any) -> Any:
    return value.real.sum() if value.is_complex() else value.sum()
