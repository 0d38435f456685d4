"""`prove`: what an environment computes and loads, so that one that was packed can be compared with its image.

On the CPU everything that chooses code by processor is told to take the code that every x86-64 has, and one thread, so
that the bits can be compared between machines. Only the C library's functions still choose, by fused multiply-add.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, Callable, Iterator

from . import observe, wheels, wire

# They are read when the libraries are loaded, so before torch and numpy are imported.
PORTABLE = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}
SHAPE = (1, 2, 239, 64)  # batch, heads, rows, columns: a length that no tile divides
BACKENDS = ("flash", "math", "efficient", "cudnn", "default")
MOST_ERROR = {"float32": 5e-3, "float16": 2e-2}  # TF32 is the GPU's own to choose; what is not computed is far off
FLASH_SINCE = (8, 0)  # compute capability


def prove_bundle(_request: wire.EmptyRequest) -> wire.ProveResult:
    os.environ.update(PORTABLE)
    import torch

    torch.set_num_threads(1)
    result = wire.ProveResult()
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        compute(device, result)
    result.libraries, result.unloadable = load_libraries()
    from . import tensors

    if tensors.lost("cuda"):  # a library may ask something of the GPU when it is loaded
        result.failures["cuda"] = "lost after loading all libraries: " + tensors.lost("cuda")
    found = observe.gpus(torch)[:1]
    model, flags = observe.processor()
    gpu, driver = (found[0].name, found[0].driver) if found else ("", "")
    result.machine = wire.ProvenMachine(cpu_model=model, fma="fma" in flags.split(), gpu=gpu, driver=driver)
    return result


def compute(device: str, result: wire.ProveResult) -> None:
    """A matrix product, a softmax and attention by every backend, each against float64."""
    import numpy as np
    import torch

    from . import inputs, protocol, tensors

    dtype = "float16" if device == "cuda" else "float32"
    stored = inputs.generate("independent", dtype, SHAPE, 0, 0)
    q, k, v = (tensors.to_tensor(array, dtype, device) for array in stored)
    exact_q, exact_k = (array.astype(np.float64) for array in stored[:2])
    logits = exact_q @ exact_k.swapaxes(-1, -2)
    weights = np.exp(logits / 8 - (logits / 8).max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    attended = weights @ stored[2].astype(np.float64)
    scaled = torch.from_numpy((logits / 8).astype(np.float32)).to(device)
    computed: dict[str, tuple[Callable[[], Any], Any]] = {
        "matmul": (lambda: torch.matmul(q, k.transpose(-1, -2)), logits),
        "softmax": (lambda: torch.softmax(scaled, dim=-1), weights),
        **{name: (_attention(name, [q, k, v]), attended) for name in BACKENDS},
    }
    for target, (call, exact) in computed.items():
        name = "{}/{}/{}".format(device, target, "fp32" if target == "softmax" else protocol.DTYPES[dtype])
        try:
            got = call()
            again = call()
        except wire.Failed as error:
            refused = result.failures if device == "cuda" and must_run(target) else result.unsupported
            refused[name] = str(error)
            continue
        except RuntimeError as error:
            result.failures[name] = str(error).strip().partition("\n")[0]
            continue
        values = tensors.to_array(got)
        apart = float(np.abs(values.astype(np.float64) - exact).max() / np.abs(exact).max())
        result.errors[name] = apart if np.isfinite(apart) else None
        if not apart <= MOST_ERROR[dtype]:
            result.failures[name] = f"its error against float64 is {apart:.3g} of the largest value"
        elif tensors.sha256(again) != tensors.sha256(got):
            result.failures[name] = "computed twice, it has other bits"
        else:
            result.digests[name] = tensors.sha256(got)


def _attention(name: str, arguments: list[Any]) -> Callable[[], Any]:
    from . import attention, references

    asked = wire.WorkloadRequest("", "", {}, *SHAPE, causal=False, scale=0.125)
    reference = references.SdpaReference(name, attention.AttentionWorkload(asked))

    def call() -> Any:
        reference.attempt(arguments)
        with reference.active():
            return reference.bind(arguments)()

    return call


def must_run(backend: str) -> bool:
    """Whether this PyTorch has a backend that this GPU's architecture can run: a refusal means that code is missing."""
    import torch

    able = torch.cuda.get_device_capability() >= FLASH_SINCE
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    return able and (backend != "cudnn" or version >= (2, 5))


def load_libraries() -> tuple[list[str], dict[str, str]]:
    """(names of those that load, {name: why not}) of all shared libraries of the environment's wheels."""
    loaded, failed = [], {}
    for name, path in libraries():
        try:
            ctypes.CDLL(path)
            loaded.append(name)
        except OSError as error:
            failed[name] = str(error)
    return loaded, failed


def libraries() -> Iterator[tuple[str, str]]:
    """(name below site-packages, path) of every ELF file there that is named as a shared library."""
    for folder in wheels.folders():
        for place, _, names in sorted(os.walk(folder)):
            for name in sorted(names):
                path = os.path.join(place, name)
                if ".so" in name and not os.path.islink(path) and _is_elf(path):
                    yield os.path.relpath(path, folder), path


def _is_elf(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"
