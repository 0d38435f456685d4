"""What tasks that judge have in common: outputs, a candidate's and a reference's, and the truth of a trial.

A candidate's outputs are untrusted files, read where it was never loaded.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from typing import TYPE_CHECKING, Any, BinaryIO, Callable, Dict, List, Mapping, Sequence, Union

import numpy as np
import torch

from . import agreement, blame, dtypes, outputs, protocol, rounding, tensors, wire
from .problem_files import Inputs, lay_out, with_arrays
from .wire import Failed

if TYPE_CHECKING:
    from .dtypes import Array
    from .inputs import Shape
    from .problem import ModelReference
    from .references import SdpaReference
    from .subjects import Workload, WorkloadTrial

STATUSES = (protocol.OK, protocol.WRONG, protocol.UNSUPPORTED, protocol.CRASHED, protocol.NOT_RUN)  # a candidate's
# Trials of each recipe in which a reference is run again; the kernel is in all. PyTorch 2.5.0's math backend
# alone takes half of a validation's time on the CPU.
REPEATED_TRIALS = 10


def failure_of(result: wire.Outcome) -> Failed | None:
    """Return how a candidate's process ended, if not well. It may have written the result itself, and anything into
    it."""
    if result.status not in STATUSES:
        return Failed(protocol.CRASHED, wire.UNREADABLE)
    if result.status != protocol.OK:
        return result.to_error()
    return None


def is_possible(shape: Sequence[int], dtype: str) -> bool:
    """Return whether an output may be like that."""
    return all(0 <= size < 1 << 40 for size in shape) and dtype in dtypes.STORAGE


def read_output(folder: str, name: str, dtype: str, shape: Shape) -> Array:
    """Return an output of that dtype and shape, and of no other size; Failed, blaming who left it."""
    wanted = dtypes.size_bytes(dtype, shape)
    try:
        with open_plain(folder, name) as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(wanted) if size == wanted else b""
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
            words = "is a link, or something else that is no plain file: links are not followed"
            raise Failed(protocol.WRONG, f"output {name} {words}") from None
        raise Failed(protocol.CRASHED, f"output {name} cannot be read: {error.strerror}") from None
    if size != wanted or len(data) != wanted:
        raise Failed(protocol.WRONG, f"output {name} has {size} bytes; expected {wanted}")
    return dtypes.from_bytes(data, dtype, shape)


def open_plain(folder: str, name: str) -> BinaryIO:
    """Open a regular file below `folder` to read; OSError where any part of the way, `folder` included, is a link.

    ENXIO stands for what is no file; opening a pipe without a writer does not wait. The process that wrote there has
    ended, so that nothing changes between looking and reading.
    """
    above, last = os.path.split(os.path.abspath(folder))
    path = os.path.join(os.path.realpath(above), last, name)
    if os.path.realpath(path) != path:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))
    return os.fdopen(handle, "rb")


class TargetOutput:
    """One output of one target in one trial: its array in `dtype`'s storage, and what was seen while it ran."""

    def __init__(
        self,
        array: Array,
        dtype: str,
        again: Array | None = None,
        mutated: bool = False,
        unwritten: bool = False,
        layout: str = "contiguous",
    ) -> None:
        self.array = array
        self.again = again  # the second run's, where it has other bits
        self.dtype = dtype
        self.sha256 = hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()
        self.mutated = mutated
        self.unwritten = unwritten
        self.layout = layout

    @property
    def values(self) -> Array:
        """Return the output's numbers, as `dtypes.decode` gives them."""
        return dtypes.decode(self.array, self.dtype)

    @property
    def values_again(self) -> Array | None:
        return None if self.again is None else dtypes.decode(self.again, self.dtype)


Fresh = Callable[[], List[Any]]  # makes a call's arguments
Outputs = Dict[str, TargetOutput]  # of one target in one trial, by name; of one tensor alone the name is empty


class ReferenceRun:
    """A reference that runs in this process."""

    def __init__(self, reference: SdpaReference | ModelReference) -> None:
        self.reference = reference
        self.name = reference.name
        self.operators: list[str] | None = None
        self.failed: Failed | None = None

    def output(self, _recipe: str, trial: WorkloadTrial, fresh: Fresh, _expected: object) -> Outputs:
        """Return the outputs of a trial; `fresh` gives arguments that no call had. First the operators that run are
        proven. What failed once fails."""
        if self.operators is None and self.failed is None:
            try:
                self.operators = self.reference.prove(fresh())
            except Failed as error:
                self.failed = error
        if self.failed is not None:
            raise self.failed
        try:
            with torch.no_grad(), self.reference.active():
                count = 2 if trial.number < REPEATED_TRIALS else 1
                found = [self.reference.judged(fresh()) for _ in range(count)]
                return {name: _as_output(tensor, found[-1][name]) for name, tensor in found[0].items()}
        except Exception as error:  # a problem's model is the user's own code
            lines = str(error).strip().splitlines() or [type(error).__name__]
            self.failed = blame.skip(error) or Failed(protocol.CRASHED, lines[0])
            raise self.failed from None


def main_name(found: Outputs) -> str:
    return outputs.main({name: output.dtype for name, output in found.items()})


def main_of(found: Outputs) -> TargetOutput:
    return found[main_name(found)]


def other_bits(first: Array, second: Array | None) -> Array | None:
    """Return the second run's output, where it has other bits than the first's."""
    return None if second is None or tensors.same_arrays(first, second) else second


def _as_output(first: Any, second: Any) -> TargetOutput:
    one, other = tensors.to_array(first), tensors.to_array(second)
    return TargetOutput(one, tensors.dtype_name(first), other_bits(one, other), layout=outputs.layout(first))


Request = Union[wire.JudgeRequest, wire.WeighRequest]


def judged_as(request: Request, workload: Workload, name: str, ran: Sequence[str] = ()) -> list[str]:
    """Return what counts beyond plain arithmetic in the dtype: what the kernel declares, and else, as for every
    reference, what PyTorch itself does here: a solution is built of PyTorch's operators, and they obey its
    switches. `ran`: operators that a
    reference was seen to run."""
    declared = request.precision
    if name == protocol.KERNEL and declared is not None:
        return rounding.effective(declared, workload.dtype)
    return workload.precision(request.device, ran)


def would_pass(trial: WorkloadTrial, found: Outputs, limits: Mapping[str, float], judged: Sequence[str]) -> list[str]:
    """Return the precision at which an output that fails as it was `judged` would pass, had it been declared: the
    finest, or nothing."""

    def passes(precision: Sequence[str]) -> bool:
        for name, output in found.items():
            exact, value = trial.truth(precision, name), dtypes.decode(output.array, output.dtype)
            if exact is None:
                return False
            if not agreement.compare(value, exact.values, limits, exact.error_scale).passed["rounding"]:
                return False
        return True

    asked = (rounding.effective(names, trial.workload.dtype) for names in rounding.DECLARED)
    coarser = [names for names in asked if names and names != list(judged)]
    return next((precision for precision in coarser if passes(precision)), [])


def left_by_candidate(
    trial: WorkloadTrial, row: wire.CandidateOutput, folder: str, file: str
) -> dict[str, TargetOutput]:
    """Return what a candidate left in the inputs that Model writes to; `file` is that of its output, in `folder`."""
    found: dict[str, TargetOutput] = {}
    for place, name in trial.workload.writes.items():
        assert isinstance(trial.arrays, Inputs)
        array, dtype = trial.arrays[place], tensors.dtype_name(list(tensors.flat(trial.arrays.values))[place])
        runs = [array, array]
        if place in row.written:
            paths = [protocol.written_path(file, place, again) for again in (False, True)]
            runs = [read_output(folder, path, dtype, array.shape) for path in paths]
        one, other = (_seen(trial, place, run) for run in runs)
        found[protocol.WRITTEN + name] = TargetOutput(one, dtype, other_bits(one, other))
    return found


def _seen(trial: WorkloadTrial, place: int, array: Array) -> Array:
    """Return the elements that the model sees, of an array in the place of an input."""
    arrays: Sequence[Array] = [*trial.arrays[:place], array, *trial.arrays[place + 1 :]]
    assert trial.workload.problem is not None and isinstance(trial.arrays, Inputs)
    values: list[Any] = with_arrays(trial.arrays, arrays).values
    return Inputs(lay_out(trial.workload.operator, values))[place]
