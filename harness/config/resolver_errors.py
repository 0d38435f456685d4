"""What it means that uv refuses to resolve an environment: its packages do not fit together, or there is no network."""

from __future__ import annotations

import contextlib
import re

from harness.config.environments import channel
from harness.config.listing import fetch_listing, kept_there
from harness.config.plan import PlannedEnvironment
from harness.errors import HarnessError, InfrastructureError, InputError
from harness.typed import typed

MOST_TOLD = 1000  # characters of what uv says
NOT_FOUND = re.compile(r"No solution found|no version of|was not found|has no (usable )?wheels?")
REMEDY = (
    "correct `torch`, `python` or `packages` in matrix.yaml; numpy, ninja and setuptools need no pin, and an "
    "environment's own `packages` come before what PyTorch asks for; pypi.org/project/torch/#history lists the releases"
)


def explain(environment: PlannedEnvironment, stderr: str) -> Exception:
    """Return the error for uv's complaint about an environment. uv says which package refuses which, and which wheels
    there are instead."""
    said = " ".join(stderr.split())[:MOST_TOLD]
    if NOT_FOUND.search(said):
        torch = f"PyTorch {environment.spec.torch} from {environment.index}"
        kept = ""
        with contextlib.suppress(HarnessError):  # nightlies are removed from an index after some weeks
            if channel(environment.spec.torch):
                kept = kept_there(fetch_listing(environment.index), environment.spec.torch)
        return InputError(
            f"{environment.id}: {torch} and its packages cannot be installed together: {said}",
            f"{kept}; or {REMEDY}" if kept else REMEDY,
        )
    return InfrastructureError(
        f"{environment.id}: uv could not resolve the pins: {said}",
        f"check that the index answers: {typed('doctor')}",
    )
