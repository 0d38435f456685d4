from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


CLEANING = """
import os, shutil, signal, sys
from harness.cli import doctor, options
import harness.cli.main as program

def remove(arguments):
    close = os.close
    def closed_and_interrupted(descriptor):
        os.close = close
        close(descriptor)
        {raised}
    os.close = closed_and_interrupted
    {removed}

signal.signal(signal.SIGINT, signal.default_int_handler)
doctor.COMMANDS.update(doctor=options.Command(doctor.add_options, remove))
sys.exit(program.main(["doctor"]))
"""
INTERRUPT = "signal.raise_signal(signal.SIGINT)"


@pytest.mark.parametrize(
    "removed",
    [
        "shutil.rmtree(sys.argv[1], ignore_errors=True)",
        """
    try:
        shutil.rmtree(sys.argv[1])
    except OSError as error:
        raise program.InfrastructureError(str(error)) from None""",
    ],
)
def test_an_interrupt_that_cleaning_up_turned_into_an_error_is_one(root: Path, tmp_path: Path, removed: str) -> None:
    done = clean(INTERRUPT, removed, root, tmp_path)
    assert (done.returncode, done.stderr) == (130, "interrupted; the same command goes on from here\n")


def test_an_error_of_cleaning_up_alone_stays_one(root: Path, tmp_path: Path) -> None:
    done = clean("raise ValueError('its own')", "shutil.rmtree(sys.argv[1])", root, tmp_path)
    assert done.returncode == 1 and "ValueError: its own" in done.stderr


def clean(raised: str, removed: str, root: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "removed" / "within").mkdir(parents=True)
    code = CLEANING.format(raised=raised, removed=removed)
    command = [sys.executable, "-c", code, str(folder / "removed")]
    return subprocess.run(command, capture_output=True, text=True, cwd=root)
