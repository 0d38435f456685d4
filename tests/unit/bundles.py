"""Bundles: a small one, packed and unpacked by the real programs, and unpacked ones that are made up."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from harness.config.environments import PYPI
from harness.isolate import namespaces
from harness.isolate.bundle.archive import Tally, pack_archive
from harness.isolate.bundle.launchers import LAUNCHERS, pack_tools
from harness.isolate.bundle.manifest import (
    COMPLETE,
    CONTENTS,
    MANIFEST,
    SHARED,
    Archive,
    BundleManifest,
    Part,
    render_contents,
)
from harness.isolate.bundle.pack import UNPACK
from harness.isolate.namespaces import Namespaces
from harness.worker import protocol

ENVIRONMENTS = ("torch2.1.0-pypi-py311", "torch2.5.0-pypi-py311")
ID = ENVIRONMENTS[1]
CHANGED = f"{ID}-triton-3.2.0"  # packed as the difference to ID
CHAINED = f"{ID}-triton-3.3.0"  # packed as the difference to CHANGED
ALL = Namespaces(rootless=False, granted=namespaces.OPTIONAL)
PROOF = {
    "digests": {"cpu/matmul/fp32": "a" * 64, "cuda/matmul/fp16": "b" * 64},
    "unsupported": {"cpu/cudnn/fp32": "it has none"},
    "libraries": ["torch/lib/libtorch.so"],
    "machine": {"cpu_model": "one", "fma": True, "gpu": "", "driver": ""},
}


def tree(folder: Path, text: str) -> Path:
    """Programs, links, an empty folder, a long name, and bytes that do not compress."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "program").write_text(f"#!/bin/sh\necho {text}\n")
    (folder / "bin" / "program").chmod(0o755)
    (folder / "bin" / "python").symlink_to("/usr/bin/python3.11")
    (folder / "plain file").write_text(text)
    (folder / "package" / "__pycache__").mkdir(parents=True)
    for name, source in {"same": "a = 1", "changed": "b = 2"}.items():
        (folder / "package" / f"{name}.py").write_text(source)
        (folder / "package" / "__pycache__" / f"{name}.cpython-311.pyc").write_text(f"of {source}")
    (folder / "empty").mkdir()
    (folder / "noise").write_bytes(os.urandom(250_000))
    (folder / ("long-" * 40)).mkdir()
    (folder / ("long-" * 40) / ("name-" * 30)).write_text(text)
    return folder


def entry(**changes: Any) -> dict[str, Any]:
    """An environment of the manifest."""
    return {
        "torch": "2.5.0+cu124",
        "cuda": "12.4",
        "python": "3.11.2",
        "index": PYPI,
        "key": "1" * 64,
        "image": "sha256:1",
        "base_image": "base:1",
        "pins_sha256": "3" * 64,
        "removed": {"triton": 1 << 20},
        "blanked": {"libcudnn.so": 5 << 20},
        "proof": PROOF,
        **changes,
    }


def manifest(**changes: Any) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "created_utc": "2026-01-02T03:04:05Z",
        "machine": "x86_64",
        "architecture": "90",
        "least_driver": "525.60.13",
        "removed": {"usr/share/doc": 3 << 20},
        "packages": {},
        "parts": [],
        "archives": {},
        "environments": {ID: entry()},
        **changes,
    }


def save_unpacked(folder: Path, value: dict[str, Any]) -> None:
    """manifest.json, and the mark of a bundle that was unpacked whole."""
    protocol.write_json(str(folder / MANIFEST), value)
    digest = protocol.sha256_file(str(folder / MANIFEST))
    complete = {"manifest_sha256": digest, "environments": list(value.get("environments", ()))}
    protocol.write_json(str(folder / COMPLETE), complete)


def make_unpacked(folder: Path, **changes: Any) -> Path:
    """What unpack.sh leaves, with no file but those that the harness reads."""
    value = manifest(**changes)
    (folder / "root").mkdir(parents=True)
    (folder / "python").write_text("")
    for id in value["environments"]:
        site = folder / "environments" / id / "lib" / "python3.11" / "site-packages"
        (site / "nvidia" / "cuda_nvrtc" / "lib").mkdir(parents=True)
    save_unpacked(folder, value)
    return folder


def change(folder: Path) -> Path:
    """Make of a tree one that differs in every way; bytecode that names another time, of a source that is the same."""
    (folder / "bin" / "program").write_text(f"#!/bin/sh\necho {CHANGED}\n")
    (folder / "bin" / "python").unlink()
    (folder / "bin" / "python").symlink_to("/usr/bin/python3.12")
    (folder / "plain file").chmod(0o755)
    (folder / "empty").rmdir()
    (folder / "empty").write_text("a file now")
    (folder / "package" / "__pycache__" / "same.cpython-311.pyc").write_text("of another time")
    (folder / "package" / "changed.py").write_text("b = 3")
    (folder / "package" / "__pycache__" / "changed.cpython-311.pyc").write_text("of b = 3")
    shutil.rmtree(folder / ("long-" * 40))
    (folder / "new folder").mkdir()
    (folder / "new folder" / "new file").write_text("new")
    return folder


def make_bundle(out: Path, work: Path) -> BundleManifest:
    """A bundle of two whole environments, several parts each, a difference to the second, and one to that."""
    out.mkdir()
    (work / "run").parent.mkdir(parents=True, exist_ok=True)
    for name in ("python", "run"):
        (work / name).write_text("#!/bin/sh\n")
        (work / name).chmod(0o755)
    (work / "lib").symlink_to("root/lib")
    shared = {name: tree(work / name, name) for name in ("root", "packages")}
    shared |= {name: work / name for name in LAUNCHERS}
    trees = {SHARED: shared, **{id: {"": tree(work / id, id)} for id in ENVIRONMENTS}}
    trees[CHANGED] = {"": change(Path(shutil.copytree(work / ID, work / CHANGED, symlinks=True)))}
    trees[CHAINED] = {"": Path(shutil.copytree(work / CHANGED, work / CHAINED, symlinks=True))}
    (work / CHAINED / "new folder" / "new file").write_text("newer")
    parts: list[Part] = []
    archives: dict[str, Archive] = {}
    tallies: dict[str, Tally] = {}
    for name, packed in trees.items():
        archives[name], written, tallies[name] = pack_archive(name, packed, out, tallies, part_bytes=100_000, level=1)
        parts += written
    pack_tools(out / "tools.tar")
    (out / UNPACK.name).write_bytes(UNPACK.read_bytes())
    value = manifest(
        parts=[part.model_dump() for part in parts],
        archives={name: archive.model_dump() for name, archive in archives.items()},
        environments=dict.fromkeys([*ENVIRONMENTS, CHANGED, CHAINED], entry()),
    )
    model = BundleManifest.model_validate(value)
    protocol.write_json(str(out / MANIFEST), model.model_dump())
    (out / CONTENTS).write_text(render_contents(model, protocol.sha256_file(str(out / MANIFEST))))
    return model


def unpack(
    out: Path, *arguments: object, programs: Path | None = None, shell: str = "sh", **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run unpack.sh; `programs` is a folder whose programs come first."""
    path = f"{programs}{os.pathsep}{os.environ['PATH']}" if programs else os.environ["PATH"]
    command = [*shell.split(), str(out / UNPACK.name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env={"PATH": path}, **options)
