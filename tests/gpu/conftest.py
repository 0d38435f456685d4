"""A real GPU, and a PyTorch that sees it: this interpreter's own, or the one that HARNESS_TEST_ENVIRONMENTS names.

Where KERNEL_MATRIX_PROGRAMS names a folder, what was compiled for these tests is kept there, and found again:
`python -m tests.gpu.prebuild` compiles all of it at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import filelock
import pytest

from harness.executors import Answer, Task, Terms
from harness.executors.venv import VenvExecutor
from harness.gpu import models, use
from harness.schema.run_records import GpuFacts
from harness.worker import codec, protocol, wire
from tests.conftest import ROOT
from tests.environments.conftest import VARIABLE
from tests.messages import asked

Built = Callable[[str], str]  # the extension of a build by its name
HERE = "here"
SEED = {"BLOCK_M": "32", "NUM_WARPS": "8", "VEC_WIDTH": "4", "SYNC_POLICY": "2", "REDUCE": "warp"}
PROGRAMS = "KERNEL_MATRIX_PROGRAMS"
SHIPPED, DEVICE_FAULTS = "csrc/attention_scalar.cu", "tests/gpu/device_faults.cu"
UNWRITTEN = "tests/gpu/unwritten.cu"
FAULTS = ("NONE", "LEGACY_STREAM", "SKIPS_CAPTURE", "SYNCHRONISES", "ILLEGAL_ADDRESS", "ASSERTS", "ENDLESS")
BUILDS: dict[str, tuple[str, dict[str, str]]] = {
    "shipped": (SHIPPED, SEED),
    "slowed": (SHIPPED, SEED | {"EXTRA_STEPS": "4"}),
    **{fault: (DEVICE_FAULTS, {"FAULT": fault}) for fault in FAULTS},
    **{
        f"unwritten-{fault}": (UNWRITTEN, {"FAULT": fault})
        for fault in ("NONE", "SHARED", "WORKSPACE", "TAIL", "STREAM")
    },
}
REFERENCES = ["flash", "math", "efficient", "cudnn", "default"]
TIMING = {"warmup_s": 0.2, "warmup_calls": 3, "target_s": 0.3}
TIMING |= {"min_samples": 10, "max_samples": 2000, "relative_error": 0.003}


def workload(seq_len: int = 512, head_dim: int = 64, batch: int = 1, heads: int = 8) -> dict[str, Any]:
    return {
        "id": f"b{batch}h{heads}s{seq_len}d{head_dim}",
        "dtype": "float16",
        "batch": batch,
        "heads": heads,
        "seq_len": seq_len,
        "head_dim": head_dim,
        "causal": False,
        "scale": head_dim**-0.5,
        "recipes": {"independent": 1},
        "problem": None,
    }


def kernel_of(artifact: str | None, **fields: Any) -> dict[str, Any]:
    return {"name": "k", "device": "cuda", "artifact": artifact, "model_new": None, **fields}


class Here(VenvExecutor):
    """The worker's tasks as a run starts them, in an interpreter that is there already."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, threads=4)
        named = os.environ.get(VARIABLE, "").split(":")[0]
        self._pythons[HERE] = Path(named or sys.executable)
        self.work = folder / "work"
        self.builds = programs(self.work)
        self._built: dict[str, dict[str, Any]] = {}

    def ask(
        self,
        verb: str,
        request: dict[str, Any],
        *,
        timeout_s: float = 300,
        name: str = "",
        variables: dict[str, str] | None = None,
    ) -> Answer:
        """Run a task. Its result, checked, is there as its fields."""
        place = self.work / (name or verb)
        answer = self.run(
            Task(
                environment=HERE,
                name=verb,
                request=asked(verb, request),
                scratch=place / "scratch",
                log=place / "log",
                terms=Terms(timeout_s=timeout_s, variables=variables),
            )
        )
        if answer.result is not None:
            assert codec.read(wire.TASKS[verb].result, answer.result), "as its type says"
            del answer.result["version"]
        return answer

    def result(self, verb: str, request: dict[str, Any], **options: Any) -> dict[str, Any]:
        """Run a task that ends with a result."""
        answer = self.ask(verb, request, **options)
        assert answer.result is not None, answer.ended.log
        return answer.result

    def candidate(self, kernel: dict[str, Any], shape: dict[str, Any], out: Path) -> dict[str, Any]:
        request = {"kernel": kernel, "workload": shape, "seed": 0, "threads": 4, "out": str(out)}
        return self.result("candidate", request)

    def build_folder(self, name: str) -> Path:
        return self.builds / f"build-{name}"

    def build(self, name: str) -> dict[str, Any]:
        """What the verb `build` says of one of `BUILDS`; it compiles what is not there yet."""
        if name in self._built:
            return self._built[name]
        source, defines = BUILDS[name]
        folder = self.build_folder(name)
        request = {
            "name": f"k_{name.lower()}",
            "include_dirs": [str(ROOT / "csrc")],
            "defines": defines,
            "sources": [str(ROOT / source), str(ROOT / "csrc" / "attention_binding.cpp")],
            "flags": {"cxx": ["-O2", "-DATTENTION_CUDA=1"], "nvcc": ["-O3"], "ld": []},
            "architectures": [architecture()],
            "build_dir": str(folder),
            "load": True,
        }
        folder.mkdir(parents=True, exist_ok=True)
        key = protocol.digest([request, str(self._pythons[HERE]), sources_digest(ROOT / source)])
        record = folder.with_suffix(".json")
        with filelock.FileLock(folder.with_suffix(".lock")):
            kept = protocol.read_json(str(record)) if record.exists() else {"key": ""}
            if kept["key"] != key:
                result = self.result("build", request, name=f"build-{name}")
                assert result["status"] == "ok", result["log_excerpt"]
                kept = {"key": key, "result": result}
                protocol.write_json(str(record), kept)
        return self._built.setdefault(name, kept["result"])

    def time(
        self,
        artifact: str | None,
        workloads: list[dict[str, Any]],
        targets: list[str],
        *,
        timeout_s: float = 300,
        order_seed: int = 0,
        expected: dict[str, list[str]] | None = None,
    ) -> Answer:
        common = {"workloads": workloads, "seed": 0, "device": "cuda", "threads": 4}
        request = {
            **common,
            "rows": [[w["id"], t] for w in workloads for t in targets if artifact or t != "kernel"],
            "order_seed": order_seed,
            "timing": TIMING,
            "expected_sha256": expected or {},
        }
        if artifact is None:
            return self.ask("time", request, timeout_s=timeout_s)
        with self.linking(HERE) as link, ThreadPoolExecutor(1) as pool:
            hosted = {**common, "kernel": kernel_of(artifact), "link": str(link)}
            kernels = pool.submit(self.ask, "host", hosted, timeout_s=timeout_s)
            answer = self.ask("time", {**request, "link": str(link)}, timeout_s=timeout_s)
            kernels.result()
            return answer


def architecture() -> str:
    _, capability, _ = models()[0]
    return f"sm_{capability}"


def sources_digest(source: Path) -> str:
    """Of a source and of all that it may include."""
    files = [source, *(path for path in sorted((ROOT / "csrc").iterdir()) if path.is_file())]
    return protocol.digest([protocol.sha256_file(str(path)) for path in files])


def programs(otherwise: Path) -> Path:
    """Where what was compiled is kept."""
    kept = os.environ.get(PROGRAMS)
    return Path(kept).absolute() if kept else otherwise


@pytest.fixture(scope="session")
def gpu() -> GpuFacts:
    found = use()
    assert found is not None, "nvidia-smi is there, and the management library finds no GPU"
    return found


@pytest.fixture(scope="session")
def here(tmp_path_factory: pytest.TempPathFactory, gpu: GpuFacts) -> Iterator[Here]:
    yield Here(tmp_path_factory.mktemp("here"))


@pytest.fixture(scope="session")
def built(here: Here) -> Built:
    """All are built at once when the first is asked for."""
    with ThreadPoolExecutor(len(BUILDS)) as pool:
        artifacts = dict(zip(BUILDS, pool.map(lambda name: str(here.build(name)["artifact"]), BUILDS), strict=True))
    return artifacts.__getitem__


def row(answer: Answer, target: str, workload_id: str | None = None) -> dict[str, Any]:
    assert answer.result is not None, answer.ended.log
    rows = [r for r in answer.result["timings"] if r["target"] == target and workload_id in (None, r["workload"])]
    assert len(rows) == 1
    return dict(rows[0])
