"""`link`: make a plain shared object of the object files that a build left, without PyTorch.

Nothing is compiled: it is the very machine code of the extension. What the CUDA and OpenMP runtimes define stays open
(`centry`).
"""

from __future__ import annotations

import os
import re

from . import machine_code, protocol, tools, wire

NEEDS_TORCH = re.compile(r"\b(?:at|c10|torch|pybind11)::|^_?Py[A-Z_]|^_?THP|^aoti_torch_")
SHOWN = 3  # symbols
LINK_S = 120


def link(request: wire.LinkRequest) -> dict[str, str]:
    """request: objects (each a `path` and the `sha256` that its build recorded), library (where to), cuda."""
    programs = tools.cuda_folder() if request.cuda else ""
    paths = [item.path for item in request.objects]
    for item in request.objects:
        if not os.path.isfile(item.path) or machine_code.hash_object(item.path, programs) != item.sha256:
            name = os.path.basename(item.path)
            return ended(protocol.NOT_RUN, f"{name} is not there, or is not what its build described")
    symbols = tools.undefined(paths)
    if symbols is None:
        return ended(protocol.NOT_RUN, "nm is missing, so nobody can tell what the objects need: install binutils")
    needed = [name for name in symbols if NEEDS_TORCH.search(name)]
    if needed:
        more = f" and {len(needed) - SHOWN} more" if len(needed) > SHOWN else ""
        return ended(protocol.NOT_RUN, "its objects need PyTorch: {}{}".format(", ".join(needed[:SHOWN]), more))
    os.makedirs(os.path.dirname(request.library), exist_ok=True)
    command = [*tools.cxx(), "-shared", "-pthread", "-o", request.library, *paths]
    code, output = tools.attempt(command, LINK_S)
    if code != 0:
        return ended(protocol.BUILD_FAILED, "its objects cannot be linked without PyTorch", output)
    return ended(protocol.OK)


def ended(status: str, message: str = "", output: str = "") -> dict[str, str]:
    return {"status": status, "message": message, "log_excerpt": output[-8000:]}
