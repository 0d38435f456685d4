"""`candidate`: run the code under test on every trial and store its output bytes.

Nothing here judges: the bytes go to files that a process which never loads the candidate reads.
No reference runs here either: no right answer lies in this process's memory for a candidate to find.
Every output is computed twice from the same inputs, each time into poisoned memory. The second is stored where its bits
differ from the first's: that they do not is this process's word, as two equal files would be.
"""

from __future__ import annotations

import concurrent.futures
import os
from typing import Any

import numpy as np
import torch

from . import children, dtypes, kernels, native, protocol, subjects, tensors, versions, wire
from .loading import load_kernel

PART_BYTES = 1 << 24  # compared at a time
ANOTHER_NUMBER = -1  # in the place of an input: there are more inputs after the call, or fewer


def candidate(request: wire.CandidateRequest) -> wire.CandidateResult:
    torch.set_num_threads(request.threads)
    workload = subjects.parse_workload(request.workload)
    result = wire.CandidateResult(protocol.OK)
    if request.told:
        versions.tell(request.kernel.model_new or "", request.told)
    mapped, started = native.mapped(), children.Children()
    kernel = None
    try:
        kernel = load_kernel(request.kernel, workload)
        with concurrent.futures.ThreadPoolExecutor(max(1, request.threads)) as pool:
            for recipe, trials in workload.recipes.items():
                folder = os.path.join(request.out, recipe)
                os.makedirs(folder, exist_ok=True)
                rows = result.recipes[recipe] = []
                for trial in range(trials):
                    arrays = workload.arrays(recipe, trial, request.seed, pool.map)
                    if isinstance(kernel, kernels.Extension) and not trial:
                        result.choice = kernel.choice(workload.arguments(arrays, request.kernel.device))
                    rows.append(_trial(kernel, workload, arrays, request.kernel.device, folder, trial))
                    if (left := started.left()) is not None:
                        raise left
        if request.told and not versions.read:
            raise wire.Failed(protocol.NOT_RUN, "its file did not ask for PyTorch's version")
        if request.kernel.may_compile:
            result.native = native.brought(mapped)
        result.message = getattr(kernel, "told", kernel.note)
    except wire.Failed as error:
        result.fail(error)
        result.loads = kernel is not None and error.loads
    return result


def _trial(
    kernel: kernels.Kernel,
    workload: subjects.Workload,
    arrays: list[dtypes.Array],
    device: str,
    folder: str,
    trial: int,
) -> wire.CandidateOutput:
    arguments = workload.arguments(arrays, device)
    row = wire.CandidateOutput(shape=[], dtype="")
    first = os.path.join(folder, f"{trial}.bin")
    for again in (False, True):
        call = kernel.bind(arguments)
        workload.reseed()
        with kernels.blamed(f"trial {trial}"):
            with torch.no_grad():
                output = call()
            tensors.synchronise(device)
        output = kernels.checked(output, workload, device)
        shape, dtype = list(output.shape), tensors.dtype_name(output)
        row.repeats = not again or (shape, dtype) == (row.shape, row.dtype)
        row.shape, row.dtype = shape, dtype
        with kernels.blamed(f"reading the output of trial {trial}"):
            row.unwritten = row.unwritten or tensors.has_poison(output)
            array = tensors.to_array(output)
        with kernels.blamed(f"storing the output of trial {trial}"):
            if not again:
                store(first, array)
            elif not (row.repeats and holds(first, array)):
                row.repeats = False
                store(os.path.join(folder, f"{trial}.repeat.bin"), array)
        del array  # of a GPU's output it is a copy. The output stays, so that the second call is not given its memory
        with kernels.blamed(f"reading the inputs after trial {trial}"):
            held = list(tensors.flat(arguments))
            changed = _changed(held, arrays)
            row.written = sorted({*row.written, *changed})
            for place in (place for place in row.written if place != ANOTHER_NUMBER):
                store(protocol.written_path(first, place, again), tensors.to_array(held[place]))
        if changed:  # the second run must see the same inputs as the first
            arguments = workload.arguments(arrays, device)
    return row


def store(path: str, array: dtypes.Array) -> None:
    """An array's bytes in C order, which are not copied for it."""
    with open(path, "wb") as file:
        file.write(np.ascontiguousarray(array).data)


def holds(path: str, array: dtypes.Array) -> bool:
    """Return whether a file holds exactly an array's bytes."""
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    with open(path, "rb") as file:
        parts = range(0, len(data), PART_BYTES)
        same = all(file.read(PART_BYTES) == data[start : start + PART_BYTES].tobytes() for start in parts)
        return same and not file.read(1)


def _changed(held: list[Any], arrays: list[dtypes.Array]) -> list[int]:
    """Return the places of the inputs that do not hold their arrays any more."""
    if len(held) != len(arrays):
        return [ANOTHER_NUMBER]
    return [place for place, array in enumerate(arrays) if not tensors.holds(held[place], array)]
