"""An unpacked bundle, made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.config.environments import PYPI
from harness.isolate.bundle import namespaces
from harness.isolate.bundle.manifest import BundledEnvironment, BundleManifest, Machine, Proof
from harness.isolate.bundle.namespaces import Namespaces
from harness.worker import protocol

ID = "torch2.5.0-pypi-py311"
ALL = Namespaces(rootless=False, granted=namespaces.OPTIONAL)
MACHINE = Machine(cpu_model="x", fma=True)
DIGEST = "d" * 64


def entry(**changes: Any) -> BundledEnvironment:
    values: dict[str, Any] = {
        "torch": "2.5.0+cu124", "cuda": "12.4", "python": "3.11.2", "index": PYPI, "key": "0" * 64,
        "image": "sha256:1", "base_image": "base:1", "pins_sha256": "0" * 64, "removed": {"triton": 1 << 20},
        "blanked": {"libcudnn.so": 5 << 20},
        "proof": Proof(digests={"cpu/matmul/fp32": DIGEST}, libraries=[], machine=MACHINE),
    }  # fmt: skip
    return BundledEnvironment(**{**values, **changes})


def make_bundle(folder: Path, **changes: Any) -> Path:
    """An unpacked bundle of one environment, with no file in it but those that the harness reads."""
    values: dict[str, Any] = {
        "created_utc": "2026-01-02T03:04:05Z", "machine": "x86_64", "architecture": "90", "least_driver": "525.60.13",
        "removed": {"usr/share/doc": 3 << 20}, "packages": {}, "parts": [], "archives": {},
        "environments": {ID: entry()},
    }  # fmt: skip
    manifest = BundleManifest(**{**values, **changes})
    (folder / "root" / "usr" / "bin").mkdir(parents=True)
    (folder / "root" / "usr" / "bin" / "python3.11").write_text("")
    for id in manifest.environments:
        place = folder / "environments" / id
        (place / "bin").mkdir(parents=True)
        (place / "bin" / "python").symlink_to("/usr/bin/python3.11")
        (place / "lib" / "python3.11" / "site-packages" / "nvidia" / "cuda_nvrtc" / "lib").mkdir(parents=True)
    data = manifest.model_dump_json().encode()
    (folder / "manifest.json").write_bytes(data)
    digest = protocol.sha256_file(str(folder / "manifest.json"))
    (folder / "complete.json").write_text(
        json.dumps({"manifest_sha256": digest, "environments": list(manifest.environments)})
    )
    return folder
