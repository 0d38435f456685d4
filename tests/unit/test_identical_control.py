"""The control of a run: what it says, and which ratios it forbids."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.schema.records import Load, TargetTiming
from harness.worker import measuring, wire
from reports.compare.identical import ControlOutcome, blocked_places, controls_of

PLACE = ("torch2.5.0", "cpu")


def evidence(*ratios: float, busy: float = 0.0, message: str = "") -> Any:
    """A run whose replicates have these ratios of the control's time to the same code's in the other process."""
    launches = []
    for ratio in ratios:
        timing = TargetTiming(
            workload="w",
            target="control:model",
            order=0,
            status="ok" if ratio else "crashed",
            message=message,
            samples_us=[100.0 * ratio] * 3 if ratio else [],
            beside_us=[100.0] * 3 if ratio else [],
        )
        load = Load(load_average=0.0, busy_share_others=busy, cpu_mhz=None, steal_share=None)
        launches.append(SimpleNamespace(timings=[timing], load=load))
    return SimpleNamespace(launch_records={("torch2.5.0", "k", "cpu"): launches}, confidence=0.95)


@pytest.mark.parametrize(
    ("ratios", "busy", "outcome"),
    [
        ([1.0, 0.99, 1.02], 0.0, ControlOutcome.HELD),
        ([1.05, 1.06, 1.07], 0.0, ControlOutcome.FAILED),
        ([1.05, 1.06, 1.07], 0.5, ControlOutcome.HELD),  # beside a busy core 8% are permitted
        ([0.9, 0.91, 0.92], 0.5, ControlOutcome.FAILED),
        ([6.7, 1.0, 6.9, 1.1], 0.0, ControlOutcome.UNSTEADY),  # as the fault was found
        ([6.7, 6.9, 7.1], 0.0, ControlOutcome.FAILED),
        ([0.0, 0.0], 0.0, ControlOutcome.NOT_MEASURED),
    ],
)
def test_identical_code_takes_the_same_time_or_there_are_no_ratios(
    ratios: list[float], busy: float, outcome: ControlOutcome
) -> None:
    run = evidence(*ratios, busy=busy, message="returned None")
    assert [each.outcome for each in controls_of(run)] == [outcome]
    assert (PLACE in blocked_places(run)) == (outcome is not ControlOutcome.HELD)


def test_what_forbids_a_ratio_is_said_with_its_numbers() -> None:
    assert blocked_places(evidence(6.7, 6.9, 7.1))[PLACE] == (
        "no ratio: the control failed: model in the kernel's process took 6.9 times (6.7 to 7.1, 3 replicates) what it "
        "took in the references' process; the limit is 1.03"
    )
    unmeasured = evidence(0.0, message="returned None")
    assert "the control was not measured: returned None" in blocked_places(unmeasured)[PLACE]


def test_a_run_without_a_control_is_not_blocked_by_one() -> None:
    run: Any = SimpleNamespace(launch_records={}, confidence=0.95)
    assert controls_of(run) == [] and blocked_places(run) == {}


def request(seed: int) -> Any:
    return SimpleNamespace(
        rows=[["w", "kernel"], ["w", "model"], ["v", "kernel"], ["v", "model"], ["w", "control:model"]], order_seed=seed
    )


def test_the_control_comes_before_the_kernels_code_is_loaded_and_on_either_side_of_the_model() -> None:
    orders = [[target for _, target in measuring.in_order(request(seed))] for seed in range(50)]
    assert all(order.index("control:model") < order.index("kernel") for order in orders)
    assert {order.index("control:model") < order.index("model") for order in orders} == {True, False}


def test_the_kernel_is_sampled_in_turns_with_its_first_reference() -> None:
    """The first in the request's order, as the control is, whatever the order in which rows are measured."""
    rows = [
        wire.TargetTiming("ok", workload="w", target=target) for target in ("math", "kernel", "flash", "control:flash")
    ]
    math, kernel, flash, control = rows
    asked = [["w", target] for target in ("kernel", "flash", "math", "control:flash")]
    assert measuring.pair_of(kernel, rows, asked) == measuring.pair_of(flash, rows, asked) == (kernel, flash)
    assert [measuring.pair_of(row, rows, asked) for row in (math, control)] == [(math, None), (control, None)]
