"""`compiled`: the first call of what compiles at run time, and what its compilers generated.

The compilers' caches are in a folder of the request's, empty at first. PyTorch is imported before.
"""

from __future__ import annotations

import torch

from . import generated, kernels, loading, protocol, subjects, tensors, tools, wire

RECIPE = "independent"


def compiled(request: wire.CompiledRequest) -> wire.CompiledResult:
    """Make the model, call it once, and return what its compilers left in their caches."""
    protocol.set_caches(request.caches)
    torch.set_num_threads(request.threads)
    workload = subjects.parse_workload(request.workload)
    result = wire.CompiledResult(protocol.OK)
    try:
        arguments = workload.arguments(workload.arrays(RECIPE, 0, request.seed), request.device)
        with torch.no_grad():
            if request.kernel is None:
                workload.references([protocol.MODEL], request.device)[0].attempt(arguments)
            else:
                call = loading.load_kernel(request.kernel, workload).bind(arguments, anew=True)
                with kernels.blamed("the first call"):
                    call()
            tensors.synchronise(request.device)
        programs = tools.cuda_folder() if request.device == "cuda" else ""
        result.generated = generated.generated(request.caches, programs)
    except wire.Failed as error:
        result.fail(error)
    return result
