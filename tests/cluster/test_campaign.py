"""A sample of the faults of tests/cluster/campaign, and that what they are checked for is seen."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.cluster.campaign.checks import _blocks, _launches, _left, _records, undisturbed
from tests.cluster.campaign.faults import ADDED, WEIGHTS, draw_fault
from tests.cluster.campaign.nodes import Nodes, fill, free
from tests.cluster.campaign.rounds import Round
from tests.cluster.campaign.subjects import KERNELS, SCRIPTED, Subject, build_library
from tests.cluster.campaign.table import render_table
from tests.cluster.conftest import PROGRAMS
from tests.conftest import ROOT
from tests.faults.test_disk import disk

pytestmark = [pytest.mark.process, pytest.mark.alone, pytest.mark.timeout(1800)]
SEED = 1


def test_a_fault_is_drawn_alike_whatever_else_is_drawn() -> None:
    alone = draw_fault(SEED, 7)
    assert [draw_fault(SEED, number) for number in range(8)][7] == alone
    for kinds in (WEIGHTS, ADDED):
        assert {draw_fault(SEED, number, kinds).kind for number in range(2000)} == set(kinds)


def test_faults_of_a_cluster_lose_nothing_and_make_nothing_up() -> None:
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing or os.getuid() != 0:
        pytest.skip("a Slurm of one's own takes root, and: apt-get install slurmctld slurmd")
    if Path("/tmp") in ROOT.resolve().parents:
        pytest.skip("each node has a /tmp of its own, and would not see this checkout there")
    folder = Path(tempfile.mkdtemp(prefix="cluster-faults-", dir="/var/tmp"))
    try:
        libraries, cache = build_library(folder / "libraries"), folder / "cache"
        known = undisturbed(Subject(folder / "one-host", SCRIPTED, cache, libraries))
        with Nodes(folder / "cluster", 20117) as nodes:
            subject = Subject(nodes.folder / "round", SCRIPTED, cache, libraries)
            faults = [draw_fault(SEED, number) for number in range(3)]
            faults += [draw_fault(SEED, number, ADDED) for number in range(9, 12)]
            assert {fault.kind for fault in faults[3:]} == set(ADDED)
            rows = Round(nodes, subject, faults).run(known, SEED, 0)
        assert not [(row.kind, row.what, row.when, row.found) for row in rows if row.outcome != "ok"]
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def at(tmp_path: Path) -> SimpleNamespace:
    """A round without a cluster: one shard with one block."""
    subject = Subject(tmp_path, SCRIPTED, tmp_path / "cache", tmp_path)
    shard = subject.root / "reports" / "shards" / "x" / "a-cuda"
    run = shard / "project" / "reports" / "runs" / "20260101-000000-x"
    records = [run / "launches" / environment / "a-cuda" / "000.json" for environment in ("one", "two")]
    for record in records:
        record.parent.mkdir(parents=True)
        record.write_text("{}")
    for node in ("n1", "n2", "n3", "n4"):
        (tmp_path / node / "tmp").mkdir(parents=True)
    nodes = SimpleNamespace(disk=lambda node: tmp_path / node, jobs=dict, conf=tmp_path / "slurm.conf")
    return SimpleNamespace(subject=subject, nodes=nodes, records=records, run=run, known={}, where={}, damaged=set())


def test_a_record_that_is_written_again_is_seen(at: SimpleNamespace) -> None:
    at.known = dict.fromkeys(at.records, "other")
    assert [what.partition(":")[0] for _, what in _records(at)] == ["made again"] * 2
    at.records[0].unlink()
    assert [what.partition(":")[0] for _, what in _records(at)] == ["lost", "made again"]
    at.damaged = set(at.records)
    assert _records(at) == []


def test_a_block_of_two_gpus_is_seen(at: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = at.run.parents[2] / "launched.txt"
    kept = SimpleNamespace(folder=at.run)
    monkeypatch.setattr("harness.cluster.shards.Shard.run", lambda shard: kept)
    ledger.write_text(f"{at.run.name} GPU-1 one launch-a-cuda-000\nelsewhere GPU-2 two launch-a-cuda-000\n")
    assert _blocks(at) == [], "the other one is of another run"
    ledger.write_text(f"{at.run.name} GPU-1 one launch-a-cuda-000\n{at.run.name} GPU-2 two launch-a-cuda-000\n")
    assert [what for _, what in _blocks(at)] == ["mixed: block 0 of a-cuda ran on GPU-1, GPU-2"]
    ledger.unlink()
    at.where = dict(zip(at.records, ("n1", "n2"), strict=True))
    assert [what for _, what in _blocks(at)] == ["mixed: block 000 of a-cuda ran on n1, n2"]


def test_a_launch_that_is_missing_or_there_twice_is_seen() -> None:
    keys = {("one", kernel, index) for kernel in KERNELS[SCRIPTED] for index in range(2)}
    nothing = SimpleNamespace(environments=list, builds=list, validations=list, launches=list)
    counted = {key: 1 for key in keys} | {("one", "a", 0): 2}
    del counted["one", "b", 1]
    subject = SimpleNamespace(counted=lambda: counted, device="cuda", latest=nothing, mode=SCRIPTED)
    found = _launches(SimpleNamespace(subject=subject), SimpleNamespace(launches=keys))  # type: ignore[arg-type]
    assert found == [("b-cuda", "lost: launch one b 1"), ("a-cuda", "doubled: launch ('one', 'a', 0)")]


def test_what_lies_about_is_seen(at: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.cluster.campaign.checks.LOOK_S", 0.0)
    (at.run / "run.json").write_text("{}")
    assert _left(at) == []
    for place in (at.run / "scratch", at.nodes.disk("n2") / "tmp" / "kernel-matrix-1-2", at.subject.cache / ".x.part"):
        place.mkdir(parents=True)
    assert len(_left(at)) == 3


def test_a_full_disk_is_full(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can mount a small disk")
    with disk(tmp_path / "small", 1 << 20):
        fill(tmp_path / "small")
        with pytest.raises(OSError, match="No space"):
            (tmp_path / "small" / "more").write_text("x" * 5000)
        free(tmp_path / "small")
        (tmp_path / "small" / "more").write_text("x" * 5000)


def test_the_table_counts_what_was_made_how(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    row = '{{"kind": "job cancelled", "mode": "{0}", "met": {1}, "outcome": "{2}"}}\n'
    rows.write_text(row.format("real", "true", "ok") + row.format("scripted", "false", "lost"))
    assert "| job cancelled | 1 | 1 | 1 | 1 |" in render_table([rows])
