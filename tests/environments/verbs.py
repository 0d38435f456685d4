"""The worker's tasks by real interpreters, as the harness runs them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.schema.records import RecipeResult
from harness.worker import codec, wire

WORKER = Path(__file__).resolve().parents[2] / "harness" / "worker"
LIMITS = {"rounding": 4.0, "strict": 1e-3, "kernelbench": 1e-4}
REFERENCES = ["flash", "math", "default"]


@dataclass
class Environment:
    """One interpreter with a staged copy of the worker, as the harness would stage it."""

    python: Path
    folder: Path
    artifact: str = ""
    returning: str = ""

    def run(self, verb: str, request: dict[str, Any], fault: str = "") -> tuple[dict[str, Any] | None, int, str]:
        scratch = self.folder / "scratch"
        scratch.mkdir(exist_ok=True)
        paths = [self.folder / name for name in ("request.json", "result.json")]
        paths[0].write_text(json.dumps({"version": codec.VERSION, **request}))
        paths[1].unlink(missing_ok=True)
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "TOY_FAULT": fault}
        done = subprocess.run(
            [str(self.python), "-m", "worker", verb, *map(str, paths)],
            cwd=scratch,
            env=environment,
            capture_output=True,
            text=True,
        )
        result = json.loads(paths[1].read_text()) if paths[1].exists() else None
        if result is not None:
            assert codec.read(wire.RESULTS[verb], result), "as its type says"
            del result["version"]
        return result, done.returncode, done.stderr

    def result(self, verb: str, request: dict[str, Any], fault: str = "") -> dict[str, Any]:
        result, code, errors = self.run(verb, request, fault)
        assert result is not None and code == 0, errors
        return result

    def build(self, name: str, source: str, defines: dict[str, str]) -> dict[str, Any]:
        path = self.folder / f"{name}.cpp"
        path.write_text(source)
        folder = self.folder / f"build-{name}"
        folder.mkdir(exist_ok=True)
        (folder / "lock").touch()  # as a killed build leaves it
        return self.result(
            "build",
            {
                "name": name,
                "sources": [str(path)],
                "include_dirs": [],
                "flags": {"cxx": ["-O1"], "nvcc": [], "ld": []},
                "defines": defines,
                "architectures": [],
                "build_dir": str(folder),
                "load": True,
            },
        )

    def candidate(self, workload: dict[str, Any], fault: str = "", artifact: str = "", model: str | None = None) -> Any:
        out = self.folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        kernel = {"name": "toy", "device": "cpu", "artifact": artifact or self.artifact, "model_new": model}
        request = {"kernel": kernel, "workload": workload, "seed": 0, "threads": 1, "out": str(out)}
        return self.run("candidate", request, fault)[:2]

    def judge(
        self, workload: dict[str, Any], candidate: Any, references: list[str] | None = None, **asked: Any
    ) -> dict[str, Any]:
        request = {
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
            **asked,
        }
        result = self.result("judge", request)
        result["recipes"] = [RecipeResult(**recipe) for recipe in result["recipes"]]
        return result


def workload(dtype: str = "float32") -> dict[str, Any]:
    return {
        "id": f"tiny-{dtype}",
        "dtype": dtype,
        "batch": 1,
        "heads": 2,
        "seq_len": 37,
        "head_dim": 16,
        "causal": False,
        "scale": 0.25,
        "recipes": {"independent": 3, "shared_qkv": 1, "large_logits": 1},
        "problem": None,
    }


def stage(python: Path, folder: Path) -> Environment:
    shutil.copytree(WORKER, folder / "worker", ignore=shutil.ignore_patterns("__pycache__"))
    return Environment(python, folder)
