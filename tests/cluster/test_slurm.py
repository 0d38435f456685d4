"""Matrices on a real Slurm, with nodes and jobs that end in the middle of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from harness.schema.storage import Run
from tests.cluster.conftest import Cluster
from tests.conftest import ROOT
from tests.projects import attempt, head, latest, make_project

pytestmark = [pytest.mark.environments, pytest.mark.alone, pytest.mark.timeout(900)]

NAMES = ("a", "b")
MATRIX = head("2.1.0", "2.5.0") + (
    "references: [math]\nkernels:\n"
    + "".join(f"  - {{name: {name}, sources: {{cpu: [csrc/{name}.cpp]}}}}\n" for name in NAMES)
    + "workloads:\n  - {name: small, shape: {batch: 1, heads: 1, seq_len: 65, head_dim: 64}, "
    + "dtypes: {cpu: [float32]}, trials: 2, extra_trials: 1}\n"
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    small = (ROOT / "tests" / "candidates" / "small_attention.cpp").read_text()
    return make_project(tmp_path / "project", MATRIX, {f"csrc/{name}.cpp": small for name in NAMES})


def words(project: Path, *more: str) -> list[str | Path]:
    own = ["--executor=venv", "--explain=never", "--launches=2", "--on=slurm", *more]
    return [sys.executable, "-m", "harness", "matrix", f"--matrix={project / 'matrix.yaml'}", *own]


def check_whole(run: Run) -> None:
    """Every launch once, all is right, and each kernel's blocks are of one node."""
    launches = Counter((each.environment, each.kernel, each.index) for each in run.launches())
    environments = {each.id for each in run.environments()}
    assert set(launches) == {(e, k, i) for e in environments for k in NAMES for i in range(2)}
    assert len(environments) == 2
    assert set(launches.values()) == {1}
    assert {each.status for each in [*run.builds(), *run.validations(), *run.launches()]} == {"ok"}
    assert (run.folder / "index.html").exists() and "<title>" in (run.folder / "index.html").read_text()


def jobs(project: Path) -> dict[str, dict[str, object]]:
    return {path.parent.name: json.loads(path.read_text()) for path in project.glob("reports/shards/*/*/job.json")}


def wait_for(cluster: Cluster, status: str, count: int = 1, seconds: float = 120) -> list[str]:
    """Nodes that have so many jobs in this state."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = cluster.say("squeue", "--noheader", f"--states={status}", "--format=%N").split()
        if len(found) >= count:
            return found
        time.sleep(0.3)
    raise AssertionError(cluster.say("squeue"))


def launched(project: Path, count: int = 1, seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while len(list(project.glob("reports/shards/*/*/project/reports/runs/*/launches/**/*.json"))) < count:
        assert time.monotonic() < deadline
        time.sleep(0.3)


def test_every_kernel_is_a_job_and_the_page_is_one(cluster: Cluster, project: Path) -> None:
    code, printed = attempt(words(project), cluster.variables)
    assert code == 0, printed
    check_whole(latest(project))
    assert printed.count(": finished") == len(NAMES) and "running on n" in printed
    scripts = [path.read_text() for path in project.glob("reports/shards/*/*/slurm/*.sh")]
    assert scripts and not any("--time" in text for text in scripts), "the partition's own limit holds"
    known = jobs(project)
    again, printed = attempt(words(project), cluster.variables)
    assert again == 0 and jobs(project) == known, "nothing is queued twice"


def test_the_command_is_killed_and_typed_again(cluster: Cluster, project: Path) -> None:
    child = subprocess.Popen(
        words(project), cwd=ROOT, env={**os.environ, **cluster.variables}, stdout=subprocess.DEVNULL
    )
    wait_for(cluster, "RUNNING")
    child.send_signal(signal.SIGKILL)
    child.wait()
    known = jobs(project)
    code, printed = attempt(words(project), cluster.variables)
    assert code == 0, printed
    assert jobs(project) == known, "its jobs went on"
    check_whole(latest(project))


# Each takes minutes: Slurm lets a job that it queues again wait for two, and a limit of four is reached. They run where
# all are asked for.
LONG = pytest.mark.skipif(os.environ.get("KERNEL_MATRIX_CLUSTER") != "all", reason="takes KERNEL_MATRIX_CLUSTER=all")
HOW = [
    "cancelled",
    "the controller starts again",
    pytest.param("requeued", marks=LONG),
    pytest.param("its node dies", marks=LONG),
]


@pytest.mark.parametrize("how", HOW)
def test_what_happens_to_a_job_loses_nothing(cluster: Cluster, project: Path, how: str) -> None:
    child = subprocess.Popen(
        words(project), cwd=ROOT, env={**os.environ, **cluster.variables}, stdout=subprocess.PIPE, text=True
    )
    launched(project)
    node, job = wait_for(cluster, "RUNNING")[0], cluster.say("squeue", "--noheader", "--states=RUNNING", "--format=%i")
    if how == "cancelled":
        cluster.say("scancel", job.split()[0])
    elif how == "requeued":
        cluster.say("scontrol", "requeue", job.split()[0])
    elif how == "its node dies":
        cluster.kill(node)
    else:
        os.kill(int((cluster.folder / "slurmctld.pid").read_text()), signal.SIGKILL)
        time.sleep(1)
        cluster.say("slurmctld")
    printed, _ = child.communicate(timeout=600)
    if how == "its node dies":
        cluster.start(node)
        cluster.wait_idle()
    assert child.returncode == 0, printed
    check_whole(latest(project))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--partition=nowhere"], "sinfo lists the partitions"),
        (["--time=600"], "--time chooses a shorter one"),
        (["--gpu=h200"], "no kernel that was chosen is for cuda"),
        (["--gpu=l4", "--device=cuda", "--kernel=g"], "sinfo --format"),
    ],
)
def test_what_slurm_refuses_is_told_and_leaves_nothing_queued(
    cluster: Cluster, project: Path, more: list[str], said: str
) -> None:
    if "--kernel=g" in more:
        add_cuda_kernel(project)
    code, printed = attempt(words(project, *more), cluster.variables)
    assert code in (64, 30) and said in printed and "Traceback" not in printed, printed
    assert cluster.say("squeue", "--noheader") == ""


def add_cuda_kernel(project: Path) -> None:
    path = project / "matrix.yaml"
    text = path.read_text().replace("workloads:", "  - {name: g, sources: {cuda: [csrc/g.cu]}}\nworkloads:")
    path.write_text(text.replace("{cpu: [float32]}", "{cpu: [float32], cuda: [float32]}"))
    (project / "csrc" / "g.cu").write_text('extern "C" int attention_forward;\n')


def test_a_node_without_the_gpu_that_slurm_says_it_has_gives_no_number(cluster: Cluster, project: Path) -> None:
    add_cuda_kernel(project)
    code, printed = attempt(
        words(project, "--device=cpu,cuda", "--gpu=h200", "--kernel=a", "--kernel=g"), cluster.variables
    )
    assert code == 30 and "Traceback" not in printed, printed
    run = latest(project)
    lost = [each for each in run.validations() if each.kernel == "g"]
    assert len(lost) == 2 and {each.status for each in lost} == {"not_run"}
    [why] = {each.message for each in lost}
    assert "3 times" in why and "--gpu h200: there is no GPU here" in why, why
    assert why.partition(":")[0] in (run.folder / "index.html").read_text()
    assert {launch.kernel for launch in run.launches()} == {"a"}


def test_what_slurm_is_asked_for_stands_in_the_file_and_the_command_wins(cluster: Cluster, project: Path) -> None:
    path = project / "matrix.yaml"
    text = path.read_text()
    path.write_text(text + "slurm: {partition: nowhere, time: '0:30:00', no-such-option: 5}\n")
    code, printed = attempt(words(project), cluster.variables)
    assert code == 30 and "no-such-option" in printed and "`slurm` in matrix.yaml" in printed, printed
    path.write_text(text + "slurm: {partition: nowhere, time: '0:30:00', comment: mine}\n")
    code, printed = attempt(words(project, "--partition=main", "--kernel=a", "--detach"), cluster.variables)
    assert code == 0, printed
    [script] = project.glob("reports/shards/*/*/slurm/*_submission.sh")
    lines = [line.removeprefix("#SBATCH --") for line in script.read_text().splitlines() if "#SBATCH" in line]
    asked = dict(line.partition("=")[::2] for line in lines)
    assert (asked["partition"], asked["time"], asked["comment"]) == ("main", "0:30:00", "mine")
    code, printed = attempt(words(project, "--partition=main", "--kernel=a", "--time=20"), cluster.variables)
    assert code == 0, printed
    assert len(list(script.parent.glob("*_submission.sh"))) == 1, "it is the same shard, wherever it is queued"


def test_what_is_queued_is_collected_as_it_is(cluster: Cluster, project: Path) -> None:
    code, printed = attempt(words(project, "--detach"), cluster.variables)
    assert code == 0 and "collect reports/shards/" in printed, printed
    seen = set()
    while "2 of 2 shards have finished" not in printed:
        collect = [sys.executable, "-m", "harness", "collect", newest_shards(project)]
        code, printed = attempt(collect, cluster.variables)
        assert code in (0, 30) and "Traceback" not in printed, printed
        seen |= {word for word in ("queued", "running on n", "had not finished") if word in printed}
        time.sleep(1)
    assert code == 0 and "running on n" in seen, printed
    check_whole(latest(project))
    known = jobs(project)
    code, printed = attempt(words(project), cluster.variables)
    assert code == 0 and jobs(project) == known and "b-cpu: finished" in printed, printed


def newest_shards(project: Path) -> Path:
    return max(project.glob("reports/shards/*"), key=lambda path: path.stat().st_mtime)
