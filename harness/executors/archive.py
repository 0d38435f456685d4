"""Archives of environments, for a host with neither a container engine nor a registry: `nox -s bundle`, `--bundle DIR`.

An environment is a whole root file system as a tar: what `docker export` gives of an image, or what a virtual
environment's sandbox sees. It is compressed and split into parts, whose digests the manifest holds. Nothing is left
out and nothing is changed: what is unpacked has every file of every pinned wheel, which is checked against the wheels'
own lists. Its tasks run under bubblewrap, with the unpacked files as their root.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, cast

import zstandard
from pydantic import TypeAdapter, ValidationError

from harness.config import keys
from harness.config.plan import PlannedEnvironment
from harness.errors import InfrastructureError, InputError
from harness.executors import Task, Variables
from harness.executors.base import kept_wheels
from harness.executors.bwrap import (
    DRIVER,
    Access,
    Bwrap,
    Mount,
    Process,
    cache_libraries,
    compilers,
    driver_mounts,
    own_devices,
)
from harness.executors.engine import OWNER, Engine
from harness.executors.process import owner
from harness.executors.sandbox import ENVIRONMENT, SandboxLimits
from harness.executors.venv import ProcessExecutor, VenvExecutor
from harness.gpu import gpus, handed_on
from harness.schema.environment_records import EnvironmentRecord, Observation
from harness.tools import cache_lock
from harness.worker import protocol

VERSION = 3
READABLE = (2, VERSION)  # the second holds fewer facts
MANIFEST = "manifest.json"
BLOCK_BYTES = 1 << 20
PACK_AGAIN = "copy the folder again; if it stays so, pack it again: nox -s bundle"
PATH = "/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NOT_PACKED = ("proc", "sys", "dev", "tmp")  # what every sandbox has of its own


@dataclass(frozen=True, kw_only=True)
class Part:
    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class ArchivedEnvironment:
    index: str  # where its wheels really came from
    image: str  # '' of a virtual environment
    base_image: str
    pins_sha256: str
    interpreter: str  # its path in the root file system
    tar_bytes: int
    parts: tuple[Part, ...]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    version: int
    created_utc: str
    machine: str
    environments: dict[str, ArchivedEnvironment]


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """A folder of archives."""

    folder: Path
    manifest: Manifest
    manifest_sha256: str

    def entry(self, id: str) -> ArchivedEnvironment:
        """Return what the bundle says of an environment, or of the one that it is a replica of. InputError for none."""
        environments = self.manifest.environments
        if plain_id(id) not in environments:
            there = ", ".join(environments)
            raise InputError(
                f"{self.folder}: the bundle has no {plain_id(id)}; it has {there}", "nox -s bundle, with that version"
            )
        return environments[plain_id(id)]


def plain_id(id: str) -> str:
    """Return the environment that a bundle holds for a planned one: replicas share it."""
    name, _, replica = id.rpartition("-r")
    return name if replica.isdecimal() else id


def load_bundle(folder: Path) -> Bundle:
    """Read a bundle's manifest. InputError where there is none, or it is damaged or of another version."""
    path = folder / MANIFEST
    if not path.is_file():
        raise InputError(f"{folder}: not a bundle", "pack one with nox -s bundle, and name its folder: --bundle DIR")
    data = path.read_bytes()
    try:
        manifest = TypeAdapter(Manifest).validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise InputError(f"{path}: the manifest is damaged: {place}: {first['msg']}", PACK_AGAIN) from None
    if manifest.version not in READABLE:
        raise InputError(
            f"{folder}: a bundle of version {manifest.version}; this harness reads {VERSION}",
            "use the harness that packed it, or pack it again: nox -s bundle",
        )
    return Bundle(folder=folder.resolve(), manifest=manifest, manifest_sha256=hashlib.sha256(data).hexdigest())


def bundle_facts(bundle: Bundle) -> dict[str, str]:
    """Return what the run's record says of a bundle."""
    return {"manifest": bundle.manifest_sha256, "created": bundle.manifest.created_utc}


def choose_bundled_index(bundle: Bundle, own: str, fallback: str) -> tuple[str, bool]:
    """Return (the index that the bundle's wheels of an environment came from, whether it is the fallback).

    `own` and `fallback` are the environment's ids for either index. InputError where the bundle has neither.
    """
    there = bundle.manifest.environments
    name = next((id for id in (own, fallback) if plain_id(id) in there), own)
    return bundle.entry(name).index, name != own


# -- packing --------------------------------------------------------------------------------------------------------


class PartWriter:
    """Writes bytes into files of at most a given size."""

    def __init__(self, folder: Path, stem: str, part_bytes: int) -> None:
        self.folder, self.stem, self.part_bytes = folder, stem, part_bytes
        self.parts: list[Part] = []
        self._file: IO[bytes] | None = None

    def write(self, data: bytes) -> int:
        view = memoryview(data)
        while view:
            if self._file is None:
                self._file = (self.folder / f"{self.stem}.{len(self.parts):04d}").open("wb")
            taken = min(len(view), self.part_bytes - self._file.tell())
            self._file.write(view[:taken])
            view = view[taken:]
            if self._file.tell() == self.part_bytes:
                self.close()
        return len(data)

    def close(self) -> None:
        """End the part that is being written, if one is."""
        if self._file is not None:
            path = Path(self._file.name)
            self._file.close()
            self._file = None
            digest = protocol.sha256_file(str(path))
            self.parts.append(Part(name=path.name, size_bytes=path.stat().st_size, sha256=digest))


def write_parts(
    tar: IO[bytes], folder: Path, stem: str, *, part_bytes: int, level: int
) -> tuple[int, tuple[Part, ...]]:
    """Compress a tar into parts; (its bytes, the parts)."""
    writer, size_bytes = PartWriter(folder, stem, part_bytes), 0
    compressor = zstandard.ZstdCompressor(level=level, threads=-1, write_checksum=True)
    with compressor.stream_writer(cast(IO[bytes], writer), closefd=False) as compressed:
        while block := tar.read(BLOCK_BYTES):
            size_bytes += len(block)
            compressed.write(block)
    writer.close()
    return size_bytes, tuple(writer.parts)


@contextlib.contextmanager
def export_image(engine: Engine, image: str) -> Iterator[IO[bytes]]:
    """Give an image's root file system as a tar."""
    container = engine.call("create", f"--label={OWNER}={owner()}", image, "true").strip()
    try:
        with engine.stream("export", container) as tar:
            yield tar
    finally:
        engine.remove("container", container)


@contextlib.contextmanager
def export_venv(executor: VenvExecutor, bwrap: Bwrap, id: str) -> Iterator[IO[bytes]]:
    """Give what a sandbox of a virtual environment sees as a tar. Files that only root may read are not in it."""
    folders = dict.fromkeys([*executor._folders(executor.python(id)), *compilers()])
    mounts = [Mount(access=Access.READ, source=str(path), target=str(path)) for path in folders]
    options = ["--ignore-failed-read", "--warning=no-file-changed", *(f"--exclude=./{name}" for name in NOT_PACKED)]
    command = bwrap.enter(mounts, ["tar", "-c", "-C", "/", *options, "."])
    with tempfile.TemporaryFile() as said, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said) as tar:
        assert tar.stdout is not None
        yield tar.stdout
        tar.wait()
        said.seek(0)
        if tar.returncode:
            why = said.read()[-600:].decode(errors="replace").strip()
            raise InfrastructureError(f"packing {id} failed: {why}", "is the disk full?")


def describe_environment(
    record: EnvironmentRecord, interpreter: str, tar_bytes: int, parts: tuple[Part, ...]
) -> ArchivedEnvironment:
    """Return what a manifest says of an environment."""
    return ArchivedEnvironment(
        index=record.index,
        image=record.image,
        base_image=record.base_image,
        pins_sha256=record.pins_sha256,
        interpreter=interpreter,
        tar_bytes=tar_bytes,
        parts=parts,
    )


def write_manifest(folder: Path, environments: dict[str, ArchivedEnvironment]) -> None:
    manifest = Manifest(
        version=VERSION,
        created_utc=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        machine=platform.machine(),
        environments=environments,
    )
    protocol.write_json(str(folder / MANIFEST), asdict(manifest))


# -- unpacking ------------------------------------------------------------------------------------------------------


def read_parts(folder: Path, parts: Sequence[Part]) -> Iterator[bytes]:
    """Yield what was compressed into parts. InfrastructureError where one is missing, or is not what was packed."""
    decompressor = zstandard.ZstdDecompressor().decompressobj()
    for part in parts:
        path, state = folder / part.name, hashlib.sha256()
        if not path.is_file() or path.stat().st_size != part.size_bytes:
            raise InfrastructureError(f"{path}: missing, or not whole", PACK_AGAIN)
        with path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                state.update(block)
                try:
                    yield decompressor.decompress(block)
                except zstandard.ZstdError as error:
                    raise InfrastructureError(f"{path}: damaged: {error}", PACK_AGAIN) from None
        if state.hexdigest() != part.sha256:
            raise InfrastructureError(f"{path}: damaged: its SHA-256 is not the manifest's", PACK_AGAIN)


def unpack_root(folder: Path, entry: ArchivedEnvironment, root: Path) -> None:
    """Unpack an environment's root file system into a new folder. InfrastructureError where that cannot be done."""
    root.mkdir(parents=True)
    free = shutil.disk_usage(root).free
    if free < entry.tar_bytes:
        raise InfrastructureError(
            f"{root}: {free >> 20} MiB are free there, and {entry.tar_bytes >> 20} are needed",
            "move the cache to a larger disk: export KERNEL_MATRIX_CACHE=/a/larger/disk",
        )
    command = ["tar", "-x", "-C", str(root), "--no-same-owner", "--no-same-permissions", "--delay-directory-restore"]
    # Device files, which only root could make.
    command += ["--anchored", *(f"--exclude={place}{name}/*" for name in NOT_PACKED for place in ("", "./"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, umask=0o022) as tar:
        assert tar.stdin is not None and tar.stderr is not None
        with contextlib.suppress(BrokenPipeError):
            for block in read_parts(folder, entry.parts):
                tar.stdin.write(block)
            tar.stdin.close()
        said = tar.stderr.read()[-600:].decode(errors="replace").strip()
    if tar.returncode:
        raise InfrastructureError(f"{root}: the root file system cannot be unpacked: {said}", "is the disk full?")


# -- running --------------------------------------------------------------------------------------------------------


class ArchiveExecutor(ProcessExecutor):
    """Executor `bundle`."""

    name = "bundle"

    def __init__(
        self,
        bundle: Bundle,
        bwrap: Bwrap,
        cache: Path,
        threads: int,
        variables: Variables | None = None,
        limits: SandboxLimits | None = None,
    ) -> None:
        super().__init__(cache, threads, variables, bwrap, limits)
        self.bundle = bundle
        self._mounts: dict[Path, tuple[Mount, ...]] = {}

    def folder(self, environment: EnvironmentRecord) -> Path:
        return ENVIRONMENT

    def key(self, environment: PlannedEnvironment, pins: Path | None) -> str:
        entry = self.bundle.entry(environment.id)
        packed = protocol.digest([part.sha256 for part in entry.parts])
        return keys.of("bundled", manifest=packed, id=environment.id)

    def root(self, id: str) -> Path:
        """Return where an environment is unpacked."""
        packed = protocol.digest([part.sha256 for part in self.bundle.entry(id).parts])
        return self.cache / "roots" / f"{plain_id(id)}-{packed[:12]}"

    def python(self, environment: str) -> Path:
        return Path(self.bundle.entry(environment).interpreter)

    def _is_there(self, environment: str) -> bool:
        return os.path.lexists(self.root(environment) / self.python(environment).relative_to("/"))

    def prepare(self, environment: PlannedEnvironment, pins: Path | None) -> EnvironmentRecord:
        record, entry = super().prepare(environment, pins), self.bundle.entry(environment.id)
        return replace(record, image=entry.image, base_image=entry.base_image)

    def _make(self, environment: PlannedEnvironment, pins: Path | None, key: str) -> tuple[Observation, bool, str]:
        assert pins is not None and self.bwrap is not None
        entry, root = self.bundle.entry(environment.id), self.root(environment.id)
        if protocol.sha256_file(str(pins)) != entry.pins_sha256:
            raise InputError(
                f"{pins.name}: not the pins that the bundle's {plain_id(environment.id)} was made from",
                "take the pin file of the commit that packed it, or pack it again: nox -s bundle",
            )
        marker, remedy = root.with_name(f"{root.name}.json"), f"remove {root} and start again"
        with cache_lock(self.cache, root.name):
            reused = kept_wheels(marker) is not None
            if not reused:
                shutil.rmtree(root, ignore_errors=True)  # one that was interrupted
                print(f"unpacking {plain_id(environment.id)} into {root}", flush=True)
                unpack_root(self.bundle.folder, entry, root)
            return self._prove(environment, marker, remedy), reused, ""

    def _own_variables(self, task: Task, python: Path) -> dict[str, str]:
        root = self.root(task.environment)
        prefix = python.parent.parent
        # PyTorch's own libraries find these by themselves; cuDNN asks for NVRTC by its name alone.
        inside = root / prefix.relative_to("/")
        wheels = sorted(inside.glob("lib/python3*/site-packages/nvidia/*/lib"))
        libraries = [DRIVER, *(Path("/", path.relative_to(root)) for path in wheels)]
        return {
            "PATH": f"{python.parent}:{PATH}",
            "CUDA_HOME": "/usr/local/cuda",
            "VIRTUAL_ENV": str(prefix),
            "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            **handed_on(),
        }

    def _process(self, task: Task, variables: dict[str, str]) -> Process:
        root = self.root(task.environment)
        if root not in self._mounts:
            self._mounts[root] = tuple(self._gpu_mounts(root)) if gpus() else ()
        return Process(
            python=self.python(task.environment),
            worker=self.worker,
            variables=variables,
            root=root,
            mounts=self._mounts[root],
        )

    def _gpu_mounts(self, root: Path) -> list[Mount]:
        """Return this machine's GPUs, its driver's libraries, and a loader's cache that names them."""
        assert self.bwrap is not None
        mounts = [*own_devices(), *driver_mounts()]
        return [*mounts, cache_libraries(self.bwrap, mounts, root.with_name(f"{root.name}.loader"), root)]
