"""The commands that a report hands out. Names in them came from records, so each is quoted for the shell."""

from __future__ import annotations

import re
import shlex


def _filters(kernel: str | None, workload: str | None, device: str | None) -> list[str]:
    given = {"--kernel": kernel, "--workload": workload, "--device": device}
    return [part for option, value in given.items() if value is not None for part in (option, shlex.quote(value))]


def matrix_command(
    kernel: str | None = None, workload: str | None = None, device: str | None = None, *extra: str
) -> str:
    options = [*_filters(kernel, workload, device), *extra]
    return " ".join(["nox -s matrix", *(["--", *options] if options else [])])


def eval_command(torch: str, kernel: str | None, workload: str | None, device: str | None) -> str:
    session = f"eval(torch='{torch}')"
    # Double quotes read better, and are safe for what a version may hold.
    quoted = f'"{session}"' if re.fullmatch(r"[\w.+-]+", torch) else shlex.quote(session)
    return " ".join(["nox -s", quoted, "--", *_filters(kernel, workload, device)])
