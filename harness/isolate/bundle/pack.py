"""`nox -s bundle`: the matrix's images as a folder of parts that proves itself before anybody carries it away."""

from __future__ import annotations

import contextlib
import datetime
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.config.matrix import load_matrix
from harness.config.pins import ensure_pins
from harness.config.plan import PlannedEnvironment
from harness.errors import InfrastructureError, InputError
from harness.gpu import gpus
from harness.isolate.bundle.archive import Tally, measure, pack_archive
from harness.isolate.bundle.executor import BundleExecutor
from harness.isolate.bundle.launchers import (
    LAUNCHERS,
    LEFT_OUT,
    copy_tool,
    install_packages,
    pack_tools,
    write_launchers,
)
from harness.isolate.bundle.manifest import (
    CONTENTS,
    MANIFEST,
    SHARED,
    Archive,
    BundledEnvironment,
    BundleManifest,
    Machine,
    Part,
    Proof,
    load_bundle,
    render_contents,
    version_numbers,
)
from harness.isolate.bundle.slim import SHARED as SHARED_PATTERNS
from harness.isolate.bundle.slim import blank_libraries, components_of, leave_out, left_out, python_files, with_needed
from harness.isolate.choose import sandbox_limits
from harness.isolate.docker.engine import Engine
from harness.isolate.docker.executor import DockerExecutor
from harness.isolate.docker.images import wanted_images
from harness.isolate.namespaces import probe_namespaces
from harness.isolate.process import owner
from harness.schema.environment_records import EnvironmentRecord, Observation
from harness.tools import cache_folder, physical_cores
from harness.worker import protocol, wire

LEVEL = 12
UNPACK = Path(__file__).parent / "unpack.sh"
# NVIDIA, CUDA compatibility: the oldest driver for any minor version of a CUDA major version.
LEAST_DRIVERS = {"11": "450.80.02", "12": "525.60.13", "13": "580.65.06"}


@dataclass(frozen=True, kw_only=True)
class Options:
    matrix_path: Path
    architecture: str
    out: Path
    part_mb: int = 60
    level: int = LEVEL
    base_image: str | None = None
    torch: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()  # of `slim.COMPONENTS`, beside those that problems of the matrix call
    strict: bool = False


def run_bundle(options: Options) -> int:
    """Exit code. HarnessError where the engine, an image, or a tool is not there, or the proof fails."""
    if options.out.exists() and (not options.out.is_dir() or any(options.out.iterdir())):
        raise InputError(f"{options.out} is not empty", "name another folder: --out DIR; or remove it")
    part = options.out.with_name(f".{options.out.name}.part")
    shutil.rmtree(part, ignore_errors=True)  # of one that was interrupted
    part.mkdir(parents=True)
    try:
        Packer(options, part).pack()
        if options.out.exists():
            options.out.rmdir()
        part.rename(options.out)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return 0


class Packer:
    """One bundle in the making: `out` is where its files are collected, `work` a folder inside for all else."""

    def __init__(self, options: Options, out: Path) -> None:
        self.options, self.out, self.work = options, out, out / ".work"
        self.matrix, _ = load_matrix(options.matrix_path, options.base_image)
        self.root = options.matrix_path.resolve().parent
        self.engine = Engine()
        facts = self.engine.facts()
        self.executor = DockerExecutor(
            self.engine,
            self.root,
            cache_folder(),
            physical_cores(),
            limits=sandbox_limits(self.matrix.limits, facts.memory_bytes),
            gpus=facts.gpus if gpus() else "",
        )
        self.parts: list[Part] = []
        self.archives: dict[str, Archive] = {}
        self.tallies: dict[str, Tally] = {}
        self.kept: tuple[str, ...] = ()

    def pack(self) -> None:
        planned = self._planned()
        images = [(environment, *self._image(environment)) for environment in planned]
        self.kept = self._needed(planned[-1].id)
        self._say("taking the shared root file system")
        first, shared_digest = images[0][0], ""
        removed: dict[str, int] = {}
        packages: dict[str, str] = {}
        environments = {}
        for environment, record, seen in images:
            proof = self._prove_image(environment)
            with self._exported(record.image) as root:
                tree = self.work / "environment"
                (root / "opt" / "environment").rename(tree)
                (root / "opt" / "environment").mkdir()
                digest = measure({"": root}).sha256
                if environment is first:
                    shared_digest = digest
                    removed, packages = self._pack_shared(environment, root)
                elif digest != shared_digest:
                    raise InputError(
                        f"{environment.id} and {first.id} are not images of one base and Python: they share no root",
                        "bring them to one base_image and python; or pack them one by one: --torch VERSION",
                    )
                environments[environment.id] = self._pack_environment(environment, tree, record, seen, proof)
        manifest = BundleManifest(
            created_utc=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            machine="x86_64",
            architecture=self.options.architecture,
            least_driver=max((least_driver(entry.cuda) for entry in environments.values()), key=version_numbers),
            removed=removed,
            kept=list(self.kept),
            packages=packages,
            parts=self.parts,
            archives=self.archives,
            environments=environments,
        )
        self._write(manifest)
        for id in environments:
            self._prove_bundle(id)
        shutil.rmtree(self.work, ignore_errors=True)
        total = sum(archive.packed_bytes for archive in self.archives.values())
        self._say(f"{self.options.out}: {len(self.parts)} parts, {total / 1e9:.2f} GB; then there: sh unpack.sh DIR")

    def _say(self, text: str) -> None:
        print(text, flush=True)

    def _planned(self) -> list[PlannedEnvironment]:
        """Those with packages of their own last: the others hold most of their files."""
        planned = [
            item.environment for item in wanted_images(self.engine, self.matrix, self.root, strict=self.options.strict)
        ]
        versions = {environment.spec.torch for environment in planned}
        unknown = [version for version in self.options.torch if version not in versions]
        if unknown:
            raise InputError(f"--torch {unknown[0]}: not in matrix.yaml", f"it has {', '.join(sorted(versions))}")
        chosen = [e for e in planned if not self.options.torch or e.spec.torch in self.options.torch]
        return sorted(chosen, key=lambda e: bool(e.spec.packages))

    def _image(self, environment: PlannedEnvironment) -> tuple[EnvironmentRecord, Observation]:
        pins, _ = ensure_pins(self.root, environment, self.matrix)
        record = self.executor.prepare(environment, pins)
        if record.status != protocol.OK or record.observed is None:
            raise InfrastructureError(f"{environment.id}: {record.message}", "nox -s images -- build")
        self._say(f"{environment.id}: image {record.image[:19]}, PyTorch {record.observed.torch}")
        return record, record.observed

    def _needed(self, environment: str) -> tuple[str, ...]:
        """The components to keep: those asked for, those that problems of the matrix call when each runs once, and
        those that a Python file of the project imports: solutions are found in folders, too."""
        names = [*(each.problem for each in self.matrix.kernels), *(each.problem for each in self.matrix.operators)]
        problems = sorted({self.root / name for name in names if name})
        operators = [request for each in self.matrix.operators if (request := each.request) is not None]
        seen: list[str] = []
        if problems or operators:
            remedy = "mend it; or name what it needs: --keep, and leave it out of this matrix"
            found = self.executor.ask(
                environment,
                "calls",
                wire.CallsRequest(list(map(str, problems)), operators),
                wire.CallsResult,
                doing="looking for what the problems call",
                remedy=remedy,
                reads=problems,
            )
            for why in found.failures:
                self._say(f"not known what it calls: {why}; --keep names what it needs")
            seen = found.operators
        files = {*problems, *(self.root / kernel.model_new for kernel in self.matrix.kernels if kernel.model_new)}
        files.update(python_files(self.root))
        compiled = ["torch.compile"] if any(each.compile for each in self.matrix.operators) else []
        texts = (path.read_text(encoding="utf-8", errors="replace") for path in sorted(files))
        called = components_of(seen, [*compiled, *texts])
        for name, caller in called.items():
            self._say(f"keeping {name}: {caller} is called")
        return with_needed([*self.options.keep, *called])

    def _prove_image(self, environment: PlannedEnvironment) -> Proof:
        remedy = "nox -s images -- check"
        seen = self.executor.ask(
            environment.id,
            "prove",
            wire.EmptyRequest(),
            wire.ProveResult,
            remedy=remedy,
            doing=f"{environment.id}: proving its image",
        )
        if seen.failures:
            why = "; ".join(f"{name}: {why}" for name, why in seen.failures.items())
            raise InfrastructureError(f"{environment.id}: its image does not prove itself: {why}", remedy)
        machine = Machine(**asdict(seen.machine))
        return Proof(digests=seen.digests, unsupported=seen.unsupported, libraries=seen.libraries, machine=machine)

    @contextlib.contextmanager
    def _exported(self, image: str) -> Iterator[Path]:
        """An image's root file system, without device files, for as long as the context lasts."""
        root = self.work / "root"
        root.mkdir(parents=True)
        command = ["tar", "-x", "-C", str(root), "--no-same-owner", "--delay-directory-restore", "--anchored"]
        command.append("--exclude=dev/*")  # device files, which only root could make
        try:
            with self.engine.exported(image, owner()) as pieces:
                with subprocess.Popen(command, stdin=subprocess.PIPE) as tar:
                    assert tar.stdin is not None
                    with contextlib.suppress(BrokenPipeError):
                        for piece in pieces:
                            tar.stdin.write(piece)
                if tar.returncode:
                    raise InfrastructureError(f"the image cannot be unpacked in {root}: see above", "is the disk full?")
            yield root
        finally:
            subprocess.run(["chmod", "-R", "u+rwX", str(self.work)], stderr=subprocess.DEVNULL)
            shutil.rmtree(self.work, ignore_errors=True)

    def _pack_shared(self, environment: PlannedEnvironment, root: Path) -> tuple[dict[str, int], dict[str, str]]:
        removed = leave_out(root, SHARED_PATTERNS)
        blank_libraries(root, int(self.options.architecture))
        packages = self.work / "packages"
        versions = install_packages(environment.spec.python, packages)
        leave_out(packages, dict.fromkeys(LEFT_OUT, ""))
        copy_tool(packages)
        write_launchers(self.work, root, os.readlink(self.work / "environment" / "bin" / "python"))
        trees = {"root": root, "packages": packages, **{name: self.work / name for name in LAUNCHERS}}
        self._pack_archive(SHARED, trees)
        return removed, versions

    def _pack_environment(
        self, environment: PlannedEnvironment, tree: Path, record: EnvironmentRecord, seen: Observation, proof: Proof
    ) -> BundledEnvironment:
        removed = leave_out(tree, left_out(self.kept))
        blanked = blank_libraries(tree, int(self.options.architecture), self.kept)
        self._pack_archive(environment.id, {"": tree})
        [packages] = [path.relative_to(tree) for path in tree.glob("lib/python3*/site-packages")]
        there = [name for name in proof.libraries if (tree / packages / name).exists()]
        return BundledEnvironment(
            torch=seen.torch,
            cuda=seen.torch_cuda,
            python=seen.python,
            **{name: getattr(record, name) for name in ("index", "key", "image", "base_image", "pins_sha256")},
            removed=removed,
            blanked=blanked,
            proof=proof.model_copy(update={"libraries": there}),
        )

    def _pack_archive(self, name: str, trees: dict[str, Path]) -> None:
        """Whole, or as the difference to an environment that was packed before and has most of its bytes."""
        self._say(f"packing {name}")
        before = {other: tally for other, tally in self.tallies.items() if other != SHARED}
        archive, parts, self.tallies[name] = pack_archive(
            name, trees, self.out, before, part_bytes=self.options.part_mb * 1_000_000, level=self.options.level
        )
        self.archives[name] = archive
        self.parts += parts
        self._say(
            f"packed {name}: {archive.packed_bytes / 1e6:.0f} MB of {archive.unpacked_bytes / 1e6:.0f} MB"
            + (f", what {archive.like} lacks" if archive.like else "")
        )

    def _write(self, manifest: BundleManifest) -> None:
        """The manifest, and what unpacks by it."""
        pack_tools(self.out / "tools.tar")
        path = self.out / MANIFEST
        protocol.write_json(str(path), manifest.model_dump())
        text = render_contents(manifest, protocol.sha256_file(str(path)))
        (self.out / CONTENTS).write_text(text)
        shutil.copy(UNPACK, self.out / UNPACK.name)

    def _prove_bundle(self, id: str) -> None:
        """Unpack one environment as a user would, and compare what it computes and loads with its image."""
        folder = self.work / "unpacked"
        done = subprocess.run(
            ["sh", str(self.out / UNPACK.name), "--any-gpu", "--only", id, str(folder)], capture_output=True, text=True
        )
        try:
            if done.returncode:
                raise InfrastructureError(f"the bundle cannot be unpacked: {done.stderr.strip()}", "")
            bundle = load_bundle(folder)
            entry, problem = bundle.entry(id), ""
            shared = {"root": bundle.root, **{name: folder / name for name in ("packages", *LAUNCHERS)}}
            unpacked = {SHARED: shared, **{name: {"": bundle.environment(name)} for name in bundle.environments}}
            for name, trees in unpacked.items():
                if measure(trees).sha256 != self.archives[name].tree_sha256:
                    problem = f"{name}: what was unpacked is not what was packed"
            if not problem:
                # Not on a GPU of this machine, which need not be one that the bundle holds code for.
                problem = BundleExecutor(
                    bundle, probe_namespaces(bundle.maker), self.root, self.work / "cache", 1, hands_over_gpus=False
                ).unproven(id)
            if problem:
                raise InfrastructureError(f"{id}: the bundle does not prove itself: {problem}", "pack it again")
        finally:
            shutil.rmtree(self.work, ignore_errors=True)
        compared = sum(name.startswith("cpu/") for name in entry.proof.digests)
        self._say(f"proven {id}: {compared} results bit for bit, {len(entry.proof.libraries)} libraries load")


def least_driver(cuda: str | None) -> str:
    """For wheels of this CUDA version. InputError where they hold no CUDA, or one that is not known."""
    major = (cuda or "none").partition(".")[0]
    if major not in LEAST_DRIVERS:
        raise InputError(f"the oldest driver for CUDA {cuda} is not known", f"known: {', '.join(LEAST_DRIVERS)}")
    return LEAST_DRIVERS[major]
