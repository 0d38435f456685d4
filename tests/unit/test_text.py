"""Times with their unit, and commands that reproduce a run where it ran."""

from __future__ import annotations

import shlex

import pytest

from harness.cli import main
from reports.text import (
    brief_time,
    effect_text,
    eval_command,
    explain_command,
    function_name,
    matrix_command,
    place_options,
    time_text,
)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([], []),
        (["--quick", "--fresh"], []),
        (["--matrix", "p/matrix.yaml", "--quick"], ["--matrix", "p/matrix.yaml"]),
        (["--executor", "docker", "--quick"], ["--executor", "docker"]),
        (["--base-image=kernel-matrix/base:x", "--kernel", "k"], ["--base-image=kernel-matrix/base:x"]),
        (["--base-image", "a b; rm -rf /"], ["--base-image", "'a b; rm -rf /'"]),
        (["--base-image"], ["--base-image", "''"]),
        (["--problems=p/level1", "--solutions=s", "--quick"], ["--problems=p/level1", "--solutions=s"]),
    ],
)
def test_what_reproduces_a_run_runs_where_it_ran(given: list[str], kept: list[str]) -> None:
    assert place_options(["nox", "-s", "matrix", "--", *given]) == kept


def test_commands_carry_the_place_and_are_spelled_as_the_run_was() -> None:
    where = ["--executor", "docker", "--quick"]
    by_nox, plain = ["nox", "-s", "matrix", "--", *where], ["kernel-matrix", "matrix", *where]
    options = "--kernel k --workload seed-fp32 --device cpu --executor docker"
    selected = {"kernel": "k", "workload": "seed-fp32", "device": "cpu"}
    assert matrix_command(by_nox, **selected) == f"nox -s matrix -- {options}"
    assert matrix_command(plain, **selected) == f"kernel-matrix matrix {options}"
    assert matrix_command(by_nox[:3]) == "nox -s matrix" and matrix_command(plain[:2]) == "kernel-matrix matrix"
    assert eval_command(by_nox, "2.5.0", kernel="k") == (
        "nox -s \"eval(torch='2.5.0')\" -- --kernel k --executor docker"
    )
    assert eval_command(plain, "2.5.0", kernel="k") == "kernel-matrix eval --torch 2.5.0 --kernel k --executor docker"


@pytest.mark.parametrize("before", [["nox", "-s", "matrix", "--"], ["kernel-matrix", "matrix"]])
def test_the_command_that_explains_is_one_that_explain_takes(before: list[str]) -> None:
    place = ["--matrix=p/matrix.yaml", "--executor", "bundle", "--bundle", "DIR", "--problems=p", "--solutions=s"]
    text = explain_command([*before, *place], kernel="k", workload="seed-fp32", device="cpu")
    words = shlex.split(text)
    words = words[words.index("explain") :]
    parsed = main.make_parser("explain").parse_args([word for word in words if word != "--"])
    assert (parsed.kernel, parsed.workload, parsed.device) == (["k"], ["seed-fp32"], ("cpu",))
    assert (str(parsed.matrix), str(parsed.bundle)) == ("p/matrix.yaml", "DIR") and text.startswith(before[0])


@pytest.mark.parametrize(
    ("value", "text"),
    [(800.04, "800.0 µs"), (1234.5, "1.234 ms"), (2.5e6, "2.500 s"), (0.5, "0.5 µs"), (None, "—")],
)
def test_times_carry_their_unit(value: float | None, text: str) -> None:
    assert time_text(value) == text


def test_a_brief_time_never_shows_a_power_of_ten() -> None:
    assert brief_time(3530.0, "+") == "+3.53 ms" and brief_time(-386.4, "+") == "-386 \N{MICRO SIGN}s"
    assert brief_time(999.9) == "1 ms" and brief_time(0.0) == "0 \N{MICRO SIGN}s"


@pytest.mark.parametrize(("effect", "text"), [(None, "—"), (0.05, "5.0%"), (2.0, "200%"), (9298.51, "—")])
def test_a_slow_down_that_is_beyond_all_bounds_is_no_figure(effect: float | None, text: str) -> None:
    assert effect_text(effect) == text


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("aten::bmm", "aten::bmm"),
        ("Memset (Device)", "Memset (Device)"),
        ("void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float>(c10::Half*)", "cunn_SoftMaxForward"),
        (
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128>(cutlass_80_simt_sgemm_256x128::Params)",
            "cutlass_80_simt_sgemm_256x128",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<float, float, float, "
            "at::native::binary_internal::MulFunctor<float> >, at::detail::Array<char*, 2> >(int)",
            "vectorized_elementwise_kernel<MulFunctor>",
        ),
        (
            "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::(anonymous "
            "namespace)::where_kernel_impl(at::Iterator&)::{lambda()#1}>>(int)",
            "elementwise_kernel<where_kernel_impl>",
        ),
        ("std::enable_if<!(false), void>::type internal::gemv::dot_kernel<int, 128>(int)", "dot_kernel"),
        ("void <unnamed>::softmax_forward<float, 10>(float*)", "softmax_forward"),
        ("(anonymous namespace)::f(int)::{lambda()#1}::operator()() const", "f(int)::{lambda()#1}::operator()() const"),
        (
            "sm90_xmma_gemm_f16f16_f16f32_f32_nn_n_tilesize64x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel",
            "sm90_xmma_gemm_f16f16_f16f32_f32_nn_n_tilesize64x128x64_war\N{HORIZONTAL ELLIPSIS}",
        ),
    ],
)
def test_a_device_function_is_named_as_a_person_would(name: str, shown: str) -> None:
    assert function_name(name) == shown
