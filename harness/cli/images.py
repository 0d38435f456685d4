"""`kernel-matrix images`: the container images of matrix.yaml: list, build, remove; `base` makes one."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cli.options import Command, Parser, add_base_image, add_matrix, add_strict
from harness.config.matrix import Matrix, load_matrix
from harness.config.pins import ensure_pins
from harness.errors import DONE, InfrastructureError
from harness.executors.choose import sandbox_limits
from harness.executors.docker import DockerExecutor
from harness.executors.engine import LABEL, Engine, Image
from harness.executors.images import BASE, ENVIRONMENT, Wanted, make_base, wanted_images
from harness.gpu import gpus
from harness.schema.environment_records import EnvironmentRecord
from harness.tools import cache_folder, physical_cores
from harness.typed import typed
from harness.worker import protocol


def add_options(parser: Parser) -> None:
    actions = ["list", "build", "remove", "base"]
    parser.add_argument("action", choices=actions, nargs="?", default="list", help="default: list")
    add_matrix(parser)
    add_base_image(parser)
    parser.add_argument("--all", action="store_true", help="remove: also those that this matrix uses, and bases")
    add_strict(parser)


def run(options: argparse.Namespace) -> int:
    """HarnessError where the engine, the base or an index is not there."""
    matrix, _ = load_matrix(options.matrix, options.base_image)
    root, engine = options.matrix.resolve().parent, Engine()
    if options.action == "base":
        image = make_base(engine)
        name = image.tags[0]
        print(f"{name}: {_size(image)}; use it with --base-image {name}, or as base_image in matrix.yaml")
        return DONE
    wanted = wanted_images(engine, matrix, root, strict=options.strict)
    if options.action == "list":
        _list(engine, wanted)
    elif options.action == "remove":
        _remove(engine, wanted, every=options.all)
    else:
        return _build(engine, matrix, root, wanted)
    return DONE


def _size(image: Image) -> str:
    return f"{image.size_bytes / 1e9:.2f} GB"


def _list(engine: Engine, wanted: list[Wanted]) -> None:
    facts = engine.facts()
    print(f"{facts.name}, {facts.system}; GPUs: {facts.gpus or 'it cannot hand them to containers'}")
    for item in wanted:
        image = engine.image(item.tag) if item.tag else None
        if image is not None:
            state = f"there, {_size(image)} with its base, made {image.created[:19]}Z"
        else:
            state = item.problem or f"not built: {typed('images', 'build')}"
        print(f"{item.environment.id}: {state}" + (f" ({item.tag})" if item.tag else ""))
    for image in _others(engine, wanted):
        kind = "base" if image.labels.get(LABEL) == "base" else "not what this command would use"
        print(f"{', '.join(image.tags) or image.id[:19]}: {kind}, {_size(image)}")


def _others(engine: Engine, wanted: list[Wanted]) -> list[Image]:
    tags = {item.tag for item in wanted}
    return [image for image in engine.images() if not tags & set(image.tags)]


def _is_stale(image: Image, wanted: list[Wanted]) -> bool:
    """Whether an unwanted image is outdated: of an environment that matrix.yaml lacks, or of an older recipe on the
    same base. False where the image that an environment wants is not known."""
    if image.labels.get(LABEL) == "base":
        return False
    named = [item for item in wanted if item.environment.id == image.labels.get(ENVIRONMENT)]
    return all(item.tag and item.environment.spec.base_image == image.labels.get(BASE) for item in named)


def _remove(engine: Engine, wanted: list[Wanted], *, every: bool) -> None:
    """What this matrix would not use on these bases; with `every`, all, those on other bases and bases too."""
    doomed = engine.images() if every else [image for image in _others(engine, wanted) if _is_stale(image, wanted)]
    # What is built on a base keeps it from being removed.
    for image in sorted(doomed, key=lambda image: image.labels.get(LABEL) == "base"):
        for name in image.tags or (image.id,):
            engine.remove_image(name)
            print(f"removed {name}")
    if not doomed:
        print("nothing to remove" + ("" if every else "; --all: those of this matrix's environments, and bases, too"))


def _build(engine: Engine, matrix: Matrix, root: Path, wanted: list[Wanted]) -> int:
    facts, cache = engine.facts(), cache_folder()
    limits, handed_over = sandbox_limits(matrix.limits, facts.memory_bytes), facts.gpus if gpus() else ""
    executor = DockerExecutor(engine, root, cache, physical_cores(), limits=limits, gpus=handed_over)
    broken = False
    for item in wanted:
        pins, _ = ensure_pins(root, item.environment, matrix)
        record = executor.prepare(item.environment, pins)
        broken = broken or record.status != protocol.OK
        print(f"{item.environment.id}: {describe(record)}", flush=True)
    return InfrastructureError.code if broken else 0


def describe(record: EnvironmentRecord) -> str:
    seen = record.observed
    if record.status != protocol.OK or seen is None:
        return f"broken: {record.message}"
    limits = seen.confinement
    assert limits is not None
    return (
        f"{'there' if record.reused else 'built'} and proven in {record.prepared_s:.0f} s: PyTorch {seen.torch}, "
        f"Python {seen.python}, {seen.compiler}, {seen.nvcc or 'no nvcc'}; user {limits.user_id}, "
        f"{limits.memory_bytes or 0:,} bytes of memory, {limits.processes or 0} processes, no network"
    )


COMMANDS = {"images": Command(add_options, run)}
