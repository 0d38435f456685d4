"""Conditions, the jobs they become, and what becomes of jobs whose process dies: without any process."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from harness.config.matrix import Limits, Tolerances
from harness.executors import Answer, Task
from harness.experiments import conditions
from harness.experiments.condition_list import MOST_SCORES, conditions_of, lengths, size_conditions
from harness.experiments.conditions import MOST_BYTES, Job, Session, in_processes, plan_jobs
from harness.schema.experiment_records import Condition, ConditionsExperiment
from harness.schema.records import Device
from harness.schema.run_records import Cell
from harness.schema.storage import Run
from harness.worker import protocol, wire
from tests.messages import answered
from tests.unit.contexts import FakeContext, ended
from tests.unit.hand_made import workload

TRIALS = {recipe: (0, 1, 2, 3, 4) for recipe in (*protocol.RECIPES, *protocol.EXTRA_RECIPES, *protocol.SCALED_RECIPES)}
REFERENCES = ["flash", "math", "default"]
ROWS = [Condition(label=f"{length} rows", seq_len=length) for length in (96, 1, 64)]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("experiment", get_args(ConditionsExperiment))
def test_conditions_are_told_apart_by_their_labels(experiment: ConditionsExperiment, device: Device) -> None:
    more = {"recipes": list(TRIALS)[:1], "sizes": size_conditions(workload(2, 8))}
    found = listed(experiment, device, **more)
    assert found
    for told_by in ({"label"}, {each.name for each in fields(Condition)} - {"label"}):
        assert len({tuple(getattr(c, name) for name in sorted(told_by)) for c in found}) == len(found)


def listed(
    experiment: ConditionsExperiment, device: Device = "cpu", *, problem: bool = False, **more: Any
) -> list[Condition]:
    return conditions_of(experiment, device, REFERENCES, problem=problem, **more)


def jobs(
    experiment: ConditionsExperiment,
    trials: Mapping[str, tuple[int, ...]] = TRIALS,
    output_bytes: int = 1000,
    **more: Any,
) -> list[Job]:
    return plan_jobs(experiment, listed(experiment, **more), trials, output_bytes)


def sizes(planned: list[Job]) -> list[int]:
    return [len(shared) for shared in in_processes(planned)]


@pytest.mark.parametrize(
    ("device", "sites"),
    [("cpu", {"output", "around", "heap", "stack"}), ("cuda", {"output", "around", "workspace", "shared"})],
)
def test_every_site_gets_every_pattern(device: Device, sites: set[str]) -> None:
    patterns = ("zero", "nan", "max", "random")
    assert {(c.site, c.pattern) for c in listed("poison", device)} == {(s, p) for s in sites for p in patterns}


def test_predecessors_are_all_references_another_operator_and_nobody() -> None:
    assert [c.before for c in listed("predecessor")] == ["", *REFERENCES, "unrelated", "fresh"]


def test_a_side_stream_is_of_a_gpu_and_a_problem_has_one_recipe() -> None:
    cpu = listed("inputs")
    assert [c for c in listed("inputs", "cuda") if c not in cpu] == [
        Condition(label="on another stream", stream="side")
    ]
    assert {c.recipe for c in cpu} == set(TRIALS)
    assert {c.layout for c in cpu} == {"contiguous", "offset", "misaligned", "strided"}
    assert [c.recipe for c in listed("inputs", problem=True)] == ["independent", "halved_4", "halved_8"]


def test_what_must_be_first_has_a_process_of_its_own() -> None:
    planned = jobs("predecessor")
    processes = list(in_processes(planned))
    assert [len(shared) for shared in processes] == [1, 5]
    assert (processes[0][0].trials, processes[0][0].repeats) == ((0,), 1)
    assert sorted(job.number for shared in processes for job in shared) == [job.number for job in planned]


def test_a_sequence_is_called_in_each_of_two_fresh_processes() -> None:
    planned = jobs("history", trials={"large_logits": (3, 0, 1)}, recipes=["large_logits"])
    assert [(job.condition.process, job.trials, job.repeats) for job in planned] == [
        (1, (3, 0, 1), 2),
        (2, (3, 0, 1), 2),
    ]
    assert sizes(planned) == [1, 1]


def test_a_kernel_that_is_cast_for_good_has_a_process_of_its_own() -> None:
    planned = jobs("wider", problem=True)
    assert [job.condition.dtype for job in planned] == ["", "float64"] and sizes(planned) == [1, 1]


def test_each_length_is_called_once() -> None:
    planned = jobs("lengths", trials={"independent": (3, 0, 1)}, sizes=ROWS)
    assert [(job.condition.seq_len, job.trials, job.repeats) for job in planned] == [
        (each.seq_len, (3,), 1) for each in ROWS
    ]


def test_large_outputs_are_shared_out_and_repeated_less() -> None:
    few = jobs("repeat", output_bytes=MOST_BYTES // 10)
    assert [job.repeats for job in few] == [10, 10] and [job.repeats for job in jobs("repeat")] == [50, 50]
    assert sizes(few) == [1, 1]
    assert [job.repeats for job in jobs("repeat", output_bytes=MOST_BYTES * 9)] == [2, 2]


# -- sequence lengths ----------------------------------------------------------------------------------------------


def test_its_own_comes_first_and_each_tile_has_whole_ones_and_others() -> None:
    found = lengths(workload(1, 8, 512, 64))
    assert found[0] == 512 and len(found) == len(set(found)) and min(found) == 1
    for tile in (16, 32, 64, 128):
        assert any(each % tile == 0 for each in found) and any(each % tile for each in found)
        assert any(each % tile == 0 and each // tile % 2 for each in found), "or a tile of twice that would fit as well"


def test_what_would_take_too_long_in_float64_is_left_out() -> None:
    found = size_conditions(workload(4, 16, 4096, 128))
    assert found and max(each.seq_len**2 * (each.heads or 16) * (each.batch or 4) for each in found) <= MOST_SCORES


def test_few_heads_and_small_batches_are_tried_and_the_smallest_of_all() -> None:
    every = size_conditions(workload(2, 8, 100, 64))
    assert {each.head_dim for each in every} == {0, 16, 32, 40, 48, 72, 80, 96, 128}
    found = [(each.batch, each.heads, each.seq_len) for each in every if not each.head_dim]
    assert {(0, 1, 100), (0, 4, 100), (1, 0, 100), (4, 0, 100), (1, 1, 1)} <= set(found)
    assert found[0] == (0, 0, 100) and len(set(found)) == len(found) and (2, 0, 100) not in found
    [alone] = [each.label for each in size_conditions(workload(1, 1, 100, 64)) if each.seq_len == 1]
    assert alone == "1 rows"


class Scripted:
    """An executor whose kernel dies, hangs or is refused at given jobs; a container brings nothing back of a hang."""

    def __init__(
        self,
        out: Path,
        *,
        dies: Collection[int] = (),
        hangs: Collection[int] = (),
        loses: Collection[int] = (),
        container: bool = False,
        answer: dict[str, Any] | None = None,
        wrong: Callable[[tuple[int, int, int, int]], Any] = lambda sizes: False,
    ) -> None:
        self.out, self.dies, self.hangs, self.loses = out, dies, hangs, loses
        self.container, self.answer, self.wrong = container, answer, wrong
        self.asked: list[list[int]] = []
        self.variables: list[Mapping[str, str]] = []

    def run(self, task: Task) -> Answer:
        numbers = [job.number for job in task.request.jobs]
        if task.name == "weigh":
            wrong = {job.number: self.wrong(job.condition.sizes) for job in task.request.jobs}
            rows = [{"number": n, "status": "ok", "runs": 2, "passed": 0 if wrong[n] else 2} for n in numbers]
            return Answer(result=answered(status="ok", results=rows), ended=ended(0))
        self.asked.append(numbers)
        self.variables.append(task.terms.variables or {})
        if self.answer is not None:
            return Answer(result=answered(**self.answer), ended=ended(0))
        for number in numbers:
            if number in self.dies:
                return Answer(result=None, ended=ended(-6))
            if number in self.hangs:
                if self.container:
                    for other in numbers:
                        (self.out / str(other) / "done.json").unlink(missing_ok=True)
                return Answer(result=None, ended=ended(-9, timed_out=True))
            folder = self.out / str(number)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "done.json").write_text(json.dumps(answered(status="ok")))
            if number in self.loses:
                break
        return Answer(result=answered(status="ok"), ended=ended(0))


Play = Callable[..., tuple[Session, Scripted]]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """A session of the poison experiment's sixteen jobs, by a script: the session and the executor afterwards."""
    monkeypatch.setattr(Session, "_build_probes", lambda self: None)
    plan = SimpleNamespace(
        seed=0,
        tolerances=Tolerances(),
        limits=Limits(validation_s=9.0),
        threads_in=lambda environment: 1,
        variables={"e": {"GLIBC_TUNABLES": "glibc.malloc.arena_max=1", "OWN": "1"}},
        workload=lambda id: workload(2, 8, 100),
        kernel=lambda name: SimpleNamespace(precision=None),
    )
    monkeypatch.setattr(
        conditions, "workload_request", lambda *_: wire.WorkloadRequest(id="w", dtype="float32", recipes={})
    )
    monkeypatch.setattr(conditions, "kernel_request", lambda *_: wire.KernelRequest(name="k", device="cpu"))
    cell = Cell(environment="e", kernel="k", workload="w", device="cpu")

    def run(experiment: ConditionsExperiment = "poison", **script: Any) -> tuple[Session, Scripted]:
        context: Any = FakeContext(plan=plan, run=Run(tmp_path), builds={("e", "k", "cpu"): None})
        more = {"recipes": ["independent"], "sizes": size_conditions(plan.workload("w"))}
        one = Session(context, cell, jobs(experiment, **more))
        context.executor = Scripted(one.out, **script)
        one.run()
        one.shrink()
        return one, context.executor

    return run


FIRST, HEAP = list(range(12)), list(range(12, 16))  # jobs of the first process, and of the second


def test_a_crash_takes_one_condition_and_the_rest_goes_on(play: Play) -> None:
    one, executor = play(dies={3, 4})
    assert executor.asked == [FIRST, FIRST[4:], FIRST[5:], HEAP]
    assert {n for n, r in one.results.items() if r.status != "ok"} == {3, 4}
    assert one.results[3].status == "crashed" and "SIGABRT" in one.results[3].message
    assert one.results[3].log_excerpt == "the log"


def test_the_heap_is_filled_in_a_process_whose_threads_keep_no_blocks(play: Play) -> None:
    one, executor = play()
    assert executor.asked == [FIRST, HEAP]
    assert {job.condition.site for job in one.jobs[12:]} == {"heap"}
    own = {"GLIBC_TUNABLES": "glibc.malloc.arena_max=1", "OWN": "1"}
    bare = "glibc.malloc.arena_max=1:glibc.malloc.tcache_count=0"
    assert executor.variables == [own, {**own, "GLIBC_TUNABLES": bare}]


def test_a_kernel_that_always_crashes_is_given_up(play: Play) -> None:
    one, executor = play(dies={*FIRST, *HEAP})
    assert len(executor.asked) == conditions.MOST_ENDS
    assert [one.results[n].status for n in (*FIRST, *HEAP)] == ["crashed"] * 4 + ["not_run"] * 12
    assert "4 processes before it were lost" in one.results[15].message


def test_a_hang_is_the_condition_that_was_running(play: Play) -> None:
    one, _ = play(hangs={2})
    assert {n: r.status for n, r in one.results.items() if r.status != "ok"} == {2: "timed_out"}


def test_a_hang_in_a_container_is_looked_for_one_by_one(play: Play) -> None:
    one, executor = play(hangs={1}, container=True)
    assert executor.asked[:3] == [FIRST, [0], [1]]
    assert one.results[0].status == "ok" and one.results[1].status == "timed_out"
    assert one.results[15].status == "not_run", "a second hang would cost too much"


def test_a_device_that_a_condition_lost_is_had_again_by_the_next_process(play: Play) -> None:
    one, executor = play(loses={2, 5})
    assert executor.asked == [FIRST, FIRST[3:], FIRST[6:], HEAP]
    assert {r.status for r in one.results.values()} == {"ok"}
    one, executor = play(loses={*FIRST, *HEAP})
    assert len(executor.asked) == conditions.MOST_ENDS, "a kernel that loses it every time is given up"


def test_a_kernel_that_cannot_be_loaded_fails_all(play: Play) -> None:
    answer = {"status": "crashed", "message": "loading k.so raised", "log_excerpt": "trace"}
    one, executor = play(answer=answer)
    assert len(executor.asked) == 1 and one.stopped is not None and one.stopped.message == "loading k.so raised"
    assert {r.status for r in one.results.values()} == {"crashed"}


def test_a_process_that_says_it_is_done_and_did_nothing_is_no_result(play: Play) -> None:
    one, executor = play(answer={"status": "ok", "message": ""})
    assert len(executor.asked) == conditions.MOST_ENDS
    assert {r.status for r in one.results.values()} == {"not_run"}


# -- smaller sizes -------------------------------------------------------------------------------------------------


def test_a_failure_is_shrunk_in_the_same_session(play: Play) -> None:
    one, executor = play(experiment="lengths", wrong=lambda sizes: (sizes[2] or 100) > 40)
    planned = len(executor.asked[0])
    assert len(executor.asked) > 1 and len(one.jobs) > planned
    assert set(one.results) == {job.number for job in one.jobs}


def test_nothing_more_is_tried_where_nothing_fails_or_nothing_runs(play: Play) -> None:
    for script in ({"wrong": lambda sizes: False}, {"answer": {"status": "crashed", "message": "loading k.so raised"}}):
        _, executor = play(experiment="lengths", **script)
        assert len(executor.asked) == 1
    _, executor = play(experiment="lengths", dies=range(1000))
    most = conditions.MOST_ENDS_BY_SIZE
    assert conditions.MOST_ENDS < len(executor.asked) <= most, "shrinking does not revive what was given up"
