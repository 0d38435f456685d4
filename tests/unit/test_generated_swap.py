"""Which generated code can run in another environment, and which subjects it is tried for."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.experiments.generated import why_not
from harness.worker.generated import CppKernel, cpp_kernels, signature
from tests.unit.test_worker_generated import inductor


def kernel(name: str = "cpp_fused_0", takes: str = "const float*, float*") -> CppKernel:
    return CppKernel(name, takes, "kernel.so")


@pytest.mark.parametrize("integer", ["long", "int64_t"])
def test_both_versions_write_one_signature(integer: str) -> None:
    source = f'extern "C"  void kernel(const float* in_ptr0,\n      float* out_ptr0,\n   const {integer} ks0)\n{{'
    assert signature(source) == "const float*, float*, const long"


def test_kernels_are_found_with_their_shared_objects(tmp_path: Path) -> None:
    (found,) = cpp_kernels(str(inductor(tmp_path)))
    assert (found.name, found.signature) == ("cpp_fused_gelu_0", "const float*") and found.path.endswith(".so")


def test_kernels_that_cannot_stand_for_each_other_say_why() -> None:
    assert why_not({"a": [kernel()], "b": [kernel()]}) == ""
    assert "b generated no C++ kernel" in why_not({"a": [kernel()], "b": []})
    assert "2 and 1 kernels" in why_not({"a": [kernel(), kernel("cpp_fused_1")], "b": [kernel()]})
    other = why_not({"a": [kernel()], "b": [kernel(takes="float*")]})
    assert "cpp_fused_0(const float*, float*) against cpp_fused_0(float*)" in other
