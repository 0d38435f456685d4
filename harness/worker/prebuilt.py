"""The code under test as it is: a shared object, or a wheel, that was built elsewhere. Nothing is compiled.

`take` copies it to where builds lie, unpacks a wheel, and loads it; `load` makes it callable. A shared object is a
Python module where it defines `PyInit_` and its name, else it has the C interface of csrc/attention.h. Of a wheel the
entry point `package.module:function` is called as ``forward(q, k, v, causal, scale)`` and returns the output.
"""

from __future__ import annotations

import glob
import importlib
import os
import shutil
import sys
import zipfile
from typing import Any

from . import abi, blame, elf, kernels, protocol, shared_object, text, wire
from .attention import AttentionWorkload

MOST_BYTES = 16 << 30  # of a wheel, unpacked


def take(request: wire.TakeRequest) -> wire.BuildResult:
    """The caller holds the only lock on the folder `out`."""
    os.makedirs(request.out, exist_ok=True)
    artifact = os.path.join(request.out, os.path.basename(request.file))
    shutil.copyfile(request.file, artifact)
    result = wire.BuildResult(protocol.OK, artifact=artifact)
    result.artifact_sha256 = protocol.sha256_file(artifact)
    result.artifact_bytes = os.path.getsize(artifact)
    try:
        if request.entry:
            _unpack(artifact, request.out)
        elif module_of(artifact):  # it may hold PyTorch's headers, and call its operators
            result.objects = {os.path.basename(artifact): f"raw:{result.artifact_sha256}"}
        if request.load:
            _try(artifact, request.entry, result)
    except wire.Failed as error:
        result.fail(error)
    return result


def module_of(path: str) -> str:
    """The Python module that a shared object is, by its file's name; empty where it is none."""
    name = os.path.basename(path).split(".")[0]
    return name if os.path.getsize(path) and elf.holds(path, f"PyInit_{name}") else ""


def _unpack(wheel: str, out: str) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            if sum(each.file_size for each in archive.infolist()) > MOST_BYTES:
                raise wire.Failed(protocol.BUILD_FAILED, f"unpacked, it has more than {MOST_BYTES >> 30} GiB")
            archive.extractall(os.path.join(out, protocol.UNPACKED))  # every name stays below it
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise wire.Failed(protocol.BUILD_FAILED, f"{os.path.basename(wheel)}: no wheel: {error}") from None


def _try(artifact: str, entry: str, result: wire.BuildResult) -> None:
    """Load it once; what it does then, and says, is a stranger's."""
    name = os.path.basename(artifact)
    failure = None if entry else abi.unfit(artifact)
    if failure is None and not entry and not module_of(artifact):
        missing = [each for each in elf.CALLED if not elf.holds(artifact, each)]
        if missing:
            module = name.split(".")[0]
            failure = wire.LoadFailure("interface", reason=f"it defines neither PyInit_{module} nor {missing[0]}")
            failure.remedy = "export the C interface of csrc/attention.h, or a Python module of the file's own name"
    said = ""
    if failure is None:
        try:
            _load(artifact, entry)
            return
        except BaseException as error:
            said = text.text_of(error)
            failure = abi.explain(said, artifact)
            if failure.kind == "other":
                failure.reason = f"it raised {text.type_name(error)}: {failure.reason}"
    result.refused = failure
    message = f"{name} cannot be loaded: {failure.reason}" + (f"; {failure.remedy}" if failure.remedy else "")
    raise wire.Failed(protocol.BUILD_FAILED, message[: protocol.MESSAGE_CHARACTERS], said[: text.EXCERPT_CHARACTERS])


def _load(artifact: str, entry: str) -> Any:
    """The entry point of a wheel, the extension's module, or the library; whatever it raises."""
    if entry:
        return _entry_point(os.path.join(os.path.dirname(artifact), protocol.UNPACKED), entry)
    return kernels.load_extension(artifact) if module_of(artifact) else shared_object.open_library(artifact)


@blame.enters_subject
def _entry_point(folder: str, entry: str) -> Any:
    module, _, names = entry.partition(":")
    for place in [*_places(folder)][::-1]:
        if place not in sys.path:
            sys.path.insert(0, place)
    found: Any = importlib.import_module(module)
    for name in names.split("."):
        found = getattr(found, name)
    if not callable(found):
        raise TypeError(f"{entry} is no function")
    return found


def _places(folder: str) -> list[str]:
    """Return where an installation would put what a wheel holds: its root, and the libraries of its .data folder."""
    return [folder, *sorted(glob.glob(os.path.join(folder, "*.data", "*lib")))]


class EntryPoint(kernels.Extension):
    """A kernel from a wheel, called as one from an extension that returns its output."""

    returns = True
    chooses = None

    def __init__(self, path: str, entry: str, workload: AttentionWorkload) -> None:
        with kernels.blamed(f"{protocol.LOADING}{entry}"):
            self.forward = _load(path, entry)
        self._take(workload)


def load(request: wire.KernelRequest, workload: AttentionWorkload) -> kernels.Extension:
    """`wire.Failed` where it is of the other device: what it does with memory that it cannot reach shows nothing."""
    path = request.prebuilt or ""
    if request.entry:
        return EntryPoint(path, request.entry, workload)
    if module_of(path):
        return kernels.Extension(path, workload)
    name, gpu = os.path.basename(path), elf.holds(path, *elf.GPU_CODE)
    if gpu != (request.device == "cuda"):
        what = "GPU code" if gpu else "no GPU code"
        device = "cuda" if gpu else "cpu"
        raise wire.Failed(protocol.NOT_RUN, f"{name} has {what}: set devices: [{device}] on the kernel")
    library = shared_object.Library(path, workload)
    library.note = ""
    return library
