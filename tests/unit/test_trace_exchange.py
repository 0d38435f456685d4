"""The matrix.yaml in which the extracted regions run with one package of the other version."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harness.config.environments import PYPI, Environment
from harness.config.matrix import Matrix, load_matrix, matrix_text
from harness.config.operators import Operator
from harness.trace.exchange import write_exchanged

VERSIONS = {"numpy": ("1.26.4", "2.0.2"), "torch": ("2.1.0", "2.5.0"), "nvidia-cudnn-cu12": ("8.9", "9.1")}


def made(folder: Path, numpy: tuple[str, str]) -> tuple[Path, Any, Any, Matrix]:
    """As `write_matrix` leaves it; and stand-ins of both sides, with their pin files."""
    versions = {**VERSIONS, "numpy": numpy}
    sides, specs = [], []
    for place in (0, 1):
        own = {name: both[place] for name, both in versions.items()}
        specs.append(Environment(torch=own["torch"], cuda="12.1", python="3.11", packages=[f"numpy=={own['numpy']}"]))
        pins = folder / f"{place}.txt"
        pins.write_text("".join(f"{n}=={v} \\\n    --hash=sha256:{n}{place}\n" for n, v in own.items()))
        wheels = {name: SimpleNamespace(version=version) for name, version in own.items()}
        record = SimpleNamespace(id=f"e{place}", index=PYPI, observed=SimpleNamespace(wheels=wheels))
        sides.append(SimpleNamespace(pins=pins, environment=record))
    operators = [Operator(problem="mm.py", dtypes=["float32"], devices=["cpu"])]
    matrix = Matrix.model_construct(baseline=specs[0].id(), environments=specs, operators=operators)
    (folder / "mm.py").write_text("")
    (folder / "docker" / "pins").mkdir(parents=True)
    written = folder / "matrix.yaml"
    written.write_text(matrix_text(matrix))
    return written, sides[0], sides[1], matrix


def test_each_version_runs_with_the_others_package_and_nothing_else_of_it(tmp_path: Path) -> None:
    found = write_exchanged(*made(tmp_path, ("1.26.4", "2.0.2")))
    assert found is not None and [each.package for each in found[1]] == ["numpy"], "cuDNN matters on a GPU alone"
    specs = load_matrix(found[0])[0].environments
    assert [(each.torch, each.packages) for each in specs[2:]] == [
        ("2.1.0", ["numpy==2.0.2"]),
        ("2.5.0", ["numpy==1.26.4"]),
    ]
    texts = [path.read_text() for path in sorted((tmp_path / "docker" / "pins").iterdir())]
    assert len(texts) == 2 and "numpy==2.0.2" in texts[0] and "sha256:numpy1" in texts[0]
    assert all("sha256:torch" + str(place) in text for place, text in enumerate(texts)), "all else is its own"


def test_there_is_no_file_where_nothing_that_can_matter_differs(tmp_path: Path) -> None:
    assert write_exchanged(*made(tmp_path, ("1.26.4", "1.26.4"))) is None
