"""The runs that are committed under reports/records, unpacked."""

from __future__ import annotations

import tarfile
from pathlib import Path

RECORDS = Path(__file__).parents[2] / "reports" / "records"


def committed(folder: Path, pattern: str = "*") -> list[Path]:
    """Unpack the archives whose name fits into `folder`; the folders of all runs in them."""
    found = []
    for archive in sorted(RECORDS.rglob(f"{pattern}.tar.xz")):
        with tarfile.open(archive) as packed:
            packed.extractall(folder / archive.name, filter="data")
        found += [path.parent for path in sorted((folder / archive.name).rglob("run.json"))]
    return found
