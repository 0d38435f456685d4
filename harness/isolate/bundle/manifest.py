"""manifest.json: what a bundle holds, what was taken out of it, and by what it proves itself.

The packer, the unpacking script and the executor meet here. The unpacking script reads no JSON: `contents.txt`, which
`render_contents` derives from the manifest, is the same in words that a POSIX shell can read.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from harness.errors import InfrastructureError, InputError
from harness.isolate.namespaces import Maker
from harness.worker import protocol, wire

BUNDLE_SCHEMA_VERSION: Final = 1
SHARED = "shared"  # the archive of all that the environments have in common
MANIFEST, CONTENTS, COMPLETE = "manifest.json", "contents.txt", "complete.json"
AGAIN = "unpack it again, into an empty folder: sh unpack.sh DIR"

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]  # it becomes a file's or a folder's
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Stored(BaseModel):
    """A part of the manifest."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Part(Stored):
    """One file of the bundle: a piece of an archive. Pieces of one archive follow each other in the manifest."""

    name: Name
    sha256: Sha256
    bytes: int = Field(ge=0)
    archive: Name


class Archive(Stored):
    """A tar, compressed by zstd: `shared`, or an environment by its id; whole, or its difference to another one."""

    packed_bytes: int
    unpacked_bytes: int = Field(description="of its plain files")
    files: int = Field(description="plain files, folders and links")
    tree_sha256: Sha256 = Field(description="of all that is unpacked: names, kinds, modes, link targets and contents")
    like: Name | Literal[""] = Field(default="", description="the environment that this is the difference to")
    gone: list[str] = Field(default=[], description="paths of `like` that are not here, or not the same")


class Machine(Stored):
    """Where a proof was run: what its bits depend on besides the code."""

    cpu_model: str
    fma: bool = Field(
        description="whether the processor has fused multiply-add: the C library's functions choose by it"
    )
    gpu: str = Field(default="", description="name of the GPU, where results of one are among the digests")
    driver: str = ""


class Proof(Stored):
    """What the task `prove` gave in the image before anything was taken out.

    Results on the CPU are computed in a way that is the same on every x86-64 processor with fused multiply-add
    (harness/worker/prove_bundle.py): they must be the same before packing, after packing and on the target. Results on
    a GPU depend on the GPU, and on the libraries' choice of kernels for it: they are compared only between equal GPUs;
    elsewhere they are the target's own, and only their error against float64 is judged.
    """

    digests: dict[str, Sha256] = Field(description="result, such as cpu/matmul/fp32, to the digest of its bytes")
    unsupported: dict[str, str] = Field(default={}, description="result to PyTorch's reason for refusing it")
    libraries: list[str] = Field(description="shared libraries and extension modules that loaded, in wheels' names")
    machine: Machine

    def problem_with(self, seen: wire.ProveResult) -> str:
        """'' where what `prove` gave in the unpacked bundle agrees with this, else the first thing that does not."""
        if seen.failures:
            name, why = next(iter(seen.failures.items()))
            return f"{name}: {why}" + (f" ({len(seen.failures)} such)" if len(seen.failures) > 1 else "")
        for name, digest in self.digests.items():
            if not self.comparable(name, seen.machine):
                continue
            if name not in seen.digests:
                return f"{name}: computed before packing, and not here: {seen.unsupported.get(name, 'no reason given')}"
            if seen.digests[name] != digest:
                return f"{name}: not the bits of before packing"
        for name in self.libraries:
            if name not in seen.libraries:
                why = seen.unloadable.get(name, "it is not there")
                return f"{name}: loaded before packing, and not here: {why}"
        return ""

    def comparable(self, name: str, here: wire.ProvenMachine) -> bool:
        """Whether a result must have the same bits on the machine `here`."""
        if name.startswith("cpu/"):
            return here.fma == self.machine.fma
        return bool(here.gpu) and (here.gpu, here.driver) == (self.machine.gpu, self.machine.driver)


class BundledEnvironment(Stored):
    torch: str = Field(description="torch.__version__, local part included")
    cuda: str | None = Field(description="the CUDA that its wheels were built for")
    python: str
    index: str = Field(description="package index the wheels really came from")
    key: Sha256 = Field(description="the image's key: digest of all that determines it")
    image: str = Field(description="digest of the image's configuration")
    base_image: str
    pins_sha256: Sha256
    removed: dict[str, int] = Field(description="pattern or package that was left out to its bytes")
    blanked: dict[str, int] = Field(description="library to the bytes of GPU code that were zeroed in it")
    proof: Proof


class BundleManifest(Stored):
    schema_version: Literal[1] = BUNDLE_SCHEMA_VERSION
    created_utc: str
    machine: Literal["x86_64"]
    architecture: str = Field(pattern=r"^[1-9][0-9]+$", description="compute capability without its dot, such as 90")
    least_driver: str = Field(description="the oldest driver that runs these wheels' CUDA")
    removed: dict[str, int] = Field(description="what was left out of the shared root file system, to its bytes")
    kept: list[str] = Field(default=[], description="components that other operators than attention need, and are here")
    packages: dict[str, str] = Field(default={}, description="what the harness itself runs with: package to version")
    parts: list[Part]
    archives: dict[Name, Archive]
    environments: dict[Name, BundledEnvironment]


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """An unpacked bundle. `environments` are those that were unpacked, of those that the manifest names."""

    folder: Path
    manifest: BundleManifest
    manifest_sha256: str
    environments: tuple[str, ...]

    @property
    def root(self) -> Path:
        """The shared root file system; its /opt/environment is empty."""
        return self.folder / "root"

    @property
    def python(self) -> Path:
        """Starts the bundle's own Python, outside of its root."""
        return self.folder / "python"

    @property
    def maker(self) -> Maker:
        return Maker(python=self.python, root=self.root)

    def environment(self, id: str) -> Path:
        """What belongs at /opt/environment."""
        return self.folder / "environments" / id

    def entry(self, id: str) -> BundledEnvironment:
        """InputError where the bundle has no such environment, or it was left out when unpacking."""
        if id not in self.manifest.environments:
            there = ", ".join(self.manifest.environments)
            raise InputError(
                f"{self.folder}: the bundle has no {id}; it has {there}", "nox -s bundle, with that version"
            )
        if id not in self.environments:
            raise InputError(f"{self.folder}: {id} was not unpacked", f"sh unpack.sh --only {id} DIR, into another DIR")
        return self.manifest.environments[id]


def parse_manifest(data: bytes, where: str) -> BundleManifest:
    """InputError, naming `where`, for what is no manifest, or one of another schema version."""
    try:
        return BundleManifest.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]  # in the order of the fields: the version's comes before anything else's
    place = ".".join(map(str, first["loc"])) or "the file"
    if place == "schema_version" and isinstance(first["input"], int):
        raise InputError(
            f"{where}: a bundle of schema version {first['input']}; this harness reads {BUNDLE_SCHEMA_VERSION}",
            "use the harness that packed it, or pack it again: nox -s bundle",
        )
    raise InputError(f"{where}: the manifest is damaged: {place}: {first['msg']}", AGAIN)


def version_numbers(text: str) -> tuple[int, ...]:
    """A driver's version, to be compared by its numbers."""
    return tuple(int(part) for part in text.split(".") if part.isdecimal())


def load_bundle(folder: Path) -> Bundle:
    """An unpacked bundle, its manifest checked against what unpack.sh verified.

    InputError where it is none, or its manifest is of another version or damaged; InfrastructureError where it was
    not unpacked to the end.
    """
    path, marker = folder / MANIFEST, folder / COMPLETE
    if not path.is_file() and not marker.is_file():
        remedy = "unpack one: sh unpack.sh DIR; then name DIR: --bundle DIR, or KERNEL_MATRIX_BUNDLE=DIR"
        raise InputError(f"{folder}: not an unpacked bundle", remedy)
    if not marker.is_file():
        raise InfrastructureError(f"{folder}: the bundle was not unpacked to the end", "sh unpack.sh DIR, once more")
    try:
        data, complete = path.read_bytes(), protocol.read_json(str(marker))
        digest, there = str(complete["manifest_sha256"]), tuple(str(id) for id in complete["environments"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{folder}: the bundle is damaged: {error}", AGAIN) from None
    if hashlib.sha256(data).hexdigest() != digest:
        raise InputError(f"{path}: not the manifest that was unpacked: it is damaged", AGAIN)
    manifest = parse_manifest(data, str(path))
    bundle = Bundle(folder=folder.resolve(), manifest=manifest, manifest_sha256=digest, environments=there)
    for place in (bundle.root, bundle.python, *(bundle.environment(id) for id in there)):
        if not place.exists():
            raise InputError(f"{place}: missing: the bundle is damaged", AGAIN)
    return bundle


def render_contents(manifest: BundleManifest, manifest_sha256: str) -> str:
    """contents.txt: the manifest for a POSIX shell, a word and its values a line, `end` last."""
    lines = [
        f"format {BUNDLE_SCHEMA_VERSION}",
        f"manifest {manifest_sha256}",
        f"machine {manifest.machine}",
        f"architecture {manifest.architecture}",
        f"driver {manifest.least_driver}",
    ]
    for name, archive in manifest.archives.items():
        lines.append(f"archive {name} {archive.unpacked_bytes} {archive.files} {archive.like}".rstrip())
        lines += [f"gone {name} {path}" for path in archive.gone]
    lines += [f"part {part.archive} {part.name} {part.bytes} {part.sha256}" for part in manifest.parts]
    return "\n".join([*lines, f"end {len(lines)}", ""])
