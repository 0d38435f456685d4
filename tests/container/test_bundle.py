"""A real image as a bundle: packed, unpacked by the script, and as good as the image on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from harness.config.matrix import Matrix
from harness.config.pins import ensure_pins
from harness.isolate.bundle.executor import BundleExecutor
from harness.isolate.bundle.manifest import Bundle, load_bundle
from harness.isolate.namespaces import probe_namespaces
from tests.conftest import ROOT
from tests.container.cells import BUNDLED, BundleCells
from tests.container.conftest import planned
from tests.projects import SHIPPED, check_measured, head, latest, make_project

pytestmark = [pytest.mark.container, pytest.mark.timeout(900)]
EXTENSION = """\
import os
os.environ["TORCH_CUDA_ARCH_LIST"] = "9.0"
import torch
from torch.utils.cpp_extension import load_inline
module = load_inline(
    "extension",
    "torch::Tensor twice(torch::Tensor x) { return x * 2; } void launch();",
    "#include <ATen/cuda/CUDAContext.h>\\n#include <torch/extension.h>\\n"
    "__global__ void kernel() {}\\nvoid launch() { kernel<<<1, 1>>>(); }",
    functions=["twice", "launch"],
    build_directory="/out",
)
result["twice"] = module.twice(torch.ones(2)).tolist()
"""
PACKAGES = """\
import subprocess, sys
import docker, filelock, jinja2, numpy, pandas, platformdirs, psutil, pydantic, rich, scipy.stats, yaml
assert all(module.__file__.startswith(sys.argv[1]) for module in (numpy, pandas, pydantic, psutil, yaml))
assert subprocess.run([sys.executable, "-c", "import sys, pydantic; sys.exit(7)"]).returncode == 7
isolated = subprocess.run([sys.executable, "-I", "-c", "import os; print(os.__file__)"], capture_output=True, text=True)
assert isolated.stdout.startswith(sys.argv[2]), isolated
print(sys.version_info[:2], sys.executable)
"""


@pytest.fixture
def bundle(place: Path) -> Bundle:
    return load_bundle(place / "there")


def test_it_is_small_and_says_what_it_is(place: Path, bundle: Bundle, image: str) -> None:
    entry = bundle.entry(BUNDLED)
    assert entry.image == image and entry.torch.startswith("2.5.0") and bundle.manifest.least_driver == "525.60.13"
    assert sum(path.stat().st_size for path in (place / "out").iterdir()) < 1.1e9
    assert all(part.bytes <= 100_000_000 for part in bundle.manifest.parts)
    assert sum(entry.blanked.values()) > 2e9 and sum(entry.removed.values()) > 0.4e9
    assert "cpu/flash/fp32" in entry.proof.digests and "uv" not in bundle.manifest.packages
    assert not (place / "out" / ".work").exists() and not list((place / "out").parent.glob(".out.part"))


@pytest.fixture
def executor(bundle: Bundle, tmp_path: Path) -> BundleExecutor:
    return BundleExecutor(bundle, probe_namespaces(bundle.maker), ROOT, tmp_path / "cache", 2)


def test_a_library_that_lost_its_code_is_found(executor: BundleExecutor) -> None:
    name = "nvidia/cufft/lib/libcufftw.so.11"  # PyTorch itself does not link it
    library = executor.bundle.environment(BUNDLED) / "lib/python3.11/site-packages" / name
    kept = library.with_suffix(".kept")
    library.rename(kept)
    try:
        whole = kept.read_bytes()
        library.write_bytes(whole[:4] + bytes(60) + whole[64:])  # its header, but for what says that it is an ELF file
        problem = executor.unproven(BUNDLED)
    finally:
        kept.replace(library)
    assert f"{name}: loaded before packing, and not here" in problem and "ELF" in problem


def test_extensions_are_built_in_it(place: Path, tmp_path: Path) -> None:
    cells = BundleCells(place / "there", tmp_path, user=None)
    assert cells.result(EXTENSION, timeout_s=850, compiles=True) == {"twice": [2.0, 2.0]}


def test_observing_it_finds_every_pin(executor: BundleExecutor, matrix: Matrix) -> None:
    environment = planned(matrix, "2.5.0")
    record = executor.prepare(environment, ensure_pins(ROOT, environment, matrix)[0])
    assert (record.status, record.message) == ("ok", "") and record.observed is not None
    assert "triton" in record.observed.wheels and "release 12.4" in (record.observed.nvcc or "")
    assert record.observed.compiler


def test_the_harness_runs_by_what_it_brings(bundle: Bundle) -> None:
    bare = {"PATH": "/usr/bin:/bin", "HOME": os.environ.get("HOME", "/")}
    done = subprocess.run(
        [bundle.folder / "python", "-c", PACKAGES, bundle.folder / "packages", bundle.folder],
        env=bare,
        cwd="/",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and f"(3, 11) {bundle.folder / 'python'}" in done.stdout, done.stderr
    done = subprocess.run([bundle.folder / "run", "schema"], env=bare, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and json.loads(done.stdout) == json.loads(
        (ROOT / "harness" / "config" / "matrix.schema.json").read_text()
    )
    done = subprocess.run([bundle.folder / "run", "reports", "--help"], env=bare, cwd=ROOT, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_a_matrix_runs_from_it(bundle: Bundle, tmp_path: Path) -> None:
    """By the interpreter and the packages that the bundle brings; what was zeroed and left out is not missed."""
    project = make_project(tmp_path / "project", head("2.5.0") + SHIPPED)
    done = subprocess.run(
        [bundle.folder / "run", "matrix", "--quick", "--launches=1", f"--matrix={project / 'matrix.yaml'}"],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "KERNEL_MATRIX_CACHE": str(tmp_path / "cache")},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    run = latest(project)
    assert run.load().executor == "bundle" and len(run.load().bundle) > 1
    check_measured(run, launches=1)
