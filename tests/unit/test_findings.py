"""What checkers print, as findings. The texts are theirs; only folders and addresses were shortened."""

from __future__ import annotations

import pytest

from harness.experiments.findings import (
    BULK_NOTE,
    MOST_FINDINGS,
    TEXT_CHARACTERS,
    parse_compute,
    parse_sanitizer,
    parse_undefined,
)
from harness.schema.experiment_records import CheckerFinding

ADDRESS = """\
=================================================================
==71==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x61a000001100 at pc 0x5581 bp 0x7ffd sp 0x7ffe
WRITE of size 16 at 0x61a000001100 thread T2
    #0 0x55 in __interceptor_memcpy ../../../../src/libsanitizer/sanitizer_common/interceptors.inc:827
    #1 0x56 in std::copy<float>(float*, float*) /usr/include/c++/12/bits/stl_algo.h:10
    #2 0x57 in tile::operator()(int) const /in/project/csrc/mine.cpp:41
    #3 0x58 in attention_forward /in/project/csrc/mine.cpp:90

0x61a000001100 is located 0 bytes to the right of 640-byte region
SUMMARY: AddressSanitizer: heap-buffer-overflow ../../../../src/libsanitizer/interceptors.inc:827
==71==ERROR: AddressSanitizer: attempting double-free on 0x60200 in thread T0:
    #0 0x7f in free ../../libsanitizer/asan/asan_malloc_linux.cpp:52
    #1 0x55 in attention_forward /in/project/csrc/mine.cpp:95
SUMMARY: AddressSanitizer: double-free
==71==ERROR: AddressSanitizer: SEGV on unknown address 0x0000000 (pc 0x55 bp 0x7f sp 0x7f T0)
    #0 0x55 in attention_forward /in/project/csrc/mine.cpp:99
"""
THREAD = """\
==================
WARNING: ThreadSanitizer: data race (pid=12)
  Write of size 4 at 0x7b04 by thread T2:
    #0 worker(float*) /x/csrc/mine.cpp:20 (thread+0x3a1)
    #1 operator() /x/csrc/mine.cpp:30 (thread+0x3b1)

  Previous write of size 4 at 0x7b04 by thread T1:
    #0 worker(float*) /x/csrc/mine.cpp:20 (thread+0x3a1)

SUMMARY: ThreadSanitizer: data race /x/csrc/mine.cpp:20 in worker(float*)
==================
WARNING: ThreadSanitizer: lock-order-inversion (potential deadlock) (pid=12)
    #0 pthread_mutex_lock ../../libsanitizer/tsan/x.cpp:1 (thread+0x1)
    #1 attention_forward /x/csrc/mine.cpp:50 (thread+0x4a1)
SUMMARY: ThreadSanitizer: lock-order-inversion
ThreadSanitizer: reported 2 warnings
"""
UNDEFINED = """\
/x/csrc/mine.cpp:12:9: runtime error: signed integer overflow: 2147483647 + 1 cannot be represented in type 'int'
    #0 0x55 in attention_forward /x/csrc/mine.cpp:12
/x/csrc/mine.cpp:12:9: runtime error: signed integer overflow: 2147483647 + 2 cannot be represented in type 'int'
/x/csrc/mine.cpp:14:3: runtime error: index 64 out of bounds for type 'float [64]'
/x/csrc/mine.cpp:15:3: runtime error: store to address 0x7ffe with insufficient space for an object of type 'float'
"""
MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at attention(float const*, float*)+0x1d0 in /x/csrc/mine.cu:41
=========     by thread (31,0,0) in block (7,0,0)
=========     Address 0x7f32a is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f3 of size 65,532 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========     Host Frame: cuLaunchKernel [0x3344e0]
=========
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure" on CUDA API call to x.
=========     Saved host backtrace up to driver entry point at error
========= Target application returned an error
========= ERROR SUMMARY: 2 errors
"""
RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at races(int *)+0x90 in /x/call.cpp:59
=========     and Read access at races(int *)+0x50 in /x/call.cpp:58 [508 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
OLD_RACECHECK = """\
========= ERROR: Potential WAW hazard detected at __shared__ 0x0 in block (0, 0, 0) :
=========     Write Thread (0, 0, 0) at 0x00000090 in /x/call.cpp:59:races(int*)
"""
INITCHECK = """\
========= Uninitialized __global__ memory read of size 2 bytes
=========     at 0x390 in /x/csrc/mine.cu:20:attention(int)
=========     by thread (0,0,0) in block (0,0,0)
========= ERROR SUMMARY: 1 error
"""
SYNCCHECK = """\
========= Barrier error detected. Divergent thread(s) in block
=========     at waits(int *)+0x60 in /x/call.cpp:66
=========     by thread (1,0,0) in block (0,0,0)
"""


def short(findings: list[CheckerFinding]) -> list[tuple[str, str, str, int]]:
    return [(f.kind, f.text, f.where, f.count) for f in findings]


def test_address_sanitizer() -> None:
    assert short(parse_sanitizer(ADDRESS)) == [
        ("out_of_bounds", "heap-buffer-overflow, WRITE of size 16", "mine.cpp:41 in tile::operator()(int) const", 1),
        ("misuse", "attempting double-free", "mine.cpp:95 in attention_forward", 1),
        ("out_of_bounds", "SEGV", "mine.cpp:99 in attention_forward", 1),
    ]


def test_thread_sanitizer() -> None:
    assert short(parse_sanitizer(THREAD)) == [
        ("race", "data race, Write of size 4, Previous write of size 4", "mine.cpp:20 in worker(float*)", 1),
        ("misuse", "lock-order-inversion (potential deadlock)", "mine.cpp:50 in attention_forward", 1),
    ]


def test_undefined_behaviour_sanitizer() -> None:
    assert short(parse_undefined(UNDEFINED)) == [
        ("undefined_behaviour", "signed integer overflow: N + N cannot be represented in type 'int'", "mine.cpp:12", 2),
        ("out_of_bounds", "index N out of bounds for type 'float [N]'", "mine.cpp:14", 1),
        ("out_of_bounds", "store to address N with insufficient space for an object of type 'float'", "mine.cpp:15", 1),
    ]


def test_compute_sanitizer() -> None:
    assert short(parse_compute(MEMCHECK))[0] == (
        "out_of_bounds",
        "Invalid __global__ write of size 4 bytes",
        "attention(float const*, float*) in mine.cu:41",
        1,
    )
    assert [f.kind for f in parse_compute(MEMCHECK)] == ["out_of_bounds", "misuse"]
    assert short(parse_compute(RACECHECK)) == [
        (
            "race",
            "Race reported between Write access and Read access at call.cpp:58",
            "races(int *) in call.cpp:59",
            508,
        )
    ]
    assert [f.kind for f in parse_compute(OLD_RACECHECK)] == ["race"]
    assert short(parse_compute(INITCHECK)) == [
        ("uninitialised", "Uninitialized __global__ memory read of size 2 bytes", "mine.cu:20:attention(int)", 1)
    ]
    assert short(parse_compute(SYNCCHECK)) == [
        ("misuse", "Barrier error detected. Divergent thread(s) in block", "waits(int *) in call.cpp:66", 1)
    ]


def test_output_that_nobody_wrote_is_uninitialised_memory() -> None:
    said = "========= Host API uninitialized memory access detected by cudaMemcpy\n=========     Host Frame: x\n"
    assert [f.kind for f in parse_compute(said)] == ["uninitialised"]


def test_a_hazard_where_code_copies_in_bulk_is_no_proof_of_a_race() -> None:
    (finding,) = parse_compute(RACECHECK, bulk_copies=True)
    assert finding.kind == "other" and finding.text.endswith(BULK_NOTE)
    assert parse_compute(INITCHECK, bulk_copies=True) == parse_compute(INITCHECK)


@pytest.mark.parametrize(
    "text",
    ["", "call: done\n", "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n", "ERROR: something else\n"],
)
def test_silence(text: str) -> None:
    assert not [f for parse in (parse_sanitizer, parse_undefined, parse_compute) for f in parse(text)]


def test_equal_findings_are_one_and_all_are_bounded() -> None:
    assert [f.count for f in parse_compute(INITCHECK * 7)] == [7]
    many = "".join(f"/x/a.cpp:{i}:1: runtime error: {'x' * 5000}\n" for i in range(500))
    found = parse_undefined(many)
    assert len(found) == MOST_FINDINGS and all(len(f.text) == TEXT_CHARACTERS for f in found)


def test_a_report_that_is_cut_off_is_a_finding() -> None:
    assert parse_sanitizer(THREAD[: THREAD.index("Previous")])[0].kind == "race"
