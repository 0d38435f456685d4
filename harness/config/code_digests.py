"""The harness's own code as an input of records: `harness.config.keys.CODE`, as digests."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable
from pathlib import Path

from harness.config.keys import CODE
from harness.worker import protocol
from harness.worker.__main__ import MODULES

HARNESS = Path(__file__).parents[1]
ALWAYS = ("__init__", "__main__", "protocol")  # what any task starts with


def code_digests(harness: Path = HARNESS) -> dict[str, str]:
    """Kind of record to the digest of the code that makes it."""
    return {kind: protocol.digest([_named(harness, p) for p in files_of(kind, harness)]) for kind in CODE}


def files_of(kind: str, harness: Path = HARNESS) -> list[Path]:
    tasks, files = CODE[kind]
    modules = [harness / "worker" / f"{name}.py" for name in sorted(imported(tasks, harness / "worker"))]
    return [*modules, *(harness.parent / name if name.startswith("csrc/") else harness / name for name in files)]


def _named(harness: Path, path: Path) -> list[str]:
    return [path.relative_to(harness.parent).as_posix(), protocol.sha256_file(str(path)) if path.exists() else ""]


def imported(tasks: Iterable[str], worker: Path) -> set[str]:
    """The modules of `harness/worker` that these tasks import, at once or later, directly or not.

    They import each other relatively and by name alone, which `tests.unit.test_keys` makes sure of.
    """
    found, left = set[str](), [*ALWAYS, *(MODULES[task] for task in tasks)]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += imports_of((worker / f"{name}.py").read_text(encoding="utf-8"))
    return found


@functools.cache
def imports_of(source: str) -> tuple[str, ...]:
    """Sibling modules that a module's text imports, wherever in it that stands."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom) and node.level == 1]
    return tuple(name for node in nodes for name in ([node.module] if node.module else [a.name for a in node.names]))
