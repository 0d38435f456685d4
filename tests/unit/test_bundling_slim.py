"""What is left out, what a tree's digest sees, and the programs that an unpacked bundle starts by."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from harness.errors import InfrastructureError
from harness.isolate.bundle import archive as archiving
from harness.isolate.bundle.archive import entries, find_program, measure, pack_archive, resolve
from harness.isolate.bundle.launchers import LEFT_OUT, RUN, copy_tool, libraries, pack_tools, write_launchers
from harness.isolate.bundle.slim import SHARED, components_of, leave_out, left_out, with_needed
from tests.unit.bundles import tree

SITE = "lib/python3.11/site-packages"


def fill(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x" * 10)


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}


SLIMMED = {
    "an environment": (
        left_out(()),
        """bin/python bin/ninja SITE/triton-3.1.0.dist-info/METADATA SITE/torch/bin/torch_shm_manager
        SITE/torch/include/ATen/ATen.h SITE/torch/testing/__init__.py SITE/torch/lib/libtorch_cuda.so
        SITE/torchgen/api/cpp.py SITE/sympy/core/core.py SITE/networkx/classes/graph.py SITE/mpmath/__init__.py
        SITE/nvidia/cuda_nvrtc/lib/libnvrtc.so.12 SITE/nvidia/cudnn/lib/libcudnn_ops_infer.so.8
        SITE/nvidia/cusolver/lib/libcusolver.so.11 SITE/nvidia/cuda_cupti/lib/libcupti.so.12""",
        """SITE/triton/_C/libtriton.so SITE/triton/language/core.py SITE/numpy/core/lib/libnpymath.a
        SITE/sympy/core/tests/test_core.py SITE/nvidia/cudnn/lib/libcudnn_ops_train.so.8
        SITE/nvidia/cusolver/lib/libcusolverMg.so.11""",
    ),
    "the root": (
        SHARED,
        """usr/lib/gcc/x86_64-linux-gnu/12/cc1plus usr/lib/x86_64-linux-gnu/libc_nonshared.a
        usr/local/cuda/targets/x86_64-linux/lib/libcudart_static.a usr/local/cuda/bin/nvcc""",
        """usr/share/doc/g++/copyright usr/local/cuda-12.1/targets/x86_64-linux/lib/libcublas_static.a
        var/cache/apt/pkgcache.bin opt/installer/uv""",
    ),
    "packages": (
        dict.fromkeys(LEFT_OUT, ""),
        "numpy/core.py uvloop/loop.py numpy-2.0.dist-info/METADATA",
        "bin/f2py numpy/tests/test.py numpy/core.pyi uv/__init__.py uv-0.9.dist-info/METADATA",
    ),
}


@pytest.mark.parametrize(
    "operators, source, kept",
    [
        (["aten::matmul", "aten::scaled_dot_product_attention", "aten::linalg_vector_norm"], "import torch", set()),
        (["aten::conv3d"], "", {"cudnn"}),
        (["aten::lstm"], "", {"cudnn"}),
        (["aten::lstm_something"], "", set()),
        (["aten::fft_rfft"], "", {"fft"}),
        (["aten::linalg_qr"], "", {"linalg"}),
        ([], "    import triton\n", {"triton"}),
        ([], "from tritonclient import x", set()),
        ([], "model = torch.compile(Model())", {"triton"}),
    ],
)
def test_what_an_operator_needs_is_kept(operators: list[str], source: str, kept: set[str]) -> None:
    assert set(components_of(operators, [source])) == kept


def test_what_is_kept_keeps_what_it_calls() -> None:
    assert with_needed(["linalg"]) == ("linalg", "sparse")
    assert not any("triton" in pattern for pattern in left_out(["triton"]))


@pytest.mark.parametrize("what", SLIMMED)
def test_what_building_and_attention_need_is_kept(tmp_path: Path, what: str) -> None:
    patterns, *named = SLIMMED[what]
    kept, dropped = (set(words.replace("SITE", SITE).split()) for words in named)
    fill(tmp_path, *kept, *dropped)
    removed = leave_out(tmp_path, patterns)
    assert files(tmp_path) == kept
    assert sum(removed.values()) == 10 * len(dropped) and set(removed) <= set(patterns)
    assert not (tmp_path / SITE / "triton").exists(), "no empty folder that could be imported"


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "noise").write_bytes(b"other"),
        lambda root: (root / "bin" / "program").chmod(0o644),
        lambda root: (root / "noise").rename(root / "noisy"),
        lambda root: (root / "empty").rmdir(),
        lambda root: ((root / "bin" / "python").unlink(), (root / "bin" / "python").symlink_to("elsewhere")),
        lambda root: ((root / "bin" / "python").unlink(), (root / "bin" / "python").write_text("/usr/bin/python3.11")),
    ],
)
def test_a_tree_s_digest_sees_every_change(tmp_path: Path, change) -> None:  # type: ignore[no-untyped-def]
    root = tree(tmp_path / "tree", "x")
    before = measure({"": root})
    os.utime(root / "noise", (1, 1))
    (root / "noise").chmod(0o600)
    assert measure({"": root}).sha256 == before.sha256, "neither times nor who may read"
    change(root)
    assert measure({"": root}).sha256 != before.sha256


def test_what_is_no_file_folder_or_link_is_not_packed(tmp_path: Path) -> None:
    fill(tmp_path, "a/file")
    os.mkfifo(tmp_path / "a" / "pipe")
    assert [entry.name for entry in entries(tmp_path)] == ["", "a", "a/file"]


def test_links_are_followed_inside_a_root(tmp_path: Path) -> None:
    fill(tmp_path, "usr/lib/ld.so")
    (tmp_path / "lib").symlink_to("usr/lib")
    (tmp_path / "lib64").symlink_to("/lib/../lib")
    (tmp_path / "up").symlink_to("../../../..")
    (tmp_path / "round").symlink_to("round")
    assert resolve(tmp_path, "/lib64/ld.so") == tmp_path / "usr" / "lib" / "ld.so"
    assert resolve(tmp_path, "/up/lib") == tmp_path / "usr" / "lib"
    with pytest.raises(OSError, match="links without end"):
        resolve(tmp_path, "/round")


def test_python_is_started_by_the_root_s_own_loader(tmp_path: Path) -> None:
    fill(tmp_path, "usr/lib/x86_64-linux-gnu/ld-2.36.so", "usr/bin/python3.11")
    (tmp_path / "usr" / "lib64").mkdir()
    (tmp_path / "usr" / "lib64" / "ld-linux-x86-64.so.2").symlink_to("/usr/lib/x86_64-linux-gnu/ld-2.36.so")
    (tmp_path / "lib64").symlink_to("usr/lib64")
    (tmp_path / "usr" / "bin" / "python3").symlink_to("python3.11")
    write_launchers(tmp_path, tmp_path, "/usr/bin/python3")
    text = (tmp_path / "python").read_text()
    assert '"$here/root/usr/lib/x86_64-linux-gnu/ld-2.36.so" --library-path' in text
    assert '"$here/root/usr/bin/python3.11" "$@"' in text
    assert (tmp_path / "lib").readlink() == Path("root/usr/lib")
    with pytest.raises(InfrastructureError, match=r"the image has no /opt/python/bin/python3\.12"):
        write_launchers(tmp_path, tmp_path, "/opt/python/bin/python3.12")


@pytest.mark.process
@pytest.mark.parametrize(
    ("given", "started"),
    [
        (["matrix", "--quick"], ["-m", "harness", "matrix", "--quick", "--executor", "bundle", "--bundle", "HERE"]),
        (["matrix", "--executor=venv"], ["-m", "harness", "matrix", "--executor=venv"]),
        (["matrix", "--executor", "venv"], ["-m", "harness", "matrix", "--executor", "venv"]),
        (["fault_cases"], ["-m", "tests.fault_cases", "--executor", "bundle", "--bundle", "HERE"]),
        (["reports", "a b"], ["-m", "harness", "report", "a b"]),
        (["doctor"], ["-m", "harness", "doctor"]),
    ],
)
def test_run_names_the_bundle(tmp_path: Path, given: list[str], started: list[str]) -> None:
    folder, checkout = tmp_path / "a bundle", tmp_path / "checkout"
    folder.mkdir()
    fill(checkout, "harness/isolate/bundle/launchers.py")
    (folder / "run").write_text(RUN)
    (folder / "python").write_text('#!/bin/sh\nfor word; do echo "$word"; done\n')
    (folder / "python").chmod(0o755)
    done = subprocess.run(["sh", folder / "run", *given], cwd=checkout, capture_output=True, text=True)
    assert done.stdout.splitlines() == [str(folder) if word == "HERE" else word for word in started]
    outside = subprocess.run(["sh", folder / "run", *given], cwd=tmp_path, capture_output=True, text=True)
    flag, code, verb, *options = outside.stdout.splitlines()
    assert flag == "-c" and "from kernel_matrix import main" in code, "any other project runs the bundle's copy"
    if started[1] == "harness":
        assert [verb, *options] == [str(folder) if word == "HERE" else word for word in started[2:]]


@pytest.mark.process
def test_the_tool_is_copied_as_the_wheel_installs_it(tmp_path: Path) -> None:
    copy_tool(tmp_path)
    package = tmp_path / "kernel_matrix"
    there = {path.relative_to(package).as_posix() for path in package.rglob("*") if path.is_file()}
    assert there >= {"__init__.py", "harness/cli/main.py", "reports/model.py", "reports/render/templates/page.js"}
    assert there >= {"csrc/attention.h", "docker/Dockerfile"}
    assert not any(name.startswith("reports/records") or "__pycache__" in name for name in there)
    code = "import sys; from kernel_matrix import main; sys.argv = ['kernel-matrix', '--help']; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert "run every environment of matrix.yaml" in done.stdout, done.stderr


@pytest.mark.process
def test_tools_start_with_what_they_bring(tmp_path: Path) -> None:
    if shutil.which("zstd") is None:
        pytest.skip("no zstd here: apt-get install zstd")
    pack_tools(tmp_path / "tools.tar")
    with tarfile.open(tmp_path / "tools.tar") as tar:
        tar.extractall(tmp_path / "there", filter="data")
    there = tmp_path / "there"
    assert {name for name in libraries(there / "bin" / "zstd")} <= {path.name for path in (there / "lib").iterdir()}
    command = [there / "loader", "--library-path", there / "lib", there / "bin" / "sha256sum"]
    done = subprocess.run(command, input=b"", capture_output=True, env={})
    assert done.stdout.startswith(b"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")


@pytest.mark.process
def test_what_the_packing_machine_lacks_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "script").write_text("no program")
    with pytest.raises(InfrastructureError, match="its libraries cannot be listed"):
        libraries(tmp_path / "script")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfrastructureError, match="zstd is not on this machine") as caught:
        find_program("zstd")
    assert caught.value.remedy == "apt-get install zstd"


@pytest.mark.process
def test_parts_have_the_size_that_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    root = tree(tmp_path / "tree", "x")
    packed = pack_archive("a", {"": root}, tmp_path / "out", {}, part_bytes=100_000, level=1)
    archive, parts, _ = packed
    assert [part.bytes for part in parts[:-1]] == [100_000] * (len(parts) - 1) and 0 < parts[-1].bytes <= 100_000
    assert archive.packed_bytes == sum((tmp_path / "out" / part.name).stat().st_size for part in parts)
    again = tmp_path / "again"
    again.mkdir()
    assert pack_archive("a", {"": root}, again, {}, part_bytes=100_000, level=1) == packed, "the same bytes"


@pytest.mark.process
@pytest.mark.parametrize("program", ["exec false", "head -c 1000 >/dev/null; kill -9 $$"])
def test_a_compressor_that_dies_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    (tmp_path / "zstd").write_text(f"#!/bin/sh\n{program}\n")
    (tmp_path / "zstd").chmod(0o755)
    monkeypatch.setattr(archiving, "find_program", lambda name: tmp_path / name)
    (tmp_path / "out").mkdir()
    with pytest.raises(InfrastructureError, match="zstd exited with"):
        pack_archive("a", {"": tree(tmp_path / "tree", "x")}, tmp_path / "out", {}, part_bytes=100, level=1)


@pytest.mark.process
def test_a_full_disk_ends_packing(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.tar.zst.0000").symlink_to("/dev/full")
    with pytest.raises(InfrastructureError, match="No space left"):
        pack_archive("a", {"": tree(tmp_path / "tree", "x")}, tmp_path / "out", {}, part_bytes=10**9, level=1)
