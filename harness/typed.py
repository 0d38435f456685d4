"""How commands are spelled in messages and on pages: as the user typed theirs, `nox -s X -- ...` or `kernel-matrix X`.

The sessions of a noxfile.py that start `kernel-matrix` set `BY_NOX`; without it no message mentions nox.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

BY_NOX = "KERNEL_MATRIX_BY_NOX"
_SESSION = re.compile(r"\bnox -s (\w+)(?: --(?= ))?")


def by_nox() -> bool:
    """Whether a session of nox started this process."""
    return os.environ.get(BY_NOX) == "1"


def typed_by_nox(command: Sequence[str]) -> bool:
    """Whether a recorded command is a session of nox."""
    return command[:1] == ["nox"] or command[:1] == ("nox",)


def words_of(verb: str, *words: str, nox: bool) -> list[str]:
    """The words of a command; `verb` may be a session with parameters."""
    return ["nox", "-s", verb, *(["--", *words] if words else [])] if nox else ["kernel-matrix", verb, *words]


def typed(verb: str, *words: str) -> str:
    """A command for a message."""
    return " ".join(words_of(verb, *words, nox=by_nox()))


def as_typed(text: str) -> str:
    """A message in which commands are written as sessions of nox, spelled as the user types them."""
    return text if by_nox() else _SESSION.sub(r"kernel-matrix \1", text)


def without_option(command: Sequence[str], name: str) -> list[str]:
    """Return a command without an option and its value."""
    return [
        word
        for before, word in zip(["", *command], command, strict=False)
        if before != name and not word.startswith(name)
    ]
