"""Times that moved: which part of a call, an operator or the machine took them, and what is not blamed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.worker import operators
from reports.attribute import explained
from reports.attribute.causes import (
    BUILD_MOVED,
    DECISIVE,
    DEFAULT_BACKEND_MOVED,
    ENVIRONMENT_CONFOUNDER,
    KERNEL_CODE_MOVED,
    LATENCY,
    LATENCY_CLOCK_OR_LOAD,
    LATENCY_LAUNCH_OVERHEAD,
    LATENCY_OPERATOR,
    NOTHING_MOVED,
    STRONG,
    SUGGESTIVE,
    UNDECIDED,
)
from reports.attribute.facts.profiles import OUTSIDE
from tests.unit.spec import BASE, NEXT, Case, Spec
from tests.unit.synthetic import write_run
from tests.unit.timed import SAFE, SOFTMAX, TARGETS, only, slower, spec, timed

FLASH = "aten::_scaled_dot_product_flash_attention"
MATH = "aten::_scaled_dot_product_attention_math"
SMALL = {(target, f"small-{n}"): us for target in TARGETS for n, us in (("fp16", 20.0), ("fp32", 2000.0))}


def test_the_profile_names_the_operator_that_appeared(tmp_path: Path) -> None:
    cause = only(tmp_path, spec(*slower("math")), "math", target="math", base=SOFTMAX, this=SAFE)
    assert (cause.cause, cause.grade) == (LATENCY_OPERATOR, DECISIVE)
    assert "aten::_safe_softmax appeared" in cause.statement
    assert cause.figures[0].rows[0][0] == "aten::_safe_softmax"
    assert any("did not move" in each.how for each in cause.ruled_out)


def test_an_operator_that_vanished_made_it_faster(tmp_path: Path) -> None:
    cause = only(tmp_path, spec(*slower("math", by=0.7)), "math", target="math", base=SAFE, this=SOFTMAX)
    assert cause.cause == LATENCY_OPERATOR and "aten::_safe_softmax vanished" in cause.statement


def test_an_operator_that_slowed(tmp_path: Path) -> None:
    slow = SOFTMAX | {"aten::bmm": (2.0, 720.0)}
    ways = ((1, 2), (1, 3))
    cause = only(tmp_path, spec(*slower("kernel")), target="kernel", base=SOFTMAX, this=slow, lines=ways)
    assert (cause.cause, cause.grade) == (LATENCY_OPERATOR, DECISIVE) and "aten::bmm slowed" in cause.statement
    told = [seen.text for seen in cause.evidence]
    assert "of its file ran in the baseline alone: line 2" in told and "of its file ran here alone: line 3" in told


def test_device_functions_hold_a_gpus_time(tmp_path: Path) -> None:
    made = spec(*slower("math", by=1.2), device="cuda")
    cause = only(
        tmp_path, made, "math", target="math", device="cuda", kind="device_function",
        base={"softmax_warp_forward": (1.0, 300.0)}, this={"softmax_warp_forward": (1.0, 470.0)},
    )  # fmt: skip
    assert cause.cause == LATENCY_OPERATOR and "softmax_warp_forward slowed" in cause.statement


def test_a_profile_that_goes_the_other_way_explains_nothing(tmp_path: Path) -> None:
    cause = only(tmp_path, spec(*slower("kernel")), target="kernel", base=SAFE, this=SOFTMAX)
    assert cause.cause == UNDECIDED


def test_a_reference_alone_is_slower_by_its_own_operator(tmp_path: Path) -> None:
    cause = only(tmp_path, spec(*slower("math")), "math")
    assert (cause.cause, cause.grade) == (LATENCY_OPERATOR, STRONG)
    assert cause.next_command.startswith("nox -s explain")


def test_a_renamed_operator_is_no_other(tmp_path: Path) -> None:
    cases = {
        (BASE, "flash", "seed-fp16"): Case(operators=(FLASH,)),
        (NEXT, "flash", "seed-fp16"): Case(operators=(f"{FLASH}_for_cpu",), slowdown=1.3),
    }
    cause = only(tmp_path, Spec(trials=2, cases=cases, spread=0.004), "flash")
    assert "by the same operator" in cause.statement


def test_another_operator_under_the_name(tmp_path: Path) -> None:
    cases = {
        (BASE, "math", "seed-fp16"): Case(operators=("aten::a",)),
        (NEXT, "math", "seed-fp16"): Case(operators=("aten::b",), slowdown=1.3),
    }
    cause = only(tmp_path, Spec(trials=2, cases=cases, spread=0.004), "math")
    assert (cause.cause, cause.grade) == (LATENCY_OPERATOR, STRONG) and "another operator" in cause.statement


def test_many_small_calls_instead_of_few_are_overhead_and_no_operator(tmp_path: Path) -> None:
    few = {"aten::bmm": (2.0, 500.0), "aten::softmax": (1.0, 250.0)}
    many = {"aten::bmm": (128.0, 800.0), "aten::softmax": (64.0, 500.0)}
    cause = only(tmp_path, spec(*slower("kernel", by=1.7)), target="kernel", base=few, this=many)
    assert (cause.cause, cause.grade) == (LATENCY_LAUNCH_OVERHEAD, STRONG)


def test_the_hosts_part_of_a_call_on_a_gpu(tmp_path: Path) -> None:
    made = spec(
        ("kernel", Case(slowdown=1.5, hot_slowdown=1.0)), device="cuda", times_us={("kernel", "seed-fp16"): 12.0},
        enqueue_us={NEXT: 13.0},
    )  # fmt: skip
    cause = only(tmp_path, made)
    assert (cause.cause, cause.grade) == (LATENCY_LAUNCH_OVERHEAD, DECISIVE)
    assert any(each.rival == "the device's work" for each in cause.ruled_out)


def test_replays_that_moved_too_are_not_the_hosts_part(tmp_path: Path) -> None:
    made = spec(*slower("kernel"), device="cuda", enqueue_us={NEXT: 13.0})
    assert only(tmp_path, made).cause == UNDECIDED


def test_the_same_microseconds_on_small_problems_and_large(tmp_path: Path) -> None:
    cases = {(NEXT, "kernel", "small-fp16"): Case(slowdown=2.0), (NEXT, "kernel", "small-fp32"): Case(slowdown=1.01)}
    made = Spec(trials=2, cases=cases, workloads=("small-fp16", "small-fp32"), times_us=SMALL, spread=0.001)
    found = timed(tmp_path, made)
    assert [cause.cause for cause in found] == [LATENCY_LAUNCH_OVERHEAD]


def test_work_that_grows_with_the_problem_is_no_overhead(tmp_path: Path) -> None:
    made = Spec(
        trials=2, cases={(NEXT, "kernel", "*"): Case(slowdown=2.0)}, workloads=("small-fp16", "small-fp32"),
        times_us=SMALL, spread=0.004,
    )  # fmt: skip
    assert {cause.cause for cause in timed(tmp_path, made)} == {UNDECIDED}


def test_operators_that_only_slowed_where_a_variable_differs_are_suggested(tmp_path: Path) -> None:
    made = spec(*slower("kernel"), variables={NEXT: {"MKL_CBWR": "COMPATIBLE"}})
    slow = {name: (calls, 1.4 * us) for name, (calls, us) in SOFTMAX.items()}
    cause = only(tmp_path, made, target="kernel", base=SOFTMAX, this=slow)
    assert (cause.cause, cause.grade) == (LATENCY_OPERATOR, SUGGESTIVE)


CHOSEN = {"aten::scaled_dot_product_attention": (1.0, 2.0)}


@pytest.mark.parametrize(
    ("before", "after", "parts"),
    [
        ({FLASH: (1.0, 800.0), **CHOSEN}, {MATH: (1.0, 2.0), **SOFTMAX, **CHOSEN}, [DEFAULT_BACKEND_MOVED]),
        ({FLASH: (1.0, 800.0), **CHOSEN}, {f"{FLASH}_for_cpu": (1.0, 1200.0), **CHOSEN}, []),  # another name
        ({FLASH: (1.0, 800.0), "aten::view": (4.0, 9.0)}, {MATH: (1.0, 2.0), **SOFTMAX}, []),  # the kernel chose
    ],
)
def test_a_choice_that_a_kernel_leaves_to_pytorch(before: Any, after: Any, parts: list[str], tmp_path: Path) -> None:
    made = spec(*slower("kernel", by=2.0))
    cause = only(tmp_path, made, target="kernel", base=before, this={**after, "aten::mul": (1.0, 700.0)})
    assert (cause.cause, [part.cause for part in cause.parts]) == (LATENCY_OPERATOR, parts)


def test_code_whose_time_moved_is_not_said_to_harm_nothing(tmp_path: Path) -> None:
    for by, harmless in ((3.0, False), (1.0, True)):
        write_run(tmp_path / str(by), spec(*slower("kernel", by=by), machine_code={NEXT: "new"}))
        said = [cause.statement for cause in explained(tmp_path / str(by)) if cause.cause == NOTHING_MOVED]
        assert len(said) == 1 and ("its machine code differs" in said[0]) is harmless
        assert ("Its time did move" in said[0]) is not harmless


def test_the_clock_moved_with_the_time(tmp_path: Path) -> None:
    made = spec(*slower(*TARGETS, by=1.25), device="cuda", sm_mhz={BASE: 1980.0, NEXT: 1590.0})
    cause = only(tmp_path, made)
    assert (cause.cause, cause.grade) == (LATENCY_CLOCK_OR_LOAD, DECISIVE)


def test_a_clock_that_moved_the_other_way_is_no_reason(tmp_path: Path) -> None:
    made = spec(*slower("kernel", by=1.25), device="cuda", sm_mhz={BASE: 1590.0, NEXT: 1980.0})
    assert only(tmp_path, made).cause == UNDECIDED


def test_others_kept_the_machine_busy(tmp_path: Path) -> None:
    cause = only(tmp_path, spec(*slower(*TARGETS), busy_in={NEXT: 0.6}))
    assert (cause.cause, cause.grade) == (LATENCY_CLOCK_OR_LOAD, STRONG)
    assert any("other processes used" in seen.text for seen in cause.evidence)


def test_all_slower_and_nothing_seen_is_suggestive_at_most(tmp_path: Path) -> None:
    cause = only(tmp_path, spec(*slower(*TARGETS)))
    assert (cause.cause, cause.grade) == (LATENCY_CLOCK_OR_LOAD, SUGGESTIVE)


def test_all_slower_where_the_settings_differ(tmp_path: Path) -> None:
    made = spec(*slower(*TARGETS), settings={BASE: {"mkldnn.enabled": "True"}, NEXT: {"mkldnn.enabled": "False"}})
    assert only(tmp_path, made).causes == (LATENCY_CLOCK_OR_LOAD, ENVIRONMENT_CONFOUNDER)


def test_who_is_busy_in_every_slower_launch_came_with_the_environment(tmp_path: Path) -> None:
    # The references' times waver so much that nothing can be said of them.
    made = spec(*slower("kernel", by=2.2), busy_in={NEXT: 0.45}, references=())
    cause = only(tmp_path, made)
    assert (cause.cause, cause.grade) == (LATENCY_CLOCK_OR_LOAD, STRONG)
    assert any("of the machine in each of the baseline's" in seen.text for seen in cause.evidence)


def test_time_outside_operators_is_no_operators_time(tmp_path: Path) -> None:
    made = spec(*slower("kernel", by=2.0))
    cause = only(tmp_path, made, target="kernel", base={OUTSIDE: (1, 90.0)}, this={OUTSIDE: (1, 180.0)})
    assert cause.cause == UNDECIDED
    assert OUTSIDE == operators.REST


def test_a_busy_machine_does_not_explain_one_target(tmp_path: Path) -> None:
    assert only(tmp_path, spec(*slower("kernel"), busy_in={NEXT: 0.6})).cause == UNDECIDED


@pytest.mark.parametrize(("flags", "wanted"), [({NEXT: ("-O0",)}, BUILD_MOVED), ({}, KERNEL_CODE_MOVED)])
def test_a_kernel_alone_is_slower_and_its_code_moved(flags: dict[str, Any], wanted: str, tmp_path: Path) -> None:
    cause = only(tmp_path, spec(*slower("kernel"), machine_code={NEXT: "new"}, flags=flags))
    assert (cause.cause, cause.grade) == (wanted, STRONG)


def test_the_same_code_alone_slower_is_undecided(tmp_path: Path) -> None:
    cause = only(tmp_path, spec(*slower("kernel")))
    assert cause.cause == UNDECIDED and "its machine code is the same" in cause.statement
    assert cause.next_command.startswith("nox -s explain")


def test_slower_and_faster_are_told_apart(tmp_path: Path) -> None:
    cases = {(NEXT, "math", "seed-fp16"): Case(slowdown=1.4), (NEXT, "math", "seed-fp32"): Case(slowdown=0.6)}
    found = timed(tmp_path, Spec(trials=2, cases=cases, spread=0.004), "math")
    assert {("slower" in cause.statement, cause.workloads) for cause in found} == {
        (True, ("seed-fp16",)),
        (False, ("seed-fp32",)),
    }


def test_a_control_is_no_cause(tmp_path: Path) -> None:
    again = f"{BASE}-r1"
    cases = {(again, "kernel", "*"): Case(slowdown=1.4)}
    run = write_run(tmp_path, Spec(trials=2, environments=(BASE, again), cases=cases, spread=0.004))
    assert all(cause.about != LATENCY for cause in explained(run.folder))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_no_rule_fires_on_a_healthy_matrix(seed: int, device: str, tmp_path: Path) -> None:
    """Two kernels, two references, all right and equally fast, each seed with other luck in its times."""
    made = Spec(trials=3, kernels=("one", "two"), device=device, seed=seed, machine_code={NEXT: str(seed)})
    found = explained(write_run(tmp_path, made).folder)
    assert {cause.cause for cause in found} == {NOTHING_MOVED}
    assert {cause.kernel for cause in found} == {"one", "two"}
