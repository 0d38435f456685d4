"""Attention with gradients under both real versions: a right kernel, faulty ones, and the references."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.environments.test_prebuilt import take
from tests.environments.test_worker_attention import library, validated
from tests.environments.verbs import Environment

pytestmark = [pytest.mark.environments, pytest.mark.timeout(900)]

CASE: dict[str, Any] = {
    "id": "w",
    "dtype": "float32",
    "batch": 2,
    "heads": 4,
    "seq_len": 33,
    "head_dim": 64,
    "causal": False,
    "scale": 0.125,
    "recipes": {"independent": 2, "shared_qkv": 1},
    "backward": True,
}
EVERYTHING = {"dropout": 0.25, "kv_heads": 2, "mask": "random"}
PARTS = ["output", "grad of q", "grad of k", "grad of v"]
FILLED = "std::fill(to_k, to_k + shared, 0.0f), std::fill(to_v, to_v + shared, 0.0f);\n            "
UNMASKED = "Head all = head;\n    all.causal = false;\n    softmax(all, row, p);\n    "
# What stands in the right kernel and in its place in one with a fault, on what it is one, and what is wrong then.
FAULTS: dict[str, tuple[str, str, dict[str, Any], list[str]]] = {
    "": ("", "", EVERYTHING, []),
    "without rowsum(dO O)": ("p[key] * delta)", "0 * delta)", {}, PARTS[1:3]),
    "dK without the scale": (
        "add(dk + key * width, d_score,",
        "add(dk + key * width, d_score / head.scale,",
        {},
        ["grad of k"],
    ),
    "dV without dropout's scale": (
        "add(dv + key * width, weight,",
        "add(dv + key * width, std::min(weight, p[key]),",
        EVERYTHING,
        ["grad of v"],
    ),
    "causal in its forward pass alone": (
        "const float delta",
        f"{UNMASKED}const float delta",
        {"causal": True},
        PARTS[1:],
    ),
    "one of the heads that share": (
        "const std::ptrdiff_t first =",
        f"{FILLED}const std::ptrdiff_t first =",
        {"kv_heads": 2},
        PARTS[2:],
    ),
}
# Gradients of PyTorch in float64, in the same order, of each of these workloads' first inputs.
AUTOGRAD = """
import json, sys, torch
from worker import attention, wire
from worker.references import attention as attend
torch.set_default_dtype(torch.float64)
for asked in json.loads(sys.argv[1]):
    made = attention.AttentionWorkload(wire.WorkloadRequest(**asked))
    arrays = made.arrays("independent", 0, 3)
    q, k, v, mask, _, d_out = made.given([torch.from_numpy(array) for array in arrays])
    leaves = [tensor.double().requires_grad_() for tensor in (q, k, v)]
    mask = mask.double() if asked.get("mask") == "bias" else mask
    with torch.backends.cuda.sdp_kernel(enable_flash=False, enable_mem_efficient=False):
        out = attend(*leaves, made.causal, made.scale, mask)
    found = [out, *torch.autograd.grad(out, leaves, d_out.double())]
    exact = made.exact(arrays)
    print(max(float((one - torch.from_numpy(other)).abs().max()) for one, other in zip(found, exact.values())))
"""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_gradients_is_seen_in_those_that_have_it(
    environments: list[Environment], tmp_path: Path, fault: str
) -> None:
    old, new, options, wrong = FAULTS[fault]
    file = library(tmp_path, old, new)
    for environment in environments[1 if fault else 0 :]:
        kernel = validated(environment, file, {**CASE, **options})["kernel"]
        assert kernel["status"] == ("wrong" if fault else "ok"), kernel["message"]
        passed = {output["name"]: output["truth"]["passed"]["rounding"] for output in kernel["outputs"]}
        assert list(passed) == PARTS and [name for name in PARTS if not passed[name]] == wrong
        assert not fault or kernel["message"].endswith(f"({', '.join(wrong)})")


def test_truth_is_what_autograd_gives_in_float64(environments: list[Environment]) -> None:
    some = [{}, {"causal": True, "kv_len": 50}, {"kv_heads": 2, "mask": "random"}, {"mask": "bias"}]
    for environment in environments:
        apart = environment.script(AUTOGRAD, json.dumps([{**CASE, **options} for options in some])).split()
        assert len(apart) == len(some) and all(float(each) < 1e-12 for each in apart), apart


def test_references_are_right_and_what_cannot_run_is_told(environments: list[Environment]) -> None:
    older = environments[0]
    for environment in environments:
        names = ["math", "flash", "efficient"]
        for options in ({"causal": True, "kv_heads": 2}, {"dtype": "bfloat16"}):
            if environment is older and "dtype" in options:
                names = ["math", "efficient"]  # flash's backward pass writes beyond its memory there
            recipes = environment.judge({**CASE, **options}, None, names, power=False)["recipes"]
            for target in (target for recipe in recipes for target in recipe.targets):
                if target.target == "efficient":
                    assert target.status == "unsupported" and "kernel" in target.message
                    continue
                assert target.status == "ok", target.message
                assert any(target.target in name for name in target.operators), "which ran is proven"
                units = [output.truth.max_units for output in target.outputs if output.truth]
                assert len(units) == len(PARTS) and max(units) < (4 if environment is older else 2.5)
        dropped = environment.judge({**CASE, "dropout": 0.1}, None, ["math"], power=False)["recipes"][0].targets[0]
        assert dropped.status == "unsupported" and "draws" in dropped.message


def test_a_kernel_without_gradients_is_unsupported_there_alone(environments: list[Environment], tmp_path: Path) -> None:
    file = library(tmp_path, "int attention_backward(", "int another_backward(")
    for environment in environments:
        found = validated(environment, file, CASE)["kernel"]
        assert found["status"] == "unsupported" and "attention_backward" in found["message"]
        assert validated(environment, file, {**CASE, "backward": False})["kernel"]["status"] == "ok"


def test_timed_calls_with_gradients_are_judged(environments: list[Environment], tmp_path: Path) -> None:
    case = {**CASE, "mask": "empty_rows", "kv_heads": 2, "kv_len": 50}
    for environment in environments:
        for fault in ("", "dK without the scale"):
            taken = take(environment, library(tmp_path / (fault or "right"), *FAULTS[fault][:2]))
            kernel = {"name": "mine", "device": "cpu", "prebuilt": taken["artifact"]}
            targets = ["kernel", "math", "math.backward"]
            timed = environment.time(case, targets, ["0" * 64], kernel=kernel, other_bits=True)
            found = {row["target"]: row for row in timed["timings"]}
            assert found["kernel"]["correct"] is not bool(fault), found["kernel"]["message"]
            assert found["kernel"]["checked"] if not fault else "grad of k: " in found["kernel"]["message"]
            for reference in ("math", "math.backward"):
                assert found[reference]["status"] == "ok" and found[reference]["samples_us"]
