"""`children`: processes that are left running are ended, whatever way they took; those that have ended are not."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.process

# A process of its own: `Children` makes it the parent of what loses its parent, and pytest's workers have children.
PRELUDE = """
import os, subprocess, sys, threading, time
sys.path.insert(0, sys.argv[1])
from harness.worker.children import Children

def fork(act):
    child = os.fork()
    if child == 0:
        try: act()
        finally: os._exit(0)
    return child

def burn():
    while True: pass

def alive(pid):
    try: os.kill(pid, 0)
    except ProcessLookupError: return False
    return True

own = fork(burn)
children = Children()
"""
CASES = {
    "burning children": ("left = [fork(burn), fork(burn)]", 2),
    "a child of a thread": (
        "left = []\nthread = threading.Thread(target=lambda: left.append(fork(burn)))\nthread.start(); thread.join()",
        1,
    ),
    "a daemon in its own session": (
        "reading, writing = os.pipe()\n"
        "def inner():\n    os.write(writing, str(os.getpid()).encode()); burn()\n"
        "def outer():\n    os.setsid(); fork(inner)\n"
        "os.waitpid(fork(outer), 0)\nleft = [int(os.read(reading, 20))]",
        1,
    ),
    "a child that was waited for": ("os.waitpid(fork(lambda: None), 0)\nleft = []", 0),
    "a tool that was run": ("subprocess.run([sys.executable, '-c', ''], check=True)\nleft = []", 0),
    "a child that has ended, and is not waited for": (
        "os.waitid(os.P_PID, fork(lambda: None), os.WEXITED | os.WNOWAIT)\nleft = []",
        0,
    ),
    "nothing": ("left = []", 0),
}


def run(code: str) -> str:
    words = [sys.executable, "-c", f"{PRELUDE}{code}\nos.kill(own, 9)", str(ROOT)]
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout


@pytest.mark.parametrize("name", CASES)
def test_what_is_left_running_is_ended_and_counted(name: str) -> None:
    code, count = CASES[name]
    printed = run(code + "\nprint(children.end(), sum(map(alive, left)), alive(own), children.end())")
    assert printed.split() == [str(count), "0", "True", "0"]


def test_a_kernel_that_left_processes_is_wrong_and_the_message_says_so() -> None:
    printed = run("fork(burn)\nfailed = children.left()\nprint(failed.status, failed, children.left())")
    assert printed == "wrong it left processes running when its call had returned (1), and they were ended None\n"
