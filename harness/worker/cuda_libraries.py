"""Where the CUDA libraries that a kernel calls lie: PyTorch's own copies come first, since those are loaded with it."""

from __future__ import annotations

import glob
import os
from typing import Sequence

HEADERS = {"cublas": "cublas_v2.h"}


def find(names: Sequence[str], packages: str, home: str) -> tuple[list[str], list[str]]:
    """(include folders, linker flags) for libraries by name; LookupError with the one that is nowhere.

    `packages` is the folder of PyTorch's wheel and of NVIDIA's, `home` the CUDA toolkit's. Headers of the toolkit that
    compiles are preferred, libraries of the wheels: a version that is loaded twice, once for each, helps nobody.
    """
    includes: list[str] = []
    flags: list[str] = []
    for name in names:
        header = _first(os.path.join(home, "include", HEADERS[name])) or _first(
            os.path.join(packages, "nvidia", "*", "include", HEADERS[name])
        )
        library = _first(os.path.join(packages, "nvidia", "*", "lib", f"lib{name}.so.[0-9]*")) or _first(
            os.path.join(home, "lib64", f"lib{name}.so")
        )
        if header is None or library is None:
            missing = HEADERS[name] if header is None else f"lib{name}.so"
            raise LookupError(f"{missing} is neither in {home} nor among the wheels of {packages}")
        includes.append(os.path.dirname(header))
        flags += [f"-L{os.path.dirname(library)}", f"-l:{os.path.basename(library)}"]
    return list(dict.fromkeys(includes)), list(dict.fromkeys(flags))


def _first(pattern: str) -> str | None:
    return min(glob.glob(pattern), default=None)
