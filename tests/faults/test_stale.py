"""What is run again, where something was edited between two runs: just what depends on it, counted verb by verb."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.schema.storage import Run
from reports.load.evidence import load_evidence
from tests.faults.scripted import GPU, MATRIX, STORY, TASKS, Scripted, contents

pytestmark = [pytest.mark.process, pytest.mark.timeout(1500)]
WORKLOADS, VERSIONS, LAUNCHES = 2, 2, 3
QUIET = ("--explain", "never")
SETUP = {"observe": VERSIONS}  # environments are proven anew wherever anything is run
GPU_FACTS = {
    "uuid": "GPU-1",
    "name": "H200",
    "driver": "550",
    "memory_bytes": 1,
    "ecc": True,
    "mig": False,
    "power_limit_w": 700.0,
    "max_sm_mhz": 1980,
}


class Counted(Scripted):
    """Runs, and what each of them ran."""

    def again(self, *arguments: str, verb: str = "matrix") -> tuple[dict[str, int], str]:
        """(how often each verb was run, what was printed)."""
        tasks = self.root / TASKS
        tasks.write_text("")
        printed = self.done(*arguments, *QUIET, verb=verb)
        self.ran = tasks.read_text().splitlines()
        verbs = [line.split()[0] for line in self.ran]
        return {verb: verbs.count(verb) for verb in verbs}, printed

    def edit(self, old: str, new: str, file: str = "matrix.yaml") -> None:
        path = self.root / file
        text = path.read_text()
        assert text.count(old) == 1
        path.write_text(text.replace(old, new))


# Without the workload on which the kernel crashes: a failure is tried again in every new run.
HEALTHY = MATRIX[: MATRIX.index("  - {name: crashes")] + MATRIX[MATRIX.index("references:") :]
PLANNED = "\nlaunches: 3\n"


@pytest.fixture
def project(tmp_path: Path) -> Counted:
    project = Counted(tmp_path)
    (project.root / "matrix.yaml").write_text(HEALTHY)
    return project


def begun(project: Counted) -> dict[str, Any]:
    counts, _ = project.again()
    cells = WORKLOADS * VERSIONS
    times = counts.pop("time")
    assert counts == {**SETUP, "build": VERSIONS, "candidate": cells, "judge": cells} and times >= VERSIONS * LAUNCHES
    return contents(project.latest)


def launches(run: Run) -> dict[str, Any]:
    """Every launch, by its place, down to when it was made."""
    return {f"{each.environment}/{each.device}/{each.index}": each for each in run.launches()}


def test_edited_thresholds_run_nothing_and_make_another_page(project: Counted) -> None:
    project.edit("most_launches: 3", "most_launches: 6")
    before = begun(project)
    first = project.latest
    project.edit("references: [math]", "references: [math]\nthresholds: {min_effect_cpu: 0.0001}")
    counts, printed = project.again()
    assert counts == {} and "nothing changed" in printed and project.latest.folder == first.folder
    assert load_evidence(project.latest.folder).min_effect("cpu") == 0.0001
    after = contents(project.latest)
    assert [path for path in after if before[path] != after[path]] == ["run.json"]


def test_a_record_that_is_gone_is_made_again_and_nothing_else(project: Counted) -> None:
    """Deleting it is the remedy for a damaged one."""
    begun(project)
    before = contents(project.latest)
    for place, counts in {
        "run.json": {},
        "environments/*.json": SETUP,
        "builds/*/*.json": SETUP,
        "crossings/*/*.json": SETUP,
        "validations/*/*/*.json": {**SETUP, "candidate": 1, "judge": 1},
        "launches/*/*/*.json": {**SETUP, "time": 1},
    }.items():
        sorted(project.latest.folder.glob(place))[0].unlink()
        assert project.again()[0] == counts, place
        assert contents(project.latest) == before, place


def begin_with_a_late_launch(project: Counted) -> None:
    """One launch takes 12 s, where 6 s are allowed."""
    project.edit(PLANNED, PLANNED + "limits: {launch_s: 6}\n")
    (project.root / STORY).write_text(json.dumps({"2.5.0": {"launch_s": {str(seed): 12 for seed in (2, 3)}}}))
    begun(project)


def test_another_limit_measures_the_round_again_in_which_something_ended_there(project: Counted) -> None:
    begin_with_a_late_launch(project)
    before = launches(project.latest)
    [late] = [place for place, record in before.items() if record.status == "timed_out"]
    project.edit("launch_s: 6", "launch_s: 100")
    counts, _ = project.again()
    assert counts == {**SETUP, "time": VERSIONS}
    after = launches(project.latest)
    assert after[late].status == "ok"
    again = [place for place in before if before[place] != after[place]]
    assert {place.rpartition("/")[2] for place in again} == {late.rpartition("/")[2]}
    assert project.again()[0] == {}, "once"


def test_an_interrupted_renewal_goes_on(project: Counted) -> None:
    begin_with_a_late_launch(project)
    project.edit("launch_s: 6", "launch_s: 100")
    assert project.killed(25, *QUIET)
    project.again()
    assert {record.status for record in project.latest.launches()} == {"ok"}
    assert project.again()[0] == {}


def test_another_baseline_takes_everything_again(project: Counted) -> None:
    begun(project)
    before = launches(project.latest)
    project.edit('baseline: "2.1.0"', 'baseline: "2.5.0"')
    assert project.again()[0] == SETUP
    assert project.latest.load().baseline.startswith("torch2.5.0") and len(project.runs) == 2
    assert launches(project.latest) == before


def test_more_launches_are_added_to_those_that_are_there(project: Counted) -> None:
    begun(project)
    before = launches(project.latest)
    project.edit(PLANNED + "most_launches: 3", "\nlaunches: 4\nmost_launches: 4")
    assert project.again()[0] == {**SETUP, "time": VERSIONS}
    assert before.items() <= launches(project.latest).items()
    assert project.again("--fresh")[0]["time"] == VERSIONS * 4, "unless it is asked to measure anew"


def test_an_edited_source_makes_again_all_that_is_compared_with_it(project: Counted) -> None:
    begun(project)
    (project.root / "csrc" / "scripted.cpp").write_text("// edited\n")
    cells = WORKLOADS * VERSIONS
    counts = project.again()[0]
    assert counts == {**SETUP, "build": VERSIONS, "candidate": cells, "judge": cells, "time": VERSIONS * LAUNCHES}


def test_a_block_is_never_made_of_two_runs(project: Counted) -> None:
    """Of a run that lacks a launch no launch of that block is taken."""
    begun(project)
    gone = sorted(project.latest.folder.glob("launches/*/*/001.json"))[0]
    gone.unlink()
    project.edit('baseline: "2.1.0"', 'baseline: "2.5.0"')
    assert project.again()[0] == {**SETUP, "time": VERSIONS}


def with_gpu(project: Counted, **changes: Any) -> None:
    (project.root / GPU).write_text(json.dumps({**GPU_FACTS, **changes}))


@pytest.mark.parametrize("change", [{"uuid": "GPU-2"}, {"power_limit_w": 350.0}, {"driver": "560"}])
def test_another_gpu_makes_again_what_ran_on_it(project: Counted, change: dict[str, Any]) -> None:
    (project.root / "csrc" / "scripted.cu").write_text("// answered by interpreter.py\n")
    text = HEALTHY.replace("cpu: [csrc/scripted.cpp]", "cpu: [csrc/scripted.cpp], cuda: [csrc/scripted.cu]")
    project.root.joinpath("matrix.yaml").write_text(
        text.replace("{cpu: [float32]}", "{cpu: [float32], cuda: [float32]}")
    )
    with_gpu(project)
    project.again()
    before = launches(project.latest) | {each.workload + each.device: each for each in project.latest.validations()}
    assert project.again()[0] == {}
    with_gpu(project, **change)
    cells = WORKLOADS * VERSIONS
    counts, _ = project.again()
    assert counts == {
        **SETUP,
        "candidate": cells,
        "judge": cells,
        "time": VERSIONS * LAUNCHES,
        "ceilings": 1,
    }
    assert not [
        line for line in project.ran if line.split()[0] in ("candidate", "judge", "time") and "cuda" not in line
    ]
    after = launches(project.latest) | {each.workload + each.device: each for each in project.latest.validations()}
    assert [place for place in before if before[place] == after[place]] == [place for place in before if "cpu" in place]


def test_eval_takes_the_baseline_that_the_matrix_validated(project: Counted) -> None:
    begun(project)
    assert project.again("--torch=2.5.0", verb="eval")[0] == {"observe": 1, "time": LAUNCHES}
    validations = Run(project.latest.folder).validations()
    assert len(validations) == WORKLOADS * VERSIONS and {each.status for each in validations} == {"ok"}


def test_a_baseline_that_was_validated_since_is_taken(project: Counted) -> None:
    counts, _ = project.again("--torch=2.5.0", verb="eval")
    assert counts["time"] == LAUNCHES
    statuses = [each.status for each in project.latest.validations()]
    assert statuses.count("not_run") == WORKLOADS
    assert project.again("--torch=2.5.0", verb="eval")[0] == {}, "there is none yet"
    project.again()
    counts, _ = project.again("--torch=2.5.0", verb="eval")
    assert counts == {"observe": 1} and {each.status for each in project.latest.validations()} == {"ok"}
