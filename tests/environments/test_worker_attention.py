"""Attention with options under both real versions: a right kernel, faulty ones, and the references."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.environments.test_prebuilt import compiled, take
from tests.environments.verbs import Environment

pytestmark = [pytest.mark.environments, pytest.mark.timeout(900)]

SOURCE = (ROOT / "csrc" / "attention_plain_cpu.cpp").read_text()
# What stands in the right kernel, and in its place in one with a fault.
FAULTS = {
    "": ("", ""),
    "ignores the mask": ("(head.mask && !head.mask[pair])", "false"),
    "ignores the additive mask": ("if (head.bias) score += head.bias[pair];", ""),
    "as many keys as queries": ("            keys,\n", "            std::min(keys, rows),\n"),
    "interleaves the heads": (
        "number / (p.heads / options.kv_heads)",
        "number / p.heads * options.kv_heads + number % options.kv_heads",
    ),
    "NaN where nothing is seen": ("if (sum == 0.0f) return;", ""),
    "ignores the draws": ("!head.keep ? 1.0f", "true ? 1.0f"),
}
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
}
OPTIONS: dict[str, dict[str, Any]] = {
    "keys": {"kv_len": 50},
    "fewer keys, causal": {"kv_len": 20, "causal": True},
    "heads": {"kv_heads": 2},
    "padding": {"mask": "padding"},
    "empty rows": {"mask": "empty_rows", "kv_heads": 2, "kv_len": 50},
    "bias": {"mask": "bias"},
    "dropout": {"dropout": 0.25, "kv_heads": 2, "mask": "random"},
}
# The options on which a fault is one.
SEEN_ON = {
    "": list(OPTIONS),
    "ignores the mask": ["padding"],
    "ignores the additive mask": ["bias"],
    "as many keys as queries": ["keys"],
    "interleaves the heads": ["heads"],
    "NaN where nothing is seen": ["empty rows"],
    "ignores the draws": ["dropout"],
}


def library(folder: Path, old: str, new: str) -> Path:
    """The plain kernel with something else in one place."""
    assert old in SOURCE
    folder.mkdir(exist_ok=True)
    return compiled(folder, "libmine.so", SOURCE.replace(old, new, 1), f"-I{ROOT / 'csrc'}", "-pthread")


def validated(environment: Environment, file: Path, case: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Each target's result on independent inputs."""
    kernel = {"name": "mine", "device": "cpu", "prebuilt": take(environment, file)["artifact"]}
    request = {"kernel": kernel, "workload": case, "seed": 0, "threads": 1, "out": str(environment.folder / "out")}
    result = environment.judge(case, environment.result("candidate", request))
    return {target.target: asdict(target) for target in result["recipes"][0].targets}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_kernel_is_wrong_where_its_fault_is_one(
    environments: list[Environment], tmp_path: Path, fault: str
) -> None:
    file = library(tmp_path, *FAULTS[fault])
    for environment in environments:
        for name in SEEN_ON[fault]:
            found = validated(environment, file, {**CASE, **OPTIONS[name]})
            assert found["kernel"]["status"] == ("wrong" if fault else "ok"), found["kernel"]["message"]
            if name == "dropout":
                assert found["default"]["status"] == "unsupported"
            elif name != "empty rows":
                assert found["default"]["status"] == "ok", found["default"]["message"]


def test_rows_that_see_no_key_are_where_the_references_differ(environments: list[Environment], tmp_path: Path) -> None:
    file = library(tmp_path, *FAULTS[""])
    older, newer = (validated(each, file, {**CASE, "mask": "empty_rows"}) for each in environments[:2])
    assert older["kernel"]["status"] == newer["kernel"]["status"] == "ok"
    assert older["kernel"]["output_sha256"] == newer["kernel"]["output_sha256"]
    assert older["math"]["status"] == "wrong" and older["math"]["against"][0]["nonfinite_trials"] == 2
    assert newer["math"]["status"] == "ok"


def test_a_kernel_without_the_options_is_unsupported_and_still_runs_without_them(
    environments: list[Environment], tmp_path: Path
) -> None:
    source = f'#include "{ROOT / "csrc" / "attention_scalar_cpu.cpp"}"\n'
    file = compiled(tmp_path, "libmine.so", source, f"-I{ROOT / 'csrc'}", "-pthread")
    for environment in environments:
        assert validated(environment, file, CASE)["kernel"]["status"] == "ok"
        found = validated(environment, file, {**CASE, "kv_heads": 2})["kernel"]
        assert found["status"] == "unsupported" and "attention_forward_options" in found["message"]


def test_a_kernel_that_refuses_an_option_is_unsupported(environments: list[Environment], tmp_path: Path) -> None:
    file = library(tmp_path, "if (size >", "if (options->bias || size >")
    for environment in environments:
        found = validated(environment, file, {**CASE, "mask": "bias"})["kernel"]
        assert found["status"] == "unsupported" and "no code for one of the options" in found["message"]
        assert validated(environment, file, {**CASE, "mask": "padding"})["kernel"]["status"] == "ok"
