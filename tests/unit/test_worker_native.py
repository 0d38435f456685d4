"""Machine code that a Python kernel brings along."""

from __future__ import annotations

import ctypes
import ctypes.util
import shutil
import sys
import types
from pathlib import Path

import pytest

from harness.worker import native


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shared object outside of the environment, which nothing has loaded."""
    torch = types.ModuleType("torch")
    torch.__file__ = "/elsewhere/site-packages/torch/__init__.py"
    monkeypatch.setitem(sys.modules, "torch", torch)
    source = next(path for path in native.mapped() if "libm" in Path(path).name and ".so" in path)
    return Path(shutil.copy(source, tmp_path / "own.so"))


def test_what_was_loaded_since_is_told_with_its_code(library: Path) -> None:
    before = native.mapped()
    assert native.brought(before) == {}
    kept = ctypes.CDLL(str(library))
    (first,) = native.brought(before).items()
    assert kept and first[0] == "own.so" and len(first[1]) == 64
    library.unlink()  # as a file that was compiled into a folder that is gone
    assert native.brought(before) == dict([first])


def test_the_environments_own_libraries_are_none(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = native.mapped()
    assert ctypes.CDLL(str(library))
    monkeypatch.setattr(sys.modules["torch"], "__file__", str(library.parent / "torch" / "__init__.py"))
    assert native.brought(before) == {}
