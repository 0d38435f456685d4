"""The pinned environments of matrix.yaml, made on first use in the user's cache, for tests that need real PyTorch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.environments.pinned import prepare
from tests.environments.verbs import Environment, stage

VARIABLE = "HARNESS_TEST_ENVIRONMENTS"


@pytest.fixture(scope="session")
def pinned_pythons() -> list[Path]:
    """Interpreters that HARNESS_TEST_ENVIRONMENTS names, separated by colons; else those of matrix.yaml, from PyPI."""
    return [Path(name) for name in os.environ.get(VARIABLE, "").split(":") if name] or list(prepare())


@pytest.fixture(scope="module")
def environments(pinned_pythons: list[Path], tmp_path_factory: pytest.TempPathFactory) -> list[Environment]:
    return [stage(python, tmp_path_factory.mktemp(f"environment{i}")) for i, python in enumerate(pinned_pythons)]
