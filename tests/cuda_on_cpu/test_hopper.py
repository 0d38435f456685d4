"""The emulator's wgmma and tensor copies answer as tests/gpu/wgmma_layouts.cu asks the device."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from .emulated import COMPILER, EMULATOR, ROOT, compile_objects, link


@pytest.mark.process
@pytest.mark.skipif(COMPILER is None, reason="no g++ on PATH")
def test_layouts(tmp_path: Path) -> None:
    sources = [EMULATOR / "emulator.cpp", ROOT / "tests" / "gpu" / "wgmma_layouts.cu"]
    program = link(tmp_path / "layouts", compile_objects(tmp_path, sources))
    done = subprocess.run([program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    answers = {line[6:]: line.split()[0] for line in done.stdout.splitlines()}
    assert len(answers) == 14 and not any(line.startswith("instead") for line in answers)
    assert {what for what, answer in answers.items() if answer != "yes"} == {
        "MN-major, other reading: the two offsets swapped"
    }
