"""Files that come with the harness, and that a project need not hold: below csrc/ the C interface, its binding, the
kernels and the probes, and below docker/ the recipe of images and the pins of the usual environments.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
CSRC = ROOT / "csrc"


def located(root: Path, name: str) -> Path:
    """Where a file lies that is named relative to matrix.yaml, whose folder is `root`: in that project, or, of what is
    shipped below csrc/ and not in the project, in the installation. It need not exist."""
    own = root / name
    return ROOT / name if name.startswith("csrc/") and not own.is_file() and (ROOT / name).is_file() else own


def name_of(root: Path, path: Path) -> str | None:
    """The reverse of `located`; None for a file that is neither the project's nor shipped below csrc/."""
    if path.is_relative_to(root):
        return str(path.relative_to(root))
    return str(path.relative_to(ROOT)) if path.is_relative_to(CSRC) else None


def include_folders(root: Path) -> list[Path]:
    """The folders that are on every include path, the project's first."""
    return list(dict.fromkeys(folder for folder in (root / "csrc", CSRC) if folder.is_dir()))
