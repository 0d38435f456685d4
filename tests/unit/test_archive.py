"""Archives of environments: parts and their digests, manifests, and what is unpacked of them."""

from __future__ import annotations

import io
import json
import os
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from harness.config.environments import PYPI
from harness.errors import InfrastructureError, InputError
from harness.executors.archive import (
    MANIFEST,
    ArchivedEnvironment,
    load_bundle,
    plain_id,
    read_parts,
    unpack_root,
    write_manifest,
    write_parts,
)

ID = "torch2.5.0-pypi-py311"
LARGE = os.urandom(1 << 20)


def entry() -> ArchivedEnvironment:
    return ArchivedEnvironment(
        index=PYPI,
        image="sha256:1",
        base_image="base:1",
        pins_sha256="p" * 64,
        interpreter="/opt/environment/bin/python",
        tar_bytes=0,
        parts=(),
    )


def root_as_tar() -> io.BytesIO:
    """Return a root file system with a program, a link, a hard link, a device file and a folder of another user."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as tar:
        for name, content, mode in (("usr/bin/program", b"#!", 0o4755), ("usr/lib/large", LARGE, 0o644)):
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.uid = len(content), mode, 12345
            tar.addfile(member, io.BytesIO(content))
        for name, kind, linked in (
            ("bin", tarfile.SYMTYPE, "usr/bin"),
            ("usr/lib/again", tarfile.LNKTYPE, "usr/lib/large"),
            ("dev/null", tarfile.CHRTYPE, ""),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, linked
            tar.addfile(member)
    target.seek(0)
    return target


@pytest.fixture
def packed(tmp_path: Path) -> tuple[Path, ArchivedEnvironment]:
    size_bytes, parts = write_parts(root_as_tar(), tmp_path, "e.tar.zst", part_bytes=300_000, level=1)
    return tmp_path, replace(entry(), tar_bytes=size_bytes, parts=parts)


def test_parts_are_no_larger_than_asked_for_and_give_back_every_byte(packed: tuple[Path, ArchivedEnvironment]) -> None:
    folder, made = packed
    assert [part.size_bytes for part in made.parts[:-1]] == [300_000] * 3 and len(made.parts) == 4
    assert b"".join(read_parts(folder, made.parts)) == root_as_tar().getvalue()
    assert made.tar_bytes == len(root_as_tar().getvalue())


@pytest.mark.parametrize("how", ["flipped", "cut", "missing", "exchanged"])
def test_a_damaged_part_is_named(packed: tuple[Path, ArchivedEnvironment], how: str) -> None:
    folder, made = packed
    path = folder / made.parts[1].name
    data = bytearray(path.read_bytes())
    if how == "flipped":
        data[1000] ^= 1
        path.write_bytes(data)
    elif how == "cut":
        path.write_bytes(data[:-1])
    elif how == "missing":
        path.unlink()
    else:
        path.write_bytes((folder / made.parts[2].name).read_bytes())
    with pytest.raises(InfrastructureError, match=path.name) as caught:
        list(read_parts(folder, made.parts))
    assert "copy" in caught.value.remedy


@pytest.mark.process
def test_all_is_unpacked_but_devices_owners_and_rights_of_programs(packed: tuple[Path, ArchivedEnvironment]) -> None:
    folder, made = packed
    root = folder / "root"
    unpack_root(folder, made, root)
    program = root / "usr/bin/program"
    assert (root / "bin").is_symlink() and (root / "bin/program").samefile(program)
    assert (root / "usr/lib/large").read_bytes() == LARGE == (root / "usr/lib/again").read_bytes()
    assert program.stat().st_mode & 0o7777 == 0o755 and program.stat().st_uid == os.geteuid()
    assert not (root / "dev/null").exists()
    with pytest.raises(InfrastructureError, match="MiB are free"):
        unpack_root(folder, replace(made, tar_bytes=1 << 60), folder / "other")


def test_a_manifest_comes_back_as_it_was_written(packed: tuple[Path, ArchivedEnvironment]) -> None:
    folder, made = packed
    write_manifest(folder, {ID: made})
    bundle = load_bundle(folder)
    assert bundle.entry(ID) == bundle.entry(f"{ID}-r2") == made, "replicas share one"
    with pytest.raises(InputError, match=f"has no torch9; it has {ID}"):
        bundle.entry("torch9")
    assert (plain_id(ID), plain_id("a-r12"), plain_id("a-rx")) == (ID, "a", "a-rx")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 4}, "of version 4"),
        ({"version": 2, "environments": {ID: {"index": ""}}}, "environments.torch2.5.0"),
        ({"schema_version": 1}, "damaged"),
        (None, "not a bundle"),
    ],
)
def test_what_is_no_manifest_is_refused(tmp_path: Path, change: dict[str, object] | None, said: str) -> None:
    write_manifest(tmp_path, {})
    path = tmp_path / MANIFEST
    if change is None:
        path.unlink()
    else:
        path.write_text(json.dumps({"created_utc": "", "machine": "", "environments": {}} | change))
    with pytest.raises(InputError, match=said):
        load_bundle(tmp_path)
