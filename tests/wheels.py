"""Wheels that tests make themselves."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def write_wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, str],
    tag: str = "py3-none-any",
    requires: Sequence[str] = (),
) -> Path:
    """Write a wheel of these files, which pip and uv install. `files`: texts by their paths in it."""
    asked = "".join(f"Requires-Dist: {each}\n" for each in requires)
    info = f"{name}-{version}.dist-info"
    texts = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{asked}",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    lines = []
    for path, text in texts.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(text.encode())}\n")
    texts[f"{info}/RECORD"] = "".join([*lines, f"{info}/RECORD,,\n"])
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for path, text in texts.items():
            archive.writestr(path, text)
    return file
