"""Every attention kernel and every CUDA case compiles with a real nvcc, without a warning in a kernel; they run on a
GPU alone. A kernel's default is compiled for every architecture, other settings for one, a case for each of its flags.
"""

from __future__ import annotations

from typing import Any

import pytest

from harness.config.shipped import CSRC
from harness.executors.engine import Engine
from harness.executors.sandbox import SandboxLimits
from tests.container.cells import Cells
from tests.fault_cases.cases import HERE, FaultCase, load_cases

pytestmark = [pytest.mark.container, pytest.mark.timeout(2500)]

MMA = ("BLOCK_M", "BLOCK_N", "WARPS_M", "WARPS_N", "STAGES", "HEAD_DIM", "EARLY_LAUNCH")
KERNELS = {
    "cublas": ("attention_cublas", ["sm_80", "sm_89", "sm_90"], []),
    "dispatcher": ("attention", ["sm_90"], []),
    "mma": ("attention_mma", ["sm_80", "sm_89", "sm_90"], []),
    "mma-128-rows-8-warps": ("attention_mma", ["sm_80"], [128, 64, 8, 1, 2]),
    "mma-16-rows-4-groups": ("attention_mma", ["sm_80"], [16, 16, 1, 4, 4]),
    "mma-launched-early": ("attention_mma", ["sm_90"], [64, 0, 0, 0, 0, 64, 1]),
}
STRICT = ["-D__CUDA_NO_BFLOAT16_CONVERSIONS__", "-D__CUDA_NO_HALF2_OPERATORS__", "-Xptxas", "-v"]
CASES = {
    name: case
    for name, case in load_cases().items()
    if case.device == "cuda" and case.kernel is not None and case.kernel.problem is None
}
# As PyTorch's helper calls it, two at once.
COMPILE = """\
    import concurrent.futures, os, subprocess
    nvcc = ["/usr/local/cuda/bin/nvcc", "-std=c++17", "-D__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_HALF_CONVERSIONS__"]
    nvcc += ["--expt-relaxed-constexpr", "-Xcompiler", "-Wall", "-I", request["csrc"], "-I", request["shared"]]
    def compiled(job):
        number, (name, source, flags) = job
        out = f"/out/{number}.o"
        done = subprocess.run([*nvcc, *flags, "-c", source, "-o", out], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        if os.path.exists(out):
            os.unlink(out)
        return [name, done.returncode, done.stdout.decode()]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        result["found"] = list(pool.map(compiled, enumerate(request["jobs"])))
"""


def for_architectures(names: list[str]) -> list[str]:
    return [f"-gencode=arch=compute_{name[3:]},code={name}" for name in names]


def kernel_job(name: str) -> tuple[str, str, list[str]]:
    kernel, architectures, values = KERNELS[name]
    tunables = [f"-D{tunable}={value}" for tunable, value in zip(MMA, values, strict=False)]
    return name, str(CSRC / f"{kernel}.cu"), [*STRICT, *for_architectures(architectures), *tunables]


def case_jobs(name: str, case: FaultCase) -> list[tuple[str, str, list[str]]]:
    flags = {tuple(case.kernel.flags.nvcc + variant.flags.nvcc) for variant in case.environments}
    return [
        (name, str(source), [*for_architectures(["sm_90"]), *given])
        for source in case.own_files().values()
        for given in sorted(flags)
    ]


@pytest.fixture(scope="module")
def compiled(engine: Engine, image: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[int, str]]]:
    """By name: nvcc's exit code and what it said, for each file and set of flags."""
    jobs = [*map(kernel_job, KERNELS), *(job for name, case in CASES.items() for job in case_jobs(name, case))]
    limits = SandboxLimits(memory_bytes=8 << 30, processes=256, output_bytes=64 << 20, output_files=64)
    cells = Cells(engine, image, tmp_path_factory.mktemp("compiling"), limits)
    request: dict[str, Any] = {"jobs": list(map(list, jobs)), "csrc": str(CSRC), "shared": str(HERE)}
    by_name: dict[str, list[tuple[int, str]]] = {}
    for name, code, said in cells.result(COMPILE, request=request, reads=(CSRC, HERE), timeout_s=2400)["found"]:
        by_name.setdefault(name, []).append((code, said))
    return by_name


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_compiles(compiled: dict[str, list[tuple[int, str]]], name: str) -> None:
    [(code, said)] = compiled[name]
    assert code == 0, said[-2000:]
    assert "warning" not in said.replace("deprecated", "")
    spilled = [line for line in said.splitlines() if "spill" in line and " 0 bytes spill stores" not in line]
    assert not spilled, spilled


@pytest.mark.parametrize("name", CASES)
def test_a_cuda_case_compiles(compiled: dict[str, list[tuple[int, str]]], name: str) -> None:
    found = compiled[name]
    assert len(found) == len(case_jobs(name, CASES[name])) > 0 and all(code == 0 for code, _ in found), found
