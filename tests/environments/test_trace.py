"""Small programs traced under the real 2.1.0 and 2.5.0: what is named, and whether its substitution proves it.

Some hold a change that was planted by version, in some the change is PyTorch's own, and in some nothing changes.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.cli import main
from harness.errors import BAD_INPUT
from reports.render.trace_page import describe
from tests.traces import ROOT, find_mistakes, load_programs, trace, work_in

pytestmark = [pytest.mark.environments, pytest.mark.timeout(900)]

SAMPLE = (  # each shows something that the others do not; `python -m tests.programs` has all programs
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
    code, found = trace(name, tmp_path)
    assert not find_mistakes(load_programs()[name], code, found), found
    assert found is not None
    headline = describe(found)[0][1]
    assert headline[:40] in (tmp_path / "out" / "index.html").read_text().replace("&#39;", "'")


def test_a_check_of_an_answer_can_fail(tmp_path: Path) -> None:
    code, found = trace("two_changes", tmp_path)
    program = load_programs()["two_changes"]
    assert not find_mistakes(program, code, found)
    for name in ("encoder", "decomposed", "nondeterministic"):
        assert find_mistakes(load_programs()[name], code, found)


def test_the_extracted_script_shows_it_alone(pinned_pythons: list[Path], tmp_path: Path) -> None:
    _, found = trace("two_changes", tmp_path, "--extract")
    assert found is not None
    script = Path(found.script)
    assert len(script.read_text().splitlines()) <= 60
    printed = [
        subprocess.run([python, script], capture_output=True, text=True, check=True).stdout for python in pinned_pythons
    ]
    assert "bits equal: True" in printed[0] and "bits equal: False" in printed[1]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import torch\ntorch.compile(torch.nn.Linear(2, 2))(torch.ones(1, 2))\n", "torch.compile"),
        ("print(1)\n", "calls no operator of PyTorch"),
        (None, "no such file"),
    ],
)
def test_what_cannot_be_traced_is_refused_in_a_sentence(
    source: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if source is not None:
        (tmp_path / "mine.py").write_text(source)
    words = ["trace", "--good", "2.1.0", "--bad", "2.5.0", "--out=out", f"--matrix={ROOT / 'matrix.yaml'}"]
    with work_in(tmp_path):
        assert main.main([*words, "--", "python", "mine.py"]) == BAD_INPUT
    assert said in capsys.readouterr().err
