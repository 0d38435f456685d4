"""`kernel_matrix`, as it is installed: the folders of the repository lie below it, so that site-packages gets no
`harness` and no `reports`. In the wheel this file is `kernel_matrix/__init__.py`."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> int:
    """The command `kernel-matrix`; its exit code."""
    sys.path.insert(0, str(Path(__file__).parent))
    from harness.cli.main import main as run

    return run()
