"""`python -m harness explain`: how a recorded run is planned again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.cli.arguments import make_parser
from harness.cli.commands import _bundle_of, _words_of
from harness.errors import InputError


@pytest.mark.parametrize(
    ("mode", "environments", "given", "torch", "kernels"),
    [
        ("matrix", ["a", "b"], [], None, []),
        ("matrix", ["a", "b"], ["--", "--kernel", "a", "--quick", "--explain=never"], None, ["a"]),
        ("eval", ["a"], [], "a", []),
        ("eval", ["a", "b"], ["--", "--kernel=a"], "b", ["a"]),
        ("eval", ["a", "b", "c"], [], "2.5.0", []),  # several of one version
    ],
)
def test_a_recorded_run_is_planned_again(
    mode: str, environments: list[str], given: list[str], torch: str | None, kernels: list[str]
) -> None:
    record: Any = SimpleNamespace(mode=mode, environments=environments, command=["nox", "-s", "whatever", *given])
    run: Any = SimpleNamespace(environments=lambda: [SimpleNamespace(id=name, torch="2.5.0") for name in "abc"])
    made = make_parser().parse_args(_words_of(run, record))
    assert (made.verb, getattr(made, "torch", None), made.kernel) == (mode, torch, kernels)


def test_a_bundle_is_the_one_given_else_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL_MATRIX_BUNDLE", "/there")
    assert _bundle_of(Path("/here"), Path("run")) == Path("/here")
    assert _bundle_of(None, Path("run")) == Path("/there")
    monkeypatch.delenv("KERNEL_MATRIX_BUNDLE")
    with pytest.raises(InputError, match="it used a bundle"):
        _bundle_of(None, Path("run"))
