"""Which package index an environment's wheels come from: the one asked for, or, loudly, the fallback."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from typing import Any

from harness.config.matrix import Matrix
from harness.errors import InfrastructureError
from harness.tools import cache_folder, cache_lock
from harness.worker import protocol

PROBE_TIMEOUT_S = 4.0
PROBE_REMEMBERED_S = 600.0


def page_url(index: str, package: str = "torch") -> str:
    return f"{index.rstrip('/')}/{package}/"


def open_page(index: str, timeout_s: float, package: str = "torch") -> Any:
    """What the index answers to who asks for a package, as HTML: every index has that form (PEP 503)."""
    headers = {"User-Agent": "kernel-matrix", "Accept": "text/html"}
    return urllib.request.urlopen(urllib.request.Request(page_url(index, package), headers=headers), timeout=timeout_s)


def probe_index(index: str) -> str:
    """'' where the index lists torch, else why it cannot be used. Takes at most `PROBE_TIMEOUT_S`."""
    try:
        with open_page(index, PROBE_TIMEOUT_S):
            return ""
    except urllib.error.HTTPError as error:
        return f"{page_url(index)} answered {error.code}"
    except (OSError, ValueError) as error:
        return f"{page_url(index)} cannot be reached: {in_words(error)}"


def in_words(error: Exception) -> str:
    """Why there was no answer, without an error's number."""
    reason = getattr(error, "reason", None) or error
    return str(getattr(reason, "strerror", None) or reason)


def remembered_probe(index: str) -> str:
    """`probe_index`, whose answer is remembered for ten minutes in a file, so that an unchanged run asks nobody."""
    path = cache_folder() / "probes.json"
    try:
        known = json.loads(path.read_text())
        answer, when = known[index]
        if 0 <= time.time() - float(when) < PROBE_REMEMBERED_S:
            return str(answer)
    except (OSError, ValueError, KeyError, TypeError):
        known = {}
    answer = probe_index(index)
    known[index] = [answer, time.time()]
    with cache_lock(path.parent, path.name):
        for part in path.parent.glob(".*.part"):  # of one that was killed here
            part.unlink()
        protocol.write_json(str(path), known)
    return answer


def choose_indexes(matrix: Matrix, *, strict: bool) -> tuple[dict[str, str], dict[str, str]]:
    """(`Environment.id()` to the index in use, and to why it is the fallback, where it is). Where one falls back, all
    whose index is as unreachable do: environments from two sources would differ in more than their version.

    InfrastructureError where no index is left.
    """
    indexes, reasons = {}, {}
    for environment in matrix.pinned_environments:
        id, index = environment.id(), environment.wheel_index
        if problem := remembered_probe(index):
            if strict or environment.fallback_index is None:
                refused = " (--strict refuses the fallback)" if strict else ""
                raise InfrastructureError(
                    f"{id}: {problem}{refused}",
                    "check the network or a proxy (HTTPS_PROXY), or name a mirror as `index` in matrix.yaml",
                )
            index, reasons[id] = environment.fallback_index, problem
        indexes[id] = index
    return indexes, reasons
