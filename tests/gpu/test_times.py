"""Cold and hot times on a real GPU: that they are times, and that nothing else gets into them."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from harness.gpu import Watch
from harness.run.believed import implausible
from harness.run.throttling import watched_launch
from harness.schema.records import LaunchRecord
from harness.schema.run_records import GpuFacts
from harness.worker import wire
from tests.gpu.conftest import REFERENCES, TIMING, Built, Here, kernel_of, row, workload

if TYPE_CHECKING:
    from harness.worker import events

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

WITHOUT_A_GRAPH = {
    "LEGACY_STREAM": "on another stream than the one it was given",
    "SKIPS_CAPTURE": "was not done at all",
    "SYNCHRONISES": "capturing its calls raised",
}


def test_every_target_has_cold_and_hot_times_with_their_moments(here: Here, built: Built, gpu: GpuFacts) -> None:
    shapes = [workload(), workload(seq_len=239)]
    with Watch(gpu.uuid, own=3) as watch:
        answer = here.time(built("shipped"), shapes, ["kernel", *REFERENCES])
    assert answer.result is not None, answer.ended.log
    record = LaunchRecord(
        environment="here",
        kernel="k",
        device="cuda",
        key="",
        index=0,
        position=0,
        started_utc="",
        duration_s=answer.ended.duration_s,
        **answer.result,
    )
    assert implausible(record, {(w["id"], t) for w in shapes for t in ["kernel", *REFERENCES]}) == ""
    record = watched_launch(record, watch, gpu.uuid)
    for timing in record.timings:
        if timing.status == "unsupported":  # PyTorch's own refusal, by version and device
            assert timing.target in ("cudnn", "efficient") and timing.message
            continue
        assert (timing.status, timing.clock, timing.hot_message) == ("ok", "cuda_event", ""), timing
        assert len(timing.samples_us) >= 10 and len(timing.hot_us) >= 10
        assert statistics.median(timing.hot_us) < statistics.median(timing.samples_us) * 1.05
        assert min(timing.enqueue_us) > 1
        assert timing.sm_mhz is not None and gpu.max_sm_mhz is not None and 300 < timing.sm_mhz <= gpu.max_sm_mhz
    first = min(timing.sampled_s[0] for timing in record.timings if timing.sampled_s)
    assert first == 0 and all(m >= 0 for t in record.timings for m in (*t.sampled_s, *t.hot_sampled_s))
    assert record.gpu is not None and record.gpu.readings > 10 and record.gpu.power_w and record.gpu.temperature_c
    assert record.gpu.other_processes == 0
    assert record.sampling_s is not None and 0 < record.sampling_s < record.duration_s


@pytest.mark.parametrize("fault", WITHOUT_A_GRAPH)
def test_a_call_that_no_graph_holds_has_no_hot_time_and_harms_no_other(here: Here, built: Built, fault: str) -> None:
    shapes = [workload(seq_len=128, head_dim=64), workload(seq_len=64, head_dim=64)]
    answer = here.time(built(fault), shapes, ["kernel", "flash", "math"])
    for shape in shapes:
        kernel = row(answer, "kernel", shape["id"])
        assert kernel["status"] == "ok" and len(kernel["samples_us"]) >= 10
        assert not kernel.get("hot_us") and WITHOUT_A_GRAPH[fault] in kernel["hot_message"]
        assert kernel.get("escaped") is {"LEGACY_STREAM": True, "SKIPS_CAPTURE": False}.get(fault)
        for target in ("flash", "math"):
            other = row(answer, target, shape["id"])
            assert other["status"] == "ok" and other["hot_us"] and not other.get("hot_message")


def test_a_right_kernel_has_both(here: Here, built: Built) -> None:
    kernel = row(here.time(built("NONE"), [workload(seq_len=128)], ["kernel"]), "kernel")
    assert kernel["status"] == "ok" and kernel["hot_us"] and not kernel.get("hot_message")


def test_the_slowed_kernel_gives_the_same_bits_in_a_little_more_time(here: Here, built: Built) -> None:
    shapes = [workload(batch=2, seq_len=1024), workload(batch=2, seq_len=1024, head_dim=128)]
    outputs, hot_us = [], []
    for name in ("shipped", "slowed"):
        out = here.work / f"out-{name}"
        assert here.candidate(kernel_of(built(name)), shapes[0], out)["status"] == "ok"
        outputs.append((out / "independent" / "0.bin").read_bytes())
        timed = here.time(built(name), shapes, ["kernel"])
        hot_us.append([statistics.median(row(timed, "kernel", shape["id"])["hot_us"]) for shape in shapes])
    assert outputs[0] == outputs[1]
    for shape, shipped_us, slowed_us in zip(shapes, *hot_us, strict=True):
        print(f"{shape['id']}: {shipped_us:.2f} us, slowed by {slowed_us / shipped_us - 1:.2%}")
        assert 0.01 < slowed_us / shipped_us - 1 < 0.08


def cold(call: Callable[[], object]) -> list[events.Sample]:
    from harness.worker import events  # in this process: it runs no code under test here

    timing, sampler = wire.SamplingRequest(**TIMING), events.ColdSampler(call)
    return events.collect(sampler, events.warm_up(sampler, timing)[1], timing)[0]


def median_us(samples: list[events.Sample]) -> float:
    return statistics.median(sample.us for sample in samples)


def hot(call, expected, call_us: float = 10.0) -> wire.TargetTiming:
    from harness.worker import graphs

    row = wire.TargetTiming("ok", samples_us=[call_us])
    graphs.sample(call, expected, wire.SamplingRequest(**TIMING), row)
    return row


def test_a_slow_host_is_not_measured() -> None:
    import time

    values = torch.ones(1 << 20, device="cuda")

    def slow() -> None:
        until = time.perf_counter() + 0.0004
        while time.perf_counter() < until:
            pass
        values.add_(1)

    quick, late = (median_us(cold(call)) for call in (lambda: values.add_(1), slow))
    assert late == pytest.approx(quick, rel=0.2) and late < 200
    enqueue_us = statistics.median(sample.enqueue_us for sample in cold(slow))
    assert 400 < enqueue_us < 600


def test_a_call_that_waits_for_the_device_is_timed_all_the_same() -> None:
    values = torch.ones(1 << 20, device="cuda")
    found = cold(lambda: (values.add_(1), torch.cuda.synchronize()))
    assert len(found) >= 10
    assert statistics.median(sample.enqueue_us for sample in found) > median_us(found)


def test_cold_is_cold_and_hot_is_hot() -> None:
    values = torch.ones(4 << 20, dtype=torch.float16, device="cuda")  # 8 MiB: in any large cache, unless it was flushed

    def call() -> torch.Tensor:
        return values.sum(dtype=torch.float32).reshape(1)

    cold_us = median_us(cold(call))
    row = hot(call, call(), cold_us)
    assert row.hot_message == "" and row.hot_calls_per_sample > 10
    assert statistics.median(row.hot_us) < 0.9 * cold_us


def test_a_replay_that_computes_something_else_is_no_time() -> None:
    counter = torch.zeros(1, device="cuda")

    def call() -> torch.Tensor:
        counter.add_(1)
        return counter + 0

    found = hot(call, call())
    assert not found.hot_us and "other bits than the first call" in found.hot_message


def test_after_captures_that_failed_memory_can_be_had_and_freed_and_the_stream_is_the_old_one() -> None:
    here = torch.cuda.current_stream()
    values = torch.ones(1 << 20, device="cuda")

    def call() -> torch.Tensor:
        result = values + 1
        result.sum().item()  # waits
        return result

    for _ in range(3):
        found = hot(call, call())
        assert "capturing its calls raised" in found.hot_message
        assert torch.cuda.current_stream() == here
        torch.cuda.empty_cache()  # an allocator that still captures asserts here
        torch.rand(1, device="cuda")  # and a generator here
    right = hot(lambda: values + 1, values + 1)
    assert right.hot_us


def test_an_output_that_cannot_be_poisoned_has_no_hot_time() -> None:
    values = torch.ones(16, dtype=torch.int64, device="cuda")
    assert "cannot be poisoned" in hot(lambda: values + 1, values + 1).hot_message


def test_ceilings_are_plausible(here: Here) -> None:
    found = here.result("ceilings", {"threads": 4})
    print(found)
    assert found["status"] == "ok" and set(found["matmul_tflops"]) == {"float16", "bfloat16", "float32"}
    assert found["matmul_tflops"]["float16"] > found["matmul_tflops"]["float32"] > 1
    properties = torch.cuda.get_device_properties(0)
    most_tflops = properties.multi_processor_count * 4096 * 2 * 2.5e9 / 1e12  # Hopper's per multiprocessor, and clock
    assert found["matmul_tflops"]["float16"] < 2 * most_tflops
    assert 50 < found["copy_gbps"] < 20_000 and found["copy_bytes"] > 1 << 28
