"""Plain shared objects with a C interface, for ctypes: no PyTorch in them.

`library` compiles one source. `link` makes one of the object files that a build left: nothing is compiled, it is the
very machine code of the extension. What the CUDA and OpenMP runtimes define stays open (`shared_object.Library`).
"""

from __future__ import annotations

import os
import re
import shlex

from . import build as building
from . import machine_code, protocol, tools, wire

COMPILE_S, LINK_S = 300, 120
NEEDS_TORCH = re.compile(r"\b(?:at|c10|torch|pybind11)::|^_?Py[A-Z_]|^_?THP|^aoti_torch_")
SHOWN = 3  # symbols


def library(request: wire.LibraryRequest) -> wire.Outcome:
    """The caller holds the only lock on the folder of `out`."""
    os.makedirs(os.path.dirname(request.out), exist_ok=True)
    extension = building.helper()
    if request.architecture:
        compiler = [building.check_nvcc(extension), "-Xcompiler", "-fPIC", building.gencode(request.architecture)]
    else:
        compiler = [*shlex.split(extension.get_cxx_compiler()), "-fPIC", "-pthread"]
    code, output = tools.attempt(
        [*compiler, "-O2", "-std=c++17", "-shared", request.source, "-o", request.out], COMPILE_S
    )
    if code is None or code == 127:
        raise building.lacking(f"{compiler[0]}: {output or 'it did not end in time'}")
    if code:
        message = building.first_error(output, [request.source]) or "the compiler failed; see the log"
        raise wire.Failed(protocol.BUILD_FAILED, message, building.relevant(output))
    return wire.Outcome(protocol.OK)


def link(request: wire.LinkRequest) -> wire.Outcome:
    programs = tools.cuda_folder() if request.cuda else ""
    paths = [item.path for item in request.objects]
    for item in request.objects:
        if not os.path.isfile(item.path) or machine_code.hash_object(item.path, programs) != item.sha256:
            name = os.path.basename(item.path)
            raise building.lacking(f"{name} is not there, or is not what its build described")
    symbols = tools.undefined(paths)
    if symbols is None:
        raise building.lacking("nm is missing, so nobody can tell what the objects need: install binutils")
    needed = [name for name in symbols if NEEDS_TORCH.search(name)]
    if needed:
        more = f" and {len(needed) - SHOWN} more" if len(needed) > SHOWN else ""
        raise building.lacking("its objects need PyTorch: {}{}".format(", ".join(needed[:SHOWN]), more))
    os.makedirs(os.path.dirname(request.library), exist_ok=True)
    command = [*tools.cxx(), "-shared", "-pthread", "-o", request.library, *paths]
    code, output = tools.attempt(command, LINK_S)
    if code != 0:
        raise wire.Failed(protocol.BUILD_FAILED, "its objects cannot be linked without PyTorch", output[-8000:])
    return wire.Outcome(protocol.OK)
