"""Ctrl-C that is not lost.

Python raises KeyboardInterrupt wherever the main thread happens to be, and drops what is raised in a callback, such as
a finaliser or a hook around a fork: it prints a traceback and goes on. Here it is raised again a moment later.
"""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

AGAIN_S = 0.01


def keep_interrupts() -> None:
    """Of this process, from now on. It takes the alarm signal: what else uses that must not call this."""
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    sys.unraisablehook = _raise_again


def _raise_again(dropped: UnraisableHookArgs) -> None:
    if issubclass(dropped.exc_type, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
    else:
        sys.__unraisablehook__(dropped)
