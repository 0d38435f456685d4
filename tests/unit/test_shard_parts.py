"""Shards that take too long are cut by workload, and what there is of shards is collected before all have finished."""

from __future__ import annotations

import argparse
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from harness.cli import collect as verb
from harness.cli.on import sbatch_options
from harness.cluster.shards import Shard, digest_of, seal
from harness.cluster.times import Spent, cut, spent_before, spent_on
from harness.config.matrix import load_matrix, without_slurm
from harness.errors import InfrastructureError, InputError, RecordError
from harness.run.folders import all_runs
from harness.schema.run_records import Selection
from harness.schema.storage import Run, save_record
from harness.workflow.shards import Asked, gather
from reports import model
from reports.load.evidence import load_evidence
from reports.render.report import Report
from tests.unit.sharded import lay_out, planned
from tests.unit.spec import Spec
from tests.unit.synthetic import write_run

WORKLOADS = ("seed-fp16", "seed-fp32", "tail239-fp16")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KERNEL_MATRIX_CACHE", str(tmp_path / "cache"))
    return lay_out(tmp_path)


def spent(start_s: float, *seconds: float) -> Spent:
    made = Spent(start_s=start_s)
    made.workloads.update(zip(WORKLOADS, seconds, strict=False))
    made.blocks[0] = start_s + sum(seconds)
    return made


def finish(shard: Shard, workloads: tuple[str, ...]) -> Run:
    spec = Spec(kernels=(shard.kernel,), workloads=workloads, launches=3)
    run = write_run(shard.project / "reports" / "runs" / "20260101-000000-x", spec)
    save_record(run.run_path(), replace(run.load(), finished_utc="2026-01-01T00:00:00+00:00"))
    return run


@pytest.mark.parametrize(
    ("known", "parts"),
    [
        (spent(100, 500, 500, 500), [()]),
        (spent(0, 1000, 600, 500), [WORKLOADS[:1], WORKLOADS[1:]]),
        (spent(200, 500, 1200, 500), [(WORKLOADS[0], WORKLOADS[2]), WORKLOADS[1:2]]),
        (spent(1000, 700, 700, 700), [(each,) for each in WORKLOADS]),
        (spent(5000, 1, 1, 1), [(each,) for each in WORKLOADS]),
    ],
)
def test_what_takes_too_long_is_cut_by_workload(root: Path, known: Spent, parts: list[tuple[str, ...]]) -> None:
    [shard] = planned(root, "one")
    made = cut(shard, WORKLOADS, known, 1800)
    assert [each.workloads for each in made] == parts
    assert len(made) == 1 or [each.name for each in made] == [f"one-cpu-part{n}" for n in range(1, len(made) + 1)]
    for each in made:
        words = each.arguments()
        assert [words[i + 1] for i, word in enumerate(words) if word == "--workload"] == list(each.workloads)


def test_times_are_those_of_the_newest_run_by_workload(root: Path) -> None:
    run = write_run(
        root / "reports" / "runs" / "20260101-000000-x",
        Spec(kernels=("one",), times_us={("kernel", "seed-fp32"): 8000.0}),
    )
    [(key, known)] = spent_before(root, planned(root, "one")).items()
    whole = sum(each.duration_s for each in run.launches()) + sum(each.duration_s for each in run.validations())
    assert key == ("one", "cpu") and known.expected_s() == pytest.approx(whole)
    assert known.expected_s(["seed-fp32"]) > 2 * known.expected_s(["seed-fp16"]) > 0
    assert known.expected_s(["seed"]) == pytest.approx(whole), "by name: both"
    assert known.expected_s(["new-fp16"]) == pytest.approx(whole / 2), "one that never ran counts as the mean"
    half = [replace(each, sampling_s=each.duration_s / 2) for each in run.launches()]
    [again] = spent_on(half, run.validations()).values()
    assert again.start_s == pytest.approx(sum(each.duration_s for each in half) / 2)


def parts_of(root: Path) -> list[Shard]:
    [shard] = planned(root, "one")
    made = shard.cut([("seed-fp16",), ("seed-fp32", "tail239-fp16")])
    matrix, text = load_matrix(root / "matrix.yaml")
    for each in made:
        seal(each, matrix, text, root)
    return made


def test_parts_of_a_kernel_are_one_run_with_every_launch_once(root: Path) -> None:
    shards = parts_of(root)
    runs = [finish(shard, shard.workloads) for shard in shards]
    made = gather(root, shards, ["kernel-matrix", "matrix"], Selection(), "d")
    counted = Counter((each.environment, each.index, name) for each in made.launches() for name in each.workloads)
    assert set(counted.values()) == {1} and len(counted) == 2 * 3 * 3
    [kernel] = made.load().kernels
    assert kernel.workloads == list(WORKLOADS) and len(made.load().cells) == 6
    evidence = load_evidence(made.folder)
    for cell in made.load().cells:
        assert len(evidence.timed(cell, "kernel")) == len(evidence.launches_of(cell)) == 3
    for run in runs:
        assert load_evidence(run.folder).launches.items() <= evidence.launches.items()
    rows = {(row.workload, timed.verdict != model.NO_DATA) for row in Report(evidence).rows for timed in row.timed}
    assert rows == {(name, True) for name in WORKLOADS}


def test_a_launch_that_stands_twice_is_refused(root: Path) -> None:
    shards = parts_of(root)
    runs = [finish(shard, shard.workloads) for shard in shards]
    path = next((runs[0].folder / "launches").rglob("000.json"))
    shutil.copyfile(path, path.with_name("007.json"))
    with pytest.raises(RecordError, match=r"007\.json: stands under another record's name"):
        gather(root, shards, [], Selection(), "d")
    path.with_name("007.json").unlink()
    made = gather(root, shards, [], Selection(), "d")
    copied = next((made.folder / "launches").rglob("part1/000.json"))
    (copied.parents[1] / "part3").mkdir()
    shutil.copyfile(copied, copied.parents[1] / "part3" / "000.json")
    with pytest.raises(RecordError, match="has block 0 twice"):
        load_evidence(made.folder)


def test_shards_stay_as_they_were_cut(root: Path) -> None:
    shards = parts_of(root)
    asked = Asked(
        command=("kernel-matrix", "matrix"), selection=Selection(devices=("cpu",)), digest="d", shards=tuple(shards)
    )
    asked.save(shards[0].folder.parent)
    assert Asked.load(shards[0].folder.parent) == asked
    assert Asked.load(root) is None


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
    from harness.cli.main import make_parser

    return make_parser("collect").parse_args(["collect", *words])


def test_what_there_is_so_far_has_a_page_that_says_what_is_missing(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = planned(root)
    matrix, text = load_matrix(root / "matrix.yaml")
    one, two = (replace(each, workloads=("w",)) for each in (one, two))
    for each in (one, two):
        seal(each, matrix, text, root)
    folder = one.folder.parent
    with pytest.raises(InputError, match="no shards were queued there"):
        verb.run(collected(str(folder)))
    Asked(command=("kernel-matrix", "matrix"), selection=Selection(), digest="d", shards=(one, two)).save(folder)
    with pytest.raises(InfrastructureError, match="none of 2 shards has finished"):
        verb.run(collected(str(folder)))
    finish(one, ("seed-fp16",))
    verb.run(collected(str(folder)))
    printed = capsys.readouterr().out
    assert "1 of 2 shards have finished" in printed and "shard two-cpu: not known to be queued" in printed
    [partial] = all_runs(root)
    rows = {row.status: row.message for row in partial.validations() if row.kernel == "two"}
    assert rows == {"not_run": "it had not finished when this was collected"}
    assert "it had not finished" in (partial.folder / "index.html").read_text()
    assert not list(root.glob("reports/shards/*/*/job.json")), "nothing was queued"
    finish(two, ("seed-fp16",))
    assert verb.run(collected(str(folder))) == 0
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
