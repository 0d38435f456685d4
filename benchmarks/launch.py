"""A launch's process against a plain warm-up-and-time loop over as many of the same calls, in the same interpreter.

    python benchmarks/launch.py [--python PYTHON] [--device cuda] [--size 4096] [--problem FILE --solution FILE]

The problem is KernelBench's product of two float32 matrices of that size, and its solution the same product, unless
files are given. Both processes import PyTorch, load both files and make the inputs; the launch also audits the calls
that it times, and exchanges their inputs. In turns, so that a drift of the machine touches both.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
TRIALS = 5
TIMING = {"warmup_s": 0.2, "warmup_calls": 3, "target_s": 0.3, "min_samples": 10, "max_samples": 2000}
PRECISION = {"cpu": 0.005, "cuda": 0.003}  # as in matrix.py

MATMUL = """import torch

N = {size}

class {name}(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A, B)

def get_inputs():
    return [torch.rand(N, N), torch.rand(N, N)]

def get_init_inputs():
    return []
"""

PLAIN = """
import importlib.util, json, sys, time
import torch

problem, solution, device, threads, calls = *sys.argv[1:4], int(sys.argv[4]), json.loads(sys.argv[5])
torch.set_num_threads(threads)

def load(path):
    spec = importlib.util.spec_from_file_location("loaded", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

torch.manual_seed(0)
module = load(problem)
inputs = [x.to(device) if isinstance(x, torch.Tensor) else x for x in module.get_inputs()]
for target, made in (("model", module.Model), ("kernel", load(solution).ModelNew)):
    model = made(*module.get_init_inputs()).to(device)
    with torch.no_grad():
        for _ in range(calls[target][0]):
            model(*inputs)
        times = []
        for _ in range(calls[target][1]):
            if device == "cuda":
                times.append([torch.cuda.Event(enable_timing=True) for _ in range(2)])
                times[-1][0].record()
                model(*inputs)
                times[-1][1].record()
            else:
                began = time.perf_counter()
                model(*inputs)
                times.append(time.perf_counter() - began)
        if device == "cuda":
            torch.cuda.synchronize()
            times = [start.elapsed_time(stop) for start, stop in times]
print(len(times))
"""


class Case:
    def __init__(self, python: str, device: str, threads: int, problem: Path, solution: Path, folder: Path) -> None:
        self.python, self.device, self.threads, self.folder = python, device, threads, folder
        self.problem, self.solution = problem, solution
        self.workload = {
            **dict.fromkeys(("batch", "heads", "seq_len", "head_dim", "causal", "scale")),
            "id": "w",
            "dtype": "float32",
            "recipes": {"independent": TRIALS},
            "problem": {"file": str(problem), "store": str(folder / "store")},
        }
        self.kernel = {"name": "k", "device": device, "artifact": None, "model_new": str(solution)}

    def verb(self, name: str, request: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        """(its process's seconds, its result)."""
        paths = [self.folder / f"{name}.{what}.json" for what in ("request", "result")]
        paths[0].write_text(json.dumps({"version": 1, "seed": 0, "threads": self.threads, **request}))
        elapsed_s = self._process("-m", "worker", name, *map(str, paths))
        result: dict[str, Any] = json.loads(paths[1].read_text())
        if result["status"] != "ok":
            raise SystemExit(f"{name}: {result['message']}")
        return elapsed_s, result

    def _process(self, *arguments: str) -> float:
        variables = {**os.environ, "PYTHONPATH": str(ROOT / "harness"), "OMP_NUM_THREADS": str(self.threads)}
        started = time.monotonic()
        done = subprocess.run([self.python, *arguments], cwd=self.folder, env=variables, stdout=subprocess.DEVNULL)
        if done.returncode:
            raise SystemExit(f"{arguments[:3]} ended with {done.returncode}")
        return time.monotonic() - started

    def digests(self) -> list[str]:
        """Of the right outputs, as a validation leaves them."""
        out = self.folder / "out"
        asked = {"problem": str(self.problem), "out": str(self.folder / "store"), "trials": TRIALS}
        self.verb("store", {**asked, "dtype": "float32", "most_bytes": 2 << 30})
        self.verb("candidate", {"workload": self.workload, "kernel": self.kernel, "out": str(out)})
        files = [out / "independent" / f"{trial}.bin" for trial in range(TRIALS)]
        return [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]

    def launch(self, digests: list[str]) -> tuple[float, dict[str, list[int]]]:
        """(seconds, by target how many calls warmed up and how many were timed)."""
        request = {
            "kernel": self.kernel, "kernel_workloads": ["w"], "workloads": [self.workload],
            "targets": ["kernel", "model"], "device": self.device, "order_seed": 0, "expected_sha256": {"w": digests},
            "held_back": False, "timing": {**TIMING, "relative_error": PRECISION[self.device]},
        }  # fmt: skip
        elapsed_s, result = self.verb("time", request)
        calls = {}
        for row in result["timings"]:
            if row["status"] != "ok" or row["correct"] is False:
                raise SystemExit(f"{row['target']}: {row['message']}")
            cold = len(row["samples_us"]) * row["calls_per_sample"]
            hot = len(row.get("hot_us", ())) * row.get("hot_calls_per_sample", 1)
            calls[row["target"]] = [row["warmup_calls"], cold + hot]
        return elapsed_s, calls

    def plain(self, calls: dict[str, list[int]]) -> float:
        files = str(self.problem), str(self.solution)
        return self._process("-c", PLAIN, *files, self.device, str(self.threads), json.dumps(calls))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has PyTorch")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--size", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--problem", type=Path)
    parser.add_argument("--solution", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        problem, solution = folder / "problem.py", folder / "solution.py"
        problem.write_text(MATMUL.format(size=arguments.size, name="Model"))
        solution.write_text(MATMUL.format(size=arguments.size, name="ModelNew"))
        problem, solution = ((arguments.problem or problem).resolve(), (arguments.solution or solution).resolve())
        case = Case(arguments.python, arguments.device, arguments.threads, problem, solution, folder)
        digests = case.digests()
        launches, plains = [], []
        for _ in range(arguments.rounds):
            launch_s, calls = case.launch(digests)
            launches.append(launch_s)
            plains.append(case.plain(calls))
    ratio = statistics.median(launch / plain for launch, plain in zip(launches, plains, strict=True))
    found = {"launch_s": statistics.median(launches), "plain_s": statistics.median(plains), "ratio": ratio}
    print(json.dumps({**{name: round(value, 2) for name, value in found.items()}, "calls": calls}))


if __name__ == "__main__":
    main()
