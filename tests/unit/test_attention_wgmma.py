"""attention_wgmma.h: which settings become a binary. The kernel itself is tested under the emulator."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

CSRC = ROOT / "csrc"
COMPILER = shutil.which("g++")

pytestmark = [pytest.mark.process, pytest.mark.skipif(COMPILER is None, reason="no g++ on PATH")]


def compile_tiles(folder: Path, *flags: str) -> str:
    """What the compiler says of both head dimensions' tiles; empty where it takes them."""
    assert COMPILER is not None
    source = folder / "tiles.cpp"
    source.write_text(
        '#include "attention_wgmma.h"\n'
        "using namespace attention_wgmma;\n"
        "constexpr int kThreads[] = {Settings<64>::Tall::kThreads, Settings<64>::Low::kThreads,\n"
        "                            Settings<128>::Tall::kThreads, Settings<128>::Low::kThreads};\n"
        "static_assert(kThreads[0] > 0);\n"
        "const char* tunables = ATTENTION_WGMMA_TUNABLES;\n"
    )
    command = [COMPILER, "-std=c++17", "-fsyntax-only", "-Wall", "-Werror", f"-I{CSRC}", *flags, str(source)]
    return subprocess.run(command, capture_output=True, text=True).stderr


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["-DBLOCK_N_128=176"],
        ["-DCONSUMERS_64=1", "-DCONSUMERS_128=1", "-DBLOCK_N_128=64"],
        ["-DCONSUMERS_64=2", "-DBLOCK_N_64=192", "-DCONSUMERS_128=3", "-DBLOCK_N_128=80"],
        ["-DSTAGES_64=4", "-DPINGPONG=0", "-DPERSISTENT=0"],
    ],
)
def test_accepted(tmp_path: Path, flags: list[str]) -> None:
    assert compile_tiles(tmp_path, *flags) == ""


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["-DCONSUMERS_64=4"], "CONSUMERS must be 1, 2 or 3"),
        (["-DBLOCK_N_64=120"], "in steps of 16"),
        (["-DBLOCK_N_128=208"], "BLOCK_N must be 64 to 192"),
        (["-DSTAGES_128=1"], "STAGES must be 2, 3 or 4"),
        (["-DSTAGES_128=4"], "leave the shared memory"),
        (["-DCONSUMERS_128=3"], "leave the registers"),
        (["-DBLOCK_N_64=144"], "leave the registers"),
        (["-DPINGPONG=2"], "PINGPONG must be 0 or 1"),
        (["-DPERSISTENT=-1"], "PERSISTENT must be 0 or 1"),
        (["-DEARLY_LAUNCH=2"], "EARLY_LAUNCH must be 0 or 1"),
    ],
)
def test_refused(tmp_path: Path, flags: list[str], reason: str) -> None:
    assert reason in compile_tiles(tmp_path, *flags)
