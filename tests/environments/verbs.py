"""The worker's tasks by real interpreters, as the harness runs them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.schema.experiment_records import Condition, ConditionResult
from harness.schema.records import RecipeResult
from harness.schema.storage import from_json_value
from harness.worker import codec, wire
from tests.conftest import ROOT
from tests.environments.warm import run_warm
from tests.messages import left

WORKER = ROOT / "harness" / "worker"
LIMITS = {"rounding": 4.0, "strict": 1e-3, "kernelbench": 1e-4}
WARM = ("store", "candidate", "judge", "weigh", "conditions")  # in forks; all others in fresh processes
REFERENCES = ["flash", "math", "default"]
TIMING = {
    "warmup_s": 0.01,
    "warmup_calls": 2,
    "target_s": 0.02,
    "min_samples": 5,
    "max_samples": 50,
    "relative_error": 0.005,
}


def kernel_of(artifact: str | None = None, model: str | None = None) -> dict[str, Any]:
    return {"name": "toy", "device": "cpu", "artifact": artifact, "model_new": model}


@dataclass
class Environment:
    """One interpreter with a staged copy of the worker, as the harness would stage it."""

    python: Path
    folder: Path
    artifact: str = ""
    returning: str = ""

    def run(self, verb: str, request: dict[str, Any], **variables: str) -> tuple[dict[str, Any] | None, int, str]:
        """(the result, the exit code, what went to standard error) of a verb, with these variables."""
        if verb in WARM:
            asked, result = self._ask(verb, request)
            code, _, errors = run_warm(self.python, self.folder, [verb, asked, result], variables)
            return self._read(verb, result), code, errors
        process, result = self._start(verb, request, **variables)
        _, errors = process.communicate()
        return self._read(verb, result), process.returncode, errors

    def _ask(self, verb: str, request: dict[str, Any]) -> tuple[Path, Path]:
        """(the request's file, where its result will be)."""
        (self.folder / "scratch").mkdir(exist_ok=True)
        asked, result = (self.folder / f"{verb}.{name}.json" for name in ("request", "result"))
        asked.write_text(json.dumps({"version": codec.VERSION, **request}))
        result.unlink(missing_ok=True)
        return asked, result

    def _start(self, verb: str, request: dict[str, Any], **variables: str) -> tuple[subprocess.Popen[str], Path]:
        """(its process, where its result will be)."""
        asked, result = self._ask(verb, request)
        process = subprocess.Popen(
            [str(self.python), "-m", "worker", verb, str(asked), str(result)],
            cwd=self.folder / "scratch",
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(self.folder), **variables},
        )
        return process, result

    def _read(self, verb: str, path: Path) -> dict[str, Any] | None:
        result: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
        if result is not None:
            assert codec.read(wire.TASKS[verb].result, result), "as its type says"
            del result["version"]
        return result

    def result(self, verb: str, request: dict[str, Any], **variables: str) -> dict[str, Any]:
        result, code, errors = self.run(verb, request, **variables)
        assert result is not None and code == 0, errors
        return result

    def script(self, text: str, *arguments: str) -> str:
        """What a script prints that can import the worker."""
        code, printed, errors = run_warm(self.python, self.folder, arguments, script=text)
        assert code == 0, errors
        return printed

    def build(
        self,
        name: str,
        source: str,
        *,
        more: Sequence[Path] = (),
        cxx: Sequence[str] = ("-O1",),
        ld: Sequence[str] = (),
        **request: Any,
    ) -> dict[str, Any]:
        path = self.folder / (name if "." in name else f"{name}.cpp")
        path.write_text(source)
        folder = self.folder / f"build-{path.stem}"
        folder.mkdir(exist_ok=True)
        (folder / "lock").touch()  # as a killed build leaves it
        asked = {
            "name": path.stem,
            "sources": list(map(str, [path, *more])),
            "include_dirs": [str(ROOT / "csrc")],
            "flags": {"cxx": list(cxx), "nvcc": [], "ld": list(ld)},
            "defines": {},
            "architectures": [],
            "build_dir": str(folder),
            "load": True,
        }
        return self.result("build", {**asked, **request})

    def store(self, folder: Path, text: str, *, trials: int = 1, **asked: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """(what `store` answers, the workload) of a problem file with this text."""
        path, store = folder / "problem.py", folder / "store"
        path.write_text(text)
        common = {"problem": str(path), "out": str(store), "seed": 1, "trials": trials, "dtype": "float32"}
        asked = {**common, "most_bytes": 1 << 30, **asked}
        case = {
            **dict.fromkeys(("batch", "heads", "seq_len", "head_dim", "causal", "scale")),
            "id": "problem",
            "dtype": asked["dtype"],
            "recipes": {"independent": trials},
            "problem": {"file": str(path), "store": str(store)},
        }
        return self.result("store", asked), case

    def candidate(self, workload: dict[str, Any], fault: str = "", artifact: str = "", model: str | None = None) -> Any:
        out = self.folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        kernel = kernel_of(artifact or self.artifact, model)
        request = {"kernel": kernel, "workload": workload, "seed": 0, "threads": 1, "out": str(out)}
        return self.run("candidate", request, TOY_FAULT=fault)[:2]

    def judging(
        self, workload: dict[str, Any], candidate: Any, references: list[str] | None = None, **asked: Any
    ) -> dict[str, Any]:
        """The request to judge it."""
        return {
            "workload": workload,
            "device": "cpu",
            "seed": 0,
            "threads": 2,
            "references": REFERENCES if references is None else references,
            "candidate": candidate,
            "candidate_out": str(self.folder / "out"),
            "truth_dir": str(self.folder / "truth"),
            "arrays": str(self.folder / "arrays.npz"),
            "array_trials": 1,
            "decides": "rounding",
            "limits": LIMITS,
            "power": True,
            "precision": None,
            **asked,
        }

    def judge(
        self, workload: dict[str, Any], candidate: Any, references: list[str] | None = None, **asked: Any
    ) -> dict[str, Any]:
        result = self.result("judge", self.judging(workload, candidate, references, **asked))
        result["recipes"] = [from_json_value(RecipeResult, recipe) for recipe in result["recipes"]]
        return result

    def time(
        self, case: dict[str, Any], targets: list[str], expected: list[str], fault: str = "", **asked: Any
    ) -> dict[str, Any]:
        """What `time` gives, with the kernel in a process of its own. `asked` may name a `kernel`."""
        kernel = asked.pop("kernel", kernel_of(self.artifact))
        common = {"workloads": [case], "seed": 0, "threads": 1, "device": "cpu"}
        request = {
            **common,
            "rows": [[case["id"], target] for target in targets],
            "order_seed": 3,
            "timing": TIMING,
            "expected_sha256": {case["id"]: expected},
            "limits": {case["id"]: LIMITS},
        }
        with tempfile.TemporaryDirectory() as link:
            measures, result = self._start("time", {**request, "link": link, **asked})
            computes, _ = self._start("host", {**common, "kernel": kernel, "link": link}, TOY_FAULT=fault)
            _, errors = measures.communicate()
            computes.communicate()
        timed = self._read("time", result)
        assert timed is not None and measures.returncode == 0, errors
        return timed

    def conditions(
        self,
        kernel: dict[str, Any],
        case: dict[str, Any],
        conditions: Sequence[Condition],
        out: Path,
        *,
        trials: int = 2,
        repeats: int = 2,
        patience_s: float = 60.0,
        seed: int = 0,
        threads: int = 2,
        libraries: Mapping[str, str] = {},
        **variables: str,
    ) -> tuple[list[ConditionResult], int]:
        """(results of all conditions whose job ended, the process's exit code)."""
        shutil.rmtree(out, ignore_errors=True)
        jobs = jobs_of(conditions, trials, repeats, patience_s)
        request = {"kernel": kernel, "workload": case, "seed": seed, "threads": threads, "out": str(out)}
        request |= {"jobs": jobs, "libraries": dict(libraries)}
        _, code, errors = self.run("conditions", request, **variables)
        ended = ended_of(jobs, out)
        assert ended or code < 0, errors
        return self.weigh(ended, conditions, case, out, seed=seed, threads=threads), code

    def weigh(
        self,
        ended: list[Any],
        conditions: Sequence[Condition],
        case: dict[str, Any],
        out: Path,
        *,
        seed: int = 0,
        threads: int = 2,
    ) -> list[ConditionResult]:
        truth = str(out.with_name(f"{out.name}-truth"))
        request = {"workload": case, "seed": seed, "threads": threads, "candidate_out": str(out), "truth_dir": truth}
        request |= {"decides": "rounding", "limits": LIMITS, "device": "cpu", "jobs": ended, "precision": None}
        rows = self.result("weigh", request)["results"]
        return [ConditionResult(condition=conditions[row.pop("number")], **row) for row in rows]


def jobs_of(
    conditions: Iterable[Condition], trials: int, repeats: int, patience_s: float = 60.0
) -> list[dict[str, Any]]:
    common = {"trials": list(range(trials)), "repeats": repeats, "patience_s": patience_s}
    return [{"number": n, "condition": vars(c), **common} for n, c in enumerate(conditions)]


def ended_of(jobs: list[dict[str, Any]], out: Path) -> list[dict[str, Any]]:
    """Of the jobs those that ended, each with what its process left."""
    paths = [(job, out / str(job["number"]) / "done.json") for job in jobs]
    return [weighed(job, left(path)) for job, path in paths if path.exists()]


def weighed(job: dict[str, Any], done: object) -> dict[str, Any]:
    """A job as `weigh` asks for it."""
    return {**{name: value for name, value in job.items() if name != "patience_s"}, "done": done}


def workload(dtype: str = "float32", head_dim: int = 16) -> dict[str, Any]:
    return {
        "id": f"tiny-{dtype}",
        "dtype": dtype,
        "batch": 1,
        "heads": 2,
        "seq_len": 37,
        "head_dim": head_dim,
        "causal": False,
        "scale": 0.25,
        "problem": None,
        "recipes": {"independent": 3, "shared_qkv": 1, "large_logits": 1},
    }


def stage(python: Path, folder: Path) -> Environment:
    shutil.copytree(WORKER, folder / "worker", ignore=shutil.ignore_patterns("__pycache__"))
    return Environment(python, folder)
