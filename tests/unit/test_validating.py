from __future__ import annotations

from typing import Any

import pytest

from harness.executors import Answer
from harness.executors.process import Ended
from harness.run.validate import ARRAY_BYTES, array_trials, candidate_result, native_of
from harness.schema.run_records import WorkloadInfo
from harness.worker import protocol, wire
from tests.messages import answered


def workload(elements: float | None, *, recipes: int = 1, dtype: str = "float16") -> WorkloadInfo:
    size = None if elements is None else 4 * elements * (4 if dtype == "float32" else 2)
    trials = dict.fromkeys(protocol.RECIPES[:recipes], 2)
    return WorkloadInfo(id="w", name="w", dtype=dtype, devices=["cuda"], trials=trials, flops=size, bytes=size)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_what_is_kept_of_outputs_stays_below_its_limit(dtype: str) -> None:
    small, large = workload(8 * 512 * 64, recipes=3, dtype=dtype), workload(4 * 16 * 4096 * 128, dtype=dtype)
    assert array_trials(small, 6) == 2 and array_trials(large, 6) == 1
    assert large.bytes is not None and 2 * 6 * large.bytes / 4 > ARRAY_BYTES


FIT = ARRAY_BYTES / 2 / (6 * 2 + 8)  # elements: two trials of six targets and the truth just fit


@pytest.mark.parametrize(
    ("elements", "recipes", "kept"),
    [(FIT, 1, 2), (FIT, 2, 1), (1e12, 1, 1), (None, 1, 2)],
    ids=["they fit", "recipes share the limit", "one is always kept", "their size is not known"],
)
def test_how_many_trials_are_kept(elements: float | None, recipes: int, kept: int) -> None:
    assert array_trials(workload(elements, recipes=recipes), 6) == kept


@pytest.mark.parametrize("result", [{}, {"status": "fine"}, {"status": "ok", "choice": ["mma"]}])
def test_what_a_kernel_left_that_is_no_result(result: dict[str, Any]) -> None:
    """A stranger's process wrote it."""
    ended = Ended(returncode=0, timed_out=False, duration_s=1.0, log="")
    found = candidate_result(Answer(result=answered(**result), ended=ended))
    assert (found.status, found.message) == ("crashed", "its process left a result that cannot be read")


def test_few_words_on_machine_code_are_kept() -> None:
    assert native_of(wire.CandidateResult("ok", native={"own.so": "a"})) == {"own.so": "a"}
    assert native_of(wire.CandidateResult("ok", native={"own.so": "a" * 301})) == {}
    assert native_of(wire.CandidateResult("ok", native={str(n): "a" for n in range(101)})) == {}
