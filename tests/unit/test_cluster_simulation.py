"""The simulation of benchmarks/cluster_simulation.py against closed forms, and against a run that was recorded."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from benchmarks.cluster_costs import gpu_hours, records_of
from benchmarks.cluster_figures import Figures, Outputs, recorded
from benchmarks.cluster_simulation import HOUR, Assumptions, Cluster, Plan, proven_s
from harness.schema.experiment_records import CheckersRecord, ConditionsRecord, ProfileRecord, SwapRecord
from harness.schema.storage import Run
from tests.unit.committed import committed

PLAIN = Figures(
    run="none",
    start_s=0,
    environment_s=0,
    build_s=0,
    validation_s=0,
    launch_s=10,
    workloads=4,
    launch_bytes=1000,
    validation_bytes=500,
    artifact_bytes=100,
    outputs=(),
)
NOTHING_HAPPENS = Assumptions(
    load=0, latency_s=0, node_days=math.inf, job_failures_per_h=0, spread=0, explained_s=0, packed_gb=0, unpack_s=0
)
EXPERIMENTS = (CheckersRecord, ConditionsRecord, ProfileRecord, SwapRecord)
SHARD_S = 5 * 10 * 4  # versions, seconds of a launch, blocks


def plan(**changes: object) -> Plan:
    small = Plan(gpus=16, exclusive=False, versions=5, kernels=40, blocks=4, seal_s=0, figures=PLAIN)
    return replace(small, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(("gpus", "kernels"), [(16, 40), (16, 32), (16, 33), (1, 3), (100, 40)])
def test_equal_shards_take_whole_rounds(gpus: int, kernels: int) -> None:
    result = Cluster(plan(gpus=gpus, kernels=kernels), NOTHING_HAPPENS).run()
    assert result.wall_s == math.ceil(kernels / gpus) * SHARD_S
    assert result.held_s == result.launches_s == kernels * SHARD_S and result.jobs == kernels


def test_a_node_to_each_shard_holds_all_of_its_gpus() -> None:
    alone = plan(exclusive=True)
    result = Cluster(alone, NOTHING_HAPPENS).run()
    assert result.wall_s == math.ceil(40 / 2) * SHARD_S
    assert gpu_hours(alone, result.held_s) == pytest.approx(8 * 40 * SHARD_S / HOUR)


@pytest.mark.parametrize("others", [4, 2, 1, 3])
def test_smaller_shards_launch_the_baseline_again(others: int) -> None:
    cut = plan(gpus=1, others=others)
    shards = math.ceil(4 / others)
    result = Cluster(cut, NOTHING_HAPPENS).run()
    assert result.wall_s == result.launches_s == 40 * (4 + shards) * 10 * 4
    assert result.jobs == 40 * shards and records_of(cut).launches * 10 == result.launches_s


def test_shards_that_are_sealed_slowly_start_one_by_one() -> None:
    result = Cluster(plan(gpus=64, seal_s=7), NOTHING_HAPPENS).run()
    assert result.wall_s == 40 * 7 + SHARD_S and result.submitted_s == 280


@pytest.mark.parametrize(("limit_s", "attempts"), [(300, 1), (299, 2), (160, 2), (120, 3), (50, 6)])
def test_a_shard_goes_on_after_its_limit_with_whole_blocks(limit_s: float, attempts: int) -> None:
    result = Cluster(plan(kernels=1, blocks=6, limit_s=limit_s), NOTHING_HAPPENS).run()
    blocks = math.floor(limit_s / 50)  # of an attempt
    assert result.jobs == attempts and result.without_result == 0
    assert result.lost_s == pytest.approx((attempts - 1) * (limit_s - 50 * blocks))
    assert result.wall_s == pytest.approx(300 + result.lost_s)


@pytest.mark.parametrize("limit_s", [49, 50, 66])
def test_three_attempts_that_do_not_suffice_gave_no_result(limit_s: float) -> None:
    result = Cluster(plan(limit_s=limit_s, progress=False), NOTHING_HAPPENS).run()
    assert result.without_result == 40 and result.ends == {"limit": 120} and result.launches_s == 0


def test_three_jobs_in_a_row_that_got_no_further_give_no_result() -> None:
    """The first got further: it validated, and launched a part of a block."""
    result = Cluster(plan(limit_s=49), NOTHING_HAPPENS).run()
    assert result.without_result == 40 and result.ends == {"limit": 4 * 40} and result.launches_s == 0


def test_each_node_reads_and_unpacks_every_environment_once() -> None:
    assumed = replace(NOTHING_HAPPENS, packed_gb=2, unpacked_gb=4, unpack_s=3, node_gb_s=1, file_system_gb_s=1)
    result = Cluster(plan(), assumed).run()
    assert result.read_gb == 2 * 5 * 2 and len(result.unpacked_s) == 2
    # One stream for two nodes: each reads while the other unpacks and waits, a step of max(2 x 2 s, 2 s + 3 s).
    assert max(result.unpacked_s) == 2 + 5 * 5
    assert result.wall_s == pytest.approx(math.ceil(40 / 16) * SHARD_S + 27, abs=2)


def test_builds_on_other_nodes_are_made_once_a_kernel_and_waited_for() -> None:
    built = replace(PLAIN, build_s=6)
    result = Cluster(plan(gpus=80, figures=built, builders=8, others=2), NOTHING_HAPPENS).run()
    assert result.wall_s == 40 / 8 * 5 * 6 + 3 * 10 * 4
    within = Cluster(plan(gpus=1, kernels=1, figures=built, others=2), NOTHING_HAPPENS).run()
    assert within.wall_s == 5 * 6 / 2 + 2 * 3 * 10 * 4  # two at a time, and the baseline's once


def test_jobs_of_others_leave_their_share() -> None:
    """Of a long queue, the time is the work over what is left."""
    busy = replace(NOTHING_HAPPENS, load=0.5, others_h=SHARD_S / HOUR)
    result = Cluster(plan(kernels=1000), busy).run()
    assert result.wall_s == pytest.approx(1000 * SHARD_S / (16 * 0.5), rel=0.1)


def test_nodes_that_fail_cost_what_was_lost_and_no_attempt() -> None:
    failing = replace(NOTHING_HAPPENS, node_days=SHARD_S / HOUR / 24, repair_h=0)
    result = Cluster(plan(gpus=8), failing).run()
    assert result.ends["done"] == 40 and result.ends["node"] > 40 and result.without_result == 0
    assert result.held_s == pytest.approx(result.launches_s + result.lost_s)
    # At random within blocks of 50 s: half a block each, on average.
    assert result.lost_s / result.ends["node"] == pytest.approx(25, rel=0.3)


def test_the_same_seed_is_the_same_cluster() -> None:
    busy = replace(Assumptions(), node_days=0.1, job_failures_per_h=1)
    results = [Cluster(plan(), busy, seed).run() for seed in (1, 1, 2)]
    assert results[0] == results[1] != results[2]


def test_outputs_are_compared_in_pairs() -> None:
    outputs = Outputs(each=4, recipes=3, elements=8, pair_bytes=100)
    assert outputs.pairs(2) == 3 * 36 and outputs.pairs(50) == 3 * 201 * 200 / 2
    compared = plan(figures=replace(PLAIN, outputs=(outputs,)))
    assert records_of(compared).largest_comparison_mb == pytest.approx(outputs.pairs(5) * 100 / 1e6)


def test_a_shard_takes_what_the_recorded_run_took(tmp_path: Path) -> None:
    """Two environments, 16 launches each: from the recorded parts back to the whole, which is not one of them."""
    figures = recorded("h200-own-kernel")
    run = Run(committed(tmp_path, "h200-own-kernel")[0])
    record = run.load()
    took_s = (datetime.fromisoformat(record.finished_utc) - datetime.fromisoformat(record.created_utc)).total_seconds()
    bindings_s = sum(each.binding_s or 0 for each in run.builds())
    explained_s = sum(each.duration_s or 0 for model in EXPERIMENTS for each in run.experiments(model))
    assumed = replace(NOTHING_HAPPENS, explained_s=explained_s)
    plan = Plan(gpus=1, exclusive=False, versions=2, kernels=1, blocks=16, seal_s=0, figures=figures)
    simulated_s = Cluster(plan, assumed).run().wall_s + bindings_s / 2
    assert simulated_s == pytest.approx(took_s, rel=0.05)
    assert proven_s(figures, 2) < 20
