"""Which package index an environment's wheels come from: the one asked for, or, loudly, the fallback."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from pathlib import Path

from harness.config.environments import Environment
from harness.config.matrix import Matrix
from harness.errors import InfrastructureError
from harness.worker import protocol

PROBE_TIMEOUT_S = 4.0
PROBE_REMEMBERED_S = 600.0


def probe_index(index: str) -> str:
    """'' where the index lists torch, else why it cannot be used. Takes at most `PROBE_TIMEOUT_S`."""
    url = index.rstrip("/") + "/torch/"
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "kernel-matrix", "Accept": "text/html"})
        with urllib.request.urlopen(request, timeout=PROBE_TIMEOUT_S):
            return ""
    except urllib.error.HTTPError as error:
        return f"{url} answered {error.code}"
    except (OSError, ValueError) as error:
        return f"{url} cannot be reached: {getattr(error, 'reason', None) or error}"


class Probes:
    """Answers of `probe_index`, remembered for ten minutes in a file, so that an unchanged run asks nobody."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, index: str) -> str:
        try:
            known = json.loads(self.path.read_text())
            answer, when = known[index]
            if 0 <= time.time() - float(when) < PROBE_REMEMBERED_S:
                return str(answer)
        except (OSError, ValueError, KeyError, TypeError):
            known = {}
        answer = probe_index(index)
        known[index] = [answer, time.time()]
        protocol.write_json(str(self.path), known)
        return answer


def choose_index(environment: Environment, probe: Probes, *, strict: bool) -> tuple[str, str]:
    """The index in use, and why where it is the fallback. InfrastructureError where none is left."""
    problem = probe(environment.wheel_index)
    if not problem:
        return environment.wheel_index, ""
    remedy = "check the network or a proxy (HTTPS_PROXY), or name a mirror as `index` in matrix.yaml"
    if strict or environment.fallback_index is None:
        refused = " (--strict refuses the fallback)" if strict else ""
        raise InfrastructureError(f"{environment.id()}: {problem}{refused}", remedy)
    return environment.fallback_index, problem


def choose_indexes(matrix: Matrix, probe: Probes, *, strict: bool) -> tuple[dict[str, str], dict[str, str]]:
    """(`Environment.id()` to index, to the fallback's reason). Where one falls back, all whose index is as
    unreachable do: environments from two sources would differ in more than their version."""
    indexes, reasons = {}, {}
    for environment in matrix.pinned_environments:
        index, reason = choose_index(environment, probe, strict=strict)
        indexes[environment.id()] = index
        if reason:
            reasons[environment.id()] = reason
    return indexes, reasons
