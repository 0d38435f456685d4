"""`library`: compile one source into a plain shared object with a C interface, for ctypes: no PyTorch in it."""

from __future__ import annotations

import os
import shlex
import subprocess

from . import build as building
from . import protocol, wire

TIMEOUT_S = 300


def library(request: wire.LibraryRequest) -> dict[str, str]:
    """status, message, log_excerpt. The caller holds the only lock on the folder of `out`."""
    try:
        command = _command(request)
    except building.NotRun as error:
        return {"status": protocol.NOT_RUN, "message": str(error), "log_excerpt": ""}
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"status": protocol.NOT_RUN, "message": f"{command[0]}: {error}", "log_excerpt": ""}
    output = done.stdout.decode(errors="replace")
    if done.returncode:
        said = building.first_error(output, [request.source]) or "the compiler failed; see the log"
        return {"status": protocol.BUILD_FAILED, "message": said, "log_excerpt": building.relevant(output)}
    return {"status": protocol.OK, "message": "", "log_excerpt": ""}


def _command(request: wire.LibraryRequest) -> list[str]:
    os.makedirs(os.path.dirname(request.out), exist_ok=True)
    extension = building._helper()
    if request.architecture:
        compiler = [building.check_nvcc(extension), "-Xcompiler", "-fPIC", building.gencode(request.architecture)]
    else:
        compiler = [*shlex.split(extension.get_cxx_compiler()), "-fPIC", "-pthread"]
    return [*compiler, "-O2", "-std=c++17", "-shared", request.source, "-o", request.out]
