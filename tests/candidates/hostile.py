"""Kernels that misbehave on purpose, as one table; `test_hostile.py` runs it, and so can a test of any executor.

Each is a solution file in KernelBench's form for PROBLEM. Most are right in validation unless what they do is done
there; `TIMING` in them tells a launch. `cheats` has those that look right, or fast, and tests/bad_inputs those that
are plainly wrong, each in a real run too.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

from harness.schema.records import LaunchRecord, ValidationRecord
from harness.schema.storage import Run

INCORRECT = "incorrect"  # the kernel's row of the launch has times, and `correct` is False
SLEEP_S = "86399"  # what `daemon` leaves asleep

PROBLEM = """\
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.exp(x) * 1e-5
def get_inputs():
    return [torch.randn(16, 33)]
def get_init_inputs():
    return []
"""

SOLUTION = """\
import json, os, sys, time
import torch
TIMING = sys.argv[1:2] in (["time"], ["host"])
calls = 0
def right(x):
    return torch.exp(x) * 1e-5
{before}
class ModelNew(torch.nn.Module):
    def forward(self, x):
        global calls
        calls += 1
{body}
"""


@dataclass(frozen=True)
class Hostile:
    """`status` and words of the validation's message; `timed` and its words: of the kernel's row in the launch, or of
    the launch where it has no rows; `timed` is '' where the launch says nothing of its own, and `ok` where it is right
    and gains nothing."""

    status: str
    said: str
    source: str
    timed: str = ""
    timed_said: str = ""


def hostile(status: str, said: str, body: str, *, before: str = "", timed: str = "", timed_said: str = "") -> Hostile:
    body = textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
    source = SOLUTION.format(before=textwrap.dedent(before).strip(), body=body)
    return Hostile(status, said, source, timed, timed_said)


LIAR = """
class {name}(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), keywords=None):
        return right(torch.zeros(16, 33))
    def __eq__(self, other):
        return True
    def detach(self):
        return right(torch.zeros(16, 33))
"""
SCRIPT = "<script>alert(1)</script>"
OUTPUTS = """
OUT = json.load(open(sys.argv[2])).get("out", "")
"""
AFTER_FIRST_TRIAL = """
if OUT and calls == 3:
    {act}
return right(x)
"""
BELOW_PYTHON = """
import ctypes
if TIMING:
    # The C function behind time.perf_counter_ns: the object that everyone holds stays the same.
    method = ctypes.c_void_p.from_address(id(time.perf_counter_ns) + 16).value
    real = time.clock_gettime_ns
    slow = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p)(
        lambda _self, _arguments: real(time.CLOCK_MONOTONIC) // 10
    )
    ctypes.c_void_p.from_address(method + 8).value = ctypes.cast(slow, ctypes.c_void_p).value
"""
DAEMON = f"""
def daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve("/bin/sleep", ["sleep", "{SLEEP_S}"], {{}})
        os._exit(0)
    os.wait()
"""

BURN = """
def burn():
    if os.fork() == 0:
        while True: pass
"""
LEFT = "left processes running when its call had returned"

HOSTILE: dict[str, Hostile] = {
    "right": hostile("ok", "", "return right(x)", timed="ok"),
    # -- it dies -----------------------------------------------------------------------------------------
    "aborts": hostile("crashed", "SIGABRT", "os.abort()"),
    "hangs": hostile("timed_out", "limit", "import subprocess\nsubprocess.Popen(['sleep', '600'])\ntime.sleep(600)"),
    # -- it ends, or talks -------------------------------------------------------------------------------
    "exits": hostile("crashed", "exited with 0 before it gave a result", "os._exit(0)"),
    "interrupts": hostile("crashed", "raised KeyboardInterrupt", "raise KeyboardInterrupt"),
    "exits_when_timed": hostile(
        "ok",
        "",
        "if TIMING: os._exit(0)\nreturn right(x)",
        timed="crashed",
        timed_said="exited with 0 before it gave a result",
    ),
    "leaves_when_timed": hostile(
        "ok", "", "if TIMING: sys.exit(0)\nreturn right(x)", timed="crashed", timed_said="raised SystemExit: 0"
    ),
    "shouts": hostile("ok", "", "if calls == 1:\n    for _ in range(64): print('x' * (1 << 20))\nreturn right(x)"),
    # -- what it leaves running --------------------------------------------------------------------------
    "daemon": hostile(
        "wrong", LEFT, "if calls == 1: daemon()\nreturn right(x)", before=DAEMON, timed="wrong", timed_said=LEFT
    ),
    "burns_all_cores": hostile(
        "ok", "", "if TIMING: burn(); burn()\nreturn right(x)", before=BURN, timed="wrong", timed_said=LEFT
    ),
    # -- what it says is shown ---------------------------------------------------------------------------
    "script": hostile("crashed", SCRIPT, f"raise type('{SCRIPT}', (Exception,), {{}})('{SCRIPT}')"),
    "speechless": hostile(
        "crashed",
        "cannot be had",
        "raise Mute()",
        before="class Mute(Exception):\n    def __str__(self): raise SystemExit(0)",
    ),
    "unprintable": hostile("crashed", "raised RuntimeError", r"raise RuntimeError('\ud800\x1b[2J' * 3_000_000)"),
    # -- what it returns ---------------------------------------------------------------------------------
    "subclass": hostile(
        "wrong",
        "returned Liar, a subclass of torch.Tensor",
        "return right(x).as_subclass(Liar)",
        before=LIAR.format(name="Liar"),
    ),
    "hidden_methods": hostile(
        "wrong",
        "0 of 2 trials pass",
        """
        out, good = torch.zeros_like(x), right(x)
        out.detach = out.contiguous = out.cpu = out.numpy = lambda: good
        return out
        """,
    ),
    "sparse": hostile("wrong", "layout torch.sparse_coo", "return right(x).to_sparse()"),
    "reshapes_inputs": hostile("wrong", "changed their inputs", "out = right(x)\nx.resize_(0)\nreturn out"),
    # -- whose answer it is ------------------------------------------------------------------------------
    "leaves_unwritten": hostile("wrong", "unwritten", "return torch.empty_like(x)"),
    "finds": hostile(
        "wrong",
        "0 of 2 trials pass",
        """
        import gc
        found = [t for t in gc.get_objects() if type(t) is torch.Tensor and t.shape == x.shape and t is not x]
        return found[0].clone() if found else torch.zeros_like(x)
        """,
    ),
    "right_once": hostile(
        "ok",
        "",
        "return right(x) if not TIMING or calls == 1 else torch.zeros_like(x)",
        timed=INCORRECT,
        timed_said="its output",
    ),
    # -- what it replaces --------------------------------------------------------------------------------
    "replaces_sampling": hostile(
        "ok",
        "",
        "return right(x)",
        timed="ok",
        before="if TIMING:\n    import worker.sampling\n    worker.sampling.sample = lambda *_: {'samples_us': [1e-3]}",
    ),
    "replaces_clock_below_python": hostile("ok", "", "return right(x)", before=BELOW_PYTHON, timed="ok"),
    # -- what it leaves ----------------------------------------------------------------------------------
    "links": hostile(
        "wrong",
        "is a link",
        AFTER_FIRST_TRIAL.format(
            act='os.unlink(OUT + "/independent/0.bin"); os.symlink("0.repeat.bin", OUT + "/independent/0.bin")'
        ),
        before=OUTPUTS,
    ),
    "links_folder": hostile(
        "wrong",
        "is a link",
        AFTER_FIRST_TRIAL.format(
            act='os.rename(OUT + "/independent", OUT + "/elsewhere"); os.symlink("elsewhere", OUT + "/independent")'
        ),
        before=OUTPUTS,
    ),
    "pipe": hostile(
        "wrong",
        "no plain file",
        AFTER_FIRST_TRIAL.format(act='os.unlink(OUT + "/independent/0.bin"); os.mkfifo(OUT + "/independent/0.bin")'),
        before=OUTPUTS,
    ),
    "forges": hostile(
        "crashed",
        "no output of trial 0",
        'open(sys.argv[3], \'w\').write(\'{"version": 1, "status": "ok", "message": ""}\')\nos._exit(0)',
    ),
    "scribbles": hostile(
        "crashed",
        "",
        "open(sys.argv[3], 'w').write('[' * 100000)\nos._exit(0)",
    ),
}


# Words of what is found where a sandbox brings back an empty file for anything else than a plain one.
IN_SANDBOXES = {"links": "has 0 bytes", "pipe": "has 0 bytes"}


def files_of(cases: Mapping[str, Hostile]) -> dict[str, str]:
    """The project's files: the problem, and each solution."""
    return {"faults/problem.py": PROBLEM, **{f"faults/{name}.py": case.source for name, case in cases.items()}}


def check_validation(case: Hostile, run: Run, name: str, said: str | None = None) -> ValidationRecord:
    """That its validation has the status and the words of the table, or `said`, and is not long."""
    validation = next(record for record in run.validations() if record.kernel == name)
    assert validation.status == case.status, validation.message
    assert (case.said if said is None else said) in validation.message and len(validation.message) < 700
    assert case.status == "ok" or validation.message
    return validation


def check_launch(case: Hostile, launch: LaunchRecord) -> None:
    """That a launch tells what the table says of it."""
    row = next((timing for timing in launch.timings if timing.target == "kernel"), None)
    if row is None:
        assert launch.status == case.timed and case.timed_said in launch.message
        return
    assert row.status == ("ok" if case.timed == INCORRECT else case.timed), row.message
    assert case.timed_said in row.message
    if row.status == "ok":
        assert row.samples_us and row.correct is (case.timed != INCORRECT)
