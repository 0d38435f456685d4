"""Marks on lines of source files in a pull or merge request, as GitHub Actions reads them from what is printed (GitHub
Docs, "Workflow commands for GitHub Actions") and GitLab from a report (GitLab Docs, "Code Quality")."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

LINE = re.compile(r"^(?P<file>.+?):(?P<line>\d+)(:\d+)?$")


def in_actions() -> bool:
    return os.environ.get("GITHUB_ACTIONS") == "true"


def in_gitlab() -> bool:
    return os.environ.get("GITLAB_CI") == "true"


@dataclass(frozen=True)
class Mark:
    """`place`: a file of the project, with or without its line."""

    place: str
    title: str
    text: str
    project: Path

    @property
    def named(self) -> tuple[str, int]:
        """The file, from the top of the checkout, and the line."""
        match = LINE.match(self.place)
        name, line = (match["file"], int(match["line"])) if match else (self.place, 1)
        top = os.environ.get("GITHUB_WORKSPACE") or os.environ.get("CI_PROJECT_DIR") or ""
        return os.path.relpath(self.project.resolve() / name, Path(top).resolve()), line


def for_github(mark: Mark) -> str:
    """One line to print."""
    path, line = mark.named
    fields = f"file={_escaped(path, ':,')},line={line},title={_escaped(mark.title, ':,')}"
    return f"::error {fields}::{_escaped(mark.text)}"


def _escaped(text: str, more: str = "") -> str:
    return "".join(f"%{ord(char):02X}" if char in f"%\r\n{more}" else char for char in text)


def for_gitlab(marks: Iterable[Mark]) -> str:
    """A Code Quality report. A mark whose title and file are those of an earlier pipeline's is the same one."""
    found = []
    for mark in marks:
        path, line = mark.named
        found.append(
            {
                "description": f"{mark.title}\n{mark.text}",
                "check_name": "kernel-matrix",
                "fingerprint": hashlib.sha256(f"{mark.title}\0{path}".encode()).hexdigest(),
                "severity": "major",
                "location": {"path": path, "lines": {"begin": line}},
            }
        )
    return json.dumps(found, indent=1) + "\n"
