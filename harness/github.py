"""Marks on lines of source files in a pull request, where GitHub Actions runs the command (GitHub Docs, "Workflow
commands for GitHub Actions")."""

from __future__ import annotations

import os
import re
from pathlib import Path

LINE = re.compile(r"^(?P<file>.+?):(?P<line>\d+)(:\d+)?$")


def in_actions() -> bool:
    return os.environ.get("GITHUB_ACTIONS") == "true"


def mark(place: str, title: str, text: str, *, project: Path) -> str:
    """One line to print. `place` is a file of the project, with or without its line; GitHub wants it from the top of
    the checkout."""
    match = LINE.match(place)
    name, line = (match["file"], match["line"]) if match else (place, "1")
    top = Path(os.environ.get("GITHUB_WORKSPACE", "")).resolve()
    path = os.path.relpath(project.resolve() / name, top)
    fields = f"file={_escaped(path, ':,')},line={line},title={_escaped(title, ':,')}"
    return f"::error {fields}::{_escaped(text)}"


def _escaped(text: str, more: str = "") -> str:
    return "".join(f"%{ord(char):02X}" if char in f"%\r\n{more}" else char for char in text)
