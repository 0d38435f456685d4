"""What is asked of the packer, and what it leaves behind when it cannot do it."""

from __future__ import annotations

import contextlib
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cli import bundle as bundle_verb
from harness.cli.main import main
from harness.errors import InfrastructureError, InputError
from harness.isolate.bundle import pack
from harness.isolate.bundle.pack import Options, least_driver, run_bundle
from tests.unit.test_images import FakeEngine

REAL = pack.Packer


def options(out: Path, **changes: object) -> Options:
    return Options(**{"matrix_path": Path("matrix.yaml"), "architecture": "90", "out": out, **changes})  # type: ignore[arg-type]


class FakePacker:
    """Packs one file, or fails at it."""

    problem = ""

    def __init__(self, options: Options, out: Path) -> None:
        self.out = out

    def pack(self) -> None:
        (self.out / ".work").mkdir()
        (self.out / "manifest.json").write_text("{}")
        if self.problem:
            raise InfrastructureError(self.problem)
        (self.out / ".work").rmdir()


@pytest.fixture(autouse=True)
def packer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "Packer", FakePacker)


def test_a_bundle_appears_when_it_is_whole(tmp_path: Path) -> None:
    left = tmp_path / ".out.part"
    left.mkdir()
    (left / "of an interrupted one").write_text("")
    (tmp_path / "out").mkdir()
    assert run_bundle(options(tmp_path / "out")) == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["manifest.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_nothing_is_left_of_one_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakePacker, "problem", "it does not prove itself")
    with pytest.raises(InfrastructureError, match="does not prove itself"):
        run_bundle(options(tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_use_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    with pytest.raises(InputError, match="is not empty"):
        run_bundle(options(tmp_path))
    with pytest.raises(InputError, match="is not empty"):
        run_bundle(options(tmp_path / "mine"))


@pytest.mark.parametrize(
    ("cuda", "driver"), [("11.8", "450.80.02"), ("12.1", "525.60.13"), ("12.4", "525.60.13"), ("13.0", "580.65.06")]
)
def test_the_oldest_driver_is_that_of_the_major_version(cuda: str, driver: str) -> None:
    assert least_driver(cuda) == driver
    for unknown in (None, "14.0"):
        with pytest.raises(InputError, match="is not known"):
            least_driver(unknown)


def test_a_version_that_the_matrix_lacks_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    packing = pack.Packer.__new__(pack.Packer)
    packing.options = options(root, torch=("9.9",))
    packing.engine, packing.matrix, packing.root = FakeEngine(), None, root  # type: ignore[assignment]
    monkeypatch.setattr(pack, "wanted_images", lambda *_, **__: [])
    with pytest.raises(InputError, match=r"--torch 9\.9: not in matrix.yaml"):
        packing._planned()


def test_options_reach_the_packer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Options] = []
    monkeypatch.setattr(bundle_verb, "run_bundle", lambda given: asked.append(given) or 0)
    monkeypatch.chdir(tmp_path)
    words = ["--arch=80", "--part-mb=55", "--torch=2.1.0", "--torch=2.5.0", "--base-image=b:1", "--strict"]
    assert main(["bundle", *words]) == 0
    [given] = asked
    assert given.out == tmp_path / "bundle-80" and given.part_mb == 55 and given.torch == ("2.1.0", "2.5.0")
    assert (given.architecture, given.base_image, given.strict, given.level) == ("80", "b:1", True, 12)


class Exporting:
    """An engine whose image is a tar made here."""

    def __init__(self, *names: str, cut: int | None = None) -> None:
        written = io.BytesIO()
        with tarfile.open(fileobj=written, mode="w") as tar:
            for name in names:
                information = tarfile.TarInfo(name)
                information.type = tarfile.CHRTYPE if name.endswith("null") else tarfile.REGTYPE
                information.mode = 0o444
                information.size = 0 if information.ischr() else 10_000
                tar.addfile(information, io.BytesIO(bytes(10_000)))
        self.data = written.getvalue()[:cut]

    @contextlib.contextmanager
    def exported(self, image: str, owner: str) -> Iterator[Iterator[bytes]]:
        yield iter([self.data[:100], self.data[100:]])


def exporting(work: Path, engine: Exporting) -> pack.Packer:
    packing = REAL.__new__(REAL)
    packing.work, packing.engine = work, engine  # type: ignore[assignment]
    return packing


@pytest.mark.process
def test_an_image_s_files_are_taken_without_its_devices(tmp_path: Path) -> None:
    engine = Exporting("dev/null", "usr/include/dev/kept.h", "etc/passwd")
    with exporting(tmp_path / "work", engine)._exported("image") as root:
        there = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
        assert there == {"usr/include/dev/kept.h", "etc/passwd"} and not (root / "dev" / "null").exists()
    assert not (tmp_path / "work").exists()


@pytest.mark.process
def test_an_image_that_does_not_come_whole_is_said(tmp_path: Path) -> None:
    engine = Exporting("etc/passwd", "etc/group", cut=15_000)
    with (
        pytest.raises(InfrastructureError, match="cannot be unpacked"),
        exporting(tmp_path / "work", engine)._exported("image"),
    ):
        pass
    assert not (tmp_path / "work").exists()
