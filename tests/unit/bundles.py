"""A small bundle, packed and unpacked by the real programs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from harness.isolate.bundle.archive import pack_archive
from harness.isolate.bundle.launchers import pack_tools
from harness.isolate.bundle.manifest import CONTENTS, MANIFEST, SHARED, BundleManifest, render_contents
from harness.isolate.bundle.pack import UNPACK
from harness.worker import protocol

ENVIRONMENTS = ("torch2.1.0-pypi-py311", "torch2.5.0-pypi-py311")
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
    (folder / "empty").mkdir()
    (folder / "noise").write_bytes(os.urandom(250_000))
    (folder / ("long-" * 40)).mkdir()
    (folder / ("long-" * 40) / ("name-" * 30)).write_text(text)
    return folder


def manifest(**changes: Any) -> dict[str, Any]:
    entry = {
        "torch": "2.5.0+cu124",
        "cuda": "12.4",
        "python": "3.11.2",
        "index": "https://pypi.org/simple",
        "key": "1" * 64,
        "image": "sha256:" + "2" * 64,
        "base_image": "base:1",
        "pins_sha256": "3" * 64,
        "removed": {},
        "blanked": {},
        "proof": PROOF,
    }
    return {
        "schema_version": 1,
        "created_utc": "2026-01-01T00:00:00+00:00",
        "machine": "x86_64",
        "architecture": "90",
        "least_driver": "525.60.13",
        "removed": {},
        "packages": {},
        "parts": [],
        "archives": {},
        "environments": dict.fromkeys(ENVIRONMENTS, entry),
        **changes,
    }


def write(out: Path, value: dict[str, Any]) -> BundleManifest:
    """manifest.json and contents.txt."""
    model = BundleManifest.model_validate(value)
    protocol.write_json(str(out / MANIFEST), model.model_dump())
    (out / CONTENTS).write_text(render_contents(model, protocol.sha256_file(str(out / MANIFEST))))
    return model


def make_bundle(out: Path, work: Path) -> BundleManifest:
    """A whole bundle of two environments, several parts each."""
    out.mkdir()
    (work / "run").parent.mkdir(parents=True, exist_ok=True)
    for name in ("python", "run"):
        (work / name).write_text("#!/bin/sh\n")
        (work / name).chmod(0o755)
    shared = {
        "root": tree(work / "root", "root"),
        "packages": tree(work / "packages", "packages"),
        "python": work / "python",
        "run": work / "run",
    }
    parts, archives = [], {}
    for name, trees in ((SHARED, shared), *((id, {"": tree(work / id, id)}) for id in ENVIRONMENTS)):
        archives[name], written = pack_archive(name, trees, out, part_bytes=100_000, level=1)
        parts += written
    pack_tools(out / "tools.tar")
    (out / UNPACK.name).write_bytes(UNPACK.read_bytes())
    return write(
        out,
        manifest(
            parts=[part.model_dump() for part in parts],
            archives={name: archive.model_dump() for name, archive in archives.items()},
        ),
    )


def unpack(
    out: Path, *arguments: object, programs: Path | None = None, shell: str = "sh", **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run unpack.sh; `programs` is a folder whose programs come first."""
    path = f"{programs}{os.pathsep}{os.environ['PATH']}" if programs else os.environ["PATH"]
    command = [*shell.split(), str(out / UNPACK.name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env={"PATH": path}, **options)
