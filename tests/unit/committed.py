"""The runs that are committed under reports/records, packed ones unpacked."""

from __future__ import annotations

import tarfile
from pathlib import Path

RECORDS = Path(__file__).parents[2] / "reports" / "records"


def committed(folder: Path, pattern: str = "*") -> list[Path]:
    """Folders of all runs whose name, or archive's name, fits; archives are unpacked into `folder`."""
    found = [path.parent for path in RECORDS.glob(f"{pattern}/run.json")]
    for archive in sorted(RECORDS.rglob(f"{pattern}.tar.xz")):
        with tarfile.open(archive) as packed:
            packed.extractall(folder / archive.name, filter="data")
        found += [path.parent for path in sorted((folder / archive.name).rglob("run.json"))]
    return found
