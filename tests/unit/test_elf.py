"""What a shared object says of itself, by its bytes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.worker import elf

SOURCE = """
extern "C" int attention_forward() { return 1; }
extern "C" void* PyInit_mine() { return nullptr; }
"""
pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elf")
    (folder / "mine.cpp").write_text(SOURCE)
    command = ["c++", "-shared", "-fPIC", "mine.cpp", "-o", "mine.so"]
    subprocess.run(command, cwd=folder, check=True)
    subprocess.run(["c++", "-c", "-fPIC", "mine.cpp", "-o", "mine.o"], cwd=folder, check=True)
    return folder / "mine.so"


def test_what_it_exports_and_is(library: Path) -> None:
    path = str(library)
    assert elf.holds(path, "attention_forward") and elf.holds(path, "PyInit_other", "PyInit_mine")
    assert not elf.holds(path, "PyInit_other") and not elf.holds(path, *elf.GPU_CODE)
    assert elf.machine(path) == "x86_64"


@pytest.mark.parametrize(
    ("start", "at", "said"),
    [
        (b"#!/bin/sh", 0, "no ELF file"),
        (b"\x01", 4, "for 32 bits"),
        (b"\x02", 5, "big-endian"),
        (b"\x02\x00", 0x10, "is a program"),
    ],
)
def test_what_is_no_such_file_is_said(library: Path, tmp_path: Path, start: bytes, at: int, said: str) -> None:
    data = bytearray(library.read_bytes())
    data[at : at + len(start)] = start
    (tmp_path / "x.so").write_bytes(data)
    with pytest.raises(ValueError, match=said):
        elf.machine(str(tmp_path / "x.so"))


def test_an_object_file_and_an_empty_one_are_said(library: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not linked to a shared object"):
        elf.machine(str(library.with_suffix(".o")))
    for data, said in ((b"", "is empty"), (library.read_bytes()[:40], "is cut short")):
        (tmp_path / "x.so").write_bytes(data)
        with pytest.raises(ValueError, match=said):
            elf.machine(str(tmp_path / "x.so"))


def test_the_python_of_a_file_is_in_its_name() -> None:
    assert elf.python_of("mine.cpython-310-x86_64-linux-gnu.so") == "3.10"
    assert elf.python_of("mine.abi3.so") == elf.python_of("libmine.so") == ""
