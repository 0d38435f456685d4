"""`observe`: what the environment says of itself, and what this process can reach."""

from __future__ import annotations

import hashlib
import importlib.util
import operator
import os
import platform
import re
import shutil
import sys
from typing import Any, Sequence

from . import build, components, native, wheels, wire
from .tools import read_text

THREAD_VARIABLES = ("OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "CUBLAS_", "NVIDIA_TF32", "CUDA_")
# Of `torch.backends`.
SWITCHES = (
    "cuda.matmul.allow_tf32",
    "cuda.matmul.allow_fp16_reduced_precision_reduction",
    "cudnn.allow_tf32",
    "cudnn.enabled",
    "cudnn.benchmark",
    "cudnn.deterministic",
)
LIMITS = {  # control group v1, then v2
    "memory_bytes": ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max"),
    "processes": ("/sys/fs/cgroup/pids/pids.max", "/sys/fs/cgroup/pids.max"),
}
NO_LIMIT = 1 << 60  # v1 writes a number near 2^63 for none


def observe(request: wire.ObserveRequest) -> wire.Observation:
    model, flags = processor()
    compiler = nvcc()
    result = wire.Observation(
        python=platform.python_version(),
        wheels={name: wire.Wheel(**wheel) for name, wheel in wheels.installed().items()},
        machine=platform.machine(),
        cpu_model=model,
        cpu_flags_sha256=hashlib.sha256(flags.encode()).hexdigest(),
        threads=request.threads,
        kernel_release=platform.release(),
        libc=" ".join(part for part in platform.libc_ver() if part),
        compiler=build.compiler_line(os.environ.get("CXX", "c++")),
        nvcc=build.compiler_line(compiler, last=True) if compiler else "",
        confinement=confinement(),
    )
    _observe_torch(result)
    result.settings.update({"env." + name: os.environ[name] for name in request.variables if name in os.environ})
    if request.verify:
        result.damaged = wheels.damaged(request.threads)
    return result


def nvcc() -> str | None:
    """Path of the CUDA compiler that PyTorch's helper would call, or None."""
    home = os.environ.get("CUDA_HOME")
    found = shutil.which("nvcc", path=os.path.join(home, "bin")) if home else shutil.which("nvcc")
    return found or shutil.which("nvcc", path="/usr/local/cuda/bin")


def processor() -> tuple[str, str]:
    """(model, its feature flags in order) from /proc/cpuinfo; empty where it is not told."""
    fields: dict[str, str] = {}
    for line in read_text("/proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    model = fields.get("model name") or fields.get("CPU part") or platform.processor()
    return model, " ".join(sorted((fields.get("flags") or fields.get("Features") or "").split()))


def _observe_torch(result: wire.Observation) -> None:
    try:
        import numpy

        result.numpy = numpy.__version__
    except ImportError as error:
        result.settings["numpy"] = f"cannot be imported: {error}"
    try:
        import torch
    except (ImportError, OSError) as error:  # the second where a library that it names is not there
        result.settings["torch"] = f"cannot be imported: {error}"
        return
    torch.set_num_threads(result.threads)
    result.torch = torch.__version__ + ""
    if result.numpy:
        try:
            torch.from_numpy(numpy.zeros(1)).numpy()
        except Exception as error:  # it was built for another major version of numpy
            result.settings["torch.numpy"] = f"cannot be used: {error}"
    result.torch_cuda = torch.version.cuda
    result.torch_git = torch.version.git_version or ""
    result.cxx11_abi = bool(torch._C._GLIBCXX_USE_CXX11_ABI)
    result.cpu_capability = cpu_capability(torch)
    result.threads = torch.get_num_threads()
    result.gpus = gpus(torch)
    if torch.version.cuda:
        version = torch.backends.cudnn.version()
        result.cudnn = None if version is None else str(version)
    result.settings.update(settings(torch))
    result.loaded = {**loaded(), **({"numpy": result.numpy} if result.numpy else {})}


def loaded() -> dict[str, str]:
    """Package to the version that its loaded library says; of a library that no wheel brought, its path in place of a
    package. What PyTorch's own wheel brings is PyTorch's."""
    found, owners = {}, {}
    for distribution, record in wheels.distributions():
        for name in re.findall(r"^([^,\n]+/lib[^,/]+\.so[^,/]*),", record, flags=re.MULTILINE):
            owners[os.path.realpath(str(distribution.locate_file(name)))] = distribution.metadata["Name"]
    for path in sorted(native.mapped()):
        version, owner = components.version_of(path), owners.get(os.path.realpath(path))
        if version is not None and owner != "torch":
            found[wheels.normalise(owner) if owner else path] = version
    if importlib.util.find_spec("triton") is not None:
        try:
            import triton

            found["triton"] = str(triton.__version__)
        except Exception as error:  # whatever importing it raises
            found["triton"] = f"cannot be imported: {error}"[:300]
    return found


def cpu_capability(torch: Any) -> str:
    if hasattr(torch.backends, "cpu") and hasattr(torch.backends.cpu, "get_cpu_capability"):
        return str(torch.backends.cpu.get_cpu_capability())
    for line in torch.__config__.show().splitlines():
        if "CPU capability usage:" in line:
            return str(line.split(":")[1].strip())
    return ""


def gpus(torch: Any) -> list[wire.Gpu]:
    if not torch.version.cuda or not torch.cuda.is_available():
        return []
    driver = driver_version()
    return [
        wire.Gpu(seen.name, str(getattr(seen, "uuid", "")), f"{seen.major}.{seen.minor}", seen.total_memory, driver)
        for seen in map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    ]


def driver_version() -> str:
    """The kernel module's version; a container without /proc/driver says nothing."""
    words = read_text("/proc/driver/nvidia/version").partition("\n")[0].split("Kernel Module")[-1].split()
    return next((word for word in words if word[:1].isdigit()), "")


def settings(torch: Any) -> dict[str, str]:
    """PyTorch's switches that change numbers, those that this version has, and thread variables that are set."""
    cuda = torch.backends.cuda
    found = {
        **{name: operator.attrgetter(name)(torch.backends) for name in SWITCHES},
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "mkldnn.enabled": getattr(torch.backends.mkldnn, "enabled", None),
        "mkldnn.available": torch.backends.mkldnn.is_available(),
        "mkl.available": torch.backends.mkl.is_available(),
    }
    for name in ("flash", "mem_efficient", "math", "cudnn"):
        enabled = getattr(cuda, f"{name}_sdp_enabled", None)
        found[f"sdp.{name}"] = enabled() if enabled else None
    reduced = getattr(cuda, "fp16_bf16_reduction_math_sdp_allowed", None)
    found["sdp.reduced_precision_math"] = reduced() if reduced else None
    result = {name: str(value) for name, value in found.items() if value is not None}
    for name, value in sorted(os.environ.items()):
        if name.startswith(THREAD_VARIABLES):
            result["env." + name] = value
    result["python.flags"] = " ".join(f"{key}={getattr(sys.flags, key)}" for key in ("optimize", "utf8_mode"))
    return result


def confinement() -> wire.Confinement:
    status = dict(line.split(":", 1) for line in read_text("/proc/self/status").splitlines() if ":" in line)
    return wire.Confinement(
        user_id=os.getuid(),
        no_new_privileges=status.get("NoNewPrivs", "").strip() == "1",
        seccomp=int(status.get("Seccomp", "0")),
        capabilities=status.get("CapEff", "").strip(),
        networks=networks(),
        root_writable=root_writable(read_text("/proc/self/mounts")),
        **{name: _limit(paths) for name, paths in LIMITS.items()},
    )


def networks() -> list[str]:
    """Interfaces that this process sees."""
    lines = read_text("/proc/net/dev").splitlines()[2:]
    return sorted(line.split(":")[0].strip() for line in lines if ":" in line)


def root_writable(mounts: str) -> bool:
    """Return whether the text of /proc/mounts says that / is mounted for writing; the last mount counts."""
    options = [line.split()[3].split(",") for line in mounts.splitlines() if line.split()[1] == "/"]
    return not options or "ro" not in options[-1]


def _limit(paths: Sequence[str]) -> int | None:
    for path in paths:
        text = read_text(path).strip()
        if text.isdigit() and int(text) < NO_LIMIT:
            return int(text)
    return None
