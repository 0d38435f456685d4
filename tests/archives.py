"""A corpus of small source files, kept as data: many files in one text, each after a line `-- NAME --`.

The form is txtar's (https://pkg.go.dev/golang.org/x/tools/txtar): readable, and a change of one file is a small diff.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

MARKER = re.compile(r"^-- (.+) --\n", re.MULTILINE)
SUFFIX = ".txtar"


def parse_archive(text: str) -> dict[str, str]:
    """Return each file's text by its name, in the order of the archive. ValueError where a name stands twice."""
    parts = MARKER.split(text)
    names, texts = parts[1::2], parts[2::2]
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the archive has two files of the name {repeated}")
    return dict(zip(names, texts, strict=True))


def render_archive(files: Mapping[str, str]) -> str:
    """Return the archive of these files. ValueError where a text has a line that would end it."""
    for name, text in files.items():
        if MARKER.search(text) or not text.endswith("\n"):
            raise ValueError(f"{name} cannot be kept in an archive: it has a marker line, or its last line is open")
    return "".join(f"-- {name} --\n{text}" for name, text in files.items())


def read_archive(path: Path) -> dict[str, str]:
    """Return the files of an archive on disk."""
    return parse_archive(path.read_text(encoding="utf-8"))
