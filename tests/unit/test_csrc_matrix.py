"""The kernels of the shipped matrix.yaml, with the tunables that their sources have."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from harness.config.kernels import Kernel
from tests.cuda_on_cpu.emulated import INCLUDE_FLAGS
from tests.unit.test_csrc import COMPILER, CSRC

KERNELS = {
    row["name"]: Kernel.model_validate(row)
    for row in yaml.safe_load((CSRC.parent / "matrix.yaml").read_text())["kernels"]
}


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())
def test_its_files_are_there_and_it_can_be_swept(kernel: Kernel) -> None:
    assert kernel.sources is not None
    assert all((CSRC.parent / name).is_file() for name in kernel.sources.cuda)
    assert kernel.settings > 1


@pytest.mark.process
@pytest.mark.skipif(COMPILER is None, reason="no g++ on PATH")
@pytest.mark.parametrize("family", ["mma", "wgmma"])
def test_its_tunables_are_the_defaults_of_its_header(family: str, tmp_path: Path) -> None:
    """So that a sweep's incumbent is what is built where nothing is given."""
    assert COMPILER is not None
    source, program = tmp_path / "print.cpp", tmp_path / "print"
    source.write_text(
        f'#include "attention_{family}.h"\n#include <cstdio>\n'
        f"int main() {{ std::puts(ATTENTION_{family.upper()}_TUNABLES); }}\n"
    )
    command = [COMPILER, "-std=c++17", *INCLUDE_FLAGS, str(source), "-o", str(program)]
    subprocess.run(command, check=True)
    said = subprocess.run([program], capture_output=True, text=True, check=True).stdout.strip()
    assert said == " ".join(f"{n}={v}" for n, v in KERNELS[f"attention_{family}"].tunables.items())
