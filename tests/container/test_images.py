"""Images: built from pins and reused by digest; what is wrong with pins, index or base is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.config.matrix import Matrix
from harness.config.plan import PlannedEnvironment
from harness.errors import HarnessError
from harness.executors.engine import Engine
from harness.executors.images import BASE_CHANGES, KEY, base_identity, build_image
from tests.conftest import ROOT
from tests.container.conftest import BASE, planned
from tests.container.engines import SecondEngine
from tests.projects import SHIPPED, attempt, command, head, make_project

pytestmark = [pytest.mark.container, pytest.mark.timeout(600)]


@pytest.fixture
def there(second: SecondEngine, at: Callable[[str], Engine]) -> Engine:
    return at(second.address)


@pytest.fixture
def environment(matrix: Matrix) -> PlannedEnvironment:
    return planned(matrix, "2.5.0")


def build(engine: Engine, environment: PlannedEnvironment, pins: Path, cache: Path):  # type: ignore[no-untyped-def]
    base = base_identity(engine, environment.spec.base_image)
    return build_image(engine, environment, pins, cache=cache, base=base)


def on_base(environment: PlannedEnvironment, base: str) -> PlannedEnvironment:
    return replace(environment, spec=environment.spec.model_copy(update={"base_image": base}))


def test_an_image_is_reused_by_all_that_determines_it(
    there: Engine, environment: PlannedEnvironment, small: str, pins: Path, tmp_path: Path
) -> None:
    again, reused = build(there, environment, pins, tmp_path)
    assert reused and again.id == small
    changed = tmp_path / "pins.txt"
    changed.write_text(pins.read_text() + "# another\n")
    other, reused = build(there, environment, changed, tmp_path)
    assert not reused and other.id != small and other.labels[KEY] != again.labels[KEY]
    # Another version costs its wheels: all layers before the pins, wheel files and what is installed are shared.
    assert other.layers[:-3] == again.layers[:-3] and other.layers[-3:] != again.layers[-3:]
    assert other.labels["org.kernel-matrix.environment"] == environment.id
    there.remove_image(other.tags[0])


def test_a_wheel_that_is_not_the_pinned_one_is_named(
    there: Engine, second: SecondEngine, environment: PlannedEnvironment, pins: Path, tmp_path: Path
) -> None:
    wrong = tmp_path / "pins.txt"
    lines = pins.read_text().splitlines()
    wrong.write_text(lines[0].rstrip("\\ ") + " --hash=sha256:" + "0" * 64 + "\n")
    with pytest.raises(HarnessError, match=r"a wheel is not the file that was pinned: .*typing-extensions") as caught:
        build(there, environment, wrong, tmp_path)
    assert caught.value.code == 30 and "kernel-matrix pins" in caught.value.remedy
    assert not second.docker("ps", "-aq").stdout, "the builder's container is gone"


def test_an_index_that_cannot_be_reached_is_said(
    there: Engine, environment: PlannedEnvironment, pins: Path, tmp_path: Path
) -> None:
    nowhere = replace(environment, index="https://127.0.0.1:9/simple")
    with pytest.raises(HarnessError, match="the package index cannot be reached from the build") as caught:
        build(there, nowhere, pins, tmp_path)
    assert "127.0.0.1:9" in caught.value.message and "HTTPS_PROXY" in caught.value.remedy


@pytest.mark.parametrize("base", ["kernel-matrix/none:1", "kernel-matrix/none@sha256:" + "0" * 64])
def test_a_base_that_is_not_there_is_said(
    there: Engine, environment: PlannedEnvironment, pins: Path, tmp_path: Path, base: str
) -> None:
    with pytest.raises(HarnessError, match=f"the base image {base} is not there") as caught:
        build(there, on_base(environment, base), pins, tmp_path)
    assert caught.value.code == 30 and "images base" in caught.value.remedy


def verb(project: Path, second: SecondEngine, *arguments: str) -> tuple[int, str]:
    variables = {"DOCKER_HOST": second.address, "KERNEL_MATRIX_CACHE": str(project / "cache")}
    return attempt(command(project, "images", *arguments, f"--base-image={BASE}"), variables)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("images") / "project", head("2.5.0") + SHIPPED)


def test_images_are_listed_checked_and_removed(
    project: Path, second: SecondEngine, there: Engine, environment: PlannedEnvironment, pins: Path, tmp_path: Path
) -> None:
    image, _ = build(there, environment, pins, tmp_path)
    (tmp_path / "empty.tar").write_bytes(bytes(10240))
    there.import_image(str(tmp_path / "empty.tar"), tag="kernel-matrix/base:empty", changes=BASE_CHANGES)
    code, said = verb(project, second, "list")
    assert code == 0 and "not built: kernel-matrix images build" in said
    assert f"{image.tags[0]}: not what this command would use" in said and "kernel-matrix/base:empty: base" in said
    code, said = verb(project, second, "remove")
    assert code == 0 and f"removed {image.tags[0]}" in said
    assert there.image(image.id) is None and there.image("kernel-matrix/base:empty") is not None
    code, said = verb(project, second, "remove")
    assert code == 0 and "nothing to remove" in said and "--all" in said


def test_the_images_of_the_matrix_are_built_and_proven(image: str) -> None:
    code, said = attempt(command(ROOT, "images", "build", f"--base-image={BASE}"))
    assert code == 0, said
    for words in ("PyTorch 2.1.0", "PyTorch 2.5.0", "and proven in", "release 12.4", "user 10002"):
        assert words in said


def test_at_last_everything_is_removed(project: Path, second: SecondEngine, there: Engine) -> None:
    """The last test with the second engine: its base goes too."""
    code, said = verb(project, second, "remove", "--all")
    assert code == 0 and f"removed {BASE}" in said and not there.images(), said
