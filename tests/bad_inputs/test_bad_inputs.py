"""Every mistake of the tables is answered: what is wrong, where, and what to do."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cli import main
from harness.config import indexes
from harness.config.interpreters import Interpreter
from harness.preflight import Findings, preflight
from harness.run import machine
from tests.bad_inputs.case import MATRIX, Case, faults
from tests.bad_inputs.command_cases import COMMAND_LINE, STARTED_BY_NOX
from tests.bad_inputs.real_cases import CPP, INDEXES, INTERRUPTS, NOX, PYTHON
from tests.bad_inputs.surrounding_cases import ENVIRONMENT, OTHERS, PATHS
from tests.bad_inputs.yaml_cases import YAML
from tests.unit.spec import Spec
from tests.unit.synthetic import write_run

NOBODY = 65534
GROUPS = {
    "yaml": YAML,
    "command line": COMMAND_LINE,
    "started by nox": STARTED_BY_NOX,
    "environment": ENVIRONMENT,
    "paths": PATHS,
    "others": OTHERS,
}


@pytest.fixture
def project() -> Iterator[Path]:
    """A folder that another user may enter too."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        yield folder


def starts_something(case: Case) -> bool:
    """Whether its answer needs a child: a compiler, or a Python that is asked what it is."""
    return case.command.startswith("check") or "KERNEL_MATRIX_HOST_PYTHON" in case.variables


def lay_out(folder: Path, case: Case, root: Path) -> None:
    """The project, with the case's files in place of its own."""
    shutil.copy(root / "tests" / "candidates" / "small_attention.cpp", folder / "mine.cpp")
    (folder / "matrix.yaml").write_text(MATRIX)
    if "done" in case.command.split():
        write_run(folder / "done", Spec(workloads=("seed-fp16",), launches=2))
    for name, content in case.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        for path in sorted(folder.glob(name)) if "*" in name else [folder / name]:
            if content is None:
                path.mkdir()
            elif isinstance(content, bytes):
                path.write_bytes(content)
            elif callable(content):
                path.write_text(content(path.read_text()))
            elif content.startswith("-> "):
                path.symlink_to(content[3:])
            else:
                path.write_text(content)
    if case.locked:
        path = folder / case.locked
        if not path.exists():
            path.mkdir()
        path.chmod(0o555 if path.is_dir() else 0)


def answer(case: Case, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    as_nobody = case.locked and os.geteuid() == 0
    if as_nobody:
        import pandas  # noqa: F401  # a command imports it late, and its files may be root's alone

        os.seteuid(NOBODY)
    try:
        code = main.main(shlex.split(case.command))
    except Exception:
        code = 1
        traceback.print_exc()
    finally:
        if as_nobody:
            os.seteuid(0)
    printed = capsys.readouterr()
    return code, printed.out + printed.err


def parameters() -> list[object]:
    return [
        pytest.param(case, id=f"{group}: {case.name}", marks=pytest.mark.process if starts_something(case) else ())
        for group, cases in GROUPS.items()
        for case in cases
    ]


@pytest.mark.parametrize("case", parameters())
def test_it_says_what_is_wrong_where_and_what_to_do(
    case: Case, project: Path, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KERNEL_MATRIX_CACHE", str(project / "cache"))
    monkeypatch.setattr(indexes, "probe_index", lambda index: "")
    monkeypatch.setattr(machine, "host_facts", lambda: {"cpu": "test"})
    monkeypatch.setattr(machine, "gpus", lambda: ())
    for name in ("check_packages", "check_interpreters"):  # which ask an index, and uv; tests/unit/test_requirements.py
        monkeypatch.setattr(preflight, name, lambda *given: Findings())
    python = Interpreter(path="/usr/bin/python3.11", version="3.11.2", headers=True)
    monkeypatch.setattr(machine, "find_interpreter", lambda version: python)
    for name, value in case.variables.items():
        monkeypatch.setenv(name, value)
    lay_out(project, case, root)
    monkeypatch.chdir(project)
    code, printed = answer(case, capsys)
    found = faults(case, code, printed)
    assert not found, "\n".join([case.command, *found, printed])


def test_the_documented_count_is_the_tables(root: Path) -> None:
    count = sum(map(len, (*GROUPS.values(), NOX, INDEXES, CPP, PYTHON, INTERRUPTS)))
    assert f"The {count} mistakes of `tests/bad_inputs`" in " ".join((root / "docs" / "check.md").read_text().split())
