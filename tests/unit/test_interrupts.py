from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

CODE = """
import os, signal, sys, time
from harness.interrupts import keep_interrupts
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job's ignores it
keep_interrupts()
class Interrupted:
    def __del__(self):
        {raised}
try:
    Interrupted()
    time.sleep(60)
except KeyboardInterrupt:
    print("raised")
"""


def run(raised: str, root: object) -> tuple[str, str]:
    done = subprocess.run([sys.executable, "-c", CODE.format(raised=raised)], capture_output=True, text=True, cwd=root)
    return done.stdout, done.stderr


def test_an_interrupt_in_a_finaliser_is_raised_again(root: object) -> None:
    assert run("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", root) == ("raised\n", "")


def test_another_error_in_a_finaliser_is_shown_as_ever(root: object) -> None:
    said, errors = run("signal.setitimer(signal.ITIMER_REAL, 0.5); 1 / 0", root)
    assert said == "raised\n" and "ZeroDivisionError" in errors
