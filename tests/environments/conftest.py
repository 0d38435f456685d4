"""The pinned environments' interpreters, for tests that need real PyTorch versions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

VARIABLE = "HARNESS_TEST_ENVIRONMENTS"


@pytest.fixture(scope="session")
def pinned_pythons() -> list[Path]:
    """Interpreters that HARNESS_TEST_ENVIRONMENTS names, separated by colons."""
    names = [name for name in os.environ.get(VARIABLE, "").split(":") if name]
    if not names:
        pytest.skip(f"{VARIABLE} is unset: it lists the interpreters of pinned environments, separated by colons")
    missing = [name for name in names if not Path(name).exists()]
    assert not missing, f"{VARIABLE} names interpreters that do not exist: {missing}"
    return [Path(name) for name in names]
