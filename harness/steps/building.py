"""Builds: one extension for each environment, kernel and device, keyed by all that determines it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from harness.errors import InputError
from harness.executors import Task
from harness.inside import protocol
from harness.matrix import Kernel
from harness.plan import PlannedBuild
from harness.records import BuildRecord, Device, Status
from harness.steps.context import Context, checked
from harness.tools import cache_lock

HEADER_SUFFIXES = {".h", ".hpp", ".hh", ".cuh", ".inc", ".inl"}
SHIPPED_BINDING = "csrc/attention_binding.cpp"
BINDING_FLAGS: dict[Device, list[str]] = {"cpu": [], "cuda": ["-DATTENTION_CUDA=1"]}
LINK_FLAGS: dict[Device, list[str]] = {"cpu": ["-pthread"], "cuda": []}


def kernel_files(root: Path, kernel: Kernel, sources: dict[Device, list[str]], device: Device) -> list[str]:
    """Every file that a build depends on: sources, binding, and the headers beside them."""
    files = list(sources[device])
    if kernel.problem is None and kernel.binding == "shipped":
        files.append(SHIPPED_BINDING)
    folders = {root / "csrc", *((root / name).parent for name in files)}  # csrc is on every include path
    headers = sorted(
        str(path.relative_to(root))
        for folder in folders
        for path in folder.rglob("*")
        if path.suffix in HEADER_SUFFIXES and path.is_file()
    )
    return list(dict.fromkeys(files + headers))


def missing_source(name: str) -> InputError:
    return InputError(f"{name}: no such file; a kernel in matrix.yaml names it", "correct the path in matrix.yaml")


def build_key(context: Context, environment_key: str, kernel: Kernel, device: Device) -> str:
    """Digest of all that determines a build; for a Python kernel, of its files."""
    files = kernel_files(context.root, kernel, context.sources[kernel.name], device)
    inside = Path(protocol.__file__).parent
    return protocol.digest(
        [
            environment_key,
            kernel.name,
            device,
            [[name, context.plan.facts.sources_sha256[name]] for name in files],
            {name: str(value) for name, value in kernel.tunables.items()},
            kernel.flags.model_dump(),
            kernel.architectures,
            context.plan.facts.host.get("compiler", ""),
            context.plan.facts.host.get("nvcc", "") if device == "cuda" else "",
            protocol.sha256_file(str(inside / "build.py")),
        ]
    )


def build(context: Context, planned: PlannedBuild) -> BuildRecord:
    kernel, device = context.kernel(planned.kernel), planned.device
    environment = context.environments[planned.environment]
    identity: dict[str, Any] = {
        "environment": planned.environment,
        "kernel": planned.kernel,
        "device": device,
        "runnable": planned.runnable,
    }
    if environment.status != protocol.OK:
        message = f"its environment is broken: {environment.message}"
        return BuildRecord(**identity, key="", status="broken", message=message)
    key = build_key(context, environment.key, kernel, device)
    if kernel.model_new is not None:
        return BuildRecord(**identity, key=key, status="ok", message="a Python file: nothing to build before it runs")
    folder = context.build_folder(planned, key)
    # The record lies beside what the build wrote, where no code under test, which may run when it is loaded, writes.
    out, done = folder / "out", folder / "build.json"
    artifact = context.artifact(planned, key)
    with cache_lock(context.cache, folder.name):
        if done.exists():
            known = BuildRecord(**protocol.read_json(str(done)))
            if _is_plain(artifact) and protocol.sha256_file(str(artifact)) == known.artifact_sha256:
                return known.model_copy(update={"reused": True, "runnable": planned.runnable})
        if folder.exists():  # an interrupted or failed build
            shutil.rmtree(folder)
        out.mkdir(parents=True)
        sources = list(context.sources[kernel.name][device])
        if kernel.binding == "shipped":
            sources.append(SHIPPED_BINDING)
        include = list(dict.fromkeys([str(context.root / "csrc"), *(str((context.root / s).parent) for s in sources)]))
        request = {
            "device": device,
            "name": artifact.stem,
            "sources": [str(context.root / name) for name in sources],
            "include_dirs": include,
            "flags": {
                "cxx": [*kernel.flags.cxx, *BINDING_FLAGS[device]],
                "nvcc": kernel.flags.nvcc,
                "ld": LINK_FLAGS[device],
            },
            "defines": {name: str(value) for name, value in kernel.tunables.items()},
            "architectures": kernel.architectures,
            "build_dir": str(out),
            "load": planned.runnable,
        }
        files = kernel_files(context.root, kernel, context.sources[kernel.name], device)
        answer = context.executor.run(
            Task(
                environment=planned.environment,
                verb="build",
                request=request,
                scratch=folder.with_name(folder.name + ".scratch"),
                log=context.run.folder / "logs" / planned.environment / f"build-{planned.kernel}-{device}.log",
                timeout_s=context.plan.limits["build_s"],
                reads=tuple(context.root / name for name in files),
                writes=(out,),
                compiles=True,
            )
        )
        record = checked(
            lambda: BuildRecord(**identity, key=key, **{**(answer.result or {}), "artifact": artifact.name}),
            answer,
            "the build",
        )
        if isinstance(record, BuildRecord) and record.status == protocol.OK:
            if not _is_plain(artifact) or protocol.sha256_file(str(artifact)) != record.artifact_sha256:
                said = "what the build left is not what it described: the extension was changed when it was loaded"
                return BuildRecord(**identity, key=key, status="build_failed", message=said)
            protocol.write_json(str(done), record.model_dump(mode="json"))
        if isinstance(record, BuildRecord):
            return record
        status: Status = "build_failed" if record.status == protocol.CRASHED else record.status
        return BuildRecord(**identity, key=key, status=status, message=record.message, log_excerpt=record.log_excerpt)


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()
