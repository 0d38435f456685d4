"""`build`: compile an extension with PyTorch's own helper and ninja, and describe what came out."""

from __future__ import annotations

import dataclasses
import io
import os
import re
import shlex
import shutil
import sys
import time
import warnings
from typing import Any, Mapping, Sequence

from . import machine_code, protocol, text, tools, wire

EXCERPT_CHARACTERS = 8000
CUDA_SUFFIXES = (".cu", ".cuh")
C_INTERFACE = ("attention_forward", "attention_error_string", "attention_tunables")  # csrc/attention.h


def build(request: wire.BuildRequest) -> wire.BuildResult:
    """The caller holds the only lock on the build folder."""
    flags = compiler_flags(request)
    listed = [f"{kind}: {flag}" for kind in ("cxx", "nvcc", "ld") for flag in flags[kind]]
    result = wire.BuildResult(protocol.OK, flags=listed)
    try:
        _build(request, flags, result)
    except wire.Failed as error:
        result.fail(error)
    return result


def identifier(name: str) -> str:
    """The extension module's name: the kernel's, made a C identifier."""
    return re.sub(r"\W", "_", name, flags=re.ASCII)


def define_flags(defines: Mapping[str, str]) -> list[str]:
    """-DBLOCK_M=32 of a number; -DREDUCE_WARP=1 of a word, since the preprocessor cannot compare words."""
    flags = []
    for name, value in sorted(defines.items()):
        given = str(value)
        if re.match(r"-?\d+$", given):
            flags.append(f"-D{name}={given}")
        else:
            flags.append("-D{}_{}=1".format(name, re.sub(r"\W", "_", given).upper()))
    return flags


def compiler_flags(request: wire.BuildRequest) -> dict[str, list[str]]:
    given, defines = request.flags, define_flags(request.defines)
    flags = {"cxx": list(given.cxx), "nvcc": list(given.nvcc), "ld": list(given.ld)}
    flags["cxx"] += defines
    if uses_cuda(request):
        # PyTorch's helper does not know every architecture (2.1.0 refuses 9.0a), so all are given here, and
        # its own choice is left out (`_compile`).
        flags["nvcc"] += defines + [gencode(name) for name in request.architectures]
    else:
        flags["nvcc"] = []
    return flags


def gencode(architecture: str) -> str:
    number = architecture.rsplit("_", maxsplit=1)[-1]
    return f"-gencode=arch=compute_{number},code=sm_{number}"


def has_device_code(request: wire.BuildRequest) -> bool:
    return any(source.endswith(CUDA_SUFFIXES) for source in request.sources)


def uses_cuda(request: wire.BuildRequest) -> bool:
    """Return whether CUDA's compiler is needed, or its headers, which PyTorch's own include."""
    return has_device_code(request) or request.cuda_headers


def _build(request: wire.BuildRequest, flags: dict[str, list[str]], result: wire.BuildResult) -> None:
    folder = request.build_dir
    os.makedirs(folder, exist_ok=True)
    lock = os.path.join(folder, "lock")
    if os.path.exists(lock):  # of a killed build: the helper would wait for it for ever
        os.unlink(lock)
    # ninja is a wheel of this environment, and the environment need not be activated.
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", "")
    extension = helper()
    cuda = uses_cuda(request)
    result.compiler = compiler_line(extension.get_cxx_compiler())
    if cuda:
        nvcc = check_nvcc(extension)
        result.compiler = f"{compiler_line(nvcc, last=True)}; {result.compiler}"
        # Without a GPU and without this the helper fails, whatever -gencode says; it must be one it knows.
        os.environ["TORCH_CUDA_ARCH_LIST"] = helper_architectures(request.architectures)
    if request.libraries:
        includes, links = _libraries(request.libraries, extension)
        request = dataclasses.replace(request, include_dirs=[*request.include_dirs, *includes])
        flags["ld"] += links
    for path in request.objects:  # by their names alone: where they lay is nothing to compare
        shutil.copyfile(path, os.path.join(folder, os.path.basename(path)))
        flags["ld"].insert(0, os.path.basename(path))
    name = identifier(request.name)
    started = time.perf_counter()
    output, error = _compile(extension, name, request, flags, cuda, folder)
    result.build_s = time.perf_counter() - started
    result.build_ninja = tools.read_text(os.path.join(folder, "build.ninja"))
    if error is not None:
        message = first_error(output, request.sources)
        if message is None and "rror building extension" not in str(error):
            message = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
        raise wire.Failed(protocol.BUILD_FAILED, message or "ninja failed; see the log", relevant(output))
    artifact = os.path.join(folder, request.artifact or name + ".so")
    result.artifact = artifact
    result.artifact_sha256 = protocol.sha256_file(artifact)
    result.artifact_bytes = os.path.getsize(artifact)
    programs = os.path.join(extension.CUDA_HOME, "bin") if cuda else ""
    result.objects = machine_code.hash_objects(folder, request.sources, programs)
    notes = [machine_code.runtime_note(artifact)]
    if has_device_code(request):
        result.functions, note = machine_code.device_functions(artifact, programs)
        notes.append(note)
    result.message = "; ".join(filter(None, notes))
    if request.load:
        _load(artifact)


def lacking(message: str) -> wire.Failed:
    """The machine lacks what a task needs: not a fault of the code."""
    return wire.Failed(protocol.NOT_RUN, message)


def helper() -> Any:
    """PyTorch's own."""
    try:
        from torch.utils import cpp_extension
    except ImportError as error:
        raise lacking(
            f"torch.utils.cpp_extension cannot be imported ({error}); PyTorch 2.1.0 needs setuptools below 70"
        ) from None
    if not cpp_extension.is_ninja_available():
        raise lacking("ninja is not installed in the environment; add it to the pins")
    return cpp_extension


def _compile(
    extension: Any, name: str, request: wire.BuildRequest, flags: dict[str, list[str]], cuda: bool, folder: str
) -> tuple[str, Exception | None]:
    """(what ninja and the compilers printed, the helper's exception or None)."""
    # The helper loads what it built. Loading here would run a stranger's initialisers, and fail where a
    # CUDA library or device is missing, so its last step, the same function in 2.1 to 2.11, is left out.
    extension._import_module_from_library = lambda *arguments, **options: None
    # Some versions add TORCH_CUDA_ARCH_LIST's architectures to those of the flags, some only where there are none.
    extension._get_cuda_arch_flags = lambda *arguments, **options: []
    error: Exception | None = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            extension.load(
                name=name,
                sources=list(request.sources),
                extra_cflags=flags["cxx"],
                extra_cuda_cflags=flags["nvcc"],
                extra_ldflags=flags["ld"],
                extra_include_paths=list(request.include_dirs),
                build_directory=folder,
                with_cuda=cuda,
                verbose=False,
            )
        except Exception as raised:  # the helper raises RuntimeError, OSError, ValueError and IndexError
            error = raised
    output = io.StringIO()
    for warning in caught:
        output.write(f"warning: {str(warning.message).strip()}\n")
    if error is not None:
        output.write(re.sub(r"^Error building extension '\w*': ", "", str(error)))
    return output.getvalue(), error


def _load(artifact: str) -> None:
    import torch  # noqa: F401  (its libraries must be there before the extension's)

    from . import kernels

    try:
        kernels.load_extension(artifact)
    except Exception as error:
        message = f"built, but cannot be loaded: {unresolved(str(error), artifact)}"
        excerpt = f"{type(error).__name__}: {error}"[:EXCERPT_CHARACTERS]
        raise wire.Failed(protocol.BUILD_FAILED, message, excerpt) from None


def unresolved(said: str, artifact: str) -> str:
    """Return what the loader said, in one line; of a symbol that nothing defines, what it is and where it is looked
    for."""
    symbol = re.search(r"undefined symbol: (\w+)", said)
    if symbol is None:
        return text.first_line(said)
    there = tools.undefined([artifact]) or [symbol[1]]
    missing = [name for name in C_INTERFACE if name in there]
    if missing:
        return "no source defines {}; a kernel defines {} and {}, as csrc/attention.h declares them".format(
            " or ".join(missing), ", ".join(C_INTERFACE[:-1]), C_INTERFACE[-1]
        )
    name = (tools.run(["c++filt", symbol[1]]) or symbol[1]).strip()
    return f"no file listed in `sources` defines {name}"


def _libraries(names: Sequence[str], extension: Any) -> tuple[list[str], list[str]]:
    import torch

    try:
        packages = os.path.dirname(os.path.dirname(torch.__file__))
        return tools.find_cuda_libraries(names, packages, extension.CUDA_HOME or "")
    except LookupError as error:
        raise lacking(f"{error}; install it with the CUDA toolkit") from None


def check_nvcc(extension: Any) -> str:
    """Path of an nvcc that this PyTorch accepts; `wire.Failed` with the reason."""
    import torch

    if torch.version.cuda is None:
        raise lacking("this PyTorch was built without CUDA; pin a CUDA build to compile CUDA sources")
    home = extension.CUDA_HOME
    nvcc = os.path.join(home or "", "bin", "nvcc")
    if not home or not os.path.exists(nvcc):
        raise lacking(f"no nvcc found; install the CUDA toolkit {torch.version.cuda} or set CUDA_HOME")
    found = re.search(r"release (\d+)\.(\d+)", tools.run([nvcc, "--version"]) or "")
    if found and found.group(1) != torch.version.cuda.split(".")[0]:
        raise lacking(
            "nvcc is {}.{}, and PyTorch {} was built with CUDA {}: it refuses another major version; "
            "set CUDA_HOME to a CUDA {} toolkit".format(
                found.group(1), found.group(2), torch.__version__, torch.version.cuda, torch.version.cuda.split(".")[0]
            )
        )
    return nvcc


def helper_architectures(names: Sequence[str]) -> str:
    """ "9.0a" is unknown to older helpers: the variable gets its plain number, -gencode the real name."""
    numbers = [re.sub(r"[a-z]+$", "", name.split("_")[-1]) for name in names]
    return ";".join(dict.fromkeys(f"{number[:-1]}.{number[-1]}" for number in numbers)) or "8.0"


def compiler_line(compiler: str, last: bool = False) -> str:
    lines = (tools.run([*shlex.split(compiler), "--version"]) or "").strip().splitlines()
    return (lines[-2] if last and len(lines) > 1 else lines[0]) if lines else ""


def first_error(output: str, sources: Sequence[str]) -> str | None:
    """The compiler's first error line, its path relative to the sources' folder; None where there is none."""
    folders = sorted({os.path.dirname(source) + os.sep for source in sources}, key=len, reverse=True)
    for line in output.splitlines():
        if re.search(r"(\berror\b ?(#\d+)?(-D)?:|\bundefined reference\b|: command not found)", line):
            for folder in folders:
                line = line.replace(folder, "")
            return line.strip()
    return None


def relevant(output: str) -> str:
    """The part to show: from a few lines before the first error on, without the echo of whole commands."""
    lines = [line for line in output.splitlines() if "-DTORCH_EXTENSION_NAME=" not in line]
    start = next((i for i, line in enumerate(lines) if re.search(r"\berror\b", line)), 0)
    return "\n".join(lines[max(0, start - 5) :])[:EXCERPT_CHARACTERS]
