"""Times that moved: which part of a call, an operator or the machine took them, and what is not blamed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.worker import operators
from reports.attribute import causes, explained
from reports.attribute.causes import DECISIVE, STRONG, SUGGESTIVE
from reports.attribute.facts.profiles import OUTSIDE
from tests.unit.experiments import KERNEL
from tests.unit.spec import BASE, NEXT, Case, Spec
from tests.unit.synthetic import write_run
from tests.unit.timed import SAFE, SOFTMAX, TARGETS, only, slower, spec, timed

FLASH = "aten::_scaled_dot_product_flash_attention"
MATH = "aten::_scaled_dot_product_attention_math"
SMALL = {(target, f"small-{n}"): us for target in TARGETS for n, us in (("fp16", 20.0), ("fp32", 2000.0))}


def ran_as(base: str, this: str, target: str) -> Spec:
    """The operators of a reference that is slower."""
    cases = {
        (BASE, target, "seed-fp16"): Case(operators=(base,)),
        (NEXT, target, "seed-fp16"): Case(operators=(this,), slowdown=1.3),
    }
    return Spec(trials=2, cases=cases, spread=0.004)


ON_GPU: dict[str, Any] = {"target": "math", "device": "cuda", "kind": "device_function"}
HOST = spec(
    ("kernel", Case(slowdown=1.5, hot_slowdown=1.0)),
    device="cuda",
    times_us={("kernel", "seed-fp16"): 12.0},
    enqueue_us={NEXT: 13.0},
)
REPLAYS_TOO = spec(*slower("kernel"), device="cuda", enqueue_us={NEXT: 13.0})
OTHER_CODE: dict[str, Any] = {"machine_code": {NEXT: "new"}}
BY_CLOCK = spec(*slower(*TARGETS, by=1.25), device="cuda", sm_mhz={BASE: 1980.0, NEXT: 1590.0})
FASTER_CLOCK = spec(*slower("kernel", by=1.25), device="cuda", sm_mhz={BASE: 1590.0, NEXT: 1980.0})
FEW = {"aten::bmm": (2.0, 500.0), "aten::softmax": (1.0, 250.0)}
MANY = {"aten::bmm": (128.0, 800.0), "aten::softmax": (64.0, 500.0)}
ALL_SLOWER = {name: (calls, 1.4 * us) for name, (calls, us) in SOFTMAX.items()}


SAME, OTHER = "the same operator", "another operator"
BUSY: dict[str, Any] = {"busy_in": {NEXT: 0.6}}
O0: dict[str, Any] = {"flags": {NEXT: ("-O0",)}}
FLAG: dict[str, Any] = {"variables": {NEXT: {"MKL_CBWR": "COMPATIBLE"}}}
IN_CODE = {OUTSIDE: (1, 90.0)}, {OUTSIDE: (1, 180.0)}


@pytest.mark.parametrize(
    ("made", "subject", "profiled", "cause", "grade", "text"),
    [
        (spec(*slower("math")), "math", (SOFTMAX, SAFE), causes.LATENCY_OPERATOR, DECISIVE, "_safe_softmax appeared"),
        (spec(*slower("math", by=0.7)), "math", (SAFE, SOFTMAX), causes.LATENCY_OPERATOR, DECISIVE, "vanished"),
        (spec(*slower("kernel")), KERNEL, (SAFE, SOFTMAX), causes.UNDECIDED, causes.UNDECIDED, ""),  # the other way
        (spec(*slower("math")), "math", None, causes.LATENCY_OPERATOR, STRONG, SAME),
        (ran_as(FLASH, f"{FLASH}_for_cpu", "flash"), "flash", None, causes.LATENCY_OPERATOR, STRONG, SAME),
        (ran_as("aten::a", "aten::b", "math"), "math", None, causes.LATENCY_OPERATOR, STRONG, OTHER),
        (spec(*slower("kernel", by=1.7)), KERNEL, (FEW, MANY), causes.LATENCY_LAUNCH_OVERHEAD, STRONG, "starting them"),
        (HOST, KERNEL, None, causes.LATENCY_LAUNCH_OVERHEAD, DECISIVE, "the host's part of a call"),
        (REPLAYS_TOO, KERNEL, None, causes.UNDECIDED, causes.UNDECIDED, ""),
        (spec(*slower("kernel"), **FLAG), KERNEL, (SOFTMAX, ALL_SLOWER), causes.LATENCY_OPERATOR, SUGGESTIVE, "slowed"),
        (BY_CLOCK, KERNEL, None, causes.LATENCY_CLOCK_OR_LOAD, DECISIVE, "the GPU's clock moved with it"),
        (FASTER_CLOCK, KERNEL, None, causes.UNDECIDED, causes.UNDECIDED, ""),
        (spec(*slower(*TARGETS), **BUSY), KERNEL, None, causes.LATENCY_CLOCK_OR_LOAD, STRONG, "other processes used"),
        (spec(*slower(*TARGETS)), KERNEL, None, causes.LATENCY_CLOCK_OR_LOAD, SUGGESTIVE, ""),
        (  # references would say nothing
            spec(*slower("kernel", by=2.2), busy_in={NEXT: 0.45}, references=()),
            KERNEL,
            None,
            causes.LATENCY_CLOCK_OR_LOAD,
            STRONG,
            "launches in PyTorch 2.1.0, ",
        ),
        (spec(*slower("kernel"), **BUSY), KERNEL, None, causes.UNDECIDED, causes.UNDECIDED, ""),
        (spec(*slower("kernel", by=2.0)), KERNEL, IN_CODE, causes.UNDECIDED, causes.UNDECIDED, ""),
        (spec(*slower("kernel"), **OTHER_CODE, **O0), KERNEL, None, causes.BUILD_MOVED, STRONG, ""),
        (spec(*slower("kernel"), **OTHER_CODE), KERNEL, None, causes.KERNEL_CODE_MOVED, STRONG, ""),
        (spec(*slower("kernel")), KERNEL, None, causes.UNDECIDED, causes.UNDECIDED, "its machine code is the same"),
    ],
)
def test_what_took_the_time(
    made: Spec, subject: str, profiled: Any, cause: str, grade: str, text: str, tmp_path: Path
) -> None:
    target = "kernel" if subject == KERNEL else subject
    profile = {"target": target, "base": profiled[0], "this": profiled[1]} if profiled else {}
    found = only(tmp_path, made, subject, **profile)
    assert (found.cause, found.grade) == (cause, grade)
    assert any(text in each for each in (found.statement, *(seen.text for seen in found.evidence)))


def test_a_profile_has_one_name_for_what_is_no_operator() -> None:
    assert OUTSIDE == operators.REST


def test_a_card_shows_the_operator_first_and_what_did_not_move(tmp_path: Path) -> None:
    cause = only(tmp_path, spec(*slower("math")), "math", target="math", base=SOFTMAX, this=SAFE)
    assert cause.figures[0].rows[0][0] == "aten::_safe_softmax"
    assert any("did not change" in each.how for each in cause.ruled_out)
    assert cause.next_command.startswith("nox -s explain")


def test_device_functions_hold_a_gpus_time(tmp_path: Path) -> None:
    base, this = ({"softmax_warp_forward": (1.0, us)} for us in (300.0, 470.0))
    cause = only(tmp_path, spec(*slower("math", by=1.2), device="cuda"), "math", base=base, this=this, **ON_GPU)
    assert cause.cause == causes.LATENCY_OPERATOR and "softmax_warp_forward slowed" in cause.statement


def test_an_operator_that_slowed(tmp_path: Path) -> None:
    slow = SOFTMAX | {"aten::bmm": (2.0, 720.0)}
    ways = ((1, 2), (1, 3))
    cause = only(tmp_path, spec(*slower("kernel")), target="kernel", base=SOFTMAX, this=slow, lines=ways)
    assert (cause.cause, cause.grade) == (causes.LATENCY_OPERATOR, DECISIVE) and "aten::bmm slowed" in cause.statement
    told = [seen.text for seen in cause.evidence]
    assert "lines of its file that ran only in PyTorch 2.1.0: line 2" in told
    assert "lines of its file that ran only in PyTorch 2.5.0: line 3" in told


@pytest.mark.parametrize(
    ("large", "spread", "cause"),
    [(1.01, 0.001, causes.LATENCY_LAUNCH_OVERHEAD), (2.0, 0.004, causes.UNDECIDED)],
    ids=["the same microseconds", "work that grows with the problem"],
)
def test_a_change_on_small_problems_and_large(large: float, spread: float, cause: str, tmp_path: Path) -> None:
    cases = {(NEXT, "kernel", "small-fp16"): Case(slowdown=2.0), (NEXT, "kernel", "small-fp32"): Case(slowdown=large)}
    made = Spec(trials=2, cases=cases, workloads=("small-fp16", "small-fp32"), times_us=SMALL, spread=spread)
    assert {found.cause for found in timed(tmp_path, made)} == {cause}


def test_a_time_that_nothing_recorded_explains(tmp_path: Path) -> None:
    cause = only(tmp_path, spec(*slower("kernel")))
    assert (cause.cause, cause.grade) == (causes.UNDECIDED, causes.UNDECIDED)
    assert "The records do not show why" in cause.statement and "its machine code is the same" in cause.statement
    assert "the kernel's code" in {each.rival for each in cause.ruled_out}
    assert cause.next_command.startswith("nox -s explain")


CHOSEN = {"aten::scaled_dot_product_attention": (1.0, 2.0)}


@pytest.mark.parametrize(
    ("before", "after", "parts"),
    [
        ({FLASH: (1.0, 800.0), **CHOSEN}, {MATH: (1.0, 2.0), **SOFTMAX, **CHOSEN}, [causes.DEFAULT_BACKEND_MOVED]),
        ({FLASH: (1.0, 800.0), **CHOSEN}, {f"{FLASH}_for_cpu": (1.0, 1200.0), **CHOSEN}, []),  # another name
        ({FLASH: (1.0, 800.0), "aten::view": (4.0, 9.0)}, {MATH: (1.0, 2.0), **SOFTMAX}, []),  # the kernel chose
    ],
)
def test_a_choice_that_a_kernel_leaves_to_pytorch(before: Any, after: Any, parts: list[str], tmp_path: Path) -> None:
    made = spec(*slower("kernel", by=2.0))
    cause = only(tmp_path, made, target="kernel", base=before, this={**after, "aten::mul": (1.0, 700.0)})
    assert (cause.cause, [part.cause for part in cause.parts]) == (causes.LATENCY_OPERATOR, parts)


@pytest.mark.parametrize(("by", "harmless"), [(3.0, False), (1.0, True)])
def test_code_whose_time_moved_is_not_said_to_harm_nothing(by: float, harmless: bool, tmp_path: Path) -> None:
    write_run(tmp_path, spec(*slower("kernel", by=by), **OTHER_CODE))
    (said,) = [cause.statement for cause in explained(tmp_path) if cause.cause == causes.NOTHING_MOVED]
    assert ("its machine code differs" in said) is harmless and ("Its time changed" in said) is not harmless


def test_all_slower_where_the_settings_differ(tmp_path: Path) -> None:
    made = spec(*slower(*TARGETS), settings={BASE: {"mkldnn.enabled": "True"}, NEXT: {"mkldnn.enabled": "False"}})
    assert only(tmp_path, made).causes == (causes.LATENCY_CLOCK_OR_LOAD, causes.ENVIRONMENT_CONFOUNDER)


def test_slower_and_faster_are_told_apart(tmp_path: Path) -> None:
    cases = {(NEXT, "math", "seed-fp16"): Case(slowdown=1.4), (NEXT, "math", "seed-fp32"): Case(slowdown=0.6)}
    found = timed(tmp_path, Spec(trials=2, cases=cases, spread=0.004), "math")
    told = {("slower" in cause.statement, cause.workloads) for cause in found}
    assert told == {(True, ("seed-fp16",)), (False, ("seed-fp32",))}


def test_a_control_is_no_cause(tmp_path: Path) -> None:
    again = f"{BASE}-r1"
    cases = {(again, "kernel", "*"): Case(slowdown=1.4)}
    run = write_run(tmp_path, Spec(trials=2, environments=(BASE, again), cases=cases, spread=0.004))
    assert all(cause.about != causes.LATENCY for cause in explained(run.folder))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_no_rule_fires_on_a_healthy_matrix(seed: int, device: str, tmp_path: Path) -> None:
    """Two kernels, two references, all right and equally fast, each seed with other luck in its times."""
    made = Spec(trials=3, kernels=("one", "two"), device=device, seed=seed, machine_code={NEXT: str(seed)})
    found = explained(write_run(tmp_path, made).folder)
    assert {cause.cause for cause in found} == {causes.NOTHING_MOVED}
    assert {cause.kernel for cause in found} == {"one", "two"}
