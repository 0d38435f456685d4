"""Tells one file that another PyTorch runs it. Whoever else asks, PyTorch and its packages among them, is told the
truth: what the file chooses by the version is varied alone."""

from __future__ import annotations

import importlib.metadata
import sys
from typing import Any

import torch
import torch.torch_version
import torch.version

read: list[int] = []  # the lines of the file that asked, in order


def tell(file: str, version: str) -> None:
    """Let `file` read `version` as PyTorch's from now on, for the rest of the process."""

    def asks() -> bool:
        frame = sys._getframe(2)
        found = frame.f_code.co_filename == file
        if found:
            read.append(frame.f_lineno)
        return found

    def attribute(true: Any) -> property:
        told = type(true)(version)  # a TorchVersion, which compares as one
        return property(lambda _module: told if asks() else true)

    for module in (torch, torch.version, torch.torch_version):
        names = {"__version__": attribute(module.__version__)}
        module.__class__ = type(type(module).__name__, (type(module),), names)
    installed = importlib.metadata.version

    def version_of(distribution_name: str) -> str:
        return version if distribution_name == "torch" and asks() else installed(distribution_name)

    importlib.metadata.version = version_of
