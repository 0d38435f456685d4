"""`candidate`: run the code under test on every trial and store its output bytes.

Nothing here judges: the bytes go to files that a process which never loads the candidate reads.
Every output is computed twice from the same inputs, each time into poisoned memory.
"""

import os

import numpy as np
import torch

from . import kernels, protocol, tensors
from . import workload as workloads


def candidate(request):
    torch.set_num_threads(request["threads"])
    workload = workloads.parse_workload(request["workload"])
    result = {"status": protocol.OK, "message": "", "log_excerpt": "", "recipes": {}}
    try:
        kernel = kernels.load(request["kernel"], workload)
        result["message"] = getattr(kernel, "note", "")
        for recipe, trials in workload.recipes.items():
            folder = os.path.join(request["out"], recipe)
            os.makedirs(folder, exist_ok=True)
            rows = result["recipes"][recipe] = []
            for trial in range(trials):
                arrays = workload.arrays(recipe, trial, request["seed"])
                rows.append(_trial(kernel, workload, arrays, request["kernel"]["device"], folder, trial))
    except kernels.KernelFailure as error:
        result.update(status=error.status, message=error.message, log_excerpt=error.excerpt)
    return result


def _trial(kernel, workload, arrays, device, folder, trial):
    arguments = workload.arguments(arrays, device)
    row = {"mutated": False, "unwritten": False}
    for suffix in ("", ".repeat"):
        call = kernel.bind(arguments)
        try:
            with torch.no_grad():
                output = call()
            tensors.synchronise(device)
        except Exception as error:
            raise kernels.failure(error, f"trial {trial}") from None
        output = kernels.checked(output, workload, device)
        row["shape"], row["dtype"] = list(output.shape), tensors.dtype_name(output)
        row["unwritten"] = row["unwritten"] or tensors.has_poison(output)
        with open(os.path.join(folder, f"{trial}{suffix}.bin"), "wb") as file:
            file.write(tensors.to_bytes(output))
        row["mutated"] = row["mutated"] or _mutated(arguments, arrays)
        if row["mutated"]:  # the second run must see the same inputs as the first
            arguments = workload.arguments(arrays, device)
    return row


def _mutated(arguments, arrays):
    held = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
    return any(
        not np.array_equal(np.frombuffer(tensors.to_bytes(now), np.uint8), np.frombuffer(before.tobytes(), np.uint8))
        for now, before in zip(held, arrays)
    )
