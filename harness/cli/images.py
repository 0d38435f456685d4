"""`nox -s images`: the container images of matrix.yaml, listed, built, checked and removed; and the base without a
registry."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.config.indexes import Probes, choose_indexes
from harness.config.matrix import Matrix, load_matrix
from harness.config.pins import ensure_pins, known_pins, pins_path
from harness.config.plan import PlannedEnvironment
from harness.errors import HarnessError, InfrastructureError
from harness.gpu import gpus
from harness.isolate.choose import sandbox_limits
from harness.isolate.docker.engine import LABEL, Engine, Image
from harness.isolate.docker.executor import DockerExecutor
from harness.isolate.docker.images import BASE, ENVIRONMENT, base_identity, image_key, image_tag, make_base
from harness.schema.records import EnvironmentRecord
from harness.tools import cache_folder, physical_cores
from harness.worker import protocol


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """An environment of matrix.yaml and the image that it needs; `tag` is '' where that cannot be known."""

    environment: PlannedEnvironment
    tag: str
    problem: str = ""


def run_images(action: str, matrix_path: Path, *, base_image: str | None, every: bool, strict: bool) -> int:
    """Exit code. HarnessError where the engine, the base or an index is not there."""
    matrix, _ = load_matrix(matrix_path)
    if base_image:
        matrix = matrix.with_base(base_image)
    root = matrix_path.resolve().parent
    engine = Engine()
    if action == "base":
        image = make_base(engine)
        name = image.tags[0]
        print(f"{name}: {_size(image)}; use it with --base-image {name}, or as base_image in matrix.yaml")
        return 0
    wanted = wanted_images(engine, matrix, root, strict=strict)
    if action == "list":
        _list(engine, wanted)
    elif action == "remove":
        _remove(engine, wanted, every=every)
    else:
        return _build(engine, matrix, root, wanted, check=action == "check")
    return 0


def wanted_images(engine: Engine, matrix: Matrix, root: Path, *, strict: bool) -> list[Wanted]:
    indexes, _ = choose_indexes(matrix, Probes(cache_folder() / "probes.json"), strict=strict)
    found = []
    for spec in matrix.pinned_environments:
        index = indexes[spec.id()]
        environment = PlannedEnvironment(id=spec.id(index), spec=spec, index=index)
        try:
            pins = known_pins(root, environment, matrix)
            if pins is None:
                raise InfrastructureError(f"{pins_path(root, environment).name}: not resolved yet", "nox -s pins")
            key = image_key(environment, pins, base_identity(engine, spec.base_image))
            found.append(Wanted(environment=environment, tag=image_tag(environment, key)))
        except HarnessError as error:
            found.append(Wanted(environment=environment, tag="", problem=error.message))
    return found


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
            state = item.problem or "not built: nox -s images -- build"
        print(f"{item.environment.id}: {state}" + (f" ({item.tag})" if item.tag else ""))
    for image in _others(engine, wanted):
        kind = "base" if image.labels.get(LABEL) == "base" else "not what this command would use"
        print(f"{', '.join(image.tags) or image.id[:19]}: {kind}, {_size(image)}")


def _others(engine: Engine, wanted: list[Wanted]) -> list[Image]:
    tags = {item.tag for item in wanted}
    return [image for image in engine.images() if not tags & set(image.tags)]


def _is_stale(image: Image, wanted: list[Wanted]) -> bool:
    """Whether an image that is not wanted now would not be wanted either with another base, or when all can be told."""
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


def _build(engine: Engine, matrix: Matrix, root: Path, wanted: list[Wanted], *, check: bool) -> int:
    facts, cache = engine.facts(), cache_folder()
    limits, handed_over = sandbox_limits(matrix.limits, facts), facts.gpus if gpus() else ""
    executor = DockerExecutor(engine, root, cache, physical_cores(), limits=limits, gpus=handed_over, verify=check)
    broken = False
    for item in wanted:
        if check and (not item.tag or engine.image(item.tag) is None):
            print(f"{item.environment.id}: {item.problem or 'not built: nox -s images -- build'}")
            broken = True
            continue
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
