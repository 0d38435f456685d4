from __future__ import annotations

from pathlib import Path

import pytest

from harness.config.environments import PYPI
from harness.config.matrix import load_matrix
from harness.config.pins import ensure_pins, load_pins, parse_pins, pins_path, project_text, swapped_pins
from harness.config.plan import PlannedEnvironment
from harness.config.resolver_errors import explain
from harness.errors import HarnessError, InfrastructureError, InputError
from tests.unit.test_venv import planned

HASH = "--hash=sha256:" + "0" * 64


def test_the_committed_pins_hold_what_the_matrix_asks_for(root: Path) -> None:
    matrix, _ = load_matrix(root / "matrix.yaml")
    for spec in matrix.environments:
        path, written = ensure_pins(root, PlannedEnvironment(spec=spec, index=PYPI), matrix)
        assert not written
        assert load_pins(path)["torch"] == spec.torch


def test_the_committed_pins_name_no_index_but_the_public_ones(root: Path) -> None:
    for path in (root / "docker" / "pins").glob("*.txt"):
        text = path.read_text()
        assert [line for line in text.splitlines() if "://" in line] == ["# torch from: https://pypi.org/simple"]


def test_replicas_share_a_pin_file(tmp_path: Path) -> None:
    assert pins_path(tmp_path, planned(PYPI)) == pins_path(tmp_path, planned(PYPI, replica=2))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("torch==2.5.0\n", "no exact version with a hash"),
        (f"torch>=2.5.0 {HASH}\n", "no exact version"),
        ("-r other.txt\n", "no exact version"),
        (f"numpy==1.26.4 {HASH}\n", "pins no torch"),
        (f"torch==2.5.0 {HASH}\nTorch==2.5.0 {HASH}\n", "stands twice"),
        ("", "pins no torch"),
    ],
)
def test_a_pin_file_that_pins_less_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        parse_pins(text, "docker/pins/x.txt")
    assert "docker/pins/x.txt" in str(caught.value) and "kernel-matrix pins" in caught.value.remedy


def test_pins_of_another_version_are_refused(tmp_path: Path, root: Path) -> None:
    matrix, _ = load_matrix(root / "matrix.yaml")
    environment = planned(PYPI)
    path = pins_path(tmp_path, environment)
    path.parent.mkdir(parents=True)
    path.write_text(f"torch==2.5.0 {HASH}\nnumpy==1.25.0 {HASH}\n")
    with pytest.raises(InputError, match=r"does not pin numpy==1.26.4"):
        ensure_pins(tmp_path, environment, matrix)


def test_own_packages_are_in_the_id_and_over_the_files(root: Path) -> None:
    matrix, _ = load_matrix(root / "matrix.yaml")
    environment = planned(PYPI, packages=["NumPy==2.0.0", "nvidia_cudnn-cu12==9.1.0.70"])
    assert environment.id == "torch2.5.0-pypi-py311-numpy-2.0.0-nvidia-cudnn-cu12-9.1.0.70"
    assert {"numpy==2.0.0", "ninja==1.11.1.1"} < set(matrix.packages_in(environment.spec))
    many = [f"package{number}==1.0+local" for number in range(9)]
    assert planned(PYPI, packages=many).id == planned(PYPI, packages=many[::-1]).id != planned(PYPI).id
    assert len(planned(PYPI, packages=many).id) < 60
    with pytest.raises(ValueError, match="numpy stands twice"):
        planned(PYPI, packages=["numpy==1.0", "NumPy==2.0"])


def test_a_swapped_pin_is_all_that_differs() -> None:
    ours = f"# of a\nnumpy==1.26.4 \\\n    {HASH} \\\n    {HASH}\ntorch==2.1.0 {HASH}\ntorch-more==1 {HASH}\n"
    theirs = f"numpy==2.0.0 \\\n    {HASH}\ntorch==2.5.0 {HASH}\n"
    swapped = swapped_pins(ours, theirs, "numpy")
    assert swapped == f"# of a\nnumpy==2.0.0 \\\n    {HASH}\ntorch==2.1.0 {HASH}\ntorch-more==1 {HASH}\n"
    without = f"# of a\nnumpy==1.26.4 \\\n    {HASH} \\\n    {HASH}\ntorch==2.1.0 {HASH}\n"
    assert swapped_pins(ours, theirs, "torch-more") == without
    assert swapped_pins(theirs, ours, "torch-more") == f"{theirs}torch-more==1 {HASH}\n"
    with pytest.raises(InputError, match="neither"):
        swapped_pins(ours, theirs, "demo")


def test_torch_comes_from_the_index_with_its_build_and_from_pypi_without() -> None:
    own = project_text(planned("https://download.pytorch.org/whl/cu121"), ["numpy==1.26.4"])
    assert '"torch==2.5.0+cu121"' in own and "explicit = true" in own
    fallback = project_text(planned(PYPI), ["numpy==1.26.4"])
    assert '"torch==2.5.0"' in fallback and "tool.uv" not in fallback


def test_a_committed_pin_file_serves_a_matrix_that_pins_nothing(root: Path, tmp_path: Path) -> None:
    matrix, _ = load_matrix(root / "matrix.yaml")
    free = matrix.model_copy(update={"packages": []})
    for spec in matrix.environments:
        environment = PlannedEnvironment(spec=spec, index=PYPI)
        assert ensure_pins(tmp_path, environment, free) == (pins_path(root, environment), False)


@pytest.mark.parametrize(
    ("said", "kind", "told"),
    [
        ("No solution found: Because there is no version of torch==9.9.9 and ...", InputError, "torch==9.9.9"),
        ("Because torch==2.1.0 has no wheels with a matching Python ABI tag", InputError, "matching Python ABI"),
        ("error: No solution found: Because torch==2.5.0 depends on setuptools>=77", InputError, "setuptools>=77"),
        (
            "error: Failed to fetch: `https://pypi.org/simple/torch/` dns error",
            InfrastructureError,
            "could not resolve",
        ),
    ],
)
def test_uvs_complaints_are_told_apart(said: str, kind: type[HarnessError], told: str) -> None:
    error = explain(planned(PYPI), said)
    assert type(error) is kind and told in error.message and error.remedy
