"""What disturbed runs are compared with."""

from __future__ import annotations

import pytest

from tests.faults.scripted import Scripted


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Scripted:
    """A project with one finished run."""
    scripted = Scripted(tmp_path_factory.mktemp("undisturbed"))
    scripted.done()
    return scripted
