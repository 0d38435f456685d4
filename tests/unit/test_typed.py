"""How commands are written for who reads them: as the command that runs was typed."""

from __future__ import annotations

import sys
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from harness.cli import main, start
from harness.errors import InfrastructureError
from harness.typed import BY_NOX, as_typed, typed
from tests.conftest import ROOT


def test_a_message_names_the_command_that_its_reader_has(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "make one: sudo nox -s images -- base; or nox -s pins, then `nox -s matrix`"
    made = "make one: sudo kernel-matrix images base; or kernel-matrix pins, then `kernel-matrix matrix`"
    monkeypatch.delenv(BY_NOX, raising=False)
    assert as_typed(text) == made and typed("images", "build") == "kernel-matrix images build"
    assert InfrastructureError("it failed", text).remedy == made and made in str(InfrastructureError("x", text))
    monkeypatch.setenv(BY_NOX, "1")
    assert as_typed(text) == text and typed("images", "build") == "nox -s images -- build"
    assert typed("pins") == "nox -s pins" and InfrastructureError("it failed", text).remedy == text


def test_both_noxfiles_say_that_they_start_it() -> None:
    for text in (start.NOXFILE, (ROOT / "noxfile.py").read_text()):
        assert f'"{BY_NOX}": "1"' in text


class Session:
    """What a session of nox does that init's noxfile uses; it installs nothing, for there is no `install`."""

    def __init__(self, *posargs: str) -> None:
        self.posargs, self.ran = posargs, list[tuple[tuple[str, ...], dict[str, Any]]]()

    def run(self, *words: str, **options: Any) -> None:
        self.ran.append((words, options))


def test_no_session_takes_a_build_that_failed_for_success(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions: dict[str, Any] = {}
    nox: Any = ModuleType("nox")

    def session(function: Any = None, *, name: str = "") -> Any:
        return sessions.setdefault(name or function.__name__, function) if function else partial(session, name=name)

    nox.Session, nox.options, nox.session = Session, SimpleNamespace(), session
    nox.project = SimpleNamespace(
        load_toml=lambda _: {"project": {"dependencies": []}}, dependency_groups=lambda *_: []
    )
    nox.parametrize = lambda *_: lambda function: function
    monkeypatch.setitem(sys.modules, "nox", nox)
    monkeypatch.setattr(Session, "install", lambda *_: None, raising=False)
    exec(compile((ROOT / "noxfile.py").read_text(), "noxfile.py", "exec"), {})
    assert set(main.VERBS) - {"init"} <= set(sessions)
    for verb in set(main.VERBS) - {"init"}:
        started = Session("--quick")
        sessions[verb](started, **({"torch": "2.5.0"} if verb == "eval" else {}))
        ((words, options),) = started.ran
        assert words[:4] == ("python", "-m", "harness", verb) and options == {"env": {BY_NOX: "1"}}


def test_the_noxfile_of_init_starts_what_is_installed_and_installs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions: dict[str, Any] = {}
    nox: Any = ModuleType("nox")
    nox.Session, nox.options = Session, SimpleNamespace()
    nox.session = lambda name: lambda function: sessions.setdefault(name, function)
    nox.parametrize = lambda *_: lambda function: function
    monkeypatch.setitem(sys.modules, "nox", nox)
    exec(compile(start.NOXFILE, "noxfile.py", "exec"), {})
    assert set(sessions) == set(main.VERBS) - {"init"}
    assert nox.options.default_venv_backend == "none", "an environment of its own would not hold it"
    by_hand = {"external": True, "env": {BY_NOX: "1"}}
    session = Session("--quick")
    sessions["matrix"](session)
    sessions["eval"](session, torch="2.5.0")
    assert session.ran == [
        (("kernel-matrix", "matrix", "--quick"), by_hand),
        (("kernel-matrix", "eval", "--torch=2.5.0", "--quick"), by_hand),
    ]
