"""What an exception of the code under test is: `wire.Failed` with a status, a message, and whose fault it was."""

from __future__ import annotations

import contextlib
from typing import Iterator

from . import blame, protocol, text, wire

NO_FORWARD = 'is missing the required "forward" function'  # said of a module: no refusal of PyTorch's
# Raised where a name, a module or a colon is not there: experiments have nothing to call.
MISTAKES = (ImportError, NameError, SyntaxError)
# Said by Triton 2.1 and 3.1: of a tensor on the CPU, of a machine without a GPU, of a tensor on the CPU beside a GPU.
TRITON_NEEDS_GPU = ("Cannot find backend for cpu", "0 active drivers", "cannot be accessed from Triton (cpu tensor?)")


def failure(error: BaseException, doing: str) -> wire.Failed:
    """Return what an exception is that ended the code under test, or what measures it, while `doing`."""
    skipped = blame.skip(error)
    if skipped is not None:
        return skipped
    whole = text.text_of(error)
    status: protocol.Status = protocol.CRASHED
    if issubclass(type(error), NotImplementedError) and NO_FORWARD not in whole:
        status = protocol.UNSUPPORTED
    if any(words in whole for words in TRITON_NEEDS_GPU):
        status, doing = protocol.UNSUPPORTED, f"Triton's kernels run on a GPU alone: {doing}"
    message = text.raised(error, doing, protocol.MESSAGE_CHARACTERS)
    loads = not issubclass(type(error), MISTAKES) and NO_FORWARD not in whole
    kind = protocol.FailureKind.CUDA_ERROR if blame.DEVICE in whole else protocol.FailureKind.OTHER
    log_excerpt = text.said(text.traceback_text)[-text.EXCERPT_CHARACTERS :]
    return wire.Failed(status, message, log_excerpt, failure=kind, loads=loads)


@contextlib.contextmanager
def blamed(doing: str) -> Iterator[None]:
    """Whatever is raised in here, SystemExit included, becomes `wire.Failed`: the code under test failed, unless
    `blame` knows better."""
    try:
        yield
    except BaseException as error:
        raise failure(error, doing) from None
