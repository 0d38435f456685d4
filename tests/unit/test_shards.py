"""Shards without a queue: how a matrix is cut and sealed, what becomes of jobs that end badly, and how records join."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from harness.cli.main import make_parser
from harness.cli.shards import collect as collect_shards
from harness.cli.shards import groups_of, listed, sbatch_options, shard_words
from harness.cluster import campaign as campaigns
from harness.cluster import slurm
from harness.cluster.campaign import ATTEMPTS, Campaign, CampaignRequest, JobState, JobStatus, gather
from harness.cluster.collect import collect
from harness.cluster.shards import Shard, digest_of, plan_shards, seal
from harness.config.matrix import load_matrix, without_slurm
from harness.errors import InfrastructureError, InputError
from harness.run.folders import all_runs
from harness.schema.run_records import Selection
from harness.schema.storage import Run, save_record
from reports.load.evidence import load_evidence
from reports.render.report import Report
from tests.unit.sharded import GPU, lay_out, planned
from tests.unit.spec import Spec
from tests.unit.synthetic import write_run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return lay_out(tmp_path)


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
    assert [path.name for path in shard.project.glob("*.c*")] == ["two.cpp"], "of its own kernel alone"
    assert digest_of(matrix, text, root, []) != before != digest_of(matrix, text, root, ["--quick"])


def test_a_wheel_that_pytorch_is_installed_from_is_there_in_a_sealed_project(root: Path) -> None:
    name = "wheels/torch-2.9.0a0-cp311-cp311-linux_x86_64.whl"
    (root / "wheels").mkdir()
    (root / name).write_text("a wheel")
    path = root / "matrix.yaml"
    path.write_text(path.read_text().replace("environments: [", f"environments: [{{wheel: {name}}}, "))
    matrix, text = load_matrix(path)
    [shard] = planned(root, "two")
    seal(shard, matrix, text, root)
    assert (shard.project / name).read_text() == "a wheel"


class Scripted:
    """An engine whose jobs end as they are told: a node's name fails there, "ok" leaves a finished run."""

    name = "scripted"

    def __init__(self, *ends: str) -> None:
        self.ends = list(ends)
        self.shards: dict[str, tuple[Shard, str]] = {}

    def submit(self, shard: Shard) -> str:
        job = str(len(self.shards) + 1)
        self.shards[job] = shard, self.ends.pop(0)
        return job

    def states(self, jobs: Collection[str]) -> Mapping[str, JobState]:
        found = {}
        for job in jobs:
            if job in self.shards:
                shard, end = self.shards[job]
                if end == "ok" and shard.run() is None:
                    finish(shard)
                found[job] = JobState(JobStatus.ENDED, node="" if end == "ok" else end)
        return found


def finish(shard: Shard, **changes: object) -> Run:
    run = write_run(shard.project / "reports" / "runs" / "20260101-000000-x", Spec(kernels=(shard.kernel,)))
    record = replace(run.load(), finished_utc="2026-01-01T00:00:00+00:00", **changes)
    save_record(run.run_path(), record)
    return run


def ask(shards: Sequence[Shard]) -> CampaignRequest:
    return CampaignRequest(command=("kernel-matrix", "matrix"), selection=Selection(), digest="d", shards=tuple(shards))


def campaign(root: Path, engine: Scripted, *kernels: str) -> Campaign:
    matrix, text = load_matrix(root / "matrix.yaml")
    return Campaign(matrix, text, root, planned(root, *kernels), engine)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaigns, "POLL_S", 0.0)


def test_a_job_without_a_result_is_queued_again(root: Path) -> None:
    engine, said = Scripted("bad", "worse", "ok"), list[str]()
    made = campaign(root, engine, "two")
    made.queue()
    made.wait(lambda name, state: said.append(state))
    assert len(engine.shards) == 3
    assert said == ["ended without a result on bad", "ended without a result on worse", "finished"]
    assert made.shards[0].run() is not None


def test_it_is_tried_so_often_and_another_command_is_another_chance(root: Path) -> None:
    made = campaign(root, Scripted(*["bad"] * ATTEMPTS), "two")
    made.queue()
    made.wait(lambda *_: None)
    assert made.shards[0].run() is None
    with pytest.raises(InfrastructureError, match="none of 1 shards"):
        gather(root, ask(made.shards), made.shards)
    again = campaign(root, Scripted("ok"), "two")
    again.queue()
    again.wait(lambda *_: None)
    assert again.shards[0].run() is not None


def test_what_is_queued_or_finished_is_not_queued_again(root: Path) -> None:
    first = campaign(root, Scripted("ok", "ok"))
    first.queue()
    first.wait(lambda *_: None)
    again = campaign(root, Scripted())
    again.queue()
    again.wait(lambda *_: None)
    assert [shard.run() is not None for shard in again.shards] == [True, True]


def test_the_records_of_all_shards_are_one_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL_MATRIX_CACHE", str(root / "cache"))
    shards = planned(root)
    runs = [finish(shard) for shard in shards]
    made = gather(root, ask(shards), shards)
    record = made.load()
    assert [kernel.name for kernel in record.kernels] == ["one", "two"]
    assert record.command == ["kernel-matrix", "matrix"]
    assert len(record.workloads) == len(runs[0].load().workloads)
    for name in ("validations", "launches", "crossings"):
        of_shards = [asdict(each) for run in runs for each in getattr(run, name)()]
        merged = [asdict(each) for each in getattr(made, name)()]
        assert sorted(map(str, merged)) == sorted(map(str, of_shards)) and merged
    assert gather(root, ask(shards), shards).folder == made.folder


@pytest.mark.parametrize(
    ("changes", "gpu", "said"),
    [
        ({"environments": ["other"]}, "", "disagree on environments"),
        ({"gpus": [replace(GPU, name="NVIDIA L4", uuid="GPU-2")]}, "", "different models of GPU"),
        ({"gpus": [GPU]}, "l4", "one-cpu ran on NVIDIA H200"),
    ],
)
def test_what_is_not_of_one_run_is_not_put_together(
    root: Path, changes: dict[str, object], gpu: str, said: str
) -> None:
    shards = planned(root)
    finish(shards[0], gpus=[GPU])
    finish(shards[1], **changes)
    into = Run(root / "reports" / "runs" / "20260101-000000-d")
    shards[0] = replace(shards[0], gpu=gpu)
    with pytest.raises(InfrastructureError, match=said):
        collect([(shard, run) for shard in shards if (run := shard.run())], into, [], Selection(), "d")


def test_a_damaged_record_stops_it(root: Path) -> None:
    [shard] = planned(root, "two")
    run = finish(shard)
    path = next((run.folder / "launches").rglob("*.json"))
    path.write_text(path.read_text()[:-40])
    with pytest.raises(InfrastructureError, match="truncated"):
        collect([(shard, run)], Run(root / "into"), [], Selection(), "d")


def test_a_deleted_record_is_collected_again(root: Path) -> None:
    first = campaign(root, Scripted("ok"), "two")
    first.queue()
    first.wait(lambda *_: None)
    made = gather(root, ask(first.shards), first.shards)
    count = len(made.launches())
    next((made.folder / "launches").rglob("*.json")).unlink()
    assert gather(root, ask(first.shards), first.shards).folder == made.folder
    assert len(made.launches()) == count, "of the merged run alone: it is still its shard's"


def test_a_kernel_is_a_shard_on_every_gpu_that_is_asked_for_and_each_model_is_a_run(root: Path) -> None:
    matrix, _ = load_matrix(root / "matrix.yaml")
    shards = plan_shards(matrix, root, root, [], ("cpu", "cuda"), [], ["h200", "l4"])
    assert [shard.name for shard in shards] == ["one-cpu", "one-cuda-h200", "one-cuda-l4", "two-cpu"]
    assert shards[2].command[-3:] == ["--gpu", "l4", "--no-report"]
    assert [[each.name for each in group] for group in groups_of(shards)] == [
        ["one-cpu", "two-cpu"],
        ["one-cuda-h200"],
        ["one-cuda-l4"],
    ]
    of_one_model = plan_shards(matrix, root, root, [], ("cpu", "cuda"), [], ["h200"])
    assert [len(group) for group in groups_of(of_one_model)] == [3]
    assert slurm.place(shards[2])["gres"] == "gpu:l4:1" and slurm.place(shards[0]) == {"exclusive": True}
    assert slurm.place(replace(shards[2], gpu=""))["gres"] == "gpu:1"


def test_a_shard_without_a_result_is_rows_that_say_why(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL_MATRIX_CACHE", str(root / "cache"))
    made = campaign(root, Scripted("ok", *["bad"] * ATTEMPTS))
    made.queue()
    (made.shards[1].folder / "job.log").write_text("something\nerror: no driver\n\n")
    made.wait(lambda *_: None)
    lost = made.list_lost(Selection())
    run = gather(root, ask(made.shards), made.shards, lost)
    why = "its job ended without a result, 3 times: no driver"
    rows = [each for each in run.validations() if each.kernel == "two"]
    assert {row.message for row in rows} == {why} and {row.status for row in rows} == {"not_run"}
    record = run.load()
    assert {cell.environment for cell in record.cells if cell.kernel == "two"} == set(record.environments)
    assert any(why in line for line in Report(load_evidence(run.folder)).answers.lines)
    assert gather(root, ask(made.shards), made.shards, lost).folder == run.folder
    made.engine = Scripted("ok")
    made.queue()
    made.wait(lambda *_: None)
    whole = gather(root, ask(made.shards), made.shards, made.list_lost(Selection()))
    assert whole.folder != run.folder


def test_a_job_that_got_further_is_no_failed_attempt(root: Path) -> None:
    class Slow(Scripted):
        """Each job makes one launch, and ends at its limit of time."""

        def states(self, jobs: Collection[str]) -> Mapping[str, JobState]:
            folder = made.shards[0].project / "reports" / "runs" / "20260101-000000-y" / "launches" / "e" / "k-cpu"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{len(self.shards):03d}.json").write_text("{}") if self.shards else None
            return super().states(jobs)

    engine, said = Slow(*["limit"] * (2 * ATTEMPTS), "ok"), list[str]()
    made = campaign(root, engine, "two")
    made.queue()
    made.wait(lambda name, state: said.append(state))
    assert said[-1] == "finished" and said[0].startswith("ended after 1 more steps on limit")


def test_shards_are_listed(root: Path) -> None:
    shards = planned(root, devices=("cpu", "cuda"))
    finish(shards[0])
    assert listed(shards) == [
        "shard one-cpu: finished; CPU",
        "shard one-cuda: to run; any GPU",
        "shard two-cpu: to run; CPU",
    ]


def test_what_was_asked_for_is_known_to_who_collects(root: Path) -> None:
    shards = planned(root)
    asked = CampaignRequest(
        command=("kernel-matrix", "matrix"), selection=Selection(devices=("cpu",)), digest="d", shards=tuple(shards)
    )
    asked.save(shards[0].folder.parent)
    assert CampaignRequest.load(shards[0].folder.parent) == asked
    assert CampaignRequest.load(root) is None


def test_where_it_is_queued_changes_no_shard(root: Path) -> None:
    matrix, text = load_matrix(root / "matrix.yaml")
    (root / "matrix.yaml").write_text(text + "slurm:\n  partition: gpu\n  time: 1:30:00\n")
    named, longer = load_matrix(root / "matrix.yaml")
    longer = without_slurm(longer, named)
    assert named.slurm == {"partition": "gpu", "time": "1:30:00"}
    assert digest_of(named, longer, root, []) == digest_of(matrix, text, root, [])
    [shard] = planned(root, "two")
    seal(shard, named, longer, root)
    assert (shard.project / "matrix.yaml").read_text() == text, "runs of it are the same run"


def collected(*words: str) -> argparse.Namespace:
    return make_parser("collect").parse_args(words)


def test_what_there_is_so_far_has_a_page_that_says_what_is_missing(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNEL_MATRIX_CACHE", str(root / "cache"))
    one, two = planned(root)
    matrix, text = load_matrix(root / "matrix.yaml")
    for each in (one, two):
        seal(each, matrix, text, root)
    folder = one.folder.parent
    with pytest.raises(InputError, match="no shards were queued there"):
        collect_shards(collected(str(folder)))
    CampaignRequest(command=("kernel-matrix", "matrix"), selection=Selection(), digest="d", shards=(one, two)).save(
        folder
    )
    with pytest.raises(InfrastructureError, match="none of 2 shards has finished"):
        collect_shards(collected(str(folder)))
    finish(one)
    collect_shards(collected(str(folder)))
    printed = capsys.readouterr().out
    assert "1 of 2 shards have finished" in printed and "shard two-cpu: not known to be queued" in printed
    [partial] = all_runs(root)
    rows = {row.status: row.message for row in partial.validations() if row.kernel == "two"}
    assert rows == {"not_run": "it had not finished when this was collected"}
    assert "it had not finished" in (partial.folder / "index.html").read_text()
    assert not list(root.glob("reports/shards/*/*/job.json")), "nothing was queued"
    finish(two)
    assert collect_shards(collected(str(folder))) == 0
    assert "2 of 2 shards have finished" in capsys.readouterr().out
    found = [{row.status for row in run.validations()} for run in all_runs(root)]
    assert sorted(found, key=len) == [{"ok"}, {"ok", "not_run"}], "two runs: what there was, and all of it"


def test_options_of_the_command_line_win_over_those_of_the_file(root: Path) -> None:
    matrix, _ = load_matrix(root / "matrix.yaml")
    held = {"partition": "a", "cpus_per_task": 2, "exclusive": False, "time": "1-0"}
    matrix = matrix.model_copy(update={"slurm": held})
    typed = argparse.Namespace(sbatch=["cpus-per-task=8"], partition="b", time=None)
    options = sbatch_options(typed, matrix)
    assert options == {"partition": "b", "cpus-per-task": "8", "exclusive": False, "time": "1-0"}
    assert sbatch_options(argparse.Namespace(sbatch=[], partition=None, time=30), matrix)["time"] == "30"
    with pytest.raises(InputError, match="is not NAME=VALUE"):
        sbatch_options(argparse.Namespace(sbatch=["exclusive"], partition=None, time=None), matrix)


def test_options_of_the_command_are_those_of_each_shard() -> None:
    typed = ["--on=slurm", "--quick", "--trust", "--launches=3", "--executor=venv"]
    words = shard_words(make_parser("matrix").parse_args(typed))
    assert words == ["--launches", "3", "--executor", "venv", "--explain", "auto", "--quick", "--trust"]
