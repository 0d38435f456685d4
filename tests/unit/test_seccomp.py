"""The filter of system calls, run as Linux would run it."""

from __future__ import annotations

import struct

import pytest

from harness.isolate import seccomp
from harness.isolate.seccomp import ALLOW, DENIED, DENY, KILL, TRACING, UNKNOWN, filter_program

MACHINE = seccomp.AUDIT_ARCH_X86_64


def verdict(program: bytes, number: int, first: int = 0, machine: int = MACHINE) -> int:
    data = struct.pack("=IIQ6Q", number, machine, 0, first, *[0] * 5)
    steps = list(struct.iter_unpack("=HBBI", program))
    at, loaded = 0, 0
    while True:
        code, if_true, if_false, value = steps[at]
        at += 1
        if code == seccomp.RETURN:
            return int(value)
        if code == seccomp.LOAD:
            loaded = struct.unpack_from("=I", data, value)[0]
            continue
        holds = {
            seccomp.EQUAL: loaded == value,
            seccomp.AT_LEAST: loaded >= value,
            seccomp.ANY_BIT: bool(loaded & value),
        }[code]
        at += if_true if holds else if_false


def test_what_is_denied_and_all_else_is_not() -> None:
    program = filter_program()
    denied = {*DENIED.values(), *TRACING.values()}
    for number in range(460):
        if number not in (seccomp.CLONE3, seccomp.PERSONALITY, seccomp.CLONE):
            assert verdict(program, number) == (DENY if number in denied else ALLOW), number
    assert len(program) % 8 == 0 and len(program) // 8 < 4096, "as long as Linux takes one"


def test_new_threads_and_processes_but_no_new_namespaces() -> None:
    program = filter_program()
    assert verdict(program, seccomp.CLONE3) == UNKNOWN
    assert verdict(program, seccomp.CLONE, 0x3D0F00) == ALLOW, "a thread"
    assert verdict(program, seccomp.CLONE, 17) == ALLOW, "a process"
    for flag in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert verdict(program, seccomp.CLONE, flag | 17) == DENY


@pytest.mark.parametrize("machine", [0x40000003, 0xC00000B7])
def test_calls_of_other_machines_end_the_process(machine: int) -> None:
    assert verdict(filter_program(), 1, machine=machine) == KILL
    assert verdict(filter_program(), seccomp.X32_BIT | 1) == DENY


def test_who_is_bound_to_processors_stays_on_them_and_may_think_otherwise() -> None:
    assert verdict(filter_program(is_bound=True), seccomp.SCHED_SETAFFINITY) == seccomp.IGNORE
    assert verdict(filter_program(), seccomp.SCHED_SETAFFINITY) == ALLOW


def test_personalities_and_tracing() -> None:
    plain, tracing = filter_program(), filter_program(may_trace=True)
    for program in (plain, tracing):
        assert verdict(program, seccomp.PERSONALITY, 0) == verdict(program, seccomp.PERSONALITY, 0xFFFFFFFF) == ALLOW
        assert verdict(program, seccomp.PERSONALITY, 8) == DENY
        assert verdict(program, DENIED["mount"]) == DENY
    assert verdict(plain, seccomp.PERSONALITY, 0x40000) == DENY
    assert verdict(tracing, seccomp.PERSONALITY, 0x40000) == ALLOW
    assert {verdict(plain, number) for number in TRACING.values()} == {DENY}
    assert {verdict(tracing, number) for number in TRACING.values()} == {ALLOW}
