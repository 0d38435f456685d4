"""Extracted regions with one package of the other version at a time: a second matrix.yaml beside the first."""

from __future__ import annotations

from pathlib import Path

from harness.config.environments import package_versions
from harness.config.matrix import Matrix, load_matrix, matrix_text
from harness.config.operators import PYTORCH, as_kernel
from harness.config.pins import pins_path, swapped_pins
from harness.config.plan import PlannedEnvironment
from harness.experiments.components import MOST_PACKAGES, Component, differing, exchanges
from harness.trace.runs import Side

NAME = "exchanged.yaml"


def write_exchanged(written: Path, good: Side, bad: Side, matrix: Matrix) -> tuple[Path, list[Component]] | None:
    """The file, and the packages that differ and can matter for what `written` compares; None where there are none, or
    where one version is the host's. Environments are both versions, and each with one package of the other: their pin
    files differ in nothing else."""
    pins = {side.environment.id: side.pins for side in (good, bad) if side.pins is not None}
    if len(pins) < 2:
        return None
    made, _ = load_matrix(written)
    sides, specs = {side.environment.id: side for side in (good, bad)}, matrix.environments
    named = package_versions([*matrix.packages, *(package for spec in specs for package in spec.packages)])
    records = [side.environment for side in sides.values()]
    every = [
        component
        for device in dict.fromkeys(device for operator in made.operators for device in operator.devices)
        for component in differing(records[0], records[1], as_kernel(PYTORCH), device, named)
    ]
    components = [each for each in dict.fromkeys(every) if not each.why][:MOST_PACKAGES]
    if not components:
        return None
    exchanged = exchanges(dict(zip(sides, specs, strict=True)), components)
    texts = {id: path.read_text(encoding="utf-8") for id, path in pins.items()}
    for each in exchanged:
        index = sides[each.torch_of].environment.index
        path = pins_path(written.parent, PlannedEnvironment(spec=each.spec, index=index))
        text = swapped_pins(texts[each.torch_of], texts[each.package_of], each.component.package)
        path.write_text(text, encoding="utf-8")
    both = [*specs, *(each.spec for each in exchanged if each.spec not in specs)]
    path = written.with_name(NAME)
    path.write_text(matrix_text(made.model_copy(update={"environments": both})), encoding="utf-8")
    return path, components
