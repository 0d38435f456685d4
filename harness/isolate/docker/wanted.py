"""The images that the environments of matrix.yaml need."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.config.indexes import choose_indexes
from harness.config.matrix import Matrix
from harness.config.pins import known_pins, pins_path
from harness.config.plan import PlannedEnvironment
from harness.errors import HarnessError, InfrastructureError
from harness.isolate.docker.engine import Engine
from harness.isolate.docker.images import base_identity, image_key, image_tag


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """An environment of matrix.yaml and the image that it needs; `tag` is '' where that cannot be known."""

    environment: PlannedEnvironment
    tag: str
    problem: str = ""


def wanted_images(engine: Engine, matrix: Matrix, root: Path, *, strict: bool) -> list[Wanted]:
    indexes, _ = choose_indexes(matrix, strict=strict)
    found = []
    for spec in matrix.pinned_environments:
        index = indexes[spec.id()]
        environment = PlannedEnvironment(spec=spec, index=index)
        try:
            pins = known_pins(root, environment, matrix)
            if pins is None:
                raise InfrastructureError(f"{pins_path(root, environment).name}: not resolved yet", "nox -s pins")
            key = image_key(environment, pins, base_identity(engine, spec.base_image))
            found.append(Wanted(environment=environment, tag=image_tag(environment, key)))
        except HarnessError as error:
            found.append(Wanted(environment=environment, tag="", problem=error.message))
    return found
