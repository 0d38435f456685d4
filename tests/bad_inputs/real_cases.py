"""Mistakes that take a process to show: through nox, in a run, and interrupts."""

from __future__ import annotations

import signal
from typing import NamedTuple

from tests.bad_inputs.case import MATRIX, Case, case

SESSION = 1  # nox's own exit code of whatever failed


def session(name: str, words: str, *said: str) -> Case:
    return case(name, words, *said, code=SESSION)


NOX = [
    session("eval without its quotes", "-s 'eval(torch=2.5.0)'", "eval(torch=2.5.0)", "did you mean", "torch='2.5.0'"),
    session("eval of another version", """-s "eval(torch='2.9.9')" """, "2.9.9", "no such session", "nox -l"),
    session("a session misspelt", "-s matrx", "matrx", 'did you mean nox -s "matrix"?'),
    session("a session of no command", "-s benchmark", "benchmark", "nox -l"),
    session("a kernel that is not there", "-s matrix -- --list --kernel nope", "nope", "mine"),
    session("an option for eval", """-s "eval(torch='2.5.0')" -- --list --torch 2.1.0""", "--torch stands twice"),
]


def asked_for(name: str, old: str, new: str, *said: str) -> Case:
    """A real `matrix` of what no index has."""
    files = {"matrix.yaml": MATRIX.replace(old, new)}
    return case(name, "matrix --quick --device cpu --executor venv", *said, files=files)


INDEXES = [
    asked_for("a release that there is not", '"2.5.0"', '"2.99.0"', "2.99.0", "no version of torch", "matrix.yaml"),
    asked_for("a package's version that there is not", "numpy==1.26.4", "numpy==99.9.9", "numpy==99.9.9", "packages"),
    asked_for("a package misspelt", "[numpy", "[nimja==1.0, numpy", "nimja", "packages"),
    asked_for("a CUDA that there is not", '"12.1"', '"99.9"', "99.9", "environments[0].cuda"),
    asked_for(
        "a Python without a wheel",
        '"2.5.0", cuda: "12.1", python: "3.11"',
        '"2.5.0", cuda: "12.1", python: "3.8"',
        "torch==2.5.0",
        "`python`",
    ),
]

PROBLEM = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1


def get_inputs():
    return [torch.rand(4, 4)]


def get_init_inputs():
    return []
"""
SOLUTION = "import torch\n{0}\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        {1}\n"


class Faulty(NamedTuple):
    """A kernel of one run of them all, without a check before it: its row and its answer must hold `said`."""

    name: str
    text: str
    said: tuple[str, ...]


CPP = [
    Faulty(
        "compile_error",
        '#include "attention.h"\nint attention_forward(int) { return undeclared_name; }\n',
        ("does not build", "undeclared_name", "error.cpp:2|compile_error.cpp:2", "Correct that"),
    ),
    Faulty(
        "crashes_at_load",
        "SMALL\nstatic const int now = (std::abort(), 1);\n",
        ("does not build", "SIGABRT", "what loaded it died by SIGABRT"),
    ),
]
PYTHON = [
    Faulty("raises", SOLUTION.format("", "raise RuntimeError('no such mode')"), ("crashes", "no such mode")),
    Faulty(
        "imports",
        SOLUTION.format("import flash_attn_99", "return x"),
        ("skipped", "No module named 'flash_attn_99'", "add the package that brings flash_attn_99 to `packages`"),
    ),
    Faulty("syntax", SOLUTION.format("def f(:", "return x"), ("invalid syntax", "syntax.py, line 2")),
    Faulty("other", SOLUTION.format("", "return x").replace("ModelNew", "Modelnew"), ("other.py defines no ModelNew",)),
    Faulty("exits", SOLUTION.format("import sys; sys.exit(3)", "return x"), ("SystemExit: 3",)),
    Faulty("shape", SOLUTION.format("", "return (x + 1)[:2]"), ("wrong", "returned (2, 4) float32", "(4, 4)")),
    Faulty("nothing", SOLUTION.format("", "pass"), ("wrong", "returned None, not a tensor")),
    Faulty("dtype", SOLUTION.format("", "return (x + 1).double()"), ("wrong", "float64", "expected (4, 4) float32")),
]


class Interrupt(NamedTuple):
    """Signals to a command and its children, once its compiler has begun, or, without one, after so many seconds."""

    name: str
    command: str
    signals: tuple[signal.Signals, ...] = (signal.SIGINT,)
    after_s: float | None = None


INTERRUPTS = [
    Interrupt("Ctrl-C at once", "matrix --list --executor venv", after_s=0.25),
    Interrupt("Ctrl-C a moment later", "matrix --list --executor venv", after_s=0.6),
    Interrupt("Ctrl-C in a check", "check --device cpu --executor venv"),
    Interrupt("Ctrl-C twice", "check --device cpu --executor venv", (signal.SIGINT, signal.SIGINT)),
    Interrupt("a job that is ended", "check --device cpu --executor venv", (signal.SIGTERM,)),
    Interrupt("a terminal that is closed", "check --device cpu --executor venv", (signal.SIGHUP,)),
]
