"""compute-sanitizer on the shipped kernel, each tool with a fault planted that it must find: silence means something.

KERNEL_MATRIX_SANITIZE=all checks every accepted setting of the tunables, not only the shipped one.
"""

from __future__ import annotations

import concurrent.futures
import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from harness.tools import cuda_compiler, gpus
from tests.conftest import ROOT
from tests.unit.test_csrc import SEED, flags_for

CSRC = ROOT / "csrc"
FOUND = 9  # what compute-sanitizer exits with when its tool has found something
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
CHOICES = {
    "BLOCK_M": ("16", "32", "64"),
    "NUM_WARPS": ("4", "8"),
    "VEC_WIDTH": ("1", "2", "4"),
    "SYNC_POLICY": ("0", "2", "5"),
    "REDUCE": ("serial", "warp"),
}
EVERY = [dict(zip(CHOICES, values, strict=True)) for values in itertools.product(*CHOICES.values())]
SETTINGS = EVERY if os.environ.get("KERNEL_MATRIX_SANITIZE") == "all" else [SEED]

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not gpus(), reason="no NVIDIA GPU here"),
    pytest.mark.skipif(cuda_compiler() is None, reason="no nvcc here"),
    pytest.mark.timeout(900),
]


def sanitizer() -> str:
    beside = str(Path(cuda_compiler()[0]).parent) if cuda_compiler() else None
    found = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=beside)
    if found is None:
        pytest.skip("no compute-sanitizer here")
    return found


def compile_check(target: Path, settings: Mapping[str, str], kernel: Path = CSRC / "attention_scalar.cu") -> Path:
    compiler = cuda_compiler()
    assert compiler is not None
    command = [compiler[0], "-arch=native", "-O3", "-lineinfo", f"-I{CSRC}", *flags_for(dict(settings)),
               str(CSRC / "probes" / "attention_check.cu"), str(kernel), "-o", str(target)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target


def name(settings: Mapping[str, str]) -> str:
    return "-".join(settings.values())


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("programs")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {name(s): pool.submit(compile_check, folder / name(s), s) for s in SETTINGS}
        return {key: job.result() for key, job in jobs.items()}


def sanitize(tool: str, program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sanitizer(), "--tool", tool, "--error-exitcode", str(FOUND), str(program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def test_it_computes_attention(programs: dict[str, Path]) -> None:
    for program in programs.values():
        done = subprocess.run([program], capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout.count("error") == 12, done.stdout + done.stderr


@pytest.mark.parametrize("tool", TOOLS)
def test_the_tool_is_silent(tool: str, programs: dict[str, Path]) -> None:
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        done = dict(zip(programs, pool.map(lambda program: sanitize(tool, program), programs.values()), strict=True))
    noisy = {key: run.stdout[-1500:] for key, run in done.items() if run.returncode}
    assert not noisy, f"{len(noisy)} of {len(done)}: {noisy}"
    summaries = [re.search(r"(ERROR|RACECHECK) SUMMARY: (.*)", run.stdout) for run in done.values()]
    assert all(match and re.match(r"0 (errors|hazards)", match[2]) for match in summaries)
    print(f"{tool}: silent on {len(done)} settings")


def test_memcheck_finds_an_output_that_is_an_element_too_short(programs: dict[str, Path]) -> None:
    done = sanitize("memcheck", programs[name(SEED)], "--short")
    assert done.returncode == FOUND and "Invalid __global__ write" in done.stdout, done.stdout[-1500:]


def test_initcheck_finds_an_input_that_nobody_wrote(programs: dict[str, Path]) -> None:
    done = sanitize("initcheck", programs[name(SEED)], "--unset")
    assert done.returncode == FOUND and "Uninitialized __global__ memory read" in done.stdout, done.stdout[-1500:]


@pytest.mark.parametrize("removed", [0, 1])
def test_racecheck_finds_a_missing_barrier(removed: int, tmp_path: Path) -> None:
    """Of the two of SYNC_POLICY 2, which the shipped setting is."""
    lines = (CSRC / "attention_scalar.cu").read_text().splitlines()
    barriers = [
        number for number, line in enumerate(lines) if line.strip().startswith("__syncthreads();  // both tiles")
    ]
    assert len(barriers) == 2
    del lines[barriers[removed]]
    racy = tmp_path / "racy.cu"
    racy.write_text("\n".join(lines))
    done = sanitize("racecheck", compile_check(tmp_path / "racy", SEED, racy))
    assert done.returncode == FOUND and "hazard" in done.stdout, done.stdout[-1500:]


def test_synccheck_finds_a_barrier_that_not_all_threads_reach(tmp_path: Path) -> None:
    text = (CSRC / "attention_scalar.cu").read_text()
    reached = "__syncthreads();  // both tiles are filled"
    assert text.count(reached) == 1
    diverged = tmp_path / "diverged.cu"
    diverged.write_text(text.replace(reached, "if (threadIdx.x % 2) __syncthreads();"))
    done = sanitize("synccheck", compile_check(tmp_path / "diverged", SEED, diverged))
    assert done.returncode == FOUND and "Barrier error" in done.stdout, done.stdout[-1500:]
