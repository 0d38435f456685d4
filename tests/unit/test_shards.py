"""Shards without a queue: how a matrix is cut and sealed, what becomes of jobs that end badly, and how records join."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.cluster import slurm
from harness.cluster.collect import collect
from harness.cluster.engine import State
from harness.cluster.shards import Shard, digest_of, plan_shards, seal
from harness.config.matrix import load_matrix
from harness.errors import InfrastructureError, InputError, RecordError
from harness.run.reuse import move_to
from harness.schema.run_records import GpuFacts, Selection
from harness.schema.storage import Run, load_record, save_record
from harness.workflow import shards as workflow
from harness.workflow.shards import ATTEMPTS, Campaign, gather
from tests.unit.spec import Spec, gpu_spec
from tests.unit.synthetic import write_run

MATRIX = """\
environments: [{torch: "2.5.0", cuda: "12.1", python: "3.11"}]
kernels:
  - {name: one, sources: {cpu: [one.cpp], cuda: [one.cu]}}
  - {name: two, sources: {cpu: [two.cpp]}}
workloads:
  - {name: w, shape: {batch: 1, heads: 1, seq_len: 65, head_dim: 64}, dtypes: {cpu: [float32], cuda: [float32]}}
"""
GPU = GpuFacts(uuid="GPU-1", name="NVIDIA H200", driver="580", memory_bytes=1, ecc=True, mig=False, power_limit_w=700,
               max_sm_mhz=1980)  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "matrix.yaml").write_text(MATRIX)
    for name in ("one.cpp", "one.cu", "two.cpp"):
        (tmp_path / name).write_text('#include "beside.h"\n')
    (tmp_path / "beside.h").write_text("// included\n")
    (tmp_path / "docker" / "pins").mkdir(parents=True)
    (tmp_path / "docker" / "pins" / "torch2.5.0.txt").write_text("pins\n")
    return tmp_path


def planned(root: Path, *kernels: str, devices: tuple[str, ...] = ("cpu",)) -> list[Shard]:
    matrix, _ = load_matrix(root / "matrix.yaml")
    return plan_shards(matrix, root, root / "reports" / "shards" / "x", kernels, devices, ["--quick"])  # type: ignore[arg-type]


def test_a_shard_is_a_kernel_on_a_device_with_all_environments(root: Path) -> None:
    names = [shard.name for shard in planned(root, devices=("cpu", "cuda"))]
    assert names == ["one-cpu", "one-cuda", "two-cpu"]
    [shard] = planned(root, "two", devices=("cpu", "cuda"))
    assert shard.command[3:6] == ["-m", "harness", "matrix"]
    assert shard.command[-6:] == ["--kernel", "two", "--device", "cpu", "--quick", "--no-report"]
    with pytest.raises(InputError, match="cuda"):
        planned(root, "two", devices=("cuda",))


def test_what_a_shard_is_sealed_with_stays_as_it_was(root: Path) -> None:
    [shard] = planned(root, "two")
    matrix, text = load_matrix(root / "matrix.yaml")
    before = digest_of(matrix, text, root, [])
    seal(shard, matrix, text, root)
    (root / "beside.h").write_text("// edited\n")
    seal(shard, matrix, text, root)
    assert (shard.project / "beside.h").read_text() == "// included\n"
    assert (shard.project / "docker" / "pins" / "torch2.5.0.txt").exists()
    assert digest_of(matrix, text, root, []) != before != digest_of(matrix, text, root, ["--quick"])


class Scripted:
    """An engine whose jobs end as they are told: a node's name fails there, "ok" leaves a finished run."""

    name = "scripted"

    def __init__(self, *ends: str) -> None:
        self.ends, self.avoided, self.shards = list(ends), [], {}  # type: ignore[var-annotated]

    def submit(self, shard: Shard, avoid: Collection[str]) -> str:
        self.avoided.append(set(avoid))
        self.shards[str(len(self.avoided))] = shard, self.ends.pop(0)
        return str(len(self.avoided))

    def states(self, jobs: Collection[str]) -> Mapping[str, State]:
        found = {}
        for job in jobs:
            if job in self.shards:
                shard, end = self.shards[job]
                if end == "ok" and shard.run() is None:
                    finish(shard)
                found[job] = State(status="ended", node="" if end == "ok" else end)
        return found


def finish(shard: Shard, **changes: object) -> Run:
    run = write_run(shard.project / "reports" / "runs" / "20260101-000000-x", Spec(kernels=(shard.kernel,)))
    record = run.load().model_copy(update={"finished_utc": "2026-01-01T00:00:00+00:00", **changes})
    save_record(run.run_path(), record)
    return run


def campaign(root: Path, engine: Scripted, *kernels: str) -> Campaign:
    matrix, text = load_matrix(root / "matrix.yaml")
    return Campaign(matrix, text, root, planned(root, *kernels), engine)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow, "POLL_S", 0.0)


def test_a_job_without_a_result_is_queued_again_and_not_on_that_node(root: Path) -> None:
    engine, said = Scripted("bad", "worse", "ok"), list[str]()
    made = campaign(root, engine, "two")
    made.queue()
    made.wait(said.append)
    assert engine.avoided == [set(), {"bad"}, {"bad", "worse"}]
    assert said == [
        "shard two-cpu: ended without a result on bad", "shard two-cpu: ended without a result on worse",
        "shard two-cpu: finished",
    ]  # fmt: skip
    assert made.shards[0].run() is not None


def test_it_is_tried_so_often_and_another_command_is_another_chance(root: Path) -> None:
    made = campaign(root, Scripted(*["bad"] * ATTEMPTS), "two")
    made.queue()
    made.wait(lambda _: None)
    assert made.shards[0].run() is None
    with pytest.raises(InfrastructureError, match="none of 1 shards"):
        gather(root, made.shards, ["matrix"], Selection(), "d", None)
    again = campaign(root, Scripted("ok"), "two")
    again.queue()
    again.wait(lambda _: None)
    assert again.shards[0].run() is not None


def test_what_is_queued_or_finished_is_not_queued_again(root: Path) -> None:
    first = campaign(root, Scripted("ok", "ok"))
    first.queue()
    first.wait(lambda _: None)
    again = campaign(root, Scripted())
    again.queue()
    again.wait(lambda _: None)
    assert [shard.run() is not None for shard in again.shards] == [True, True]


def test_the_records_of_all_shards_are_one_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL_MATRIX_CACHE", str(root / "cache"))
    shards = planned(root)
    runs = [finish(shard) for shard in shards]
    made = gather(root, shards, ["kernel-matrix", "matrix"], Selection(), "d", None)
    record = made.load()
    assert [kernel.name for kernel in record.kernels] == ["one", "two"]
    assert record.command == ["kernel-matrix", "matrix"]
    assert len(record.workloads) == len(runs[0].load().workloads)
    for name in ("validations", "launches", "crossings"):
        of_shards = [each.model_dump() for run in runs for each in getattr(run, name)()]
        merged = [each.model_dump() for each in getattr(made, name)()]
        assert sorted(map(str, merged)) == sorted(map(str, of_shards)) and merged
    assert gather(root, shards, ["kernel-matrix", "matrix"], Selection(), "d", None).folder == made.folder


@pytest.mark.parametrize(
    ("changes", "gpu", "said"),
    [
        ({"baseline": "other"}, None, "disagree on baseline"),
        ({"gpus": [GPU.model_copy(update={"name": "NVIDIA L4", "uuid": "GPU-2"})]}, None, "different models of GPU"),
        ({"gpus": [GPU]}, "l4", "ran on NVIDIA H200, not on a GPU named l4"),
    ],
)
def test_what_is_not_of_one_run_is_not_put_together(
    root: Path, changes: dict[str, object], gpu: str | None, said: str
) -> None:
    shards = planned(root)
    finish(shards[0], gpus=[GPU])
    finish(shards[1], **changes)
    into = Run(root / "reports" / "runs" / "20260101-000000-d")
    with pytest.raises(InfrastructureError, match=said):
        collect(shards, into, [], Selection(), "d", gpu)


def test_a_damaged_record_stops_it(root: Path) -> None:
    [shard] = planned(root, "two")
    run = finish(shard)
    path = next((run.folder / "launches").rglob("*.json"))
    path.write_text(path.read_text()[:-40])
    with pytest.raises(RecordError, match="truncated"):
        collect([shard], Run(root / "into"), [], Selection(), "d", None)


def test_runs_that_a_shard_began_elsewhere_leave_no_scratch(root: Path) -> None:
    [shard] = planned(root, "two")
    run = finish(shard)
    for name in ("20260101-000001-y", "20260101-000002-z"):
        (run.folder.with_name(name) / "scratch").mkdir(parents=True)
    (run.folder.with_name("20260101-000001-y") / "run.json").write_text(run.run_path().read_text())
    shard_run = shard.run()
    collect([shard], Run(root / "into"), [], Selection(), "d", None)
    assert shard_run is not None and len(list(run.folder.parent.iterdir())) == 3, "records are never removed"
    assert not list(run.folder.parent.glob("*/scratch"))


def test_a_deleted_record_is_made_again_and_collected_again(root: Path) -> None:
    engine = Scripted("ok", "ok")
    first = campaign(root, engine, "two")
    first.queue()
    first.wait(lambda line: None)
    made = gather(root, first.shards, [], Selection(), "d", None)
    count, record = len(made.launches()), made.run_path().read_bytes()
    path = next((made.folder / "launches").rglob("*.json"))
    path.unlink()
    assert gather(root, first.shards, [], Selection(), "d", None).folder == made.folder
    assert len(made.launches()) == count, "of the merged run alone: it is still its shard's"
    gather(root, first.shards, [], Selection(), "d", None)
    assert made.run_path().stat().st_size == len(record), "nothing was to do"
    [run] = [run for shard in first.shards if (run := shard.run())]
    (run.folder / path.relative_to(made.folder)).unlink()
    assert first.shards[0].run() is None, "its shard is queued again"


def test_a_job_that_a_node_could_not_start_is_taken_back_and_queued_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    said = []

    def answer(*words: str) -> str:
        said.append(words)
        return "7|PENDING||launch failed requeued held\n8|PENDING||JobHeldUser\n"

    monkeypatch.setattr(slurm, "_said", answer)
    monkeypatch.setattr(slurm.shutil, "which", lambda name: name)
    found = slurm.Slurm({}, None).states(["7", "8"])
    assert said[-1] == ("scancel", "7")
    assert {job: state.status for job, state in found.items()} == {"7": "ended", "8": "queued"}


def test_states_of_slurm_are_queued_running_or_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "7|PENDING||Resources\n8|RUNNING|n2|None\n9|NODE_FAIL|n3|None\n11|RUNNING|n4|None\n"
    monkeypatch.setattr(slurm, "_said", lambda *words: lines)
    monkeypatch.setattr(slurm.shutil, "which", lambda name: name)
    found = slurm.Slurm({}, None).states(["7", "8", "9", "10"])
    assert {job: (state.status, state.node) for job, state in found.items()} == {
        "7": ("queued", ""), "8": ("running", "n2"), "9": ("ended", "n3"),
    }  # fmt: skip


def test_jobs_that_slurm_would_never_start_are_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    said = []

    def answer(*words: str) -> str:
        said.append(words)
        return "7|PENDING||PartitionTimeLimit\n8|PENDING||Priority\n"

    monkeypatch.setattr(slurm, "_said", answer)
    monkeypatch.setattr(slurm.shutil, "which", lambda name: name)
    with pytest.raises(InfrastructureError, match="never start 1 of the jobs: PartitionTimeLimit"):
        slurm.Slurm({}, None).states(["7", "8"])
    assert said[-1] == ("scancel", "7")


def test_without_slurm_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm.shutil, "which", lambda name: None)
    with pytest.raises(InfrastructureError, match="there is no sbatch"):
        slurm.Slurm({}, None)


def test_options_of_sbatch_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm.shutil, "which", lambda name: name)
    assert slurm.Slurm({"partition": "p"}, "h200").options == {
        "exclusive": True, "partition": "p", "gres": "gpu:h200:1",
    }  # fmt: skip
    assert slurm.Slurm({"gres": "gpu:2"}, "h200").options["gres"] == "gpu:2"


def test_a_collected_launch_is_its_shards_own(root: Path) -> None:
    [shard] = planned(root, "two")
    run = finish(shard)
    into = Run(root / "into")
    collect([shard], into, [], Selection(), "d", None)
    path = next((into.folder / "launches").rglob("*.json"))
    assert load_record(path, type(into.launches()[0])) in run.launches()


def test_a_run_that_goes_on_on_another_gpu_keeps_whole_blocks_alone(tmp_path: Path) -> None:
    run = write_run(tmp_path, gpu_spec())
    save_record(run.run_path(), run.load().model_copy(update={"gpus": [GPU]}))
    launches = run.launches()
    environments = {launch.environment for launch in launches}
    last = max(launch.index for launch in launches)
    partial = [launch for launch in launches if launch.index == last]
    lost = partial.pop()
    run.launch_path(lost.environment, lost.kernel, lost.device, lost.index).unlink()
    plan = SimpleNamespace(measured=sorted(environments))
    save_record(run.run_path(), run.load().model_copy(update={"finished_utc": ""}))
    move_to(run, plan, GPU)  # type: ignore[arg-type]
    assert len(run.launches()) == len(launches) - 1, "the same GPU"
    other = GPU.model_copy(update={"uuid": "GPU-2"})
    move_to(run, plan, other)  # type: ignore[arg-type]
    left = [launch for launch in launches if (launch.kernel, launch.index) != (lost.kernel, last)]
    assert sorted(map(str, run.launches())) == sorted(map(str, left)) and run.load().gpus == [GPU, other]
