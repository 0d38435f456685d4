"""attention_family.h: what is computed on the host and the device alike."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from .emulated import COMPILER, INCLUDE_FLAGS


@pytest.mark.process
@pytest.mark.skipif(COMPILER is None, reason="no g++ on PATH")
def test_quotients(tmp_path: Path) -> None:
    assert COMPILER is not None
    source, program = Path(__file__).with_name("divide.cpp"), tmp_path / "divide"
    command = [COMPILER, "-std=c++17", "-O1", "-fsanitize=undefined", *INCLUDE_FLAGS]
    subprocess.run([*command, str(source), "-o", str(program)], check=True)
    assert subprocess.run([program], capture_output=True, text=True).stdout == "0 wrong of 2100000"
