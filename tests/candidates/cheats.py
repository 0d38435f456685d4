"""Solutions that look right, or fast, without being it: the ways to cheat a benchmark in KernelBench's form that are
known, as one table. Each is a solution file for CHAIN, and honest but for what its name says.

Most behave while they are validated: TIMING tells a launch. Where a launch is what finds it out, `timed` are words of
the kernel's row there. Another process measures, and some find nothing to cheat.
"""

from __future__ import annotations

import json
import subprocess
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.schema.records import TargetTiming
from harness.worker import codec
from tests.candidates.corpus.templates import CHAIN
from tests.conftest import ROOT

SOLUTION = """\
import gc, json, os, sys, threading, time
import torch
import torch.nn as nn
TIMING = sys.argv[1:2] in (["time"], ["host"])
calls = 0
kept = {{}}
{before}
class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.project = nn.Linear(columns, columns)

    def right(self, x):
        x = self.project(x)
        for _ in range(8):
            x = torch.softmax(x, dim=-1) @ self.project.weight + x
        return x

    def forward(self, x):
        global calls
        calls += 1
{body}
"""


@dataclass(frozen=True)
class Cheat:
    """`way` as docs/kernelbench.md names it. `said`: of the validation's message, '' where that passes; `timed`: of the
    kernel's row in a launch, '' where it gains nothing there and is not wrong."""

    way: str
    said: str
    timed: str
    source: str


def cheat(way: str, body: str, *, said: str = "", timed: str = "", before: str = "") -> Cheat:
    body = textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
    source = SOLUTION.format(before=textwrap.dedent(before).strip(), body=body)
    return Cheat(way, said, timed, source)


SAMPLED = """
def sampled():
    if sys.argv[1:2] == ["host"]:
        return calls > 1
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name in ("measure", "take", "warm_up"):
            return True
        frame = frame.f_back
    return False
"""
HOOK = """
def linger(module, _arguments):
    if type(module).__name__ == "Model":
        time.sleep(0.02)
if TIMING:
    torch.nn.modules.module.register_module_forward_pre_hook(linger)
"""
LATER = """
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(1)
def fill(out, model, x):
    with torch.no_grad():
        out.copy_(model.right(x))
"""
LAZY = "x.as_subclass(type('Lazy', (torch.Tensor,), {}))"
CHEATS: dict[str, Cheat] = {
    "honest": cheat("", "return self.right(x)"),
    # -- what is found, kept or skipped ------------------------------------------------------------------
    # What it gets is poison where the allocator hands that block out, and whatever else lay there where it does not.
    "reference_memory": cheat("the reference's output memory", "return torch.empty_like(x)", said="0 of 5 trials pass"),
    "reference_memory_timed": cheat(
        "the reference's output memory",
        "return self.right(x) if not TIMING or calls == 1 else torch.empty_like(x)",
        timed="its output",
    ),
    "zeroes_inputs": cheat("writing to inputs", "x.zero_()\nreturn torch.zeros_like(x)", said="changed their inputs"),
    "another_thread": cheat(
        "another stream",
        """
        if not TIMING: return self.right(x)
        out = torch.empty_like(x)
        pool.submit(fill, out, self, x)
        return out
        """,
        before=LATER,
        timed="its output",
    ),
    "cached_by_address": cheat(
        "results by address",
        """
        if not TIMING: return self.right(x)
        key = x.data_ptr(), x._version
        if key not in kept: kept[key] = self.right(x)
        return kept[key]
        """,
        timed="its output",
    ),
    "cached_by_content": cheat(
        "results by content",
        """
        if not TIMING: return self.right(x)
        key = x[::64, ::64].cpu().numpy().tobytes()
        if key not in kept: kept[key] = [self.right(x) for _ in range(40)][0]  # longer than a busy machine's delays
        return kept[key]
        """,
    ),
    "skips_when_sampled": cheat(
        "a path for the clock",
        "return torch.zeros_like(x) if TIMING and sampled() else self.right(x)",
        before=SAMPLED,
        timed="its output",
    ),
    # -- what wavers, to be judged by a rule instead of by its bits ----------------------------------------
    "wavers": cheat("", "return self.right(x) * (1 + 1e-7 * (calls % 3))"),
    "wavers_and_keeps": cheat(
        "other bits, and results by address",
        """
        key = x.data_ptr() if TIMING else object()
        if key not in kept: kept[key] = self.right(x)
        return kept[key] * (1 + 1e-7 * (calls % 3))
        """,
        timed="its output",
    ),
    "wavers_and_skips": cheat(
        "other bits, and a path for the clock",
        "return (x if TIMING and sampled() else self.right(x)) * (1 + 1e-7 * (calls % 3))",
        before=SAMPLED,
        timed="its output",
    ),
    # -- who is next to it -------------------------------------------------------------------------------
    "hooks_the_reference": cheat("a shared namespace", "return self.right(x)", before=HOOK),
    "other_names": cheat(
        "a shared namespace",
        "return self.right(x)",
        before="class Model(nn.Module):\n    def forward(self, x): return x\n"
        "def get_inputs(): return [torch.zeros(3)]\ndef get_init_inputs(): return [7]",
    ),
    # -- what it replaces --------------------------------------------------------------------------------
    "patches_clock": cheat(
        "patched timers",
        "if TIMING: time.perf_counter_ns = lambda: 0\nreturn self.right(x)",
    ),
    "patches_comparison": cheat(
        "patched comparison",
        "torch.allclose = torch.equal = lambda *_, **__: True\nreturn torch.zeros_like(x)",
        said="0 of 5 trials pass",
    ),
    "more_threads": cheat("more threads", "if TIMING: torch.set_num_threads(7)\nreturn self.right(x)", timed="threads"),
    # -- what it returns ---------------------------------------------------------------------------------
    "not_a_number": cheat("NaN compared equal", "return self.right(x) * float('nan')", said="NaN or infinity in 5"),
    "one_not_a_number": cheat(
        "NaN compared equal", "out = self.right(x)\nout[1, 2] = float('nan')\nreturn out", said="NaN or infinity in 5"
    ),
    "lazy": cheat("a lazy output", f"return {LAZY}", said="a subclass of torch.Tensor"),
    "lazy_timed": cheat(
        "a lazy output",
        f"return {LAZY} if TIMING and sampled() else self.right(x)",
        before=SAMPLED,
        timed="a subclass of torch.Tensor",
    ),
    "half_precision": cheat(
        "less precision", "self.project.bfloat16()\nreturn self.right(x.bfloat16()).float()", said="rounding rule"
    ),
}

# -- on a GPU -----------------------------------------------------------------------------------------------
UNCONFIRMED = "cannot be confirmed"
SIDE = "side = torch.cuda.Stream() if TIMING else None"
ON_SIDE = """
if not TIMING: return self.right(x)
{before}
with torch.cuda.stream(side):
    out = self.right(x)
{after}
return out
"""
WAITS, JOINS = "side.wait_stream(torch.cuda.current_stream())", "torch.cuda.current_stream().wait_stream(side)"
RESTORES = """
honest = torch.cuda.Event.elapsed_time
def short(self, other):
    torch.cuda.Event.elapsed_time = honest  # undone as soon as it has served, so that nobody finds it
    return 1e-3
"""

GPU_CHEATS: dict[str, Cheat] = {
    **{
        name: CHEATS[name]
        for name in (
            "honest",
            "zeroes_inputs",
            "cached_by_address",
            "cached_by_content",
            "skips_when_sampled",
            "not_a_number",
            "lazy_timed",
        )
    },
    "forks_and_joins": cheat("", ON_SIDE.format(before=WAITS, after=JOINS), before=SIDE),
    "neither_waits_nor_joins": cheat(
        "another stream", ON_SIDE.format(before="", after=""), before=SIDE, timed=UNCONFIRMED
    ),
    "does_not_join": cheat("another stream", ON_SIDE.format(before=WAITS, after=""), before=SIDE, timed=UNCONFIRMED),
    "does_not_wait": cheat("another stream", ON_SIDE.format(before="", after=JOINS), before=SIDE, timed=UNCONFIRMED),
    "leaves_its_stream": cheat(
        "another stream",
        "if TIMING and sampled(): torch.cuda.set_stream(side)\nreturn self.right(x)",
        before=SAMPLED + SIDE,
        timed="captur",  # which its process cannot go on from
    ),
    "patches_and_restores_event": cheat(
        "patched timers",
        "if TIMING: torch.cuda.Event.elapsed_time = short\nreturn self.right(x)",
        before=RESTORES,
    ),
}

# Every cheat in one process, which validates and then times it as a run does, one task after the other; to be timed
# the kernel has another process. What they see of the task is `sys.argv`.
WAYS = """
import json, os, subprocess, sys, time
harness, folder, device, names = *sys.argv[1:4], sys.argv[4].split(",")
sys.path.insert(0, harness)
import torch
from worker import candidate, codec, judge, serving, store, wire


def asked(verb, **request):
    return codec.read(wire.TASKS[verb].request, {"version": codec.VERSION, **request})


def done(result):
    return {name: value for name, value in codec.dump(result).items() if name != "version"}


def wait_for_children():
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                time.sleep(0.01)
        except ChildProcessError:
            return


def start(verb, place, request):
    paths = [os.path.join(place, verb + end) for end in (".request", ".result")]
    with open(paths[0], "w") as file:
        json.dump({"version": codec.VERSION, **request}, file)
    return subprocess.Popen([sys.executable, "-m", "worker", verb, *paths], env={**os.environ, "PYTHONPATH": harness})


stored = os.path.join(folder, "store")
problem = {"file": os.path.join(folder, "problem.py"), "store": stored}
made = done(store.store(asked("store", problem=problem["file"], out=stored, seed=0, trials=5, dtype="float32",
                              most_bytes=1 << 30)))
assert made["status"] == "ok", made
empty = dict.fromkeys(("batch", "heads", "seq_len", "head_dim", "causal", "scale"))
workload = {**empty, "id": "w", "dtype": "float32", "recipes": {"independent": 5}, "problem": problem}
common = {"workload": workload, "seed": 0, "threads": 1}
found = {}
for number, name in enumerate(names):
    kernel = {"name": name, "device": device, "artifact": None, "model_new": os.path.join(folder, name + ".py")}
    out = os.path.join(folder, "out-" + name)
    sys.argv = ["inside", "candidate", os.devnull]
    ran = done(candidate.candidate(asked("candidate", **common, kernel=kernel, out=out)))
    judged = done(judge.judge(asked("judge", **{**common, "device": device, "references": ["model"],
                          "candidate": ran, "candidate_out": out, "precision": None,
                          "truth_dir": os.path.join(folder, "truth"),
                          "decides": "rounding", "limits": {"rounding": 64.0, "strict": 1e-3, "kernelbench": 1e-4}})))
    found[name] = {"status": judged["status"], "message": judged["message"]}
    digests = judged["recipes"][0]["targets"][-1]["output_sha256"]
    if judged["status"] == "ok":
        left = os.path.join(folder, "left-" + name)
        os.makedirs(left)
        sys.argv = ["inside", "time", os.devnull]
        shared = {"workloads": [workload], "seed": 0, "device": device, "threads": 1}
        limits = {"w": {"rounding": 64.0, "strict": 1e-3, "kernelbench": 1e-4}}
        hosted = {**shared, "kernel": kernel, "link": left}
        measured = {**shared, "rows": [["w", "kernel"], ["w", "model"]], "limits": limits,
                    "order_seed": number, "expected_sha256": {"w": digests[:1]}, "link": left,
                    "timing": {"warmup_s": 0.01, "warmup_calls": 2, "target_s": 0.03, "min_samples": 5,
                               "max_samples": 50, "relative_error": 0.005}}
        if device == "cuda":  # no child may use a GPU that this process has used
            processes = [start("host", left, hosted), start("time", left, measured)]
            assert [process.wait() for process in processes] == [0, 0]
            with open(os.path.join(left, "time.result")) as file:
                launch = json.load(file)
        else:
            if not os.fork():
                sys.argv = ["inside", "host", os.devnull]
                serving.host(asked("host", **hosted))
                os._exit(0)
            assert start("time", left, measured).wait() == 0  # it forks, which this process, with its threads, must not
            with open(os.path.join(left, "time.result")) as file:
                launch = json.load(file)
            wait_for_children()  # or the next candidate is told to have left them running
        found[name]["timings"] = launch["timings"]
        torch.set_num_threads(1)
        if device == "cuda":
            torch.cuda.set_stream(torch.cuda.default_stream())
print(json.dumps(found))
"""


def run_cheats(python: Path, folder: Path, device: str, cheats: Mapping[str, Cheat]) -> dict[str, Any]:
    """By name: status and message of the validation, and where that passed the launch's rows."""
    (folder / "problem.py").write_text(CHAIN)
    for name, case in cheats.items():
        (folder / f"{name}.py").write_text(case.source)
    done = subprocess.run(
        [str(python), "-c", WAYS, str(ROOT / "harness"), str(folder), device, ",".join(cheats)],
        capture_output=True,
        text=True,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def check_cheat(case: Cheat, seen: dict[str, Any], device: str) -> None:
    """That it was found out where the table says; and that who is honest was not accused."""
    assert seen["status"] == ("wrong" if case.said else "ok"), seen
    assert case.said in seen["message"]
    if case.said:
        return
    rows = {row.target: row for row in (codec.checked(TargetTiming, row, "timing") for row in seen["timings"])}
    kernel, model = rows["kernel"], rows["model"]
    assert model.status == "ok"
    if case.timed:
        assert case.timed in kernel.message, kernel
        assert kernel.status in ("wrong", "undecidable", "crashed") or kernel.correct is False
    else:
        assert (kernel.status, kernel.correct, kernel.message) == ("ok", True, ""), kernel
