"""What a shared object says of itself, by its bytes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.worker import elf

SOURCE = """
extern "C" int wanted(int);
extern "C" __attribute__((weak)) int perhaps();
extern "C" int attention_forward() { return wanted(1) + (perhaps ? perhaps() : 0); }
extern "C" void* PyInit_mine() { return nullptr; }
static int hidden() { return 1; }
extern "C" __attribute__((visibility("hidden"))) int inner() { return hidden(); }
"""
pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elf")
    (folder / "mine.cpp").write_text(SOURCE)
    command = ["c++", "-shared", "-fPIC", "mine.cpp", "-Wl,--no-as-needed", "-lm", "-o", "mine.so"]
    subprocess.run(command, cwd=folder, check=True)
    subprocess.run(["c++", "-c", "-fPIC", "mine.cpp", "-o", "mine.o"], cwd=folder, check=True)
    return folder / "mine.so"


def test_what_it_exports_needs_and_is(library: Path) -> None:
    found = elf.read(str(library))
    assert {"attention_forward", "PyInit_mine"} <= found.defined and not {"inner", "hidden"} & found.defined
    assert "wanted" in found.undefined and "perhaps" not in found.undefined
    assert found.modules == ["mine"] and "libm.so.6" in found.needed
    assert found.machine == "x86_64" and not found.has_gpu_code


@pytest.mark.parametrize(
    ("start", "at", "said"),
    [
        (b"#!/bin/sh", 0, "no ELF file"),
        (b"\x01", 4, "for 32 bits"),
        (b"\x02", 5, "big-endian"),
        (b"\x02\x00", 0x10, "is a program"),
        (b"\xff" * 8, 0x28, "cut short, or has no table"),
    ],
)
def test_what_is_no_such_file_is_said(library: Path, tmp_path: Path, start: bytes, at: int, said: str) -> None:
    data = bytearray(library.read_bytes())
    data[at : at + len(start)] = start
    (tmp_path / "x.so").write_bytes(data)
    with pytest.raises(ValueError, match=said):
        elf.read(str(tmp_path / "x.so"))


def test_an_object_file_and_an_empty_one_are_said(library: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not linked to a shared object"):
        elf.read(str(library.with_suffix(".o")))
    (tmp_path / "x.so").write_bytes(b"")
    with pytest.raises(ValueError, match="is empty"):
        elf.read(str(tmp_path / "x.so"))


def test_any_damage_is_an_error_and_no_crash(library: Path, tmp_path: Path) -> None:
    data, path = library.read_bytes(), tmp_path / "x.so"
    tables = [s for s in elf.sections(data) if s.kind in (elf.DYNAMIC, elf.SYMBOLS)]
    for place in (*range(0, 64), *(s.offset + n for s in tables for n in range(0, s.size_bytes, 5))):
        path.write_bytes(data[:place] + b"\xff\xff\xff\xff" + data[place + 4 :])
        try:
            elf.read(str(path))
        except ValueError as error:
            assert str(error).startswith("is ")


def test_the_python_of_a_file_is_in_its_name() -> None:
    assert elf.python_of("mine.cpython-310-x86_64-linux-gnu.so") == "3.10"
    assert elf.python_of("mine.abi3.so") == elf.python_of("libmine.so") == ""
