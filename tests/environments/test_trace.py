"""Small programs traced under the real 2.1.0 and 2.5.0: what is blamed, and whether putting it back proves it.

Some hold a change that was planted by version, in some what moves is PyTorch's own, and in some nothing moves.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.errors import BAD_INPUT, DONE, UNDECIDED
from tests.conftest import ROOT

pytestmark = [pytest.mark.environments, pytest.mark.timeout(900)]
PROGRAMS = ROOT / "tests" / "programs"


@dataclass(frozen=True)
class Expected:
    verdict: str
    blamed: tuple[tuple[str, str], ...] = ()  # operators that must be named, and a part of their lines
    own: tuple[str, ...] = ()  # of PyTorch itself, that may be named beside them
    code: int = DONE
    or_else: str = ""  # another verdict that is right


CASES = {
    "adamw": Expected("proven", (("add.Tensor", "1e-3"),), own=("_foreach", "addcdiv", "sqrt", "lerp")),
    "bfloat16": Expected("proven", (("_softmax", "softmax"),), own=("mm", "native")),
    "convnet": Expected("proven", (("convolution_backward", "net(images)"),), own=("native_batch_norm",)),
    "decomposed": Expected("nothing_moved"),
    "dropout": Expected("nothing_moved"),
    "encoder": Expected("proven", (("gelu", "F.gelu"),), own=("div", "mul")),
    "generator": Expected("not_explained", code=UNDECIDED),
    "language_model": Expected("proven", (("native_layer_norm", "self.norm1"),), own=("attention",)),
    # The bytes of oneDNN's workspace may differ, or not.
    "lstm": Expected("no_effect", own=("mkldnn_rnn_layer",), or_else="nothing_moved"),
    "nondeterministic": Expected("does_not_repeat", code=UNDECIDED),
    "numpy_writes": Expected("not_explained", code=UNDECIDED),
    "raises": Expected("not_explained", code=UNDECIDED),
    "sparse": Expected("not_explained", code=UNDECIDED),
    "two_changes": Expected("proven", (("leaky_relu", "leaky_relu"), ("masked_fill", "masked_fill"))),
}


def traced(name: str, out: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> tuple[int, dict[str, Any]]:
    monkeypatch.chdir(PROGRAMS)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    words = ["trace", "--good", "2.1.0", "--bad", "2.5.0", f"--matrix={ROOT / 'matrix.yaml'}", f"--out={out}", *options]
    code = main.main([*words, "--", "python", f"{name}.py"])
    summary = out / "summary.json"
    return code, json.loads(summary.read_text()) if summary.exists() else {}


@pytest.mark.parametrize("name", CASES)
def test_the_right_operator_and_line_are_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    code, found = traced(name, tmp_path / "out", monkeypatch)
    assert code == case.code and found["verdict"] in (case.verdict, case.or_else), found["answer"]
    needed = [cause for cause in found["causes"] if cause["needed"]]
    for operator, line in case.blamed:
        assert any(operator in each["kind"] and line in each["source"] for each in needed), needed
    named = (*(operator for operator, _ in case.blamed), *case.own)
    assert all(any(operator in each["kind"] for operator in named) for each in needed), needed
    if case.verdict == "proven":
        assert found["comes_back"] and found["reverse"] and found["grade"] == "decisive"
    elif found["verdict"] != "no_effect":
        assert not needed
    assert found["answer"][:40] in (tmp_path / "out" / "index.html").read_text().replace("&#39;", "'")


def test_the_extracted_script_shows_it_alone(
    pinned_pythons: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced("two_changes", tmp_path / "out", monkeypatch, "--extract")
    script = tmp_path / "out" / "alone" / "alone.py"
    assert len(script.read_text().splitlines()) <= 60
    printed = [subprocess.run([python, script], capture_output=True, text=True, check=True).stdout for python in
               pinned_pythons]  # fmt: skip
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
