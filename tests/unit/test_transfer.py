from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from harness.executors import transfer
from harness.executors.transfer import TransferRefused, pack, relocate, unpack

ROOMY = {"limit_bytes": 1 << 20, "limit_files": 100}


def archive(*members: tuple[str, bytes, bytes | str]) -> io.BytesIO:
    """A tar of (name, type, content or link's target)."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, kind, content in members:
            information = tarfile.TarInfo(name)
            information.type = kind
            if isinstance(content, str):
                information.linkname = content
                content = b""
            information.size = len(content)
            tar.addfile(information, io.BytesIO(content))
    stream.seek(0)
    return stream


FILE, FOLDER, LINK, HARD = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


def everything(folder: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


def test_what_is_packed_comes_out(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "file").write_bytes(b"content")
    (source / ".part").write_bytes(b"being written")
    (source / "link").symlink_to("/etc/passwd")
    stream = io.BytesIO()
    pack(stream, [("in/folder", source), ("in/one", source / "deep" / "file"), ("in/bytes", b"xyz")])
    stream.seek(0)
    unpack(stream, {"in": tmp_path / "out"}, **ROOMY)
    found = everything(tmp_path / "out")
    assert found == {
        "bytes": b"xyz",
        "folder": None,
        "folder/deep": None,
        "folder/deep/file": b"content",
        "one": b"content",
    }


def test_the_same_contents_give_the_same_bytes(tmp_path: Path) -> None:
    archives = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name in ("a", "b") if number == 1 else ("b", "a"):
            (folder / name).write_text(name)
            os.utime(folder / name, (number, number))
        stream = io.BytesIO()
        pack(stream, [("x", folder)], shared=["out/w0"], executable=["x/a"])
        archives.append(stream.getvalue())
    assert archives[0] == archives[1]
    with tarfile.open(fileobj=io.BytesIO(archives[0])) as tar:
        assert {m.name: oct(m.mode) for m in tar} == {"out/w0": "0o777", "x": "0o755", "x/a": "0o755", "x/b": "0o644"}
        assert {(m.uid, m.gid, m.uname, m.mtime) for m in tar} == {(0, 0, "", 0)}


@pytest.mark.parametrize(
    "name",
    ["../x", "w0/../../x", "/etc/x", "//etc/x", "other/x", "w0x/x", "w0/../x", "..", ".", "w0/a/../../../x", "/w0/x"],
)
def test_a_name_that_leads_elsewhere_is_left_out(tmp_path: Path, name: str) -> None:
    out = tmp_path / "deep" / "out"
    unpack(archive((name, FILE, b"evil"), ("w0/good", FILE, b"good")), {"w0": out}, **ROOMY)
    assert everything(tmp_path) == {"deep": None, "deep/out": None, "deep/out/good": b"good"}


@pytest.mark.parametrize("kind", [LINK, HARD, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.CONTTYPE])
def test_what_is_no_file_leaves_an_empty_one(tmp_path: Path, kind: bytes) -> None:
    (tmp_path / "secret").write_text("secret")
    unpack(archive(("w0/x", kind, str(tmp_path / "secret"))), {"w0": tmp_path / "out"}, **ROOMY)
    assert everything(tmp_path / "out") == {"x": b""} and not (tmp_path / "out" / "x").is_symlink()


@pytest.mark.parametrize("link", [LINK, HARD])
def test_nothing_is_written_through_a_link(tmp_path: Path, link: bytes) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("kept")
    stream = archive(("w0/folder", link, str(outside)), ("w0/folder/x", FILE, b"evil"))
    with pytest.raises(TransferRefused, match="cannot be kept"):  # an empty file stands there now
        unpack(stream, {"w0": tmp_path / "out"}, **ROOMY)
    stream = archive(("w0/file", link, str(outside / "x")), ("w0/file", FILE, b"mine"))
    unpack(stream, {"w0": tmp_path / "other"}, **ROOMY)
    assert everything(outside) == {"x": b"kept"} and everything(tmp_path / "other") == {"file": b"mine"}


def test_its_limits(tmp_path: Path) -> None:
    three = [(f"w0/{number}", FILE, b"x" * 10) for number in range(3)]
    places = {"w0": tmp_path / "out"}
    unpack(archive(*three), places, limit_bytes=30, limit_files=3)
    for limits in ({"limit_bytes": 29, "limit_files": 3}, {"limit_bytes": 30, "limit_files": 2}):
        with pytest.raises(TransferRefused, match="left more than"):
            unpack(archive(*three), places, **limits)
    folders = [(f"w0/{number}", FOLDER, b"") for number in range(3)]
    links = [(f"w0/{number}", LINK, "x") for number in range(3)]
    for many in (folders, links):
        with pytest.raises(TransferRefused):
            unpack(archive(*many), {"w0": tmp_path / "many"}, limit_bytes=30, limit_files=2)


def test_a_size_that_is_claimed_is_believed_before_anything_is_written(tmp_path: Path) -> None:
    information = tarfile.TarInfo("w0/x")
    information.size = 1 << 40
    stream = io.BytesIO(information.tobuf())
    with pytest.raises(TransferRefused):
        unpack(stream, {"w0": tmp_path / "out"}, **ROOMY)
    assert not (tmp_path / "out" / "x").exists()


@pytest.mark.parametrize(
    "members",
    [
        [("w0/" + "n" * 300, FILE, b"x")],
        [("w0/" + "/".join(["d" * 200] * 30), FILE, b"x")],
        [("w0/x", FILE, b"x"), ("w0/x/y", FILE, b"y")],
        [("w0/x/y", FILE, b"y"), ("w0/x", FILE, b"x")],
        [("w0/x", FILE, b"x"), ("w0/x", FOLDER, b"")],
    ],
)
def test_what_this_disk_cannot_hold_is_refused(tmp_path: Path, members: list[tuple[str, bytes, bytes]]) -> None:
    with pytest.raises(TransferRefused, match="cannot be kept"):
        unpack(archive(*members), {"w0": tmp_path / "out"}, **ROOMY)


def test_a_full_disk_here_is_not_the_archivesfault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(transfer.shutil, "copyfileobj", full)
    with pytest.raises(OSError, match="No space left"):
        unpack(archive(("w0/x", FILE, b"x")), {"w0": tmp_path / "out"}, **ROOMY)


def test_an_archive_without_an_end_is_an_error_of_its_own(tmp_path: Path) -> None:
    whole = archive(("w0/x", FILE, b"x" * 5000)).getvalue()
    for cut in (0, 100, 700, 3000):
        with pytest.raises(tarfile.TarError):
            unpack(io.BytesIO(whole[:cut]), {"w0": tmp_path / "out"}, **ROOMY)


def test_paths_of_a_request_are_moved() -> None:
    places = {"/project": "/in/project", "/project/reports/out": "/out/w0", "/cache": "/in/1"}
    request = {
        "a": "/project/csrc/x.cu",
        "b": ["/project/reports/out/deep", {"c": "/cache"}],
        "d": 7,
        "e": None,
        "f": "/projectile",
        "g": "text with /project in it",
        "/project": True,
    }
    assert relocate(request, places) == {
        "a": "/in/project/csrc/x.cu",
        "b": ["/out/w0/deep", {"c": "/in/1"}],
        "d": 7,
        "e": None,
        "f": "/projectile",
        "g": "text with /project in it",
        "/project": True,
    }
