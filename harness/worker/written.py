"""What a problem's model, or a kernel in its place, writes to its inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

from . import operator_problem, outputs, problem_files, protocol, tensors
from .judging import Output, other_bits, read_output

if TYPE_CHECKING:
    from . import wire
    from .dtypes import Array
    from .workload import Trial


def left_by_candidate(trial: Trial, row: wire.CandidateOutput, folder: str, file: str) -> dict[str, Output]:
    """Return what a candidate left in the inputs that Model writes to; `file` is that of its output, in `folder`."""
    found: dict[str, Output] = {}
    for place, name in trial.workload.writes.items():
        assert isinstance(trial.arrays, problem_files.Inputs)
        array, dtype = trial.arrays[place], tensors.dtype_name(list(tensors.flat(trial.arrays.values))[place])
        runs = [array, array]
        if place in row.written:
            paths = [protocol.written_path(file, place, again) for again in (False, True)]
            runs = [read_output(folder, path, dtype, array.shape) for path in paths]
        one, other = (_seen(trial, place, run) for run in runs)
        found[outputs.WRITTEN + name] = Output(one, dtype, other_bits(one, other))
    return found


def _seen(trial: Trial, place: int, array: Array) -> Array:
    """Return the elements that the model sees, of an array in the place of an input."""
    arrays: Sequence[Array] = [*trial.arrays[:place], array, *trial.arrays[place + 1 :]]
    assert trial.workload.problem is not None and isinstance(trial.arrays, problem_files.Inputs)
    values: list[Any] = problem_files.with_arrays(trial.arrays, arrays).values
    return problem_files.Inputs(operator_problem.laid_out(trial.workload.operator, values))[place]
