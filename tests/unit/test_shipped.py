"""What is shipped, for a project that holds none of it: a matrix.yaml and a kernel, anywhere."""

from __future__ import annotations

from pathlib import Path

from harness.config import shipped
from harness.config.environments import PYPI, Environment
from harness.config.kernels import Kernel
from harness.config.matrix import load_matrix
from harness.config.pins import ensure_pins, known_pins, pins_path
from harness.config.plan import PlannedEnvironment
from harness.executors import Task, Terms
from harness.executors.sandbox import sandbox_paths
from harness.executors.transfer import relocate
from harness.run.build import BINDING_FILES, kernel_files
from tests.messages import made

KERNEL = Kernel(name="k", sources={"cpu": ["k.cpp"]})  # type: ignore[arg-type]


def test_a_kernel_at_a_projects_top_is_built_with_what_is_shipped(tmp_path: Path) -> None:
    (tmp_path / "k.cpp").write_text('#include "attention.h"\n#include "beside.h"\n')
    (tmp_path / "beside.h").write_text("")
    for folder in (".venv", "reports"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "other.h").write_text("")
    found = kernel_files(tmp_path, KERNEL, {"cpu": ["k.cpp"]}, "cpu")
    assert sorted(found) == sorted(["k.cpp", "beside.h", *BINDING_FILES])
    assert shipped.located(tmp_path, "csrc/attention.h") == shipped.ROOT / "csrc" / "attention.h"
    assert shipped.located(tmp_path, "k.cpp") == tmp_path / "k.cpp"
    assert shipped.include_folders(tmp_path) == [shipped.CSRC]


def test_a_projects_own_file_comes_first(tmp_path: Path) -> None:
    (tmp_path / "csrc").mkdir()
    own = tmp_path / "csrc" / "attention.h"
    own.write_text("")
    assert shipped.located(tmp_path, "csrc/attention.h") == own
    assert shipped.include_folders(tmp_path) == [tmp_path / "csrc", shipped.CSRC]
    assert shipped.located(tmp_path, "docker/Dockerfile") == tmp_path / "docker" / "Dockerfile", "is no kernel's file"


def test_names_and_places_answer_each_other(tmp_path: Path) -> None:
    for name in ("k.cpp", "csrc/attention.h", "csrc/probes/attention_call.cpp"):
        assert shipped.name_of(tmp_path, shipped.located(tmp_path, name)) == name
    assert shipped.name_of(tmp_path, Path("/etc/passwd")) is None


def test_both_keep_their_shape_in_a_cell(tmp_path: Path) -> None:
    reads = (tmp_path / "k.cpp", shipped.CSRC / "attention.h", shipped.CSRC / "probes" / "attention_call.cpp")
    task = Task(
        environment="e",
        name="build",
        request=made(),
        scratch=tmp_path,
        log=tmp_path / "l",
        terms=Terms(timeout_s=1.0),
        reads=reads,
    )
    places, _ = sandbox_paths(task, tmp_path)
    assert [relocate(str(path), places) for path in reads] == [
        "/in/project/k.cpp",
        "/in/shipped/csrc/attention.h",
        "/in/shipped/csrc/probes/attention_call.cpp",
    ]
    places, _ = sandbox_paths(task, shipped.ROOT)
    assert relocate(str(reads[1]), places) == "/in/project/csrc/attention.h"


def test_the_usual_pins_are_taken_where_they_pin_what_is_asked_for(tmp_path: Path, root: Path) -> None:
    matrix, _ = load_matrix(root / "matrix.yaml")
    spec = Environment(torch="2.5.0", cuda="12.1", python="3.11")
    environment = PlannedEnvironment(spec=spec, index=PYPI)
    usual = pins_path(shipped.ROOT, environment)
    assert ensure_pins(tmp_path, environment, matrix) == (usual, False)
    packages = [package for package in matrix.packages if not package.startswith("numpy")]
    other = matrix.model_copy(update={"packages": [*packages, "numpy==1.25.0"]})
    assert known_pins(tmp_path, environment, other) is None
    own = pins_path(tmp_path, environment)
    own.parent.mkdir(parents=True)
    own.write_text(usual.read_text())
    assert ensure_pins(tmp_path, environment, matrix) == (own, False)
