"""Every CUDA case compiles with a real nvcc, for the flags of each of its environments; it runs on a GPU alone."""

from __future__ import annotations

from typing import Any

import pytest

from harness.config.shipped import CSRC
from harness.isolate.docker.engine import Engine
from harness.isolate.sandbox import SandboxLimits
from tests.container.cells import Cells
from tests.fault_cases.cases import HERE, FaultCase, load_cases

pytestmark = [pytest.mark.container, pytest.mark.timeout(1500)]

CUDA = {
    name: case for name, case in load_cases().items() if case.device == "cuda" and case.kernel.problem is None
}
# As PyTorch's helper calls it, two at once.
COMPILE = """\
    import concurrent.futures, os, subprocess
    nvcc = ["/usr/local/cuda/bin/nvcc", "-std=c++17", "-D__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_HALF_CONVERSIONS__"]
    nvcc += ["--expt-relaxed-constexpr", "-gencode=arch=compute_90,code=sm_90", "-Xcompiler", "-Wall"]
    def compiled(job):
        out = f"/out/{job['number']}.o"
        command = [*nvcc, "-I", request["csrc"], "-I", request["shared"], *job["flags"], "-c", job["source"]]
        done = subprocess.run([*command, "-o", out], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if os.path.exists(out):
            os.unlink(out)
        return [done.returncode, done.stdout.decode()[-2000:]]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        result["found"] = list(pool.map(compiled, request["jobs"]))
"""


def jobs(case: FaultCase) -> list[dict[str, Any]]:
    flags = {tuple(case.kernel.flags.nvcc + variant.flags.nvcc) for variant in case.environments}
    return [
        {"source": str(source), "flags": list(given)}
        for source in case.own_files().values()
        for given in sorted(flags)
    ]


@pytest.fixture(scope="module")
def compiled(engine: Engine, image: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[int, str]]]:
    """By case: nvcc's exit code and what it said, for each file and set of flags."""
    wanted = [(name, job) for name, case in CUDA.items() for job in jobs(case)]
    request = {
        "jobs": [{"number": number, **job} for number, (_, job) in enumerate(wanted)],
        "csrc": str(CSRC), "shared": str(HERE),
    }  # fmt: skip
    limits = SandboxLimits(memory_bytes=4 << 30, processes=256, output_bytes=64 << 20, output_files=64)
    cells = Cells(engine, image, tmp_path_factory.mktemp("fault_cases"), limits)
    found = cells.result(COMPILE, request=request, reads=(CSRC, HERE), timeout_s=1200)["found"]
    by_name: dict[str, list[tuple[int, str]]] = {name: [] for name in CUDA}
    for (name, _), answer in zip(wanted, found, strict=True):
        by_name[name].append(answer)
    return by_name


@pytest.mark.parametrize("name", CUDA)
def test_a_cuda_case_compiles(compiled: dict[str, list[tuple[int, str]]], name: str) -> None:
    found = compiled[name]
    assert len(found) == len(jobs(CUDA[name])) > 0 and all(code == 0 for code, _ in found), found
