"""A real image as a bundle: packed, unpacked by the script, and as good as the image on the CPU."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.bundling.manifest import Bundle, load_bundle
from harness.bundling.trying import run_in, run_verb
from harness.executors.proving import stage_inside
from harness.storage import Run
from tests.conftest import ROOT
from tests.container.conftest import BASE
from tests.environments.test_run import SHIPPED, head, make_project

ID = "torch2.5.0-pypi-py311"
pytestmark = [
    pytest.mark.container,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("zstd") is None, reason="no zstd here: apt-get install zstd"),
]
EXTENSION = """\
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
assert module.twice(torch.ones(2)).tolist() == [2.0, 2.0]
"""
PACKAGES = """\
import subprocess, sys
import docker, filelock, jinja2, numpy, pandas, platformdirs, psutil, pydantic, rich, scipy.stats, yaml
assert all(module.__file__.startswith(sys.argv[1]) for module in (numpy, pandas, pydantic, psutil, yaml))
assert subprocess.run([sys.executable, "-c", "import sys, pydantic; sys.exit(7)"]).returncode == 7
print(sys.version_info[:2], sys.executable)
"""


@pytest.fixture(scope="module")
def place(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a bundle, packed fast, and what it was unpacked to."""
    folder = tmp_path_factory.mktemp("bundle")
    try:
        command = [
            sys.executable,
            "-m",
            "harness",
            "bundle",
            "--arch=90",
            "--torch=2.5.0",
            "--level=3",
            "--part-mb=100",
        ]
        done = subprocess.run(
            [*command, f"--base-image={BASE}", f"--out={folder / 'out'}"], cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"proven {ID}: 5 results bit for bit" in done.stdout
        done = subprocess.run(
            ["sh", folder / "out" / "unpack.sh", "--any-gpu", folder / "there"], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def bundle(place: Path) -> Bundle:
    return load_bundle(place / "there")


def test_it_is_small_and_says_what_it_is(place: Path, bundle: Bundle, image: str) -> None:
    entry = bundle.entry(ID)
    assert entry.image == image and entry.torch.startswith("2.5.0") and bundle.manifest.least_driver == "525.60.13"
    assert sum(path.stat().st_size for path in (place / "out").iterdir()) < 1.1e9
    assert all(part.bytes <= 100_000_000 for part in bundle.manifest.parts)
    assert sum(entry.blanked.values()) > 2e9 and sum(entry.removed.values()) > 0.4e9
    assert "cpu/flash/fp32" in entry.proof.digests and "uv" not in bundle.manifest.packages
    assert not (place / "out" / ".work").exists() and not list((place / "out").parent.glob(".out.part"))


def test_a_library_that_lost_its_code_is_found(bundle: Bundle, tmp_path: Path) -> None:
    library = bundle.environment(ID) / "lib/python3.11/site-packages/nvidia/cufft/lib/libcufft.so.11"
    kept = library.with_suffix(".kept")
    library.rename(kept)
    try:
        whole = kept.read_bytes()
        library.write_bytes(whole[:4] + bytes(60) + whole[64:])  # its header, but for what says that it is an ELF file
        command = [
            "/opt/environment/bin/python", "-c",
            "import json; from inside import prove_bundle as p; "
            "print(json.dumps(dict(zip(('libraries', 'unloadable'), p.load_libraries()))))",
        ]  # fmt: skip
        done = run_in(bundle, ID, command, inside=stage_inside(tmp_path), out=tmp_path)
        assert done.returncode == 0, done.stderr
        seen = json.loads(done.stdout)
    finally:
        kept.replace(library)
    proof = bundle.entry(ID).proof
    name = "nvidia/cufft/lib/libcufft.so.11"
    assert name in proof.libraries and "ELF" in seen["unloadable"][name]
    others = [library for library in proof.libraries if library != name]
    answer = {"digests": proof.digests, "machine": proof.machine.model_dump(), "unsupported": {}, **seen}
    assert f"{name}: loaded before packing, and not here" in proof.problem_with({**answer, "libraries": others})


def test_extensions_are_built_in_it(bundle: Bundle, tmp_path: Path) -> None:
    (tmp_path / "extension.py").write_text(EXTENSION)
    command = ["env", "TORCH_CUDA_ARCH_LIST=9.0", "/opt/environment/bin/python", "/out/extension.py"]
    done = run_in(bundle, ID, command, inside=stage_inside(tmp_path / "cache"), out=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_observing_it_finds_every_pin(bundle: Bundle, tmp_path: Path) -> None:
    inside = stage_inside(tmp_path / "cache")
    seen = run_verb(bundle, ID, "observe", {"threads": 1}, inside=inside, scratch=tmp_path / "scratch")
    assert "triton" in seen["wheels"] and "release 12.4" in seen["nvcc"] and seen["compiler"]


def test_the_harness_runs_by_what_it_brings(bundle: Bundle) -> None:
    bare = {"PATH": "/usr/bin:/bin", "HOME": os.environ.get("HOME", "/")}
    done = subprocess.run(
        [bundle.folder / "python", "-c", PACKAGES, bundle.folder / "packages"],
        env=bare, cwd="/", capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0 and f"(3, 11) {bundle.folder / 'python'}" in done.stdout, done.stderr
    done = subprocess.run([bundle.folder / "run", "schema"], env=bare, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and json.loads(done.stdout) == json.loads(
        (ROOT / "harness" / "matrix.schema.json").read_text()
    )
    done = subprocess.run([bundle.folder / "run", "reports", "--help"], env=bare, cwd=ROOT, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_a_matrix_runs_from_it(bundle: Bundle, tmp_path: Path) -> None:
    """By the interpreter and the packages that the bundle brings; what was zeroed and left out is not missed."""
    project = make_project(tmp_path / "project", head("2.5.0") + SHIPPED)
    done = subprocess.run(
        [bundle.folder / "run", "matrix", "--quick", "--launches=1", f"--matrix={project / 'matrix.yaml'}"],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "KERNEL_MATRIX_CACHE": str(tmp_path / "cache")},
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    run = Run((project / "reports" / "latest").resolve())
    assert run.load().executor == "bundle" and len(run.load().bundle) > 1
    assert {validation.status for validation in run.validations()} == {"ok"}
    assert [launch.status for launch in run.launches()] == ["ok"]
