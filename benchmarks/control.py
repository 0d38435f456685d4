"""A solution that is its problem's own Model, against that Model: how much longer does the harness say that it takes?

    python -m benchmarks.control [--python PYTHON] [--device cuda] [--cores 1,2,4,16] [--busy] [--replicates 8]

Every replicate is a fresh one of the harness's own: the process that measures, the references' and the kernel's. The
last is given each problem's Model, the control of every run (docs/method.md), and of the first problem a ModelNew with
the same lines. Ratios are of the times of one replicate. On the CPU both are sampled in turns, and each number of cores
is measured with as many threads and with one, bound as a run binds them. On a GPU one is sampled after the other, in
random order. `--busy` burns one core meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.launch import LIMITS, Case
from harness.run.processors import Bound, bind

# The loop of attention that the fault was found with, one product of matrices, and one whose calls take microseconds.
PROBLEMS = {
    "softmax": ("torch.softmax(x @ x.T / 16, -1) @ x.flip(0)", (768, 256)),
    "product": ("x @ x", (1536, 1536)),
    "small": ("torch.relu(x) + 1", (64, 64)),
}
TEMPLATE = """import torch

class {name}(torch.nn.Module):
    def forward(self, x):
        return {body}

def get_inputs():
    return [torch.randn{shape}]

def get_init_inputs():
    return []
"""
TIMING = {"warmup_s": 0.2, "warmup_calls": 3, "target_s": 0.3, "min_samples": 10, "max_samples": 2000}
BESIDE = {"samples_us": "beside_us", "hot_us": "hot_beside_us"}
RELATIVE_ERROR = {"cpu": 0.005, "cuda": 0.003}


class Bounded:
    """Every problem's case. Of the first there is a kernel; all have a control."""

    def __init__(self, python: str, device: str, folder: Path) -> None:
        self.cases: dict[str, Case] = {}
        for name, (body, shape) in PROBLEMS.items():
            own = folder / name
            own.mkdir()
            problem, solution = own / "problem.py", own / "solution.py"
            problem.write_text(TEMPLATE.format(name="Model", body=body, shape=shape))
            solution.write_text(TEMPLATE.format(name="ModelNew", body=body, shape=shape))
            case = self.cases[name] = Case(python, device, 1, problem, solution, own)
            case.digests_sha256 = case.digests()
            case.workload["id"] = name
        self.first = next(iter(self.cases.values()))

    def replicate(self, threads: int, seed: int) -> list[dict[str, Any]]:
        """Return the rows of a replicate, with the time of each target."""
        case, bound = self.first, bind(threads) if self.first.device == "cpu" else Bound()
        case.threads = threads
        common = {"workloads": [each.workload for each in self.cases.values()], "device": case.device}
        common |= {"threads": threads, "link": str(case.folder)}
        rows = [[name, target] for name in self.cases for target in ("control:model", "model")]
        first = next(iter(self.cases))
        request = {
            "rows": [*rows, [first, "kernel"]],
            "order_seed": seed,
            "memory": False,
            "expected_sha256": {first: case.digests_sha256[:1]},
            "limits": {first: LIMITS},
            "processors": list(bound.references),
            "timing": {**TIMING, "relative_error": RELATIVE_ERROR[case.device]},
            **common,
        }
        computes = case._start("host", {**common, "kernel": case.kernel})
        if bound.kernel:
            os.sched_setaffinity(computes.pid, bound.kernel)
        result = case.verb("time", request)
        computes.wait()
        found: list[dict[str, Any]] = result["timings"]
        for row in found:
            if row["status"] != "ok" or row["correct"] is False:
                raise SystemExit(f"{row['workload']} {row['target']}: {row['status']}: {row['message']}")
        return found


@contextlib.contextmanager
def burning(busy: bool) -> Iterator[None]:
    """Keep one core busy meanwhile."""
    burner = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if busy else None
    try:
        yield
    finally:
        if burner is not None:
            burner.kill()
            burner.wait()


def ratios(replicates: Sequence[list[dict[str, Any]]], name: str, mode: str) -> dict[str, Any]:
    """Return each target's time over the Model's: the median over replicates, and the range."""
    found: dict[str, Any] = {}
    for target in ("control:model", "kernel"):
        values = []
        for rows in replicates:
            by_target = {row["target"]: row for row in rows if row["workload"] == name}
            if target in by_target:
                own, model = by_target[target], by_target["model"]
                beside = model[mode] if target == "kernel" else own[BESIDE[mode]]
                values.append(statistics.median(own[mode]) / statistics.median(beside))
        if values:
            found[target] = {"median": _rounded(values), "least": round(min(values), 3), "most": round(max(values), 3)}
    every = [row for rows in replicates for row in rows if (row["workload"], row["target"]) == (name, "model")]
    return {"model_us": _rounded([statistics.median(row[mode]) for row in every if row[mode]]), **found}


def _rounded(values: list[float]) -> float | None:
    return round(statistics.median(values), 3) if values else None


def cases(device: str, cores: Sequence[int]) -> Iterator[tuple[list[int] | None, int]]:
    """Yield the cores of a case, None for all, and its threads."""
    if device == "cuda":
        yield None, min(8, os.cpu_count() or 1)
        return
    available = sorted(os.sched_getaffinity(0))
    for count in cores:
        if count <= len(available):
            for threads in dict.fromkeys((count, 1)):
                yield available[:count], threads


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has PyTorch")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--cores", default="1,2,4,16", help="numbers of cores, on the CPU")
    parser.add_argument("--replicates", type=int, default=8)
    parser.add_argument("--busy", action="store_true", help="burn one core meanwhile")
    arguments = parser.parse_args()
    everywhere = os.sched_getaffinity(0)
    modes = ("samples_us", "hot_us") if arguments.device == "cuda" else ("samples_us",)
    with tempfile.TemporaryDirectory() as folder:
        bounded = Bounded(arguments.python, arguments.device, Path(folder))
        for cores, threads in cases(arguments.device, [int(count) for count in arguments.cores.split(",")]):
            os.sched_setaffinity(0, cores or everywhere)
            with burning(arguments.busy):
                replicates = [bounded.replicate(threads, seed) for seed in range(arguments.replicates)]
            line = {"cores": len(cores or everywhere), "threads": threads, "busy": arguments.busy}
            for name in PROBLEMS:
                for mode in modes:
                    found = ratios(replicates, name, mode)
                    print(json.dumps({"problem": name, **line, "mode": mode, **found}), flush=True)


if __name__ == "__main__":
    main()
