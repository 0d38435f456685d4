"""PyTorch's own operators on a GPU: with several outputs or with gradients, they are timed cold and in a graph, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.gpu.conftest import Here, row

pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]


def tensor(*shape: int, name: str = "") -> dict[str, Any]:
    return {"tensors": [{"shape": list(shape)}], "name": name, "several": False}


OPERATORS: dict[str, tuple[str, list[dict[str, Any]], dict[str, Any], bool]] = {
    "one tensor": ("torch.softmax", [tensor(512, 1024)], {"dim": -1}, False),
    "a named tuple": ("torch.topk", [tensor(256, 4096)], {"k": 16}, False),
    "complex numbers": ("torch.fft.rfft", [tensor(64, 1024)], {}, False),
    "channels last": (
        "torch.softmax",
        [{"tensors": [{"shape": [8, 16, 32, 32], "strides": [16384, 1, 512, 16]}]}],
        {"dim": 1},
        True,
    ),
    "gradients": (
        "torch.nn.functional.layer_norm",
        [tensor(512, 256, name="input"), tensor(256, name="weight")],
        {"normalized_shape": [256]},
        True,
    ),
}


@pytest.mark.parametrize("what", OPERATORS)
def test_an_operator_is_timed_whatever_it_returns(here: Here, tmp_path: Path, what: str) -> None:
    name, tensors, arguments, backward = OPERATORS[what]
    asked = {"name": name, "tensors": tensors, "arguments": arguments}
    kept = {"problem": "", "out": str(tmp_path / "store"), "seed": 1, "trials": 1, "dtype": "float32"}
    stored = here.result("store", {**kept, "most_bytes": 1 << 30, "operator": asked})
    assert stored["status"] == "ok", stored["message"]
    case = {
        **dict.fromkeys(("batch", "heads", "seq_len", "head_dim", "causal", "scale")),
        "id": "operator",
        "dtype": "float32",
        "recipes": {"independent": 1},
        "problem": {"file": "", "store": str(tmp_path / "store"), "operator": asked, "backward": backward},
    }
    alone = "model.backward"
    rows = here.time(None, [case], ["model", *([alone] if backward else [])])
    timed = row(rows, "model")
    assert (timed["status"], timed["message"]) == ("ok", "")
    assert min(timed["samples_us"]) > 0
    assert timed["hot_us"] and not timed["hot_message"]
    if backward:
        by_itself = row(rows, alone)
        assert (by_itself["status"], by_itself["message"]) == ("ok", "")
        assert 0 < min(by_itself["samples_us"]) < min(timed["samples_us"]) and not by_itself["hot_us"]
