"""Wheel files: which of them a Python here takes; and of PyTorch's, its name, its place, and its digest."""

from __future__ import annotations

import functools
import platform
from dataclasses import dataclass
from pathlib import Path

from packaging import tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion

from harness.config.yaml_problems import RefusedValue
from harness.worker import protocol

REMEDY = "correct `wheel` in matrix.yaml, or build one for this machine"


def supported_tags(python: str) -> frozenset[tags.Tag]:
    """What a Python of this version on a machine like this one installs."""
    major, minor = (int(part) for part in python.split("."))
    cpython = tags.cpython_tags((major, minor), abis=[f"cp{major}{minor}"])
    return frozenset([*cpython, *tags.compatible_tags((major, minor), interpreter=f"cp{major}{minor}")])


@dataclass(frozen=True, kw_only=True)
class WheelName:
    """`torch`: the public version; `local`: what follows its +, such as git1234567; `python`: empty where it fits
    several."""

    torch: str
    local: str
    python: str

    @property
    def version(self) -> str:
        return f"{self.torch}+{self.local}" if self.local else self.torch

    @property
    def cuda(self) -> str:
        """Where the local version names it, as PyTorch's own wheels do: cu126 is 12.6."""
        digits = self.local[2:] if self.local.startswith("cu") else ""
        return f"{digits[:-1]}.{digits[-1]}" if digits.isdigit() and len(digits) > 2 else ""


def named(wheel: str) -> WheelName:
    """Refused where it is not named as a wheel of torch is, and where `located` would leave the project."""
    if ".." in Path(wheel).parts:
        raise RefusedValue(f"{wheel}: must be a path inside the folder of matrix.yaml", "name it by its absolute path")
    file = Path(wheel).name
    try:
        name, version, _, given = parse_wheel_filename(file)
    except (InvalidWheelFilename, InvalidVersion):
        remedy = "keep the name that it was built with, such as torch-2.9.0a0+git1234567-cp311-cp311-linux_x86_64.whl"
        raise RefusedValue(f"{file}: not named as a wheel is", remedy) from None
    if name != "torch":
        raise RefusedValue(f"{file}: a wheel of {name}, and not of torch", "name a wheel of torch")
    pythons = {tag.interpreter for tag in given if tag.abi == tag.interpreter and tag.interpreter.startswith("cp3")}
    python = f"3.{pythons.pop()[3:]}" if len(pythons) == 1 else ""
    return WheelName(torch=version.public, local=version.local or "", python=python)


def located(root: Path, wheel: str) -> Path:
    """`wheel` is relative to the folder of matrix.yaml, or absolute."""
    return root / Path(wheel).expanduser()


def unfit(file: Path, python: str) -> str:
    """'' where it is there and this Python on this machine takes the wheel, else what is wrong."""
    if not file.is_file():
        return "no such file"
    _, _, _, given = parse_wheel_filename(file.name)
    if given & supported_tags(python):
        return ""
    made_for = ", ".join(sorted({tag.platform for tag in given}))
    here = f"Python {python} on {platform.machine()}, glibc {platform.libc_ver()[1] or 'unknown'}"
    return f"it is for {made_for}, and here is {here}"


def sha256(file: Path) -> str:
    """SHA-256 of its bytes; once for as long as its time and size are the same. OSError."""
    status = file.stat()
    return _sha256(str(file), status.st_mtime_ns, status.st_size)


@functools.cache
def _sha256(file: str, _changed_ns: int, _size_bytes: int) -> str:
    return protocol.sha256_file(file)
