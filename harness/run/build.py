"""Builds: one extension for each environment, kernel and device, keyed by all that determines it.

The shipped binding includes PyTorch's headers, which take longer to compile than a kernel does, and depends on no
kernel. It is a build of its own, made once for an environment by whichever kernel's build comes first and linked into
every kernel's extension.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from harness.config import shipped
from harness.config.environments import Environment
from harness.config.kernels import Kernel
from harness.config.plan import PlannedBuild
from harness.errors import RecordError
from harness.run.context import SHIPPED_MODULE, Context, answer_of, checked, fields_of, is_whole
from harness.schema.environment_records import BINDING_OBJECT, BuildRecord, LoadFailure
from harness.schema.records import Device, Status
from harness.schema.storage import load_record, save_record
from harness.tools import cache_lock
from harness.worker import protocol, wire

HEADER_SUFFIXES = {".h", ".hpp", ".hh", ".cuh", ".inc", ".inl"}
QUOTED = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"\n]+)"', re.MULTILINE)
SHIPPED_BINDING = "csrc/attention_binding.cpp"
BINDING_FILES = (SHIPPED_BINDING, "csrc/attention.h")  # all of ours that it is compiled from
BINDING_FLAGS: dict[Device, list[str]] = {"cpu": [], "cuda": ["-DATTENTION_CUDA=1"]}
LINK_FLAGS: dict[Device, list[str]] = {"cpu": ["-pthread"], "cuda": []}


def kernel_files(root: Path, kernel: Kernel, sources: dict[Device, list[str]], device: Device) -> list[str]:
    """Every file that a build depends on: sources, binding, the headers beside them, and what of any name they include
    in quotes, such as another source."""
    files = list(sources[device])
    if kernel.prebuilt is not None:
        return files
    if kernel.is_bound:
        files.extend(BINDING_FILES)
    folders = {root / "csrc", *((root / name).parent for name in files)}  # csrc is on every include path
    headers = {str(path.relative_to(root)) for folder in folders for path in _headers(root, folder)}
    reads = dict.fromkeys(files + sorted(headers))
    left = list(reads)
    while left:
        new = [name for name in _included(root, left.pop(), files) if name not in reads]
        reads.update(dict.fromkeys(new))
        left += new
    return list(reads)


def _headers(root: Path, folder: Path) -> Iterator[Path]:
    """Headers below a folder, which may be the whole project: hidden folders and its records are left out."""
    for place, folders, names in os.walk(folder):
        here = Path(place)
        folders[:] = [name for name in folders if not name.startswith(".") and here / name != root / "reports"]
        yield from (path for name in names if (path := here / name).suffix in HEADER_SUFFIXES and path.is_file())


def _included(root: Path, name: str, sources: Sequence[str]) -> list[str]:
    """The files that a file includes in quotes: beside itself, beside a source, or below csrc, the shipped one too."""
    file = shipped.located(root, name)
    if not file.is_file():  # `harness.config.missing` has named it
        return []
    beside = [shipped.located(root, each).parent for each in sources]
    places = dict.fromkeys([file.parent, *beside, *shipped.include_folders(root)])
    words = QUOTED.findall(file.read_text(encoding="utf-8", errors="replace"))
    paths = [Path(os.path.normpath(place / word)) for word in words for place in places]
    names = (shipped.name_of(root, path) for path in paths if path.is_file())
    return [name for name in names if name is not None]


def _cxx_flags(environment: Environment, kernel: Kernel, device: Device) -> list[str]:
    return [*kernel.flags.cxx, *environment.flags.cxx, *BINDING_FLAGS[device]]


def build(context: Context, planned: PlannedBuild) -> BuildRecord:
    kernel, device = context.kernel(planned.kernel), planned.device
    environment = context.environments[planned.environment]
    if environment.status != protocol.OK:
        message = f"its environment is broken: {environment.message}"
        return BuildRecord(**asdict(planned), key="", status="broken", message=message)
    key = context.key("build", environment=planned.environment, kernel=kernel.name, device=device)
    identity = {**asdict(planned), "key": key}
    if kernel.model_new is not None:
        return BuildRecord(**identity, status="ok", message="a Python file: nothing to build before it runs")
    folder, artifact = context.build_folder(planned, key), context.artifact(planned, key)
    with cache_lock(context.cache, folder.name):
        known = _known(folder, artifact)
        if known is not None:
            return replace(known, reused=True, runnable=planned.runnable)
        if kernel.prebuilt is not None:
            return _kept(context, _take(context, planned, key, artifact), artifact)
        binding: BuildRecord | None = None
        objects: tuple[Path, ...] = ()
        if kernel.is_bound:
            binding, object_file = _binding(context, planned)
            if binding.status != protocol.OK:  # of the kernel nothing was compiled
                return replace(binding, **identity, artifact=artifact.name, flags=[])
            objects = (object_file,)
        request = _request(context, planned, artifact, objects)
        files = kernel_files(context.root, kernel, context.sources[kernel.name], device)
        reads = (*(shipped.located(context.root, name) for name in files), *objects)
        log = f"build-{planned.kernel}-{device}"
        record = _compile(context, planned, key, artifact, request, reads, log)
        return _kept(context, record if binding is None else _with_binding(record, binding), artifact)


def build_request(
    root: Path, kernel: Kernel, sources: Sequence[str], environment: Environment, device: Device, artifact: Path
) -> wire.BuildRequest:
    """How a kernel's sources for a device are built in an environment; linked with nothing, and not loaded."""
    files = [shipped.located(root, name) for name in sources]
    folders = [*shipped.include_folders(root), *(file.parent for file in files)]
    return wire.BuildRequest(
        name=artifact.stem,
        build_dir=str(artifact.parent),
        sources=list(map(str, files)),
        include_dirs=list(dict.fromkeys(map(str, folders))),
        flags=wire.FlagsRequest(
            cxx=_cxx_flags(environment, kernel, device),
            nvcc=[*kernel.flags.nvcc, *environment.flags.nvcc],
            ld=LINK_FLAGS[device],
        ),
        defines={name: str(value) for name, value in kernel.tunables.items()},
        architectures=kernel.architectures,
        libraries=list(kernel.libraries) if device == "cuda" else [],
        load=False,
    )


def _request(context: Context, planned: PlannedBuild, artifact: Path, objects: Sequence[Path]) -> wire.BuildRequest:
    kernel, device = context.kernel(planned.kernel), planned.device
    spec = context.plan.environment(planned.environment).spec
    request = build_request(context.root, kernel, context.sources[kernel.name][device], spec, device, artifact)
    return replace(request, objects=list(map(str, objects)), load=planned.runnable)


def _binding(context: Context, planned: PlannedBuild) -> tuple[BuildRecord, Path]:
    """The shipped binding's own build, and its object. No code under test takes part in it."""
    kernel, device = context.kernel(planned.kernel), planned.device
    part = replace(planned, kernel=Path(BINDING_OBJECT).stem, runnable=False)
    key = context.key("binding", environment=planned.environment, kernel=kernel.name, device=device)
    folder = context.build_folder(part, key)
    object_file = folder / "out" / BINDING_OBJECT
    with cache_lock(context.cache, folder.name):
        known = _known(folder, object_file)
        if known is not None:
            return known, object_file
        request = wire.BuildRequest(
            name=SHIPPED_MODULE,
            build_dir=str(object_file.parent),
            artifact=object_file.name,
            cuda_headers=device == "cuda",
            sources=[str(shipped.located(context.root, SHIPPED_BINDING))],
            include_dirs=list(map(str, shipped.include_folders(context.root))),
            flags=wire.FlagsRequest(cxx=_cxx_flags(context.plan.environment(planned.environment).spec, kernel, device)),
            load=False,
        )
        reads = tuple(shipped.located(context.root, name) for name in BINDING_FILES)
        log = f"build-{planned.kernel}-{device}-binding"  # others may compile theirs now, with other flags
        return _kept(context, _compile(context, part, key, object_file, request, reads, log), object_file), object_file


def _take(context: Context, planned: PlannedBuild, key: str, artifact: Path) -> BuildRecord:
    """What is built already: its copy, once it was loaded."""
    kernel = context.kernel(planned.kernel)
    file = shipped.located(context.root, str(kernel.prebuilt))
    request = wire.TakeRequest(
        file=str(file), out=str(artifact.parent), entry=kernel.entry or "", load=planned.runnable
    )
    return _compile(context, planned, key, artifact, request, (file,), f"build-{planned.kernel}-{planned.device}")


def _known(folder: Path, artifact: Path) -> BuildRecord | None:
    """What was built there before, where it still is what its record describes."""
    done = folder / "build.json"
    try:
        known = load_record(done, BuildRecord)
    except RecordError:  # it is not there, or damaged
        return None
    return known if is_whole(artifact, known) else None


def _compile(
    context: Context,
    planned: PlannedBuild,
    key: str,
    artifact: Path,
    request: wire.BuildRequest | wire.TakeRequest,
    reads: tuple[Path, ...],
    log: str,
) -> BuildRecord:
    """Run the task with an empty folder to write to."""
    out, takes = artifact.parent, isinstance(request, wire.TakeRequest)
    folder = out.parent
    if folder.exists():  # an interrupted, failed or changed build
        shutil.rmtree(folder)
    out.mkdir(parents=True)
    scratch = folder.with_name(folder.name + ".scratch")
    answer = answer_of(
        context,
        context.task(
            "take" if takes else "build",
            request,
            planned.environment,
            timeout_s=context.plan.limits.build_s,
            scratch=scratch,
            log=log,
            reads=reads,
            writes=(out,),
        ),
    )
    identity = {**asdict(planned), "key": key}
    result = checked(wire.BuildResult, answer, "loading it" if takes else "the build")
    if isinstance(result, wire.BuildResult):
        return BuildRecord(**{**fields_of(result), **identity, "artifact": artifact.name})
    status: Status = "build_failed" if result.status == protocol.CRASHED else result.status
    message = result.message
    if artifact.is_file():  # its constructors run where it is loaded
        message = re.sub(r"^the build (?=died|exited|was|killed)", "compiled, but what loaded it ", message)
    refused = LoadFailure(kind="other", reason=f"its process {answer.ended.how}") if takes else None
    return BuildRecord(**identity, **{**fields_of(result), "status": status, "message": message}, refused=refused)


def _with_binding(record: BuildRecord, binding: BuildRecord) -> BuildRecord:
    """A kernel's build with what is recorded of the binding in it."""
    if not record.build_ninja:  # it did not come that far
        return record
    header = f"# {BINDING_OBJECT}, compiled once for this environment:"
    ninja = "\n".join([record.build_ninja, header, "", binding.build_ninja])
    objects = record.objects | binding.objects
    return replace(record, objects=objects, build_ninja=ninja, binding_s=binding.build_s)


def _kept(context: Context, record: BuildRecord, artifact: Path) -> BuildRecord:
    """The record, stored where the build went well: beside what it wrote, where no code under test, which may run
    when it is loaded, writes. Without paths: projects elsewhere share what is built alike."""
    if record.status != protocol.OK:
        return record
    if not is_whole(artifact, record):
        changed = "what the build left is not what it described: the extension was changed when it was loaded"
        return BuildRecord(
            environment=record.environment,
            kernel=record.kernel,
            device=record.device,
            runnable=record.runnable,
            key=record.key,
            status="build_failed",
            message=changed,
        )
    written = context.without_paths(record)
    save_record(artifact.parent.parent / "build.json", written)
    return written
