"""`candidate`: run the code under test on every trial and store its output bytes.

Nothing here judges: the bytes go to files that a process which never loads the candidate reads.
No reference runs here either: no right answer lies in this process's memory for a candidate to find.
Every output is computed twice from the same inputs, each time into poisoned memory.
"""

import concurrent.futures
import os

import numpy as np
import torch

from . import integrity, kernels, protocol, tensors
from . import workload as workloads


def candidate(request):
    torch.set_num_threads(request["threads"])
    workload = workloads.parse_workload(request["workload"])
    result = {"status": protocol.OK, "message": "", "log_excerpt": "", "choice": "", "recipes": {}}
    replaced = integrity.Snapshot().replaced
    try:
        kernel = kernels.load(request["kernel"], workload)
        note = getattr(kernel, "note", "")
        choice = getattr(kernel, "choice", None)
        with concurrent.futures.ThreadPoolExecutor(max(1, request["threads"])) as pool:
            for recipe, trials in workload.recipes.items():
                folder = os.path.join(request["out"], recipe)
                os.makedirs(folder, exist_ok=True)
                rows = result["recipes"][recipe] = []
                for trial in range(trials):
                    arrays = workload.arrays(recipe, trial, request["seed"], pool.map)
                    if choice and not trial:
                        result["choice"] = choice(workload.arguments(arrays, request["kernel"]["device"]))
                    rows.append(_trial(kernel, workload, arrays, request["kernel"]["device"], folder, trial))
        tampering = replaced()
        result.update(status=protocol.WRONG if tampering else protocol.OK, message=tampering or note)
    except kernels.KernelFailure as error:
        result.update(status=error.status, message=error.message, log_excerpt=error.excerpt)
    return result


def _trial(kernel, workload, arrays, device, folder, trial):
    arguments = workload.arguments(arrays, device)
    row = {"mutated": False, "unwritten": False}
    for suffix in ("", ".repeat"):
        call = kernel.bind(arguments)
        workload.reseed()
        with kernels.blamed(f"trial {trial}"):
            with torch.no_grad():
                output = call()
            tensors.synchronise(device)
        output = kernels.checked(output, workload, device)
        row["shape"], row["dtype"] = list(output.shape), tensors.dtype_name(output)
        with kernels.blamed(f"reading the output of trial {trial}"):
            row["unwritten"] = row["unwritten"] or tensors.has_poison(output)
            data = tensors.to_bytes(output)
        path = os.path.join(folder, f"{trial}{suffix}.bin")
        with kernels.blamed(f"storing the output of trial {trial}"), open(path, "wb") as file:
            file.write(data)
        with kernels.blamed(f"reading the inputs after trial {trial}"):
            row["mutated"] = row["mutated"] or _mutated(arguments, arrays)
        if row["mutated"]:  # the second run must see the same inputs as the first
            arguments = workload.arguments(arrays, device)
    return row


def _mutated(arguments, arrays):
    held = list(tensors.flat(arguments))
    return len(held) != len(arrays) or any(
        not np.array_equal(np.frombuffer(tensors.to_bytes(now), np.uint8), np.frombuffer(before.tobytes(), np.uint8))
        for now, before in zip(held, arrays)
    )
