"""`calls`: the operators that problem files, and operators themselves, call, forward and backward.

Each is run once on the meta device, which computes nothing; where that cannot be done, on the CPU. The profiler
has the names of composite operators too, such as ``aten::lstm``, which a GPU does not take apart.
"""

from __future__ import annotations

import contextlib
import os

import torch
from torch.autograd import profiler

from . import operator_problem, outputs, problem_files, protocol, tensors, wire


def calls(request: wire.CallsRequest) -> wire.CallsResult:
    result = wire.CallsResult(protocol.OK)
    subjects = [(path, None) for path in request.problems] + [("", operator) for operator in request.operators]
    names: set[str] = set()
    for path, operator in subjects:
        for device in ("meta", "cpu"):
            try:
                names |= _called(path, operator, device)
                break
            except Exception as error:
                why = f"{type(error).__name__}: {error}"[: protocol.MESSAGE_CHARACTERS]
        else:
            name = os.path.basename(path) if operator is None else operator.name
            result.failures.append(f"{name} does not run on the CPU: {why}")
    result.operators = sorted(names)
    return result


def _called(path: str, operator: wire.OperatorRequest | None, device: str) -> set[str]:
    """Names such as ``aten::conv2d``."""
    module = problem_files.module_of(path, operator)
    torch.manual_seed(0)
    model = problem_files.construct(module.Model, module.get_init_inputs()).to(device)
    made = [tensors.each_tensor(value, lambda tensor: tensor.to(device)) for value in module.get_inputs()]
    inputs = operator_problem.laid_out(operator, made)
    with profiler.profile() as profile:
        model(*inputs)
        with contextlib.suppress(wire.Failed, RuntimeError):  # it has no gradients, or not on this device
            outputs.graph(outputs.Directions("float32"), model, inputs).step()
    return {event.name for event in profile.function_events if "::" in event.name}
