"""Decide who failed when an exception ends what a process was doing: the code under test, or what was to measure it.

A traceback tells it by its frames. Functions of this package that call the code under test are marked
(`enters_subject`). What is raised in them, or in what they call, is that code's failure; what this package raises in
any other function is its own, also where it called PyTorch for itself. A limit of the sandbox, and a package that the
environment does not hold, fail whoever meets them first. None of these is the code's fault.

Standard library only: PyTorch itself may be what cannot be imported.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import sys
import traceback
from types import CodeType
from typing import Any, Callable, TypeVar

from . import protocol, text, wire
from .protocol import Fault

F = TypeVar("F", bound=Callable[..., Any])

OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
BECAUSE = "kernel-matrix could not measure this here, because "
REPORT = "report it with this log: it is a fault of kernel-matrix, and of nothing that it measures"
ROOM = "give its processes more: limits.memory_gib, limits.processes or limits.output_gib in matrix.yaml"
SANDBOX = "what it does is not allowed in a sandbox: write only below the folders that TMPDIR and HOME name"
NETWORK = "a sandbox has no network: store what is loaded in the project"
# What the system refuses at a limit, and what to do.
REFUSALS = {
    **dict.fromkeys((errno.ENOMEM, errno.EAGAIN, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE), ROOM),
    **dict.fromkeys((errno.EPERM, errno.EACCES, errno.EROFS), SANDBOX),
    **dict.fromkeys((errno.ENETUNREACH, errno.ENETDOWN), NETWORK),
}
# The same in the words of libraries, which raise plain errors.
SAID = {
    "can't start new thread": ROOM,
    "DefaultCPUAllocator: can't allocate memory": ROOM,
    "failed to map segment from shared object": SANDBOX,
    "Temporary failure in name resolution": NETWORK,
}
NUMPY = "Numpy is not available"  # says a PyTorch that was built for another major version of numpy
HELP = {NUMPY: "give this version of PyTorch a numpy below 2: packages: [numpy==1.26.4]"}
DEVICE = "CUDA error"  # is told to whoever asks the device next, and made by what ran on it
_entrances: set[CodeType] = set()


def enters_subject(function: F) -> F:
    """Mark a function that calls the code under test. It stays as it is: a timed call takes no longer."""
    _entrances.add(function.__code__)
    return function


def skip(error: BaseException) -> wire.Failed | None:
    """Return what ends a task that was kept from its work; None where the code under test failed."""
    fault, help = find_fault(error)
    if fault is Fault.SUBJECT:
        return None
    return wire.Failed(protocol.NOT_RUN, skipped(_last_line(error), help), _excerpt(error), fault)


def of_tool(error: BaseException) -> wire.Failed:
    """Return the same of an exception where no code under test runs."""
    return wire.Failed(protocol.NOT_RUN, skipped(_last_line(error), REPORT), _excerpt(error), Fault.TOOL)


def skipped(why: str, help: str) -> str:
    """The message of what was not measured for no fault of its own."""
    return f"{BECAUSE}{why[: protocol.MESSAGE_CHARACTERS]} (help: {help})"


def find_fault(error: BaseException) -> tuple[Fault, str]:
    """(who failed, what to do)."""
    if issubclass(type(error), wire.Failed):  # it was decided where that was raised
        return getattr(error, "fault", Fault.SUBJECT), ""
    for each in text.chain(error):
        found = _environments(each)
        if found is not None:
            return found
    message = text.text_of(error)
    if DEVICE in message or _in_subject(error):
        return Fault.SUBJECT, ""
    return Fault.TOOL, next((help for words, help in HELP.items() if words in message), REPORT)


def _environments(error: BaseException) -> tuple[Fault, str] | None:
    """(who failed, what to do) where a limit refuses something, or a package is not there."""
    kind = type(error)
    if issubclass(kind, MemoryError):
        return Fault.LIMIT, ROOM
    if issubclass(kind, OSError) and error.errno in REFUSALS:  # type: ignore[attr-defined]
        return Fault.LIMIT, REFUSALS[error.errno]  # type: ignore[attr-defined]
    if issubclass(kind, (RuntimeError, ImportError, OSError)):
        message = text.text_of(error)
        help = next((help for words, help in SAID.items() if words in message), "")
        if help:
            return Fault.LIMIT, help
    if issubclass(kind, ModuleNotFoundError):
        package = str(error.name or "").partition(".")[0]  # type: ignore[attr-defined]
        if package and not is_installed(package):
            help = f"add the package that brings {package} to `packages` in matrix.yaml"
            return Fault.ENVIRONMENT, f"{help}; pack an offline archive again, with --keep {package} where that exists"
    return None


def is_installed(package: str) -> bool:
    """Return whether the environment holds a package of this name, of which a part may be missing in a version."""
    try:
        return package in sys.builtin_module_names or importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def _in_subject(error: BaseException) -> bool:
    """Return whether the last function of this package that it came through calls the code under test; whether it came
    through none."""
    trace, inside = error.__traceback__, True
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename.startswith(OURS):
            inside = code in _entrances
        trace = trace.tb_next
    return inside


def _last_line(error: BaseException) -> str:
    return f"{text.type_name(error)}: {text.last_line(text.text_of(error)) or '(no message)'}"


def _excerpt(error: BaseException) -> str:
    whole = text.said(lambda: "".join(traceback.format_exception(type(error), error, error.__traceback__)))
    return whole[-text.EXCERPT_CHARACTERS :]
