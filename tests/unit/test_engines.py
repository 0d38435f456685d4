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
from tests.unit.sharded import GPU, lay_out, planned


@dataclass
class Squeue:
    """`lines`: what squeue lists; `said`: what was asked of Slurm."""

    lines: str = ""
    said: list[tuple[str, ...]] = field(default_factory=list)

    def answer(self, *words: str) -> str:
        self.said.append(words)
        return self.lines


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


def test_an_option_of_sbatch_that_is_false_is_not_passed_on(root: Path, squeue: Squeue) -> None:
    [shard] = planned(root, "two")
    assert slurm.Slurm({}).list_options(shard)["exclusive"] is True
    assert "exclusive" not in slurm.Slurm({"exclusive": False}).list_options(shard)
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
