"""What tasks that judge have in common: outputs, a candidate's and a reference's, and the truth of a trial.

A candidate's outputs are untrusted files, read where it was never loaded.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from typing import TYPE_CHECKING, Any, BinaryIO, Mapping, Sequence, Union

import numpy as np
import torch

from . import agreement, protocol, rounding, tensors, truth, wire
from .references import Unsupported

if TYPE_CHECKING:
    from .dtypes import Array
    from .problem import ModelReference
    from .workload import SdpaReference, Workload

STATUSES = (protocol.OK, protocol.WRONG, protocol.UNSUPPORTED, protocol.CRASHED, protocol.NOT_RUN)  # a candidate's


# Trials of each recipe in which a reference is run again; the kernel is in all. PyTorch 2.5.0's math backend
# alone takes half of a validation's time on the CPU.
REPEATED_TRIALS = 10


class Failed(Exception):
    def __init__(self, status: protocol.Status, message: str, excerpt: str = "") -> None:
        super().__init__(message)
        self.outcome = status, message, excerpt  # as a result has them
        self.message = message


def read_output(folder: str, name: str, wanted: int) -> bytes:
    """The bytes of an output, exactly `wanted` of them; Failed, blaming who left it."""
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
    return data


def open_plain(folder: str, name: str) -> BinaryIO:
    """Open a regular file below `folder` to read; OSError where any part of the way, `folder` included, is a link.

    What is behind a name cannot change between looking and reading: each step is looked at after it was opened.
    ENXIO stands for what is no file; opening a pipe without a writer does not wait.
    """
    *parts, last = name.split("/")
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for part in parts:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
            os.close(place)
            place = inner
        handle = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place)
    finally:
        os.close(place)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))
    return os.fdopen(handle, "rb")


class Output:
    """What one target produced in one trial: its array in `dtype`'s storage, and what was seen while it ran."""

    def __init__(
        self, array: Array, dtype: str, again: Array | None = None, mutated: bool = False, unwritten: bool = False
    ) -> None:
        self.array = array
        self.again = again  # the second run's, where it has other bits
        self.dtype = dtype
        self.sha256 = hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()
        self.mutated = mutated
        self.unwritten = unwritten


class Reference:
    """A reference, run here."""

    def __init__(self, reference: SdpaReference | ModelReference) -> None:
        self.reference = reference
        self.name = reference.name
        self.operators: list[str] | None = None
        self.failed: Failed | None = None

    def begin(self, arguments: list[Any]) -> None:
        """Prove, once, which operators run."""
        if self.operators is None and self.failed is None:
            try:
                self.operators = self.reference.prove(arguments)
            except Unsupported as error:
                self.failed = Failed(protocol.UNSUPPORTED, str(error))
        if self.failed is not None:
            raise self.failed

    def output(self, _recipe: str, trial: int, arguments: list[Any], _expected: object) -> Output:
        try:
            with torch.no_grad(), self.reference.active():
                call = self.reference.bind(arguments)
                outputs = [self.reference.judged(call) for _ in range(2 if trial < REPEATED_TRIALS else 1)]
                dtype = tensors.dtype_name(outputs[0])
                outputs = [tensors.to_array(output) for output in outputs]
        except Exception as error:  # a problem's model is the user's own code
            lines = str(error).strip().splitlines() or [type(error).__name__]
            self.failed = Failed(protocol.CRASHED, lines[0])
            raise self.failed from None
        first, second = outputs[0], outputs[-1]
        return Output(first, dtype, None if tensors.same_arrays(first, second) else second)


Request = Union[wire.JudgeRequest, wire.WeighRequest, wire.AppraiseRequest]


def judged_as(request: Request, workload: Workload, name: str) -> list[str]:
    """Beyond plain arithmetic in the dtype: what the kernel declares, and else, as for every reference, what PyTorch
    itself does here: a solution is built of PyTorch's operators, and they obey its switches."""
    declared = request.precision
    if name == protocol.KERNEL and declared is not None:
        return rounding.effective(declared, workload.dtype)
    return workload.precision(request.device)


class Measured:
    """A trial's truth; made once for each precision that is asked for."""

    def __init__(self, workload: Workload, arrays: list[Array], sha256: str, cache: truth.Cache) -> None:
        self.parts = workload, arrays, sha256, cache
        self.found: dict[tuple[str, ...], truth.Exact | None] = {}

    def by(self, precision: Sequence[str]) -> truth.Exact | None:
        key = tuple(precision)
        if key not in self.found:
            workload, arrays, sha256, cache = self.parts
            self.found[key] = workload.truth(arrays, sha256, cache, precision)
        return self.found[key]

    def would_pass(self, value: Array, limits: Mapping[str, float]) -> list[str]:
        """The precision at which an output that fails would pass, had it been declared; else nothing."""
        coarser = rounding.effective(rounding.DECLARED, self.parts[0].dtype)
        exact = self.by(coarser) if tuple(coarser) not in self.found else None
        if exact is None or not agreement.compare(value, exact.values, limits, exact.error_scale).passed["rounding"]:
            return []
        return coarser
