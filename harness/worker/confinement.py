"""What this process can reach: found out, not assumed."""

from __future__ import annotations

import os
from typing import Any, Sequence

LIMITS = {  # control group v1, then v2
    "memory_bytes": ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max"),
    "processes": ("/sys/fs/cgroup/pids/pids.max", "/sys/fs/cgroup/pids.max"),
}
NO_LIMIT = 1 << 60  # v1 writes a number near 2^63 for none


def confinement() -> dict[str, Any]:
    """The fields of `Confinement`."""
    status = dict(line.split(":", 1) for line in _read("/proc/self/status").splitlines() if ":" in line)
    result: dict[str, Any] = {
        "user_id": os.getuid(),
        "no_new_privileges": status.get("NoNewPrivs", "").strip() == "1",
        "seccomp": int(status.get("Seccomp", "0")),
        "capabilities": status.get("CapEff", "").strip(),
        "networks": networks(),
        "root_writable": root_writable(_read("/proc/self/mounts")),
    }
    result.update({name: _limit(paths) for name, paths in LIMITS.items()})
    return result


def networks() -> list[str]:
    """Interfaces that this process sees."""
    lines = _read("/proc/net/dev").splitlines()[2:]
    return sorted(line.split(":")[0].strip() for line in lines if ":" in line)


def root_writable(mounts: str) -> bool:
    """Whether the text of /proc/mounts says that / is mounted for writing; the last mount counts."""
    options = [line.split()[3].split(",") for line in mounts.splitlines() if line.split()[1] == "/"]
    return not options or "ro" not in options[-1]


def _limit(paths: Sequence[str]) -> int | None:
    for path in paths:
        text = _read(path).strip()
        if text.isdigit() and int(text) < NO_LIMIT:
            return int(text)
    return None


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""
