"""Small programs traced under the real 2.1.0 and 2.5.0: what is blamed, and whether putting it back proves it.

Some hold a change that was planted by version, in some what moves is PyTorch's own, and in some nothing moves.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.cli import main
from harness.errors import BAD_INPUT
from tests.conftest import ROOT
from tests.traces import load_index, mistakes, traced

pytestmark = [pytest.mark.environments, pytest.mark.timeout(900)]


SAMPLE = (  # of tests/programs: each shows something that the others do not; `python -m tests.programs` has them all
    "bfloat16",
    "checkpointing",
    "convnet",
    "cosine",
    "custom_function",
    "encoder",
    "language_model",
    "lstm",
    "nondeterministic",
    "pooled_integers",
    "raises",
    "same_kind",
    "sparse",
    "transposed",
)


@pytest.mark.parametrize("name", SAMPLE)
def test_the_right_operator_and_line_are_named(name: str, tmp_path: Path) -> None:
    code, found = traced(name, tmp_path / "out")
    assert not mistakes(load_index()[name], code, found), found
    assert found["answer"][:40] in (tmp_path / "out" / "index.html").read_text().replace("&#39;", "'")


def test_the_extracted_script_shows_it_alone(pinned_pythons: list[Path], tmp_path: Path) -> None:
    traced("two_changes", tmp_path / "out", "--extract")
    script = tmp_path / "out" / "alone" / "alone.py"
    assert len(script.read_text().splitlines()) <= 60
    printed = [
        subprocess.run([python, script], capture_output=True, text=True, check=True).stdout for python in pinned_pythons
    ]
    assert "bits equal: True" in printed[0] and "bits equal: False" in printed[1]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import torch\ntorch.compile(torch.nn.Linear(2, 2))(torch.ones(1, 2))\n", "torch.compile"),
        (None, "no such file"),
    ],
)
def test_what_cannot_be_traced_is_refused_in_a_sentence(
    source: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if source is not None:
        (tmp_path / "mine.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    words = ["trace", "--good", "2.1.0", "--bad", "2.5.0", f"--out={tmp_path / 'out'}", "--", "python", "mine.py"]
    assert main.main([*words[:6], f"--matrix={ROOT / 'matrix.yaml'}", *words[6:]]) == BAD_INPUT
    assert said in capsys.readouterr().err
