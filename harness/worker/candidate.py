"""`candidate`: run the code under test on every trial and store its output bytes.

Nothing here judges: the bytes go to files that a process which never loads the candidate reads.
No reference runs here either: no right answer lies in this process's memory for a candidate to find.
Every output is computed twice from the same inputs, each time into poisoned memory. The second is stored where its bits
differ from the first's: that they do not is this process's word, as two equal files would be.
"""

import concurrent.futures
import os

import numpy as np
import torch

from . import integrity, kernels, native, protocol, tensors
from . import workload as workloads

PART_BYTES = 1 << 24  # compared at a time


def candidate(request):
    torch.set_num_threads(request.threads)
    workload = workloads.parse_workload(request.workload)
    result = {"status": protocol.OK, "message": "", "log_excerpt": "", "choice": "", "native": {}, "recipes": {}}
    replaced, mapped = integrity.Snapshot().replaced, native.mapped()
    try:
        kernel = kernels.load(request.kernel, workload)
        note = getattr(kernel, "note", "")
        choice = getattr(kernel, "choice", None)
        with concurrent.futures.ThreadPoolExecutor(max(1, request.threads)) as pool:
            for recipe, trials in workload.recipes.items():
                folder = os.path.join(request.out, recipe)
                os.makedirs(folder, exist_ok=True)
                rows = result["recipes"][recipe] = []
                for trial in range(trials):
                    arrays = workload.arrays(recipe, trial, request.seed, pool.map)
                    if choice and not trial:
                        result["choice"] = choice(workload.arguments(arrays, request.kernel.device))
                    rows.append(_trial(kernel, workload, arrays, request.kernel.device, folder, trial))
        if request.kernel.model_new:
            result["native"] = native.brought(mapped)
        tampering = replaced()
        result.update(status=protocol.WRONG if tampering else protocol.OK, message=tampering or note)
    except kernels.KernelFailure as error:
        result.update(status=error.status, message=error.message, log_excerpt=error.excerpt)
    return result


def _trial(kernel, workload, arrays, device, folder, trial):
    arguments = workload.arguments(arrays, device)
    row = {"mutated": False, "unwritten": False, "repeats": True}
    first = os.path.join(folder, f"{trial}.bin")
    for again in (False, True):
        call = kernel.bind(arguments)
        workload.reseed()
        with kernels.blamed(f"trial {trial}"):
            with torch.no_grad():
                output = call()
            tensors.synchronise(device)
        output = kernels.checked(output, workload, device)
        if again and [list(output.shape), tensors.dtype_name(output)] != [row["shape"], row["dtype"]]:
            row["repeats"] = False
        row["shape"], row["dtype"] = list(output.shape), tensors.dtype_name(output)
        with kernels.blamed(f"reading the output of trial {trial}"):
            row["unwritten"] = row["unwritten"] or tensors.has_poison(output)
            array = tensors.to_array(output)
        with kernels.blamed(f"storing the output of trial {trial}"):
            if not again:
                store(first, array)
            elif not (row["repeats"] and holds(first, array)):
                row["repeats"] = False
                store(os.path.join(folder, f"{trial}.repeat.bin"), array)
        del array  # of a GPU's output it is a copy. The output stays, so that the second call is not given its memory
        with kernels.blamed(f"reading the inputs after trial {trial}"):
            row["mutated"] = row["mutated"] or _mutated(arguments, arrays)
        if row["mutated"]:  # the second run must see the same inputs as the first
            arguments = workload.arguments(arrays, device)
    return row


def store(path, array):
    """An array's bytes in C order, which are not copied for it."""
    with open(path, "wb") as file:
        file.write(np.ascontiguousarray(array).data)


def holds(path, array):
    """Whether a file holds exactly an array's bytes."""
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    with open(path, "rb") as file:
        parts = range(0, len(data), PART_BYTES)
        same = all(file.read(PART_BYTES) == data[start : start + PART_BYTES].tobytes() for start in parts)
        return same and not file.read(1)


def _mutated(arguments, arrays):
    held = list(tensors.flat(arguments))
    return len(held) != len(arrays) or not all(map(tensors.holds, held, arrays))
