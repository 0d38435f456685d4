"""The packages of two environments: which differ, and which can matter to code that calls PyTorch. Pure."""

from __future__ import annotations

import re

from harness.schema.environment_records import EnvironmentRecord

GPU = re.compile(r"nvidia-(?!.*(nvtx|cupti)).*|(pytorch-)?triton")
CPU = re.compile(r"mkl|intel-openmp|onednn.*|tbb")
PYTHON = ("numpy", "scipy")


def changed(base: EnvironmentRecord, this: EnvironmentRecord) -> dict[str, tuple[str, str]]:
    """The packages that differ, with both versions, '' where it is not there; none of an environment that is broken."""
    if base.observed is None or this.observed is None:
        return {}
    ours, theirs = (
        {name: wheel.version for name, wheel in seen.wheels.items()} for seen in (base.observed, this.observed)
    )
    pairs = {name: (ours.get(name, ""), theirs.get(name, "")) for name in sorted(ours.keys() | theirs.keys())}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def only_packages(base: EnvironmentRecord, this: EnvironmentRecord) -> dict[str, tuple[str, str]]:
    """Likewise, of two environments that differ in packages alone, PyTorch not among them; else none."""
    one, two, packages = base.observed, this.observed, changed(base, this)
    if one is None or two is None or "torch" in packages:
        return {}
    same = (one.torch, one.python, base.variables) == (two.torch, two.python, this.variables)
    return packages if same else {}


def counts(package: str, device: str) -> bool:
    """Whether code that calls PyTorch on a device can depend on a package, by the package's name."""
    if GPU.fullmatch(package):
        return device == "cuda"
    return bool(CPU.fullmatch(package)) or package in PYTHON
