"""Markers by folder, and a guard: unit tests start no process and open no connection by accident.

`nox -s tests` runs what is not `slow`, `nox -s tests_all` everything. What is `alone` runs after everything else.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

REAL = {"environments", "container", "gpu", "browser", "process"}
# Needs an engine, a GPU, faults or minutes; single tests elsewhere have the marker in their file.
SLOW = ("cluster", "container", "environments", "faults", "gpu")
FAST = ("environments/test_matrix.py",)
# Slow, and long: what fills disks, compiles many kernels, packs a bundle or runs a corpus.
# `nox -s tests_all -- ci` leaves them out.
HEAVY = (
    "container/test_bundle.py",
    "container/test_bundle_run.py",
    "container/test_compiling.py",
    "environments/test_corpus.py",
    "environments/test_packages.py",
    "environments/test_sweep.py",
    "faults/test_disk.py",
)
# Something beside them would disturb them: they measure time, kill processes, fill disks or count containers.
ALONE = ("container", "environments", "faults", "gpu")
BESIDE_OTHERS = (
    "environments/test_building.py",
    "environments/test_conditions.py",
    "environments/test_experiments.py",
    "environments/test_explain.py",
    "environments/test_host.py",
    "environments/test_hostile.py",
    "environments/test_matrix.py",
    "environments/test_prebuilt.py",
    "environments/test_rule.py",
    "environments/test_run.py",
    "environments/test_trace.py",
    "environments/test_wheel.py",
    "environments/test_worker.py",
    "environments/test_worker_attention.py",
    "environments/test_worker_attention_gradients.py",
    "environments/test_worker_operators.py",
    "environments/test_worker_problems.py",
    "faults/test_edits.py",
    "faults/test_searches.py",
)


with contextlib.suppress(ImportError):  # a GPU's machine may lack it
    from hypothesis import HealthCheck, settings

    # An example that takes long says how busy the machine is.
    settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("untimed")


@pytest.fixture
def root() -> Path:
    """The repository's root."""
    return ROOT


@pytest.fixture(autouse=True)
def nothing_real(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a marker that allows it, a child process or a connection is an error."""
    if REAL & {mark.name for mark in request.node.iter_markers()}:
        return
    monkeypatch.setattr(os, "fsync", lambda _: None)  # no power fails in a unit test, and its folder is nobody's

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("a unit test started a process or opened a connection; mark it if it must")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    # A GPU's machine lacks what these import, and its tests do not come here.
    from harness.executors import choose
    from harness.executors.bwrap import Bwrap
    from harness.executors.engine import EngineGone
    from harness.run import machine

    def find_no_engine() -> None:
        raise EngineGone("there is none in a unit test")

    monkeypatch.setattr(choose, "Engine", find_no_engine)
    every = Bwrap(program="bwrap", rootless=False)
    for module in (choose, machine):  # which try out what this machine grants
        monkeypatch.setattr(module, "grant", lambda: (every, ""))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    gpu = shutil.which("nvidia-smi")
    for item in items:
        file = item.path.relative_to(ROOT / "tests")
        for marker, names, but in (("slow", SLOW, FAST), ("heavy", HEAVY, ()), ("alone", ALONE, BESIDE_OTHERS)):
            if any(file.is_relative_to(name) for name in names) and file.as_posix() not in but:
                item.add_marker(marker)
        if item.get_closest_marker("browser") and not browser:
            item.add_marker(pytest.mark.skip(reason="no Chromium: apt-get install chromium"))
        if item.get_closest_marker("gpu") and not gpu:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU here"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """What has not begun by the time that KERNEL_MATRIX_TESTS_UNTIL names, in seconds since 1970, is skipped."""
    until = float(os.environ.get("KERNEL_MATRIX_TESTS_UNTIL", "inf"))
    if time.time() > until:
        pytest.skip("no time is left for it")
