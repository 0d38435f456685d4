"""compute-sanitizer on the kernels, each tool with a fault planted that it must find: silence means something.

KERNEL_MATRIX_SANITIZE=all checks every accepted setting of attention_scalar's tunables, not only the shipped one.
"""

from __future__ import annotations

import concurrent.futures
import itertools
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import filelock
import pytest

from benchmarks.kernels import FAMILIES, cublas_flags
from harness.gpu import gpus
from harness.tools import cuda_compiler
from harness.worker import check, tools
from tests.conftest import ROOT
from tests.gpu.conftest import architecture
from tests.gpu.conftest import programs as folder_of_programs
from tests.unit.test_csrc import SEED, flags_for

CSRC = ROOT / "csrc"
KERNEL = CSRC / "attention_scalar.cu"
LIMIT_S = 180  # of one program under one tool
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
ONCE = ["--once"] if len(SETTINGS) > 1 else []  # whether they are right, and the same twice, is asked without a tool
BARRIER = "__syncthreads();  // both tiles are "
END = "1.0f / l[r], lane);\n}\n\n#else  // SYNC_POLICY == 5"
DIVERGE = """
    __shared__ volatile int arrived;
    arrived = 0;
    __syncthreads();
    if (threadIdx.x % 2) {
        arrived = 1;
        __syncthreads();
    } else {
        while (!arrived) {}
        for (const long long seen = clock64(); clock64() - seen < 2000000;) {}
    }"""
# Of each family what its choice by shape does not reach with the small problems of attention_check.cu, too.
IN_FAMILIES: dict[str, tuple[str, dict[str, str]]] = {
    "mma": ("mma", {}),
    "mma-128-rows": ("mma", {"BLOCK_M": "128"}),
    "mma-early": ("mma", {"EARLY_LAUNCH": "1"}),
    "wgmma": ("wgmma", {}),
    "wgmma-tall": ("wgmma", {"CONSUMERS_64": "3", "CONSUMERS_128": "2"}),
    "auto": ("auto", {}),
    "cublas": ("cublas", {}),
}
# What is taken out of the kernel, and put in its place, so that a tool must find it. Both barriers are those of
# SYNC_POLICY 2, which the shipped setting is. Of each warp one half comes to a last barrier while the other is busy and
# will never come: it has seen the first half on its way, and ends so much later that the tool meets it alive.
PLANTED = {
    "not-filled": (BARRIER + "filled", ""),
    "not-used-up": (BARRIER + "used up", ""),
    "not-all": (END, END.replace("\n}", f"\n{DIVERGE}\n}}", 1)),
}

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not gpus(), reason="no NVIDIA GPU here"),
    pytest.mark.skipif(cuda_compiler() is None, reason="no nvcc here"),
    pytest.mark.timeout(900),
]


def compile_program(target: Path, *flags_and_sources: str) -> Path:
    """attention_check.cu around the kernel in the sources, unless it is there."""
    compiler = cuda_compiler()
    assert compiler is not None
    if target.exists():
        return target
    part = target.with_suffix(".part")
    command = [compiler[0], "-O3", "-std=c++17", "-lineinfo", f"-I{CSRC}", str(CSRC / "probes" / "attention_check.cu")]
    done = subprocess.run([*command, *flags_and_sources, "-o", str(part)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return part.rename(target)


def compile_check(target: Path, settings: Mapping[str, str], kernel: Path = KERNEL) -> Path:
    return compile_program(target, "-arch=native", *flags_for(dict(settings)), str(kernel))


def compile_family(target: Path, family: str, settings: Mapping[str, str]) -> Path:
    """For this GPU with all that it has: wgmma is in the architecture whose name ends in a."""
    number = architecture().removeprefix("sm_").replace("90", "90a")
    libraries = cublas_flags() if family == "cublas" else []
    libraries += [
        part for flag in libraries if flag.startswith("-L") for part in ("-Xlinker", "-rpath", "-Xlinker", flag[2:])
    ]
    return compile_program(
        target,
        f"-gencode=arch=compute_{number},code=sm_{number}",
        *flags_for(dict(settings)),
        *(str(ROOT / source) for source in FAMILIES[family]),
        *libraries,
    )


def faulty(fault: str) -> str:
    """The kernel with one of `PLANTED`."""
    text = KERNEL.read_text()
    removed, planted = PLANTED[fault]
    assert text.count(removed) == 1
    return text.replace(removed, planted)


def compile_faulty(target: Path, fault: str) -> Path:
    source = target.with_suffix(".cu")
    source.write_text(faulty(fault))
    return compile_check(target, SEED, source)


def name(settings: Mapping[str, str]) -> str:
    return "-".join(settings.values())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of_programs(tmp_path_factory.mktemp("programs"))


@pytest.fixture(scope="module")
def programs(folder: Path) -> dict[str, Path]:
    return compile_all(folder)


def compile_all(folder: Path) -> dict[str, Path]:
    """The kernel's program in every setting, by its name; those with a fault beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder / "lock")  # other tests may be at it, in other processes
    with lock, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {name(s): pool.submit(compile_check, folder / name(s), s) for s in SETTINGS}
        controls = [pool.submit(compile_faulty, folder / fault, fault) for fault in PLANTED]
        controls += [pool.submit(compile_family, folder / key, *of) for key, of in IN_FAMILIES.items()]
        for control in controls:
            control.result()
        return {key: job.result() for key, job in jobs.items()}


def sanitize(tool: str, program: Path, *arguments: str, options: tuple[str, ...] = ()) -> tuple[int | None, str]:
    """(exit status, None where it did not end in time; what was printed). What it started ends with it."""
    compiler = cuda_compiler()
    assert compiler is not None
    sanitizer = check.find_sanitizer(str(Path(compiler[0]).parent))
    if sanitizer is None:
        pytest.skip("no compute-sanitizer here")
    told = [*check.CUDA_OPTIONS.get(tool, []), *options, "--error-exitcode", str(FOUND)]
    code, printed = tools.attempt([sanitizer, "--tool", tool, *told, str(program), *arguments], LIMIT_S)
    return code, printed


def check_silent(done: Mapping[str, tuple[int | None, str]]) -> None:
    noisy = {key: (code, printed[-1500:]) for key, (code, printed) in done.items() if code != 0}
    assert not noisy, f"{len(noisy)} of {len(done)}: {noisy}"
    summaries = [re.search(r"(ERROR|RACECHECK) SUMMARY: (.*)", printed) for _, printed in done.values()]
    assert all(match and re.match(r"0 (errors|hazards)", match[2]) for match in summaries)


def test_it_computes_attention(programs: dict[str, Path]) -> None:
    for program in programs.values():
        done = subprocess.run([program], capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout.count("error") == 12, done.stdout + done.stderr


@pytest.mark.parametrize("tool", TOOLS)
def test_the_tool_is_silent(tool: str, programs: dict[str, Path]) -> None:
    with concurrent.futures.ThreadPoolExecutor(check.AT_ONCE) as pool:
        done = dict(
            zip(programs, pool.map(lambda program: sanitize(tool, program, *ONCE), programs.values()), strict=True)
        )
    check_silent(done)
    print(f"{tool}: silent on {len(done)} settings")


@pytest.mark.parametrize("family", IN_FAMILIES)
def test_every_tool_is_silent_on_every_family(family: str, programs: dict[str, Path], folder: Path) -> None:
    done = subprocess.run([folder / family], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count("error") == 8, done.stdout + done.stderr
    with concurrent.futures.ThreadPoolExecutor(check.AT_ONCE) as pool:
        results = dict(zip(TOOLS, pool.map(lambda tool: sanitize(tool, folder / family), TOOLS), strict=True))
    check_silent(results)
    print(f"{family}: {', '.join(TOOLS)} silent")


@pytest.mark.parametrize(
    ("tool", "program", "arguments", "options", "words"),
    [
        ("memcheck", name(SEED), ["--short"], (), "Invalid __global__ write"),  # its output is an element too short
        ("initcheck", name(SEED), ["--unset"], (), "Uninitialized __global__ memory read"),
        # In the first two calls: each of their hazards costs the tool time, and there are many.
        ("racecheck", "not-filled", [], ("--launch-count", "2"), "hazard"),
        ("racecheck", "not-used-up", [], ("--launch-count", "2"), "hazard"),
        ("synccheck", "not-all", [], (), "Barrier error"),
    ],
)
def test_each_tool_finds_what_is_planted(
    programs: dict[str, Path],
    folder: Path,
    tool: str,
    program: str,
    arguments: list[str],
    options: tuple[str, ...],
    words: str,
) -> None:
    code, printed = sanitize(tool, programs.get(program, folder / program), *arguments, options=options)
    assert code == FOUND and words in printed, printed[-1500:]
