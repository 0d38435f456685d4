"""`python -m harness explain`: what a recorded command stands for."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli.arguments import make_parser
from harness.cli.commands import _bundle_of, _words_of
from harness.errors import InputError


@pytest.mark.parametrize(
    ("command", "verb", "torch", "kernels"),
    [
        (["nox", "-s", "matrix"], "matrix", None, []),
        (["nox", "-s", "matrix", "--", "--kernel", "a", "--quick", "--explain=never"], "matrix", None, ["a"]),
        (["nox", "-s", "eval(torch='2.5.0')"], "eval", "2.5.0", []),
        (["nox", "-s", "eval(torch='2.5.0')", "--", "--kernel=a"], "eval", "2.5.0", ["a"]),
    ],
)
def test_a_recorded_command_is_understood_again(
    command: list[str], verb: str, torch: str | None, kernels: list[str]
) -> None:
    made = make_parser().parse_args(_words_of(command))
    assert (made.verb, getattr(made, "torch", None), made.kernel) == (verb, torch, kernels)


def test_a_bundle_is_the_one_given_else_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL_MATRIX_BUNDLE", "/there")
    assert _bundle_of(Path("/here"), Path("run")) == Path("/here")
    assert _bundle_of(None, Path("run")) == Path("/there")
    monkeypatch.delenv("KERNEL_MATRIX_BUNDLE")
    with pytest.raises(InputError, match="it used a bundle"):
        _bundle_of(None, Path("run"))
