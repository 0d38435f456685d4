"""The device does what csrc/ptx_hopper.cuh and the emulator take for granted."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.gpu import models
from harness.tools import cuda_compiler
from tests.conftest import ROOT
from tests.gpu.conftest import programs

HOPPER = any(capability == "90" for _, capability, _ in models())
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not HOPPER, reason="no Hopper GPU here"),
    pytest.mark.skipif(cuda_compiler() is None, reason="no nvcc here"),
]


def compile_layouts(program: Path) -> Path:
    compiler = cuda_compiler()
    assert compiler is not None
    program.parent.mkdir(parents=True, exist_ok=True)
    source = ROOT / "tests" / "gpu" / "wgmma_layouts.cu"
    command = [compiler[0], "-std=c++17", "-gencode=arch=compute_90a,code=sm_90a", f"-I{ROOT / 'csrc'}", str(source)]
    built = subprocess.run([*command, "-o", str(program)], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return program


def test_layouts(tmp_path: Path) -> None:
    program = programs(tmp_path) / "layouts"
    done = subprocess.run(
        [program if program.exists() else compile_layouts(program)], capture_output=True, text=True, timeout=300
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
