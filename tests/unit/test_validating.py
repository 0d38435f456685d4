from __future__ import annotations

import pytest

from harness.run.validate import ARRAY_BYTES, array_trials, choice_of
from harness.schema.run_records import WorkloadInfo
from harness.worker import protocol


def workload(elements: float | None, *, recipes: int = 1, dtype: str = "float16") -> WorkloadInfo:
    size = None if elements is None else 4 * elements * (4 if dtype == "float32" else 2)
    trials = dict.fromkeys(protocol.RECIPES[:recipes], 2)
    return WorkloadInfo(id="w", name="w", dtype=dtype, devices=["cuda"], trials=trials, flops=size, bytes=size)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_what_is_kept_of_outputs_stays_below_its_limit(dtype: str) -> None:
    small, large = workload(8 * 512 * 64, recipes=3, dtype=dtype), workload(4 * 16 * 4096 * 128, dtype=dtype)
    assert array_trials(small, 6) == 2 and array_trials(large, 6) == 1
    assert large.bytes is not None and 2 * 6 * large.bytes / 4 > ARRAY_BYTES


def test_recipes_share_the_limit_and_one_trial_is_always_kept() -> None:
    elements = ARRAY_BYTES / 2 / (6 * 2 + 8)  # two trials of six targets and the truth just fit
    assert array_trials(workload(elements), 6) == 2
    assert array_trials(workload(elements, recipes=2), 6) == 1
    assert array_trials(workload(1e12), 6) == 1


def test_a_problem_whose_outputs_are_not_known() -> None:
    assert array_trials(workload(None), 2) == 2


def test_what_a_kernel_says_of_its_choice() -> None:
    """A stranger's process says it: other types, and more than a line, do not reach the record."""
    assert choice_of({"choice": "mma BLOCK_M=32"}) == "mma BLOCK_M=32"
    assert choice_of(None) == choice_of({}) == choice_of({"choice": ["mma"]}) == ""
    assert len(choice_of({"choice": "x" * 10**6})) == 500
