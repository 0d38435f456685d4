"""Engines: what Slurm is asked and what its answers mean, and which GPU of this host a shard goes to."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from harness.cluster import local, slurm
from harness.cluster.campaign import JobState, JobStatus
from harness.cluster.shards import Shard, plan_shards
from harness.config.matrix import load_matrix
from harness.errors import InfrastructureError, InputError
from harness.preflight import memory
from tests.unit.sharded import GPU, lay_out, planned


@dataclass
class Squeue:
    """`lines`: what squeue lists; `memory`: what sinfo does; `said`: what was asked of Slurm."""

    lines: str = ""
    memory: str = "1\n"
    said: list[tuple[str, ...]] = field(default_factory=list)

    def answer(self, *words: str) -> str:
        self.said.append(words)
        return self.memory if words[0] == "sinfo" else self.lines


@pytest.fixture
def squeue(monkeypatch: pytest.MonkeyPatch) -> Squeue:
    found = Squeue()
    monkeypatch.setattr(slurm, "_said", found.answer)
    monkeypatch.setattr(slurm.shutil, "which", lambda name: name)
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return lay_out(tmp_path)


def test_a_job_that_a_node_could_not_start_is_taken_back_and_queued_anew(squeue: Squeue) -> None:
    squeue.lines = "7|PENDING||launch failed requeued held\n8|PENDING||JobHeldUser\n"
    found = slurm.Slurm({}).states(["7", "8"])
    assert squeue.said[-1] == ("scancel", "7")
    assert {job: state.status for job, state in found.items()} == {"7": "ended", "8": "queued"}


def test_states_of_slurm_are_queued_running_or_ended(squeue: Squeue) -> None:
    squeue.lines = "7|PENDING||Resources\n8|RUNNING|n2|None\n9|NODE_FAIL|n3|None\n11|RUNNING|n4|None\n"
    found = slurm.Slurm({}).states(["7", "8", "9", "10"])
    assert {job: (state.status, state.node) for job, state in found.items()} == {
        "7": ("queued", ""),
        "8": ("running", "n2"),
        "9": ("ended", "n3"),
    }


def test_jobs_that_slurm_would_never_start_are_taken_back(squeue: Squeue) -> None:
    squeue.lines = "7|PENDING||PartitionTimeLimit\n8|PENDING||Priority\n"
    with pytest.raises(InfrastructureError, match="never start 1 of the jobs: PartitionTimeLimit"):
        slurm.Slurm({}).states(["7", "8"])
    assert squeue.said[-1] == ("scancel", "7", "8"), "nor is another one left queued"


def test_without_slurm_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm.shutil, "which", lambda name: None)
    with pytest.raises(InfrastructureError, match="there is no sbatch"):
        slurm.Slurm({})


def test_options_of_sbatch_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm.shutil, "which", lambda name: name)
    assert slurm.Slurm({"partition": "p", "cpus_per_task": "2"}).options == {
        "partition": "p",
        "cpus-per-task": "2",
    }


def test_a_controller_that_starts_again_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [(1, "", f"slurm_load_jobs error: {slurm.AWAY} (connect failure)"), (0, "8|PENDING||None\n", "")]
    monkeypatch.setattr(slurm.shutil, "which", lambda name: name)
    monkeypatch.setattr(slurm, "AGAIN_S", 0.0)
    monkeypatch.setattr(
        slurm.subprocess, "run", lambda *words, **options: subprocess.CompletedProcess(words, *answers.pop(0))
    )
    assert slurm.Slurm({}).states(["8"]) == {"8": JobState(JobStatus.QUEUED)} and not answers
    answers.append((1, "", "squeue: error: Invalid user"))
    with pytest.raises(InfrastructureError, match="Invalid user"):
        slurm.Slurm({}).states(["8"])


def test_a_shard_asks_for_the_memory_that_it_is_expected_to_need(root: Path, squeue: Squeue) -> None:
    [shard] = planned(root, "two")
    assert shard.memory_mib is not None and shard.memory_mib > 8 << 10
    assert "mem" not in slurm.Slurm({})._asked(shard), "Slurm does not know what its nodes have"
    squeue.memory = "512000\n64000\n"
    engine = slurm.Slurm({"partition": "p"})
    assert engine._asked(shard)["mem"] == f"{shard.memory_mib}M" and squeue.said[-1][-1] == "--partition=p"
    squeue.memory = "9000\n"
    assert slurm.Slurm({})._asked(replace(shard, memory_mib=20_000))["mem"] == "9000M", "there is no larger node"
    for own in ({"mem": "1G"}, {"mem-per-cpu": "1G"}, {"mem": False}):
        asked = slurm.Slurm(own)._asked(shard)
        assert {name: value for name, value in asked.items() if name.startswith("mem") and value} == {
            name: value for name, value in own.items() if value
        }


def test_memory_is_expected_by_the_largest_workload_and_the_outputs_of_all_environments(root: Path) -> None:
    matrix, _ = load_matrix(root / "matrix.yaml")
    wide = matrix.workloads[0].model_copy(
        update={"name": "wide", "shape": matrix.workloads[0].shape.model_copy(update={"batch": 64, "seq_len": 8192})}
    )
    both = matrix.model_copy(update={"workloads": [*matrix.workloads, wide]})
    more = both.model_copy(update={"environments": matrix.environments * 3})
    kernel, of = matrix.kernels[0], memory.expected_mib
    small = of(matrix, kernel, "cpu", ())
    assert small == of(both, kernel, "cpu", ["w"])
    assert of(both, kernel, "cpu", ["wide-fp32"]) == of(both, kernel, "cpu", ())
    assert of(more, kernel, "cpu", ()) - of(both, kernel, "cpu", ()) == 2 * (memory.ARRAY_BYTES >> 20)
    tensor = 64 * 8192 * 64 * 4 >> 20
    assert of(both, kernel, "cuda", ()) >= memory.BESIDE_MIB["cuda"] + 4 * tensor


def test_an_option_of_sbatch_that_is_false_is_not_passed_on(root: Path, squeue: Squeue) -> None:
    [shard] = planned(root, "two")
    assert slurm.Slurm({})._asked(shard)["exclusive"] is True
    assert "exclusive" not in slurm.Slurm({"exclusive": False})._asked(shard)
    with pytest.raises(InputError, match="option array of sbatch: a shard has its own"):
        slurm.Slurm({"array": "0-3"})


# Says which GPU it has; then waits until as many others have begun, a minute at most.
TOGETHER = """\
echo "$CUDA_VISIBLE_DEVICES" >"{0}/$$"
for _ in $(seq 600); do
    [ $(ls "{0}" | wc -l) -ge {1} ] && echo together && exit
    sleep 0.1
done
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("visible", "used"),
    [(None, {"GPU-1", "GPU-2"}), ("1", {"GPU-2"}), ("GPU-1", {"GPU-1"}), ("1,0", {"GPU-1", "GPU-2"})],
)
def test_all_gpus_of_a_host_are_used_at_once_and_the_cpu_by_itself(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None, used: set[str]
) -> None:
    monkeypatch.setattr(local, "gpus", lambda: [GPU, replace(GPU, uuid="GPU-2")])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    (tmp_path / "begun").mkdir()
    monkeypatch.setattr(Shard, "command", ["sh", "-c", TOGETHER.format(tmp_path / "begun", len(used))])
    matrix, _ = load_matrix(root / "matrix.yaml")
    [shard] = plan_shards(matrix, root, root, ["one"], ("cuda",), [], ["h200"])
    shards = [replace(shard, folder=root / f"shard-{number}") for number in range(2)]
    [alone] = planned(root, "two")
    for each in (*shards, alone):
        each.folder.mkdir(parents=True)
    engine = local.Local()
    with pytest.raises(InfrastructureError, match="no GPU named l4"):
        engine.submit(replace(shard, gpu="l4"))
    jobs = [engine.submit(each) for each in (*shards, alone)]
    while any(state.status is not JobStatus.ENDED for state in engine.states(jobs).values()):
        running = [job for job, state in engine.states(jobs).items() if state.status == "running"]
        assert jobs[2] not in running or len(running) == 1, "beside the CPU's shard there is none"
        assert len(running) <= len(used), "one on each GPU"
        time.sleep(0.01)
    assert [(each.folder / "job.log").read_text() for each in shards] == ["together\n"] * 2
    seen = [path.read_text().strip() for path in (tmp_path / "begun").iterdir()]
    assert {name for name in seen if name.startswith("GPU-")} >= used
    assert len(seen) == 3 and {engine.states([job])[job].node for job in jobs[:2]} == used
