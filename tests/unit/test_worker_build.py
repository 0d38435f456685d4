"""The pure parts of `build`, `time` and `observe`: flags, compiler messages, machine code, precision, wheels."""

from __future__ import annotations

import math
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from harness.worker import build, machine_code, sampling, wheels, wire

REQUEST = wire.BuildRequest(
    name="k", build_dir="/b", sources=["/a/x.cpp"], include_dirs=[], flags=wire.FlagsRequest(), load=False
)


def test_defines() -> None:
    flags = build.define_flags({"REDUCE": "warp", "BLOCK_M": "32", "SYNC_POLICY": 2, "MODE": "fast-math"})
    assert flags == ["-DBLOCK_M=32", "-DMODE_FAST_MATH=1", "-DREDUCE_WARP=1", "-DSYNC_POLICY=2"]


def test_architectures_that_old_helpers_do_not_know() -> None:
    assert build.helper_architectures(["sm_80", "sm_89", "sm_90a", "sm_90"]) == "8.0;8.9;9.0"
    assert build.helper_architectures(["sm_120"]) == "12.0"
    assert build.gencode("sm_90a") == "-gencode=arch=compute_90a,code=sm_90a"


def test_cuda_flags_only_with_cuda_sources() -> None:
    request = replace(REQUEST, flags=wire.FlagsRequest(nvcc=["-lineinfo"]), architectures=["sm_80"])
    assert build.compiler_flags(request) == {"cxx": [], "nvcc": [], "ld": []}
    request = replace(request, sources=["/a/x.cu"])
    assert build.compiler_flags(request)["nvcc"] == ["-lineinfo", "-gencode=arch=compute_80,code=sm_80"]


def test_the_shipped_binding_needs_cuda_s_headers_and_none_of_its_flags() -> None:
    request = replace(REQUEST, cuda_headers=True, flags=wire.FlagsRequest(cxx=["-O3"]))
    assert build.uses_cuda(request) and not build.has_device_code(request)
    assert build.compiler_flags(request) == {"cxx": ["-O3"], "nvcc": [], "ld": []}
    assert not build.uses_cuda(replace(request, cuda_headers=False))


GCC = """[1/2] c++ -DTORCH_EXTENSION_NAME=k -c /home/u/csrc/k.cpp -o k.o
FAILED: k.o
c++ -DTORCH_EXTENSION_NAME=k -c /home/u/csrc/k.cpp -o k.o
/home/u/csrc/k.cpp: In function 'void f()':
/home/u/csrc/k.cpp:7:3: error: 'x' was not declared in this scope
"""


def test_the_first_error_is_found_and_its_path_shortened() -> None:
    assert build.first_error(GCC, ["/home/u/csrc/k.cpp"]) == "k.cpp:7:3: error: 'x' was not declared in this scope"
    for nvcc in ('k.cu(12): error: identifier "y" is undefined', "k.cu(3): error #20: identifier is undefined"):
        assert build.first_error(f"/a/{nvcc}\n", ["/a/k.cu"]) == nvcc
    assert build.first_error("warning: error_count is unused", ["/a/k.cu"]) is None


def test_the_excerpt_leaves_out_commands() -> None:
    assert "-DTORCH_EXTENSION_NAME" not in build.relevant(GCC)
    assert "In function" in build.relevant(GCC)
    assert len(build.relevant("x error y\n" * 5000)) <= build.EXCERPT_CHARACTERS


DISASSEMBLY = """
/tmp/{place}/k.o:     file format elf64-x86-64

0000000000000{address} <_Z1fv>:
   {address}:	call   {address}5 <_Z1gv+0x5>
   {address}:	jne    {address}9 <_Z1fv+0x{jump}>
"""


def test_addresses_and_paths_do_not_change_a_hash() -> None:
    first = machine_code.normalise_disassembly(DISASSEMBLY.format(place="a", address="10", jump="8"))
    assert first == machine_code.normalise_disassembly(DISASSEMBLY.format(place="b", address="2c", jump="8"))
    assert first != machine_code.normalise_disassembly(DISASSEMBLY.format(place="a", address="10", jump="9"))


USAGE = """
Fatbin elf code:
================
arch = sm_80
code version = [1,7]

Resource usage:
 Common:
  GLOBAL:0
 Function _Z6kernelPf:
  REG:40 STACK:16 SHARED:1024 LOCAL:8 CONSTANT[0]:360 TEXTURE:0 SURFACE:0 SAMPLER:0
"""
SASS = """
arch = sm_80
		Function : _Z6kernelPf
	.headerflags	@"EF_CUDA_SM80"
        /*0000*/                   MOV R1, c[0x0][0x28] ;    /* 0x00000a0000017a02 */
        /*{address}*/                   EXIT ;    /* 0x000000000000794d */
        /*0020*/              @!P0 RED.E.ADD.F32.FTZ.RN.STRONG.GPU [R2.64], R5 ;
        /*0030*/                   ATOMS.ADD RZ, [R4], R7 ;
        /*0040*/                   ATOMG.E.CAS.STRONG.GPU PT, R9, [R2.64], R6, R7 ;
        /*0050*/                   REDUX.SUM UR4, R5 ;
		..........
"""


def test_device_functions_are_parsed() -> None:
    assert machine_code.parse_usage(USAGE) == [
        wire.DeviceFunction("_Z6kernelPf", "sm_80", registers=40, spill_bytes=24, shared_bytes=1024)
    ]
    first, second = (machine_code.parse_sass(SASS.format(address=address)) for address in ("0010", "0020"))
    ((function, (_, atomics)),) = first.items()
    assert function == ("sm_80", "_Z6kernelPf") and first == second and atomics == 3


@pytest.mark.process
@pytest.mark.skipif(not (shutil.which("g++") and shutil.which("objdump")), reason="no g++, or no objdump, on PATH")
def test_a_second_c_plus_plus_runtime_is_told(tmp_path: Path) -> None:
    source = tmp_path / "throws.cpp"
    source.write_text("void refuse(long number) { throw number; }\n")
    notes = []
    for flags in ([], ["-static-libstdc++"]):
        library = tmp_path / "throws.so"
        subprocess.run(["g++", "-shared", "-fPIC", *flags, str(source), "-o", str(library)], check=True)
        notes.append(machine_code.runtime_note(str(library)))
    assert notes[0] == "" and "libstdc++ is linked into it" in notes[1]
    assert machine_code.runtime_note(str(source)) == ""


def test_the_median_is_known_better_with_more_samples() -> None:
    spread = [100 + (i * 37 % 101) for i in range(2000)]
    assert sampling.median_error(spread) < sampling.median_error(spread[:20])
    assert sampling.median_error([5.0] * 10) == 0
    assert math.isinf(sampling.median_error([0.0, 0.0]))


def test_sampling_stops_at_its_limits() -> None:
    timing = wire.SamplingRequest(
        warmup_s=0.0, warmup_calls=3, target_s=0.0, min_samples=4, max_samples=100, relative_error=0.0
    )
    spread = [float(i * 37 % 101) for i in range(1, 101)]
    over = sampling.StopRule(timing)
    assert not over.is_met(spread[:3]) and over.is_met(spread[:4])
    full = sampling.StopRule(replace(timing, target_s=60.0, max_samples=7))
    assert not full.is_met(spread[:6]) and full.is_met(spread[:7])
    known = sampling.StopRule(replace(timing, target_s=60.0, relative_error=0.01))
    assert not known.is_met(spread[:20]) and known.is_met([5.0] * 30)


@pytest.mark.parametrize(
    ("line", "matters"),
    [
        ("torch/lib/libtorch.so,sha256=changed,10", True),
        ("../../../bin/torchrun,sha256=changed,10", False),
        ("torch-2.1.0.dist-info/INSTALLER,sha256=changed,2", False),
        ("torch/__pycache__/a.cpython-310.pyc,,", False),
    ],
)
def test_what_identifies_an_installed_wheel(line: str, matters: bool) -> None:
    record = "torch/__init__.py,sha256=abc,3\ntorch-2.1.0.dist-info/RECORD,,\n"
    assert (wheels.record_digest(record) != wheels.record_digest(record + line + "\n")) is matters
    assert wheels.record_digest(record) == wheels.record_digest("\n".join(reversed(record.splitlines())))


def test_names() -> None:
    """As indexes write them, and as modules must be called."""
    assert wheels.normalise("Nvidia_cuda.Runtime-cu12") == "nvidia-cuda-runtime-cu12"
    assert build.identifier("attention-scalar.v2") == "attention_scalar_v2"


@pytest.mark.parametrize(
    ("said", "undefined", "message"),
    [
        (
            "/b/attention.so: undefined symbol: attention_tunables",
            ["attention_error_string", "attention_tunables", "at::empty()"],
            "no source defines attention_error_string or attention_tunables; a kernel defines attention_forward, "
            "attention_error_string and attention_tunables, as csrc/attention.h declares them",
        ),
        ("/b/attention.so: undefined symbol: attention_forward", None, "no source defines attention_forward; a kernel"),
        (
            "/b/mine.so: undefined symbol: _Z6helperi",
            ["helper(int)"],
            "no file listed in `sources` defines helper(int)",
        ),
        ("libx.so: cannot open shared object file\nmore", [], "libx.so: cannot open shared object file"),
        ("", [], "(no message)"),
    ],
)
def test_what_cannot_be_loaded_says_what_no_source_defines(
    said: str, undefined: list[str] | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build.tools, "undefined", lambda paths: undefined)
    monkeypatch.setattr(build.tools, "run", lambda command: {"_Z6helperi": "helper(int)\n"}[command[1]])
    assert build.unresolved(said, "/b/mine.so").startswith(message)
    monkeypatch.setattr(build.tools, "run", lambda command: None)  # binutils are missing
    assert "_Z6helperi" not in said or "defines _Z6helperi" in build.unresolved(said, "/b/mine.so")
