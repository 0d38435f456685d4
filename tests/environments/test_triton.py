"""Triton without a GPU, in a sandbox as a bundle's: it finds the driver's libraries and builds what starts its kernels,
and what it compiles is read from its own cache and objects."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.executors.bwrap import Access, Mount, cache_libraries, driver_mounts, grant, interpreter
from harness.executors.sandbox import hand_over, sandbox_variables
from tests.conftest import ROOT

pytestmark = [pytest.mark.environments, pytest.mark.timeout(300)]

KERNEL = """\
import json, os
from dataclasses import asdict
import triton, triton.language as tl
from worker import generated

@triton.autotune([triton.Config({"BLOCK": 128}, num_warps=4), triton.Config({"BLOCK": 64}, num_warps=2)], key=["n"])
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)

if triton.__version__ < "3":
    from triton.common.build import _build, libcuda_dirs
    given = ()
    types = {0: "*fp32", 1: "*fp32", 2: "*fp32", 3: "i32"}
    triton.compile(add.fn, signature=types, constants={4: 128}, device=0, device_type="cuda", cc=90, num_warps=4)
else:
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.driver import include_dir, libcuda_dirs, libraries, library_dirs
    from triton.compiler import ASTSource
    from triton.runtime.build import _build
    given = (library_dirs(), include_dir, libraries)
    types = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32"}
    triton.compile(ASTSource(add.fn, types, {"BLOCK": 128}), target=GPUTarget("cuda", 90, 32))
with open("main.c", "w") as file:
    file.write("#include <cuda.h>\\n#include <Python.h>\\nint started(void) { return cuInit(0); }")
_build("launcher", "main.c", "/out", *given)
found = generated.generated(os.environ["TRITON_CACHE_DIR"])
print(json.dumps([libcuda_dirs(), [asdict(each) for each in found]]))
"""


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver's folder that holds libcuda.so.1, and no libcuda.so, as on some machines."""
    source = tmp_path / "driver.c"
    called = ("cuInit", "cuLaunchKernel", "cuGetErrorString", "cuPointerGetAttribute")
    source.write_text("".join(f"int {name}(void) {{ return 1; }}" for name in called))
    library = tmp_path / "libcuda.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", source, "-o", library], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))


def read(source: Path, target: Path) -> Mount:
    return Mount(access=Access.READ, source=str(source), target=str(target))


def run(python: Path, folder: Path) -> Any:
    """What KERNEL prints in a sandbox with a driver."""
    bwrap, why = grant()
    if bwrap is None:
        pytest.skip(f"this machine grants no sandbox: {why}")
    out = folder / "out"
    out.mkdir(parents=True)
    if not bwrap.rootless:
        hand_over([out])
    (folder / "kernel.py").write_text(KERNEL)  # Triton reads a kernel's source from its file
    driver = driver_mounts()
    mounts = [
        *driver,
        *(read(path, path) for path in {*interpreter(python), python.parents[1]}),
        read(ROOT / "harness" / "worker", Path("/in/worker/worker")),
        read(folder / "kernel.py", Path("/in/kernel.py")),
        Mount(access=Access.WRITE, source=str(out), target="/out"),
        cache_libraries(bwrap, driver, folder / "loader"),
    ]
    variables = {**sandbox_variables(1), "TRITON_CACHE_DIR": "/out/triton"}
    command = bwrap.enter(mounts, [str(python), "/in/kernel.py"], folder="/out", variables=variables)
    done = subprocess.run(command, env={}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.usefixtures("driver")
def test_what_it_finds_and_what_it_leaves(pinned_pythons: list[Path], tmp_path: Path) -> None:
    for number, python in enumerate(pinned_pythons):
        folders, files = run(python, tmp_path / str(number))
        assert "/driver" in folders
        assert [(each["kind"], each["name"]) for each in files] == [
            (kind, "add") for kind in ("cubin", "llir", "ptx", "ttgir", "ttir")
        ]
        assert all("/out" not in each["text"] for each in files)
