"""Where this machine keeps what the harness uses: uv, its cache folder, compilers."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Collection
from pathlib import Path

import filelock
import platformdirs
import psutil

from harness.errors import InfrastructureError
from harness.gpu import described, gpus

CACHE_VARIABLE = "KERNEL_MATRIX_CACHE"
GIB = 1 << 30


def uv_command() -> list[str]:
    """uv, as installed beside the harness."""
    from uv import find_uv_bin

    return [find_uv_bin()]


def cache_folder() -> Path:
    """Environments and builds; `KERNEL_MATRIX_CACHE` moves it to a disk with room."""
    chosen = os.environ.get(CACHE_VARIABLE)
    return Path(chosen).absolute() if chosen else Path(platformdirs.user_cache_dir("kernel-matrix", appauthor=False))


def lock_file(cache: Path, name: str) -> Path:
    path = cache / "locks" / f"{name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def cache_lock(cache: Path, name: str) -> filelock.FileLock:
    """A lock between processes, for what the cache holds under this name."""
    return filelock.FileLock(lock_file(cache, name))


def output_of(command: list[str], timeout_s: float = 30) -> str | None:
    """A command's standard output, or None where it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def commit_of(folder: Path) -> str:
    """The commit that a folder's repository is at, with + where files differ from it; '' where it is in none."""
    return (output_of(["git", "-C", str(folder), "describe", "--always", "--exclude=*", "--dirty=+"]) or "").strip()


def nvcc_for(versions: Collection[str]) -> tuple[str, str] | str:
    """Return nvcc and its version; or why none here is what PyTorch of these CUDA versions accepts."""
    nvcc = cuda_compiler()
    if nvcc is None:
        return "there is no nvcc here"
    release = re.search(r"(?:release |cuda_)(\d+)\.", nvcc[1])
    if release is None or any(version.partition(".")[0] in ("", release[1]) for version in versions):
        return nvcc
    return f"nvcc here is of CUDA {release[1]}"


def wrong_tools(cuda: bool) -> InfrastructureError | None:
    """Where CXX, or CUDA_HOME for CUDA sources, names what is not there: builds would fail on it, or be made by
    another compiler than the one that was named."""
    cxx, home = os.environ.get("CXX", ""), os.environ.get("CUDA_HOME", "")
    if cxx and shutil.which(cxx.split()[0]) is None:
        remedy = "name a C++ compiler, or unset it"
        return InfrastructureError(f"CXX={cxx}: no program that this user can start", remedy)
    if cuda and home and shutil.which("nvcc", path=f"{home}/bin") is None:
        remedy = "name the folder of a CUDA toolkit, or unset it: nvcc is looked for on the PATH then"
        return InfrastructureError(f"CUDA_HOME={home}: there is no bin/nvcc in it", remedy)
    return None


@functools.cache
def host_compiler() -> tuple[str, str] | None:
    """(path, first line of its --version) of the C++ compiler that PyTorch's builder will call."""
    path = shutil.which(os.environ.get("CXX", "c++"))
    version = output_of([path, "--version"]) if path else None
    return (path, version.splitlines()[0]) if path and version else None


@functools.cache
def cuda_compiler() -> tuple[str, str] | None:
    """(path, last line of its --version) of nvcc: CUDA_HOME's, the PATH's, or the usual folder's."""
    home = os.environ.get("CUDA_HOME")
    path = shutil.which("nvcc", path=f"{home}/bin") if home else shutil.which("nvcc")
    path = path or shutil.which("nvcc", path="/usr/local/cuda/bin")
    version = output_of([path, "--version"]) if path else None
    return (path, version.strip().splitlines()[-1]) if path and version else None


def physical_cores() -> int:
    """Physical cores that this process may use."""
    allowed = len(os.sched_getaffinity(0))
    return max(1, min(allowed, psutil.cpu_count(logical=False) or allowed))


def _cpuinfo(*names: str) -> str | None:
    """The first entry of one of these names."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(names)), "")


def cpu_model() -> str:
    return _cpuinfo("model name", "Model", "CPU part") or platform.processor() or "unknown"


def cpu_flags() -> str:
    """Digest of the processor's features, which tell processors apart that are called the same."""
    flags = _cpuinfo("flags", "Features")
    return "" if flags is None else hashlib.sha256(" ".join(sorted(flags.split())).encode()).hexdigest()


def host_facts() -> dict[str, str]:
    """What identifies this machine to a measurement. Its name is left out: a page is sent on."""
    identity = Path("/etc/machine-id")
    seed = identity.read_text().strip() if identity.exists() else platform.node()
    compiler, nvcc = host_compiler(), cuda_compiler()
    return {
        "machine": hashlib.sha256(("kernel-matrix:" + seed).encode()).hexdigest()[:12],
        "architecture": platform.machine(),
        "cpu": cpu_model(),
        "cores": str(physical_cores()),
        "memory_gib": str(round(psutil.virtual_memory().total / GIB)),
        "kernel": platform.release(),
        "system": _system_name(),
        "compiler": compiler[1] if compiler else "none",
        "nvcc": nvcc[1] if nvcc else "none",
        "gpus": "; ".join(map(described, gpus())) or "none",
    }


def _system_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return platform.system()
