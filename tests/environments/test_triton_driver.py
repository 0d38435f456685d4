"""Triton finds the driver's libraries where a bundle's sandbox shows them, and builds what starts its kernels."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from harness.isolate.choose import grant
from harness.isolate.confined import MACHINE, interpreter
from harness.isolate.namespaces import driver_mounts, write_sandbox
from harness.isolate.sandbox import hand_over, sandbox_variables

pytestmark = [pytest.mark.environments, pytest.mark.timeout(300)]

FIND = """\
import json, triton
if triton.__version__ < "3":
    from triton.common.build import _build, libcuda_dirs
    given = ()
else:
    from triton.backends.nvidia.driver import include_dir, libcuda_dirs, libraries, library_dirs
    from triton.runtime.build import _build
    given = (library_dirs(), include_dir, libraries)
with open("main.c", "w") as file:
    file.write("#include <cuda.h>\\n#include <Python.h>\\nint started(void) { return cuInit(0); }")
_build("launcher", "main.c", "/out", *given)
print(json.dumps(libcuda_dirs()))
"""


def test_each_version_finds_it_and_links_with_it(
    pinned_pythons: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespaces, why = grant()
    if namespaces is None:
        pytest.skip(f"this machine grants no sandbox: {why}")
    library = tmp_path / "libcuda.so.1"  # without libcuda.so, as some machines have it
    source = tmp_path / "driver.c"
    source.write_text("int cuInit(unsigned flags) { return 0; }")
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", source, "-o", library], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    for number, python in enumerate(pinned_pythons):
        out, new = tmp_path / f"out{number}", tmp_path / f"root{number}"
        out.mkdir(), new.mkdir()
        if not namespaces.rootless:
            hand_over([out])
        places = [("ro", str(path), str(path)) for path in (*interpreter(python), python.parents[1])]
        mounts = [*driver_mounts(), *sorted(set(places), key=lambda mount: len(mount[2])), ("run", str(out), "/out")]
        command = write_sandbox(
            tmp_path / "sandbox.json", MACHINE, namespaces, new, mounts,
            {**sandbox_variables(1), "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}, [str(python), "-c", FIND],
        )  # fmt: skip
        done = subprocess.run(command, env={}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "/driver" in json.loads(done.stdout), python
