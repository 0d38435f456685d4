"""What a problem's ``Model`` gives on the CPU: in float64, with sums cut short, or as arithmetic in the dtype would.

One model is made in a process, and each call is of a copy: what it drew when it was made stays, and what it keeps
between calls does not.
"""

import copy

import numpy as np
import torch

from . import dtypes, emulation, tensors


def exact(workload, arrays, short=None):
    """(its output in float64, whether sums were cut); `short` as of `emulation.Arithmetic`. ValueError where the output
    has another shape than in the dtype."""
    arithmetic = emulation.Arithmetic(short=short)
    model = _doubled(_copied(workload))
    arguments = workload.arguments(arrays, "cpu", lambda tensor: tensor.double())
    with emulation.doing(arithmetic):
        output = model(*arguments)
    if tuple(output.shape) != tuple(workload.shape):
        raise ValueError(f"the float64 model gives {tuple(output.shape)}")
    return np.ascontiguousarray(output.numpy(), dtype=np.float64), arithmetic.shortened


def emulated(workload, arrays, precision=(), realisation=0):
    """What straightforward arithmetic in the dtype gives, as an array that holds it exactly."""
    model = _copied(workload)
    arguments = workload.arguments(arrays, "cpu")
    with emulation.doing(emulation.Arithmetic(emulation.Realisation(realisation), precision)):
        output = model(*arguments)
    return dtypes.decode(tensors.to_array(output), tensors.dtype_name(output))


def _copied(workload):
    if workload.pristine is None:
        workload.pristine, _ = workload.model(workload.problem, "Model", "cpu")
    try:
        return copy.deepcopy(workload.pristine)
    except Exception:  # some hold what cannot be copied: then it is made again
        return workload.model(workload.problem, "Model", "cpu")[0]


def _doubled(model):
    """In float64, with the tensors that are plain attributes of its parts."""
    for part in model.double().modules():
        for name, value in vars(part).items():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                vars(part)[name] = value.double()
    return model
