"""Compilers, checkers and what they check, as child processes whose output is kept; and where CUDA's libraries lie."""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import resource
import shlex
import signal
import subprocess
import tempfile
from typing import Iterator, Mapping, Sequence

KEPT_BYTES = 256 << 10  # of what a child prints, from its start: a report's first lines say most
WRITTEN_BYTES = 1 << 30  # what a child may write to one file
HEADERS = {"cublas": "cublas_v2.h"}  # of the CUDA libraries that a kernel may call
PR_SET_PDEATHSIG = 1
ADDR_NO_RANDOMIZE, ASK = 0x0040000, 0xFFFFFFFF  # personality(2)


def run(command: Sequence[str]) -> str | None:
    """Return what a tool printed, or None where it failed."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, timeout=300)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace")


def end_with_parent() -> None:
    """Have this process killed when the one that started it ends (prctl(2))."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def read_text(path: str) -> str:
    """A file's text; empty where it cannot be read."""
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""


@contextlib.contextmanager
def confining() -> Iterator[None]:
    """Children that begin in here write no endless file and leave no core; addresses are not random in them.

    gcc 12's thread sanitizer does not start where a kernel randomises many bits. A container may refuse to grant it.
    """
    libc = ctypes.CDLL(None)
    before = {kind: resource.getrlimit(kind) for kind in (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE)}
    persona = libc.personality(ASK)
    for kind, most in ((resource.RLIMIT_FSIZE, WRITTEN_BYTES), (resource.RLIMIT_CORE, 0)):
        soft, hard = before[kind]
        resource.setrlimit(kind, (most if soft == resource.RLIM_INFINITY else min(soft, most), hard))
    if persona >= 0:
        libc.personality(persona | ADDR_NO_RANDOMIZE)
    try:
        yield
    finally:
        for kind, limits in before.items():
            resource.setrlimit(kind, limits)
        if persona >= 0:
            libc.personality(persona)


def attempt(
    command: Sequence[str], timeout_s: float, variables: Mapping[str, str] | None = None
) -> tuple[int | None, str]:
    """(exit status, output) of a child; the status is None where it did not end in time, 127 where it did not start."""
    with tempfile.TemporaryFile() as printed:
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                env=dict(os.environ, **(variables or {})),
                start_new_session=True,
            )
        except OSError as error:
            return 127, str(error)
        try:
            code: int | None = child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        printed.seek(0)
        return code, printed.read(KEPT_BYTES).decode(errors="replace")


def cxx() -> list[str]:
    """The C++ compiler, as PyTorch's helper chooses it."""
    return shlex.split(os.environ.get("CXX", "c++"))


def cuda_folder() -> str:
    """The folder of the CUDA toolkit's programs that a build here uses."""
    from torch.utils import cpp_extension

    return os.path.join(cpp_extension.CUDA_HOME or "", "bin")


def undefined(paths: Sequence[str]) -> list[str] | None:
    """Return what objects leave undefined, demangled, in its order, each once; None where nm is missing or fails."""
    listed = run(["nm", "-u", "-C", *paths])
    return None if listed is None else parse_undefined(listed)


def parse_undefined(listed: str) -> list[str]:
    """Names from ``nm -u -C``."""
    lines = [line.split(None, 1) for line in listed.splitlines() if line.startswith(" ")]
    return list(dict.fromkeys(words[1].strip() for words in lines if len(words) == 2 and words[0] in "Uwv"))


def find_cuda_libraries(names: Sequence[str], packages: str, home: str) -> tuple[list[str], list[str]]:
    """(include folders, linker flags) for libraries by name; LookupError with the one that is nowhere.

    PyTorch's own copies come first, since those are loaded with it: a version that is loaded twice helps nobody.
    `packages` is the folder of PyTorch's wheel and of NVIDIA's, `home` the CUDA toolkit's. Headers
    are preferably those of the toolkit that compiles.
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
