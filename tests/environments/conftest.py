"""The pinned environments of matrix.yaml, made on first use in the user's cache, for tests that need real PyTorch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.config.environments import PYPI
from harness.config.matrix import load_matrix
from harness.config.pins import ensure_pins
from harness.config.plan import PlannedEnvironment
from harness.isolate.venv import VenvExecutor
from harness.tools import cache_folder
from tests.conftest import ROOT
from tests.environments.verbs import Environment, stage

VARIABLE = "HARNESS_TEST_ENVIRONMENTS"


@pytest.fixture(scope="session")
def pinned_pythons() -> list[Path]:
    """Interpreters that HARNESS_TEST_ENVIRONMENTS names, separated by colons; else those of matrix.yaml, from PyPI."""
    named = [Path(name) for name in os.environ.get(VARIABLE, "").split(":") if name]
    if named:
        return named
    matrix, _ = load_matrix(ROOT / "matrix.yaml")
    executor = VenvExecutor(cache_folder(), threads=2)
    pythons = []
    for spec in matrix.environments:
        environment = PlannedEnvironment(id=spec.id(PYPI), spec=spec, index=PYPI)
        record = executor.prepare(environment, ensure_pins(ROOT, environment, matrix)[0])
        assert record.status == "ok", record.message
        pythons.append(executor.folder(record) / "venv" / "bin" / "python")
    return pythons


@pytest.fixture(scope="module")
def environments(pinned_pythons: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Environment]]:
    yield [stage(python, tmp_path_factory.mktemp(f"environment{i}")) for i, python in enumerate(pinned_pythons)]
