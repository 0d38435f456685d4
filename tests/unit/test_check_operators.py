"""Names of operators are looked up before a run: one that no version has is a mistake, one that some have a result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.config.matrix import matrix_text
from harness.preflight import environments
from harness.preflight.environments import check_operators
from tests.unit.test_operators import matrix_of

NAMES = ["torch.topkk", "torch.nn.functional.rms_norm"]
MATRIX = matrix_of(*({"operator": name, "shapes": [[8]]} for name in NAMES))
PYTHONS = {"old": Path("old"), "new": Path("new")}


def looked_up(monkeypatch: pytest.MonkeyPatch, lacking: dict[str, dict[str, list[str]]]) -> list[str]:
    monkeypatch.setattr(environments, "output_of", lambda command, _: json.dumps(lacking[command[0]]))
    found = check_operators(MATRIX, matrix_text(MATRIX), Path("matrix.yaml"), PYTHONS, list(PYTHONS))
    return [f"{each.what}; {each.remedy}" for each in found.problems]


def test_a_name_that_no_version_has_is_refused_with_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    near = {"torch.topkk": ["torch.topk"]}
    said = looked_up(monkeypatch, {"old": {**near, "torch.nn.functional.rms_norm": []}, "new": near})
    assert said == ["operators[0]: no PyTorch of this run has torch.topkk; did you mean torch.topk?"]


def test_where_an_environment_does_not_exist_nothing_is_certain() -> None:
    found = check_operators(MATRIX, matrix_text(MATRIX), Path("matrix.yaml"), {"old": Path("old")}, list(PYTHONS))
    assert not found.problems and "not every environment exists yet" in found.unchecked[0]
