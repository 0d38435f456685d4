"""Every attention kernel compiles with a real nvcc: its default for every architecture, other settings for one."""

from __future__ import annotations

from typing import Any

import pytest

from harness.isolate.docker.engine import Engine
from harness.isolate.sandbox import SandboxLimits
from tests.conftest import ROOT
from tests.container.cells import Cells

pytestmark = [pytest.mark.container, pytest.mark.timeout(1500)]

CSRC = ROOT / "csrc"
MMA = ("BLOCK_M", "BLOCK_N", "WARPS_M", "WARPS_N", "STAGES", "HEAD_DIM", "EARLY_LAUNCH")
CASES = {
    "cublas": ("attention_cublas", ["sm_80", "sm_89", "sm_90"], []),
    "dispatcher": ("attention", ["sm_90"], []),
    "mma": ("attention_mma", ["sm_80", "sm_89", "sm_90"], []),
    "mma-128-rows-8-warps": ("attention_mma", ["sm_80"], [128, 64, 8, 1, 2]),
    "mma-16-rows-4-groups": ("attention_mma", ["sm_80"], [16, 16, 1, 4, 4]),
    "mma-launched-early": ("attention_mma", ["sm_90"], [64, 0, 0, 0, 0, 64, 1]),
}
# As PyTorch's helper calls it, two at once.
COMPILE = """\
    import concurrent.futures, subprocess
    nvcc = ["/usr/local/cuda/bin/nvcc", "-std=c++17", "-D__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_HALF_CONVERSIONS__"]
    nvcc += ["-D__CUDA_NO_BFLOAT16_CONVERSIONS__", "-D__CUDA_NO_HALF2_OPERATORS__", "--expt-relaxed-constexpr"]
    nvcc += ["-Xcompiler", "-Wall", "-Xptxas", "-v"]
    def compiled(case):
        name, flags = case
        done = subprocess.run([*nvcc, *flags, "-o", f"/out/{name}.o"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return name, {"code": done.returncode, "said": done.stdout.decode()}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        result.update(pool.map(compiled, request["flags"].items()))
"""


def flags_of(name: str) -> list[str]:
    kernel, architectures, values = CASES[name]
    flags = [f"-gencode=arch=compute_{a[3:]},code={a}" for a in architectures]
    flags += [f"-D{tunable}={value}" for tunable, value in zip(MMA, values, strict=False)]
    return [*flags, "-I", str(CSRC), "-c", str(CSRC / f"{kernel}.cu")]


@pytest.fixture(scope="module")
def compiled(engine: Engine, image: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    limits = SandboxLimits(memory_bytes=8 << 30, processes=256, output_bytes=64 << 20, output_files=64)
    cells = Cells(engine, image, tmp_path_factory.mktemp("kernels"), limits)
    request = {"flags": {name: flags_of(name) for name in CASES}}
    return cells.result(COMPILE, request=request, reads=(CSRC,), timeout_s=1200)


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_compiles(compiled: dict[str, Any], name: str) -> None:
    found = compiled[name]
    assert found["code"] == 0, found["said"][-2000:]
    assert "warning" not in found["said"].replace("deprecated", "")
    spilled = [line for line in found["said"].splitlines() if "spill" in line and " 0 bytes spill stores" not in line]
    assert not spilled, spilled
