"""Builds what one task sees as its root, enters it, and runs the task there without privileges.

It runs by the bundle's own Python with the standard library alone, and calls the kernel itself: what a machine, or a
slim root file system, has of util-linux differs, and may be nothing. Nothing is written to the bundle, and no mount
is left: they are those of a mount namespace, which ends with its last process.

The process that starts it waits; its child is the first process of the new namespaces, and stays until the task has
ended. When either dies, however it dies, the kernel ends whatever else runs in them.

usage: enter.py SANDBOX.json, which holds
    root        the root file system that it sees: a bundle's, or this machine's own
    seen        which of the root's folders; null: every one
    new         an empty folder, over which the new root is mounted
    rootless    whether a user namespace is needed; else the caller is root
    namespaces  further ones: pid, net, ipc, uts
    mounts      [kind, source, target]. Kinds: ro: seen, not written; rw: written, and its files not run; run: written
                and run; device; link: the source is its text; libraries: the loader's cache names those of the target,
                a folder that was mounted before
    user        the task's user and group
    variables   the task's environment
    processors  numbers of those that it may use; none: any
    limits      resource limits of each of its processes: "nproc" and others, as `resource` has them
    filter      a program of BPF in hex, which system calls must pass (seccomp(2))
    folder      where the task starts
    command     the task
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import struct
import subprocess
import sys
from typing import Any

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
CLONE_NEW = {"pid": 0x20000000, "net": 0x40000000, "ipc": 0x08000000, "uts": 0x04000000}
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 22, 24, 38
SECCOMP_MODE_FILTER = 2
SYS_CAPSET, SYS_PIVOT_ROOT = 126, 155  # of x86-64: the C library has no function for them
CAPABILITY_VERSION_3 = 0x20080522
KINDS = {
    "ro": MS_RDONLY | MS_NOSUID | MS_NODEV,
    "rw": MS_NOSUID | MS_NODEV | MS_NOEXEC,
    "run": MS_NOSUID | MS_NODEV,
    "device": 0,
}
OWN = ("proc", "sys", "dev", "tmp", "in", "out")  # of the new root, whatever the bundle's has
DEVICES = ("null", "zero", "full", "random", "urandom")
AF_INET, SOCK_DGRAM, SIOCSIFFLAGS, IFF_UP = 2, 2, 0x8914, 1
MARK = "KERNEL_MATRIX_CHILD"  # by which the harness knows its own processes
CANNOT = 125  # exit code: the sandbox could not be made

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    words = [text.encode() if text else None for text in (source, target, kind)]
    check(libc.mount(*words, ctypes.c_ulong(flags), options.encode() or None), f"mounting {source or kind} on {target}")


def fresh(kind: str, target: str, flags: int, options: str = "") -> None:
    """Mount a new file system of a kind."""
    os.makedirs(target, exist_ok=True)
    mount(kind, target, kind, flags, options)


def bind(source: str, target: str, flags: int) -> None:
    """Show a file or a folder of the machine at another place."""
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "a"):
            pass
    mount(source, target, "", MS_BIND)
    if flags:
        # Without root a mount must not lose what its file system was mounted with.
        held = os.statvfs(target).f_flag & (os.ST_NOEXEC | os.ST_RDONLY)  # the same bits as those of mount(2)
        mount("", target, "", MS_REMOUNT | MS_BIND | flags | held)


def bind_tree(source: str, target: str) -> None:
    """Show a folder, and all that is mounted below it: seen, not written. Without root none of it can be left out."""
    os.makedirs(target, exist_ok=True)
    mount(source, target, "", MS_BIND | MS_REC)
    with open("/proc/self/mountinfo") as file:
        places = [line.split()[4].encode().decode("unicode_escape") for line in file]
    for place in places:
        if place == target or place.startswith(target + "/"):
            held = os.statvfs(place).f_flag & os.ST_NOEXEC
            mount("", place, "", MS_REMOUNT | MS_BIND | KINDS["ro"] | held)


def cache_libraries(new: str, folder: str) -> None:
    """Let the new root's loader, and `ldconfig -p`, name the libraries of a folder of it (ldconfig(8)).

    Triton 2.1 looks for the driver nowhere else (triton/common/build.py). A root without ldconfig, or without a cache,
    stays as it is.
    """
    cache = "/tmp/ld.so.cache"
    command = ["/sbin/ldconfig", "-X", "-C", cache, folder]
    if os.path.exists(new + "/etc/ld.so.cache") and os.path.exists(new + command[0]):
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, preexec_fn=lambda: os.chroot(new))
        if done.returncode:
            raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
        bind(new + cache, new + "/etc/ld.so.cache", KINDS["ro"])
        os.unlink(new + cache)


def raise_loopback() -> None:
    """The one interface of a new network namespace, which is down at first: compute-sanitizer talks to the program
    that it looks at through it (netdevice(7))."""
    sock = libc.socket(AF_INET, SOCK_DGRAM, 0)
    check(sock, "socket")
    check(libc.ioctl(sock, ctypes.c_ulong(SIOCSIFFLAGS), struct.pack("16sH22x", b"lo", IFF_UP)), "raising lo")
    os.close(sock)


def build_root(sandbox: dict[str, Any]) -> None:
    root, new, seen = sandbox["root"], os.path.realpath(sandbox["new"]), sandbox["seen"]
    os.umask(0o022)  # other users pass through the folders that are made here
    mount("", "/", "", MS_REC | MS_PRIVATE)
    fresh("tmpfs", new, MS_NOSUID | MS_NODEV, "mode=755")
    for name in OWN:
        os.mkdir(os.path.join(new, name))
    for entry in os.scandir(root):
        place = os.path.join(new, entry.name)
        if entry.name in OWN or (seen is not None and entry.name not in seen):
            continue
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), place)
        elif entry.is_dir():
            bind_tree(entry.path, place)
    quiet = MS_NOSUID | MS_NODEV | MS_NOEXEC
    fresh("tmpfs", new + "/tmp", quiet, "mode=1777,size=1g")
    fresh("tmpfs", new + "/dev", MS_NOSUID | MS_NOEXEC, "mode=755,size=1m")
    fresh("tmpfs", new + "/dev/shm", quiet, "mode=1777,size=1g")
    for name in DEVICES:
        bind("/dev/" + name, new + "/dev/" + name, 0)
    os.symlink("/proc/self/fd", new + "/dev/fd")
    try:
        fresh("proc", new + "/proc", quiet)
    except OSError:
        # A machine that is a container itself may refuse a fresh one: what it sees of itself is seen here too.
        mount("/proc", new + "/proc", "", MS_BIND | MS_REC)
    with contextlib.suppress(OSError):  # as above; nothing here needs it
        fresh("sysfs", new + "/sys", quiet | MS_RDONLY)
    for kind, source, target in sandbox["mounts"]:
        if kind == "link":
            os.symlink(source, new + target)
        elif kind == "libraries":
            cache_libraries(new, target)
        else:
            bind(source, new + target, KINDS[kind])


def enter_root(new: str) -> None:
    """Make `new` the root, and unmount the machine's."""
    os.chdir(new)
    check(libc.syscall(SYS_PIVOT_ROOT, b".", b"."), "pivot_root")  # the old root lies over the new one now
    check(libc.umount2(b".", MNT_DETACH), "unmounting the machine's root")
    os.chdir("/")
    for place in ("/dev", "/"):
        mount("", place, "", MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | (0 if place == "/dev" else MS_NODEV))


def map_user(inside: int, user: int, group: int) -> None:
    """Make `user` and `group` those with the number `inside` in the user namespace that was just made."""
    for name, text in (("setgroups", "deny"), ("uid_map", f"{inside} {user} 1"), ("gid_map", f"{inside} {group} 1")):
        with open("/proc/self/" + name, "w") as file:
            file.write(text)


def become(user: int, rootless: bool) -> None:
    """Another user, without a capability and without a way to one."""
    if rootless:
        # One more namespace, so that the task has no right over the process that made its mounts.
        ids = os.getuid(), os.getgid()
        check(libc.unshare(CLONE_NEWUSER), "a user namespace in a user namespace")
        map_user(user, *ids)
    else:
        number = 0
        while libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0) == 0:
            number += 1
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    header = struct.pack("=Ii", CAPABILITY_VERSION_3, 0)
    check(libc.syscall(SYS_CAPSET, header, bytes(24)), "capset")  # effective, permitted, inheritable: none
    check(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")


def restrain(limits: dict[str, int], program: bytes) -> None:
    """Limit what this process and its children may use and call."""
    for name, most in limits.items():
        number = getattr(resource, "RLIMIT_" + name.upper())
        hard = resource.getrlimit(number)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(number, (most, most))
    steps = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(steps))
    check(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header, 0, 0), "a filter of system calls")


def status_of(code: int) -> int:
    """An exit code as a shell gives it: 128 + N of a process that died by signal N."""
    return 128 + os.WTERMSIG(code) if os.WIFSIGNALED(code) else os.WEXITSTATUS(code)


def run_task(sandbox: dict[str, Any]) -> int:
    """In the first process of the new namespaces: start the task, reap what it leaves, and return its exit code."""
    variables = dict(sandbox["variables"])
    if MARK in os.environ:
        variables[MARK] = os.environ[MARK]
    task = os.fork()
    if not task:
        try:
            os.chdir(sandbox["folder"])
            if sandbox["processors"]:
                os.sched_setaffinity(0, sandbox["processors"])
            become(sandbox["user"], sandbox["rootless"])
            restrain(sandbox["limits"], bytes.fromhex(sandbox["filter"]))
            os.execve(sandbox["command"][0], sandbox["command"], variables)
        except (OSError, ValueError) as error:
            print(f"the sandbox's process cannot start: {error}", file=sys.stderr, flush=True)
        os._exit(CANNOT)
    while True:
        child, code = os.wait()
        if child == task:
            return status_of(code)


def main(path: str) -> int:
    with open(path) as file:
        sandbox = json.load(file)
    ids = os.geteuid(), os.getegid()
    flags = CLONE_NEWNS | (CLONE_NEWUSER if sandbox["rootless"] else 0)
    for name in sandbox["namespaces"]:
        flags |= CLONE_NEW[name]
    check(libc.unshare(flags), "namespaces: " + ", ".join(["mount", *sandbox["namespaces"]]))
    if sandbox["rootless"]:
        map_user(0, *ids)
    ours, theirs = os.pipe()  # closed at our end when we die
    first = os.fork()
    if first:
        os.close(ours)
        return status_of(os.waitpid(first, 0)[1])
    os.close(theirs)
    check(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
    if select.select([ours], [], [], 0)[0]:  # the process that started this has died already
        os._exit(CANNOT)
    os.close(ours)
    if "net" in sandbox["namespaces"]:
        raise_loopback()
    if "uts" in sandbox["namespaces"]:
        check(libc.sethostname(b"sandbox", 7), "sethostname")
    build_root(sandbox)
    enter_root(sandbox["new"])
    return run_task(sandbox)


if __name__ == "__main__":
    try:
        status = main(sys.argv[1])
    except OSError as error:
        print(f"a sandbox cannot be made: {error}", file=sys.stderr, flush=True)
        status = CANNOT
    sys.stdout.flush()
    os._exit(status)
