"""`observe`: what the environment says of itself."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
from typing import Any

from . import build, confinement, wheels, wire

ABSENT = ""  # of text that a missing torch or numpy cannot give
THREAD_VARIABLES = ("OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "CUBLAS_", "NVIDIA_TF32", "CUDA_")


def observe(request: wire.ObserveRequest) -> dict[str, Any]:
    """The fields of `Observation`; with "verify", also "damaged": files that are not what was installed."""
    model, flags = processor()
    compiler = nvcc()
    result: dict[str, Any] = {
        "python": platform.python_version(),
        "wheels": wheels.installed(),
        "machine": platform.machine(),
        "cpu_model": model,
        "cpu_flags_sha256": hashlib.sha256(flags.encode()).hexdigest(),
        "threads": request.threads,
        "kernel_release": platform.release(),
        "libc": " ".join(part for part in platform.libc_ver() if part),
        "compiler": build.compiler_line(os.environ.get("CXX", "c++")),
        "nvcc": build.compiler_line(compiler, last=True) if compiler else ABSENT,
        "confinement": confinement.confinement(),
    }
    result.update(_torch(request.threads))
    asked = request.variables
    result["settings"].update({"env." + name: os.environ[name] for name in asked if name in os.environ})
    if request.verify:
        result["damaged"] = wheels.damaged(request.threads)
    return result


def nvcc() -> str | None:
    """Path of the CUDA compiler that PyTorch's helper would call, or None."""
    home = os.environ.get("CUDA_HOME")
    found = shutil.which("nvcc", path=os.path.join(home, "bin")) if home else shutil.which("nvcc")
    return found or shutil.which("nvcc", path="/usr/local/cuda/bin")


def processor() -> tuple[str, str]:
    """(model, its feature flags in order) from /proc/cpuinfo; empty where it is not told."""
    fields: dict[str, str] = {}
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                key, _, value = line.partition(":")
                fields.setdefault(key.strip(), value.strip())
    except OSError:
        pass
    model = fields.get("model name") or fields.get("CPU part") or platform.processor()
    return model, " ".join(sorted((fields.get("flags") or fields.get("Features") or "").split()))


def _torch(threads: int) -> dict[str, Any]:
    result: dict[str, Any] = {
        "torch": ABSENT,
        "torch_cuda": None,
        "torch_git": ABSENT,
        "cxx11_abi": False,
        "cudnn": None,
        "cpu_capability": ABSENT,
        "gpus": [],
        "settings": {},
        "numpy": ABSENT,
    }
    try:
        import numpy

        result["numpy"] = numpy.__version__
    except ImportError as error:
        result["settings"]["numpy"] = f"cannot be imported: {error}"
    try:
        import torch
    except ImportError as error:
        result["settings"]["torch"] = f"cannot be imported: {error}"
        return result
    torch.set_num_threads(threads)
    result["torch"] = torch.__version__ + ""
    result["torch_cuda"] = torch.version.cuda
    result["torch_git"] = torch.version.git_version or ABSENT
    result["cxx11_abi"] = bool(torch._C._GLIBCXX_USE_CXX11_ABI)
    result["cpu_capability"] = cpu_capability(torch)
    result["threads"] = torch.get_num_threads()
    result["gpus"] = gpus(torch)
    if torch.version.cuda:
        version = torch.backends.cudnn.version()
        result["cudnn"] = None if version is None else str(version)
    result["settings"].update(settings(torch))
    return result


def cpu_capability(torch: Any) -> str:
    if hasattr(torch.backends, "cpu") and hasattr(torch.backends.cpu, "get_cpu_capability"):
        return str(torch.backends.cpu.get_cpu_capability())
    for line in torch.__config__.show().splitlines():
        if "CPU capability usage:" in line:
            return str(line.split(":")[1].strip())
    return ABSENT


def gpus(torch: Any) -> list[dict[str, Any]]:
    if not torch.version.cuda or not torch.cuda.is_available():
        return []
    driver = driver_version()
    found = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        found.append(
            {
                "name": properties.name,
                "uuid": str(getattr(properties, "uuid", "")),
                "compute_capability": f"{properties.major}.{properties.minor}",
                "memory_bytes": properties.total_memory,
                "driver": driver,
            }
        )
    return found


def driver_version() -> str:
    """The kernel module's version; a container without /proc/driver says nothing."""
    try:
        with open("/proc/driver/nvidia/version") as file:
            words = file.readline().split("Kernel Module")[-1].split()
    except OSError:
        return ""
    return next((word for word in words if word[:1].isdigit()), "")


def settings(torch: Any) -> dict[str, str]:
    """PyTorch's switches that change numbers, those that this version has, and thread variables that are set."""
    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    found = {
        "cuda.matmul.allow_tf32": cuda.matmul.allow_tf32,
        "cuda.matmul.allow_fp16_reduced_precision_reduction": cuda.matmul.allow_fp16_reduced_precision_reduction,
        "cudnn.allow_tf32": cudnn.allow_tf32,
        "cudnn.enabled": cudnn.enabled,
        "cudnn.benchmark": cudnn.benchmark,
        "cudnn.deterministic": cudnn.deterministic,
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "mkldnn.enabled": getattr(torch.backends.mkldnn, "enabled", None),
        "mkldnn.available": torch.backends.mkldnn.is_available(),
        "mkl.available": torch.backends.mkl.is_available(),
        "flush_denormal": None,
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
