"""Ctrl-C that is not lost.

Python raises KeyboardInterrupt wherever the main thread happens to be, and drops what is raised in a callback, such as
a finaliser or a hook around a fork: it prints a traceback and goes on. Here it is raised again a moment later.

Elsewhere an error of cleaning up takes its place: shutil.rmtree, interrupted just after it closed a folder, closes it
once more and raises an OSError. `as_interrupts` raises what it was.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

AGAIN_S = 0.01
ENDINGS = (signal.SIGTERM, signal.SIGHUP)  # as schedulers, and terminals that are closed, end a command


def keep_interrupts() -> None:
    """Of this process, from now on; what else asks it to end is an interrupt. It takes the alarm signal: what else uses
    that must not call this."""
    for number in (signal.SIGALRM, *ENDINGS):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup asks
            signal.signal(number, signal.default_int_handler)
    sys.unraisablehook = _raise_again


@contextmanager
def as_interrupts() -> Iterator[None]:
    """Around all that may be interrupted: an error raised while a KeyboardInterrupt was under way is that interrupt."""
    try:
        yield
    except Exception as error:
        if _came_of_an_interrupt(error):
            raise KeyboardInterrupt from error
        raise


def _came_of_an_interrupt(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _raise_again(dropped: UnraisableHookArgs) -> None:
    if issubclass(dropped.exc_type, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
    else:
        sys.__unraisablehook__(dropped)
