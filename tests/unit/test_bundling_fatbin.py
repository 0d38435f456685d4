"""GPU code is found in real ELF files, and only what an architecture never takes is zeroed."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.isolate.bundle.fatbin import DeviceCode, blank, containers, foreign, needed
from harness.isolate.bundle.slim import blank_libraries
from harness.worker.elf import sections
from tests.unit.fatbins import CUBIN, INTERMEDIATE, PTX, Code, container, shared_object

needs_compiler = [
    pytest.mark.process,
    pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler here: apt-get install g++"),
]


def chosen(architecture: int, *codes: Code) -> set[tuple[int, int]]:
    entries = [
        DeviceCode(kind=code.kind, architecture=code.architecture, offset=number, size_bytes=1)
        for number, code in enumerate(codes)
    ]
    return {(entry.kind, entry.architecture) for entry in needed(entries, architecture)}


@pytest.mark.parametrize(
    ("architecture", "codes", "kept"),
    [
        (90, [Code(CUBIN, 80), Code(CUBIN, 90), Code(PTX, 90)], {(CUBIN, 90)}),
        (90, [Code(CUBIN, 80), Code(CUBIN, 86), Code(PTX, 80), Code(PTX, 86)], {(PTX, 86)}),
        (90, [Code(CUBIN, 80), Code(CUBIN, 100), Code(PTX, 100)], set()),
        (89, [Code(CUBIN, 80), Code(CUBIN, 86), Code(CUBIN, 90), Code(PTX, 86)], {(CUBIN, 86)}),
        (86, [Code(CUBIN, 80), Code(CUBIN, 89), Code(PTX, 80)], {(CUBIN, 80)}),
        (80, [Code(CUBIN, 86), Code(PTX, 70), Code(PTX, 75)], {(PTX, 75)}),
        (103, [Code(CUBIN, 90), Code(CUBIN, 100), Code(PTX, 100)], {(CUBIN, 100)}),
        (90, [Code(INTERMEDIATE, 50), Code(CUBIN, 80), Code(CUBIN, 90)], {(INTERMEDIATE, 50), (CUBIN, 90)}),
        (90, [], set()),
    ],
)
def test_what_a_gpu_may_take(architecture: int, codes: list[Code], kept: set[tuple[int, int]]) -> None:
    assert chosen(architecture, *codes) == kept


def test_both_variants_of_an_architecture_stay() -> None:
    twice = [DeviceCode(kind=CUBIN, architecture=90, offset=at, size_bytes=1) for at in (0, 1)]
    assert needed(twice, 90) == twice


@given(
    st.lists(st.builds(Code, st.sampled_from([PTX, CUBIN]), st.sampled_from([50, 70, 75, 80, 86, 89, 90, 100]))),
    st.sampled_from([70, 75, 80, 86, 89, 90, 100]),
)
def test_something_that_runs_stays_wherever_something_runs(codes: list[Code], architecture: int) -> None:
    def runs(code: Code) -> bool:
        if code.kind == PTX:
            return code.architecture <= architecture
        return code.architecture // 10 == architecture // 10 and code.architecture <= architecture

    kept = chosen(architecture, *codes)
    assert bool(kept) == any(runs(code) for code in codes)
    assert all(runs(Code(kind, number)) for kind, number in kept)
    exact = (CUBIN, architecture)
    assert exact not in {(code.kind, code.architecture) for code in codes} or kept == {exact}


def test_containers_follow_each_other_with_gaps() -> None:
    first, second = container(Code(CUBIN, 80), Code(CUBIN, 90)), container(Code(PTX, 70))
    data = bytes(8) + first + bytes(24) + second
    found = list(containers(data, 0, len(data)))
    assert [[entry.architecture for entry in entries] for entries in found] == [[80, 90], [70]]
    [[_, kept], _] = found
    assert data[kept.offset :][: kept.size_bytes] == Code(CUBIN, 90).payload


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(bytes(4) + container(Code(CUBIN, 80)), id="not aligned"),
        pytest.param(container(Code(CUBIN, 80))[:-1], id="cut off"),
        pytest.param(container(Code(CUBIN, 80))[:8] + struct.pack("<Q", 1 << 60) + bytes(500), id="too long"),
        pytest.param(container(Code(CUBIN, 80))[:8] + struct.pack("<Q", 100) + bytes(100), id="no entries"),
        pytest.param(struct.pack("<I", 0xBA55ED50) + b"text" * 100, id="the number alone"),
        pytest.param(struct.pack("<I", 0xBA55ED50), id="nothing after it"),
    ],
)
def test_what_only_looks_like_a_container_is_none(data: bytes) -> None:
    assert list(containers(data, 0, len(data))) == []


class TestLibraries:
    pytestmark = needs_compiler
    MANY = (Code(CUBIN, 80, 4096), Code(CUBIN, 90, 4096), Code(PTX, 90, 4096))
    OLD = (Code(CUBIN, 70, 512), Code(PTX, 70, 512), Code(PTX, 80, 512))

    @pytest.fixture
    def library(self, tmp_path: Path) -> Path:
        return shared_object(
            tmp_path,
            "libgpu.so",
            {
                ".nv_fatbin": container(*self.MANY) + container(*self.OLD),
                ".data": container(Code(CUBIN, 90, 256), Code(CUBIN, 86, 256)),
                ".rodata": b"words" + bytes(3) + container(Code(CUBIN, 75, 128), Code(CUBIN, 90, 128)),
                "__nv_relfatbin": b"for the linker" * 50,
                ".other": container(Code(CUBIN, 61, 64)),
            },
        )

    def test_only_foreign_code_is_zeroed_and_nothing_moves(self, library: Path) -> None:
        before = library.read_bytes()
        layout = sections(before)
        zeroed = blank(library, 90)
        after = library.read_bytes()
        assert sections(after) == layout and len(after) == len(before)
        gone = [self.MANY[0], self.MANY[2], self.OLD[0], self.OLD[1], Code(CUBIN, 86, 256), Code(CUBIN, 75, 128)]
        kept = [self.MANY[1], self.OLD[2], Code(CUBIN, 90, 256), Code(CUBIN, 90, 128), Code(CUBIN, 61, 64)]
        assert zeroed == sum(code.size for code in gone) + len(b"for the linker" * 50)
        for code in gone:
            assert code.payload in before and code.payload not in after
        for code in kept:
            assert after.count(code.payload) == before.count(code.payload) > 0
        assert b"for the linker" not in after
        # Every byte that changed lies in what `foreign` names, and is zero now.
        expected = bytearray(before)
        for offset, size in foreign(before, 90):
            expected[offset : offset + size] = bytes(size)
        assert after == bytes(expected)
        assert ctypes.CDLL(str(library)).answer() == 42

    def test_blanking_twice_changes_nothing_more(self, library: Path) -> None:
        first, once = blank(library, 90), library.read_bytes()
        assert blank(library, 90) == first and library.read_bytes() == once

    def test_all_gpu_code_of_an_unused_library_goes(self, library: Path) -> None:
        blank(library, None)
        after = library.read_bytes()
        assert all(code.payload not in after for code in (*self.MANY, *self.OLD))
        assert list(containers(after, 0, len(after))), "their headers stay"
        assert ctypes.CDLL(str(library)).answer() == 42

    @pytest.mark.parametrize("length", [0, 3, 63, 64, 200, -1, -64, -2000])
    def test_a_truncated_library_is_left_alone(self, library: Path, length: int) -> None:
        whole = library.read_bytes()
        cut = whole[:length] if length >= 0 else whole[: len(whole) + length]
        library.write_bytes(cut)
        assert sections(cut) == () and blank(library, 90) == 0 and library.read_bytes() == cut

    @pytest.mark.parametrize("change", [(0, b"\x7fELG"), (4, b"\x01"), (5, b"\x02")], ids=["no ELF", "32 bits", "big"])
    def test_another_kind_of_file_is_left_alone(self, library: Path, change: tuple[int, bytes]) -> None:
        at, data = change
        other = bytearray(library.read_bytes())
        other[at : at + len(data)] = data
        library.write_bytes(other)
        assert blank(library, 90) == 0 and library.read_bytes() == bytes(other)

    def test_a_library_without_gpu_code_is_left_alone(self, tmp_path: Path) -> None:
        library = shared_object(tmp_path, "libplain.so", {".rodata": b"nothing" * 100})
        before = library.stat().st_mtime_ns
        assert blank(library, 90) == 0 and library.stat().st_mtime_ns == before

    def test_sections_are_those_that_readelf_shows(self, library: Path) -> None:
        if shutil.which("readelf") is None:
            pytest.skip("no readelf here: apt-get install binutils")
        printed = subprocess.run(["readelf", "-SW", library], capture_output=True, text=True, check=True).stdout
        shown = set()
        for line in printed.splitlines():
            fields = line.partition("]")[2].split()
            if line.lstrip().startswith("[") and len(fields) > 5 and not {"NULL", "NOBITS", "Type"} & set(fields[:2]):
                shown.add((fields[0], int(fields[3], 16), int(fields[4], 16)))
        assert shown == {(s.name, s.offset, s.size_bytes) for s in sections(library.read_bytes()) if s.name}

    def test_a_tree_is_slimmed_by_what_each_library_is_for(self, library: Path, tmp_path: Path) -> None:
        tree = tmp_path / "tree"
        (tree / "lib").mkdir(parents=True)
        for name in ("libused.so.12", "libcufft.so.11", "notes.so.txt"):
            shutil.copy(library, tree / "lib" / name)
        (tree / "lib" / "notes.so.txt").write_bytes(b"no ELF file")
        (tree / "lib" / "libused.so").symlink_to("libused.so.12")
        blanked = blank_libraries(tree, 90)
        assert set(blanked) == {"lib/libused.so.12", "lib/libcufft.so.11"}
        assert blanked["lib/libcufft.so.11"] > blanked["lib/libused.so.12"]
        assert self.MANY[1].payload in (tree / "lib" / "libused.so.12").read_bytes()
        assert self.MANY[1].payload not in (tree / "lib" / "libcufft.so.11").read_bytes()


@pytest.mark.process
def test_what_nvcc_writes_is_understood(tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc here")
    source, target = tmp_path / "k.cu", tmp_path / "libk.so"
    source.write_text(
        '__global__ void twice(float* x) { x[threadIdx.x] *= 2; }\nextern "C" int answer() { return 42; }\n'
    )
    wanted = [*((f"sm_{name}", CUBIN, int(name[:2])) for name in ("80", "86", "90", "90a")), ("compute_80", PTX, 80)]
    codes = [f"-gencode=arch=compute_{name.partition('_')[2]},code={name}" for name, _, _ in wanted]
    done = subprocess.run(
        [nvcc, "-shared", "-Xcompiler=-fPIC", "-cudart=none", *codes, "-o", target, source],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        pytest.skip(f"nvcc does not work here: {done.stderr[-200:]}")
    data = target.read_bytes()
    [section] = [section for section in sections(data) if section.name == ".nv_fatbin"]
    found = [entry for entries in containers(data, section.offset, section.end) for entry in entries]
    assert {(e.kind, e.architecture) for e in found} == {(k, a) for _, k, a in wanted}
    assert all(entry.size_bytes for entry in found)
    assert blank(target, 90) > 0
