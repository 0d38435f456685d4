"""The commands that a report hands out. Names in them came from records, so each is quoted for the shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence


def _filters(kernel: str | None, workload: str | None, device: str | None) -> list[str]:
    given = {"--kernel": kernel, "--workload": workload, "--device": device}
    return [part for option, value in given.items() if value is not None for part in (option, shlex.quote(value))]


PLACE = ("--executor", "--base-image", "--bundle", "--problems", "--solutions", "--sample", "--dtype")


def place_options(command: Sequence[str]) -> list[str]:
    """The options of a run's command that say what its kernels are, unless matrix.yaml does, and where its cells ran:
    what reproduces it must take the same."""
    kept: list[str] = []
    for word, following in zip(command, [*command[1:], ""], strict=True):
        if word in PLACE:
            kept += [word, shlex.quote(following)]
        elif word.startswith(tuple(f"{option}=" for option in PLACE)):
            kept.append(shlex.quote(word))
    return kept


def matrix_command(
    place: Sequence[str] = (), kernel: str | None = None, workload: str | None = None, device: str | None = None
) -> str:
    options = [*_filters(kernel, workload, device), *place]
    return " ".join(["nox -s matrix", *(["--", *options] if options else [])])


def eval_command(place: Sequence[str], torch: str, kernel: str | None, workload: str | None, device: str | None) -> str:
    session = f"eval(torch='{torch}')"
    # Double quotes read better, and are safe for what a version may hold.
    quoted = f'"{session}"' if re.fullmatch(r"[\w.+-]+", torch) else shlex.quote(session)
    return " ".join(["nox -s", quoted, "--", *_filters(kernel, workload, device), *place])
