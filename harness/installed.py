"""`kernel_matrix`, as it is installed: the folders of the repository lie below it, so that site-packages gets no
`harness` and no `reports`. In the wheel this file is `kernel_matrix/__init__.py`.

The code imports itself as `harness` and `reports`, in a checkout and here. Here these two names lead into this folder,
whatever else of those names a project has in its working directory or on PYTHONPATH.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

NAMES = ("harness", "reports")


class Here(MetaPathFinder):
    """Finds the two in this folder, and nothing else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return PathFinder.find_spec(fullname, [str(Path(__file__).parent)]) if fullname in NAMES else None


def main() -> int:
    """The command `kernel-matrix`; its exit code."""
    for name in list(sys.modules):  # of a project's own, which something at start-up imported
        if name.partition(".")[0] in NAMES:
            del sys.modules[name]
    sys.meta_path.insert(0, Here())
    from harness.cli.main import start

    return start()
