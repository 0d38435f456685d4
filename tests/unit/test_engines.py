"""Engines: what Slurm is asked and what its answers mean, and which GPU of this host a shard goes to."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from harness.cluster import local, slurm
from harness.cluster.engine import State
from harness.cluster.shards import Shard, plan_shards
from harness.config.matrix import load_matrix
from harness.errors import InfrastructureError
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
        "7": ("queued", ""), "8": ("running", "n2"), "9": ("ended", "n3"),
    }  # fmt: skip


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
    assert slurm.Slurm({"partition": "p", "cpus-per-task": "2"}).options == {
        "partition": "p", "cpus_per_task": "2",
    }  # fmt: skip


def test_a_controller_that_starts_again_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [(1, "", f"slurm_load_jobs error: {slurm.AWAY} (connect failure)"), (0, "8|PENDING||None\n", "")]
    monkeypatch.setattr(slurm.shutil, "which", lambda name: name)
    monkeypatch.setattr(slurm, "AGAIN_S", 0.0)
    monkeypatch.setattr(
        slurm.subprocess, "run", lambda *words, **options: subprocess.CompletedProcess(words, *answers.pop(0))
    )
    assert slurm.Slurm({}).states(["8"]) == {"8": State(status="queued")} and not answers
    answers.append((1, "", "squeue: error: Invalid user"))
    with pytest.raises(InfrastructureError, match="Invalid user"):
        slurm.Slurm({}).states(["8"])


def test_what_a_user_excludes_stays_excluded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm.shutil, "which", lambda name: name)
    [shard] = planned(root, "two")
    assert slurm.Slurm({"exclude": "n9"})._asked(shard, {"n2", "n1"})["exclude"] == "n9,n1,n2"
    assert "exclude" not in slurm.Slurm({})._asked(shard, ())


@pytest.mark.process
def test_on_this_host_a_shard_goes_to_another_gpu_than_the_bad_one(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "gpus", lambda: [GPU, GPU.model_copy(update={"uuid": "GPU-2"})])
    matrix, _ = load_matrix(root / "matrix.yaml")
    [shard] = plan_shards(matrix, root, root, ["one"], ("cuda",), [], ["h200"])
    shard.folder.mkdir(parents=True)
    monkeypatch.setattr(Shard, "command", ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"])
    engine = local.Local()
    for avoid in (["GPU-1"], ["GPU-2"], ["GPU-1", "GPU-2"]):
        job = engine.submit(shard, avoid)
        while engine.states([job])[job].status != "ended":
            time.sleep(0.01)
    seen = (shard.folder / "job.log").read_text().split()
    assert seen[:2] == ["GPU-2", "GPU-1"] and len(seen) == 3
    with pytest.raises(InfrastructureError, match="no GPU named l4"):
        engine.submit(replace(shard, gpu="l4"), [])
