"""A launch against a plain warm-up-and-time loop over as many of the same calls, in the same interpreter: how long both
take in all, and what both say that a call takes.

    python benchmarks/launch.py [--python PYTHON] [--device cuda] [--size 4096] [--problem FILE --solution FILE]

The problem is KernelBench's product of two float32 matrices of that size, and its solution the same product, unless
files are given. Both import PyTorch, load both files and make the inputs. The launch also gives every call its own
inputs and judges some outputs, and has three processes. They take turns: a drift of the machine touches both.
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
LIMITS = {"rounding": 4.0, "kernelbench": 1e-4, "strict": 1e-3}
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
medians = {}
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
            times = [start.elapsed_time(stop) / 1e3 for start, stop in times]
    medians[target] = sorted(times)[len(times) // 2] * 1e6
print(json.dumps(medians))
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

    def verb(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        """Its result."""
        process = self._start(name, request)
        if process.wait():
            raise SystemExit(f"{name} ended with {process.returncode}")
        result: dict[str, Any] = json.loads((self.folder / f"{name}.result.json").read_text())
        if result["status"] != "ok":
            raise SystemExit(f"{name}: {result['message']}")
        return result

    def _start(self, name: str, request: dict[str, Any]) -> subprocess.Popen[str]:
        paths = [self.folder / f"{name}.{what}.json" for what in ("request", "result")]
        paths[0].write_text(json.dumps({"version": 1, "seed": 0, **request}))
        return self._process("-m", "worker", name, *map(str, paths))

    def _process(self, *arguments: str) -> subprocess.Popen[str]:
        variables = {**os.environ, "PYTHONPATH": str(ROOT / "harness"), "OMP_NUM_THREADS": str(self.threads)}
        return subprocess.Popen(
            [self.python, *arguments], cwd=self.folder, env=variables, stdout=subprocess.PIPE, text=True
        )

    def digests(self) -> list[str]:
        """Of the right outputs, as a validation leaves them."""
        out = self.folder / "out"
        asked = {"problem": str(self.problem), "out": str(self.folder / "store"), "trials": TRIALS}
        self.verb("store", {**asked, "dtype": "float32", "most_bytes": 2 << 30})
        asked = {"workload": self.workload, "kernel": self.kernel, "out": str(out), "threads": self.threads}
        self.verb("candidate", asked)
        files = [out / "independent" / f"{trial}.bin" for trial in range(TRIALS)]
        return [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]

    def launch(self, digests: list[str]) -> tuple[float, dict[str, float], dict[str, list[int]]]:
        """(seconds; by target: microseconds of a call; how many calls warmed up and how many were timed)."""
        common = {"workloads": [self.workload], "device": self.device, "threads": self.threads}
        common["link"] = str(self.folder)
        request = {
            "rows": [["w", "kernel"], ["w", "model"]],
            "order_seed": 0,
            "expected_sha256": {"w": digests[:1]},
            "limits": {"w": LIMITS},
            "timing": {**TIMING, "relative_error": PRECISION[self.device]},
            **common,
        }
        started = time.monotonic()
        computes = self._start("host", {**common, "kernel": self.kernel})
        result = self.verb("time", request)
        if computes.wait():
            raise SystemExit(f"the kernel's process ended with {computes.returncode}")
        elapsed_s = time.monotonic() - started
        calls, times = {}, {}
        for row in result["timings"]:
            if row["status"] != "ok" or row["correct"] is False:
                raise SystemExit(f"{row['target']}: {row['message']}")
            cold = len(row["samples_us"]) * row["calls_per_sample"]
            hot = len(row.get("hot_us", ())) * row.get("hot_calls_per_sample", 1)
            calls[row["target"]] = [row["warmup_calls"], cold + hot]
            times[row["target"]] = statistics.median(row["samples_us"])
        return elapsed_s, times, calls

    def plain(self, calls: dict[str, list[int]]) -> tuple[float, dict[str, float]]:
        """(seconds; by target: microseconds of a call)."""
        files, started = (str(self.problem), str(self.solution)), time.monotonic()
        process = self._process("-c", PLAIN, *files, self.device, str(self.threads), json.dumps(calls))
        printed, _ = process.communicate()
        if process.returncode:
            raise SystemExit(f"the plain loop ended with {process.returncode}")
        times: dict[str, float] = json.loads(printed)
        return time.monotonic() - started, times


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
        launches, plains, ratios = [], [], []
        for _ in range(arguments.rounds):
            launch_s, asked, calls = case.launch(digests)
            plain_s, looped = case.plain(calls)
            launches.append(launch_s)
            plains.append(plain_s)
            ratios += [asked[target] / looped[target] for target in asked]
    ratio = statistics.median(launch / plain for launch, plain in zip(launches, plains, strict=True))
    found = {"launch_s": statistics.median(launches), "plain_s": statistics.median(plains), "ratio": ratio}
    found |= {"call_us": asked["kernel"], "call_ratio": statistics.median(ratios)}
    found |= {"call_ratio_least": min(ratios), "call_ratio_most": max(ratios)}
    print(json.dumps({**{name: round(value, 3) for name, value in found.items()}, "calls": calls}))


if __name__ == "__main__":
    main()
