"""The filter of system calls for sandboxes of namespaces, as a program for Linux's classic BPF (seccomp(2)).

It denies what code under test has no use for, and what a way out of a sandbox would need: reading and writing other
processes, making namespaces and mounts, and parts of Linux whose faults were ways out before. All else is allowed:
what CUDA, compilers and PyTorch call is more than can be listed.

`enter.py` installs it, as the last thing before the task: it gets the program's bytes.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable

AUDIT_ARCH_X86_64 = 0xC000003E
X32_BIT = 0x40000000
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data; an argument's low half comes first
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL = 0x7FFF0000, 0x80000000
DENY, UNKNOWN = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
IGNORE = 0x00050000  # it is not done, and its caller told that it was

TRACING = {"ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "pidfd_getfd": 438}
DENIED = {
    "mount": 165,
    "umount2": 166,
    "pivot_root": 155,
    "chroot": 161,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "mount_setattr": 442,
    "unshare": 272,
    "setns": 308,
    "add_key": 248,
    "request_key": 249,
    "keyctl": 250,
    "bpf": 321,
    "perf_event_open": 298,
    "userfaultfd": 323,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "name_to_handle_at": 303,
    "open_by_handle_at": 304,
    "lookup_dcookie": 212,
    "init_module": 175,
    "delete_module": 176,
    "finit_module": 313,
    "create_module": 174,
    "kexec_load": 246,
    "kexec_file_load": 320,
    "reboot": 169,
    "swapon": 167,
    "swapoff": 168,
    "settimeofday": 164,
    "clock_settime": 227,
    "adjtimex": 159,
    "clock_adjtime": 305,
    "acct": 163,
    "quotactl": 179,
    "quotactl_fd": 443,
    "nfsservctl": 180,
    "_sysctl": 156,
    "syslog": 103,
    "iopl": 172,
    "ioperm": 173,
    "uselib": 134,
    "ustat": 136,
    "sysfs": 139,
    "vhangup": 153,
}
CLONE, CLONE3, PERSONALITY, SCHED_SETAFFINITY = 56, 435, 135, 203
# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET; NEWTIME is of clone3 and unshare alone
NEW_NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
ASKED = 0xFFFFFFFF  # to personality: which one it is
NO_RANDOMIZATION = 0x0040000  # sanitizers start themselves again with it, where addresses clash


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _when(number: int, steps: list[bytes]) -> list[bytes]:
    """These steps for one system call, whose number is loaded; they must return."""
    return [_step(EQUAL, number, 0, len(steps)), *steps]


def filter_program(*, may_trace: bool = False, is_bound: bool = False) -> bytes:
    """The filter. `may_trace`: for tasks whose tools look into the process under test; `is_bound`: for those that stay
    on the processors that they were given. What pins its threads goes on all the same."""
    denied: Iterable[int] = (DENIED if may_trace else {**TRACING, **DENIED}).values()
    personalities = (0, ASKED, NO_RANDOMIZATION) if may_trace else (0, ASKED)
    return b"".join(
        [
            _step(LOAD, ARCHITECTURE),
            _step(EQUAL, AUDIT_ARCH_X86_64, 1, 0),
            _step(RETURN, KILL),  # 32-bit calls, whose numbers are others
            _step(LOAD, NUMBER),
            _step(AT_LEAST, X32_BIT, 0, 1),
            _step(RETURN, DENY),
            *(step for number in sorted(denied) for step in _when(number, [_step(RETURN, DENY)])),
            *(_when(SCHED_SETAFFINITY, [_step(RETURN, IGNORE)]) if is_bound else ()),
            # Its flags lie in memory, which a filter cannot read: the C library then takes clone.
            *_when(CLONE3, [_step(RETURN, UNKNOWN)]),
            *_when(
                CLONE,
                [
                    _step(LOAD, ARGUMENTS),
                    _step(ANY_BIT, NEW_NAMESPACES, 0, 1),
                    _step(RETURN, DENY),
                    _step(RETURN, ALLOW),
                ],
            ),
            *_when(
                PERSONALITY,
                [
                    _step(LOAD, ARGUMENTS),
                    *(step for value in personalities for step in _when(value, [_step(RETURN, ALLOW)])),
                    _step(RETURN, DENY),
                ],
            ),
            _step(RETURN, ALLOW),
        ]
    )
