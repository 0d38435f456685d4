"""What is read from the caches of Inductor and Triton, in the layouts of PyTorch 2.1.0 and 2.5.0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.worker import generated

OUTPUT = """from torch._inductor.codecache import AsyncCompile
async_compile = AsyncCompile()
# File: /home/someone/model.py:12 in forward
cpp_fused_gelu_0 = async_compile.{call}'''
#include "{cache}/ib/c{h}.h"
extern "C" void kernel(const float* in_ptr0)
{{
    {body}
}}
''')
"""
HASH = "a" * 51


@pytest.fixture(autouse=True)
def without_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing disassembles: machine code is told by its bytes."""
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)


def inductor(folder: Path, body: str = "out = 1;", call: str = "cpp(", hash: str = HASH) -> Path:
    """A cache as either version leaves it; the C++ file may go on behind the kernel, with its binding."""
    cache = folder / "inductor"
    (cache / "xy").mkdir(parents=True)
    text = OUTPUT.format(cache=cache, h=hash, body=body, call=call)
    (cache / "xy" / f"c{hash}.py").write_text(text)
    source = text.split("'''")[1]
    (cache / "xy" / f"cb{hash[1:]}.cpp").write_text(f"{source}\n#include <Python.h>\n")
    (cache / "xy" / f"cb{hash[1:]}.so").write_bytes(b"no ELF file")
    (cache / "xy" / "cc.cpp").write_text('extern "C" void __avx_chk_kernel() {}')
    (cache / "xy" / "cc.so").write_bytes(b"of another file")
    return folder


def triton(folder: Path, *, version: str, stage: str = "add f32") -> Path:
    """Triton 2.1.0 describes a kernel under a name with its arguments' properties; 3.1.0 adds the target."""
    place = folder / "triton" / ("0" * 64)
    place.mkdir(parents=True)
    name = "add_0d1d2de" if version == "2.1.0" else "add"
    described: dict[str, Any] = {"name": name, "num_warps": 4, "num_stages": 2, "shared": 512}
    if version == "3.1.0":
        described |= {"hash": "1" * 64, "target": {"backend": "cuda", "arch": 90, "warp_size": 32}}
    (place / "add.json").write_text(json.dumps(described))
    (place / "__grp__add.json").write_text(json.dumps({"child_paths": {}}))
    location = f'#loc = loc("{folder}/kernel.py":3:0)\n'
    (place / "add.ttir").write_text(f"{location}func @{name} {{ {stage} loc(#loc1) }}\n")
    (place / "add.ptx").write_text(f".entry {name}\n\t.loc\t1 3 0\n{stage}\n")
    (place / "add.cubin").write_bytes(b"\x7fELF")
    return folder


def digests(folder: Path) -> dict[tuple[str, str], str]:
    return {(each.kind, each.name): each.sha256 for each in generated.generated(str(folder))}


def test_names_hashes_and_folders_are_no_difference(tmp_path: Path) -> None:
    one = digests(inductor(tmp_path / "one"))
    two = digests(inductor(tmp_path / "two", hash="b" * 51))
    assert set(one) == {("inductor", "graph 0"), ("so", "cpp_fused_gelu_0")} and one == two
    other = digests(inductor(tmp_path / "three", body="out = 2;", call="cpp_pybinding(['const float*'], "))
    assert other[("inductor", "graph 0")] != one[("inductor", "graph 0")]
    assert set(other) == set(one)


def test_texts_are_kept_unless_they_are_long(tmp_path: Path) -> None:
    (short,) = [each for each in generated.generated(str(inductor(tmp_path / "one"))) if each.kind == "inductor"]
    assert "$CACHE/HASH.h" in short.text and str(tmp_path) not in short.text and "someone" not in short.text
    body = "x" * generated.TEXT_CHARACTERS
    (long,) = [each for each in generated.generated(str(inductor(tmp_path / "two", body))) if each.kind == "inductor"]
    assert not long.text and long.sha256 and long.size_bytes > len(body)


@pytest.mark.parametrize("version", ["2.1.0", "3.1.0"])
def test_a_triton_kernel_has_its_stages(tmp_path: Path, version: str) -> None:
    files = {each.kind: each for each in generated.generated(str(triton(tmp_path, version=version)))}
    assert set(files) == {"ttir", "ptx", "cubin"} and {each.name for each in files.values()} == {"add"}
    assert files["cubin"].sha256.startswith("raw:")


def test_stages_of_both_versions_are_compared_without_places_and_mangled_names(tmp_path: Path) -> None:
    one, two = (digests(triton(tmp_path / version, version=version)) for version in ("2.1.0", "3.1.0"))
    assert one[("ttir", "add")] == two[("ttir", "add")] and one[("ptx", "add")] == two[("ptx", "add")]
    other = digests(triton(tmp_path / "other", version="3.1.0", stage="add f64"))
    assert other[("ttir", "add")] != two[("ttir", "add")] and other[("ptx", "add")] != two[("ptx", "add")]
