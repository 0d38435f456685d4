"""How a report's files are written: each whole or not at all."""

from __future__ import annotations

from pathlib import Path

from harness.errors import InputError
from harness.worker import protocol


def write_file(path: Path, text: str, remedy: str) -> None:
    """InputError with `remedy` where it cannot be written."""
    try:
        # A lone surrogate in a record has no bytes in UTF-8.
        protocol.write_atomically(str(path), text.encode("utf-8", "replace"))
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}", remedy) from None
