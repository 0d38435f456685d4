"""Folders in KernelBench's form as a matrix, and fast_p of what they gave."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import replace
from pathlib import Path

import pytest

from harness.config.kernelbench import Folders, kernel_name, pair, with_pairs
from harness.config.matrix import load_matrix
from harness.errors import InputError
from reports.compare.kernelbench import LEVELS, Score, Solution, score, scores
from reports.load.evidence import Evidence, load_evidence
from reports.render.page import render_page
from reports.render.report import Report
from reports.render.summaries import render_summary, render_summary_text
from tests.conftest import ROOT
from tests.unit.spec import BASE, NEXT, Case, Spec
from tests.unit.synthetic import write_pairs, write_run

MATRIX = load_matrix(ROOT / "matrix.yaml")[0]
LEVEL1 = ["p/level1/1_Square.py", "p/level1/19_ReLU.py"]


SAMPLES = [f"runs/level_1_problem_19_sample_{number}_kernel.py" for number in (0, 1)]


@pytest.mark.parametrize(
    ("problems", "solutions", "sample", "found"),
    [
        (LEVEL1, ["s/level1/19_ReLU.py"], 0, [None, "s/level1/19_ReLU.py"]),
        (LEVEL1, ["s/level1/1.py", "s/level1/19_mine.py"], 0, ["s/level1/1.py", "s/level1/19_mine.py"]),
        (LEVEL1, SAMPLES, 0, [None, SAMPLES[0]]),
        (LEVEL1, SAMPLES, 1, [None, SAMPLES[1]]),
        (LEVEL1, ["s/level2/19_ReLU.py"], 0, [None, None]),  # another level's
        # Without levels they are of the level that is asked, where there is one.
        (LEVEL1, ["s/19_ReLU.py"], 0, [None, "s/19_ReLU.py"]),
        (["level1/19_ReLU.py"], ["mine/19_ReLU.py"], 0, ["mine/19_ReLU.py"]),
        ([*LEVEL1, "p/level2/19_Conv.py"], ["s/19_ReLU.py"], 0, [None, None, None]),
        # Of two the one that has its very name.
        (LEVEL1, ["s/level1/19_ReLU.py", "s/level1/19_b.py"], 0, [None, "s/level1/19_ReLU.py"]),
    ],
)
def test_pairs_by_path_by_number_and_by_the_names_of_kernelbenchs_own_runs(
    problems: list[str], solutions: list[str], sample: int, found: list[str | None]
) -> None:
    assert pair(problems, solutions, sample) == dict(zip(problems, found, strict=True))


def test_two_solutions_of_a_problem_are_refused() -> None:
    with pytest.raises(InputError, match=r"19_ReLU\.py has 2 solutions"):
        pair(LEVEL1, ["s/level1/19_a.py", "s/level1/19_b.py"])


def test_the_order_is_that_of_numbers_and_other_files_are_no_problems() -> None:
    assert list(pair([*reversed(LEVEL1), "p/level1/__init__.py", "p/level1/helpers.py"], [])) == LEVEL1


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("p/level1/19_ReLU.py", "level1.19_relu"),
        ("p/7_Mean-of (x).py", "7_mean_of__x_"),
        ("p/level1/81_" + "conv_transposed_" * 8 + ".py", ("level1.81_" + "conv_transposed_" * 8)[:64]),
    ],
)
def test_a_kernel_is_called_what_its_problem_is(path: str, name: str) -> None:
    assert kernel_name(path) == name


def folders(root: Path, *files: str) -> Folders:
    for name in ("problems/level1/1_Square.py", "problems/level1/19_ReLU.py", *files):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (root / "solutions").mkdir(exist_ok=True)
    return Folders(problems=root / "problems", solutions=root / "solutions")


def test_the_pairs_stand_in_place_of_the_matrixs_kernels(tmp_path: Path) -> None:
    given = folders(tmp_path, "solutions/level1/19_ReLU.py", "solutions/level1/20_other.py")
    changed, found = with_pairs(MATRIX, tmp_path, given)
    kernel = changed.kernels[0]
    assert [k.name for k in changed.kernels] == ["level1.19_relu"]
    assert (kernel.problem, kernel.model_new) == ("problems/level1/19_ReLU.py", "solutions/level1/19_ReLU.py")
    assert found.pairs == {"level1.19_relu": "level1/19_ReLU.py"} and found.missing == ["level1/1_Square.py"]
    assert found.unused == ["level1/20_other.py"]
    half, _ = with_pairs(MATRIX, tmp_path, dataclasses.replace(given, dtype="float16"))
    assert half.kernels[0].dtype == "float16"


def test_folders_that_cannot_be_used_say_what_to_do(tmp_path: Path) -> None:
    given = folders(tmp_path)
    with pytest.raises(InputError, match="no problem has a solution"):
        with_pairs(MATRIX, tmp_path, given)
    with pytest.raises(InputError, match="no such folder"):
        with_pairs(MATRIX, tmp_path, dataclasses.replace(given, problems=tmp_path / "nowhere"))
    inner = tmp_path / "inner"
    inner.mkdir()
    with pytest.raises(InputError, match=r"not inside .*inner[\s\S]*ln -s"):
        with_pairs(MATRIX, inner, given)


def test_a_linked_folder_is_inside(tmp_path: Path) -> None:
    given = folders(tmp_path, "solutions/level1/19_ReLU.py")
    root = tmp_path / "project"
    root.mkdir()
    for name in ("problems", "solutions"):
        (root / name).symlink_to(tmp_path / name)
    linked = dataclasses.replace(given, problems=root / "problems", solutions=root / "solutions")
    assert with_pairs(MATRIX, root, linked)[1].missing


def test_two_problems_with_one_name_are_refused(tmp_path: Path) -> None:
    long = "19_" + "x" * 80
    given = folders(tmp_path, *(f"{kind}/level1/{long}{end}.py" for kind in ("problems", "solutions") for end in "ab"))
    (tmp_path / "solutions" / "level1" / "19_ReLU.py").touch()
    with pytest.raises(InputError, match="also begins"):
        with_pairs(MATRIX, tmp_path, given)


# -- fast_p -------------------------------------------------------------------------------------------------


def solved(
    speedup: float | None, low: float | None = None, high: float | None = None, *, correct: bool = True
) -> Solution:
    return Solution(
        problem="p",
        kernel="k",
        workload="w",
        correct=correct,
        why="" if correct else "wrong",
        speedup=speedup,
        low=low,
        high=high,
        launches=7,
        left_out=False,
    )


def scored(*found: Solution, missing: int = 0, count_missing: bool = False) -> Score:
    return score("e", "cpu", list(found), missing, count_missing)


def test_fast_p_is_the_share_that_is_correct_and_more_than_p_times_as_fast() -> None:
    line = scored(
        solved(0.4), solved(0.6), solved(0.9), solved(1.2), solved(1.7), solved(3.0), solved(9.0, correct=False)
    )
    assert list(line.fast) == ["0", "0.5", "0.8", "1", "1.5", "2"] and len(LEVELS) == 6
    assert [round(share * 7) for share in line.fast.values()] == [6, 5, 4, 3, 2, 1]
    assert scored(solved(1.0)).fast["1"] == 0.0, "not more than 1"
    assert scored(solved(None)).fast == {"0": 1.0, "0.5": 0.0, "0.8": 0.0, "1": 0.0, "1.5": 0.0, "2": 0.0}


def test_a_problem_counts_by_its_estimate_and_beside_it_where_its_interval_holds_p() -> None:
    line = scored(
        solved(1.02, 0.97, 1.06), solved(1.3, 1.2, 1.4), solved(1.6, 1.4, 2.2), solved(0.3, 0.2, 0.4, correct=False)
    )
    assert line.fast["1"] == 0.75
    assert line.undecided == {"0": 0, "0.5": 0, "0.8": 0, "1": 1, "1.5": 1, "2": 1}
    assert scored(solved(1.3)).undecided["2"] == 1, "without an interval nothing is decided"


def test_problems_without_a_solution_count_only_where_that_was_asked() -> None:
    assert scored(solved(2.0), missing=3).fast["0"] == 1.0
    line = scored(solved(2.0), missing=3, count_missing=True)
    assert (line.problems, line.fast["0"]) == (4, 0.25)
    assert scored(dataclasses.replace(solved(None), left_out=True)).fast["0"] == 0.0


def newer(evidence: Evidence) -> Score:
    """The scores of the newer version."""
    return next(line for line in scores(evidence) if line.environment == NEXT)


def test_scores_are_of_each_version(tmp_path: Path) -> None:
    cases = {(NEXT, "model", "*"): Case(slowdown=3.0)}
    write_pairs(tmp_path, Spec(cases=cases, kernels=("one", "two")))
    evidence = load_evidence(tmp_path)
    lines = {line.environment: line for line in scores(evidence)}
    assert lines[BASE].fast["0"] == lines[NEXT].fast["0"] == lines[NEXT].fast["2"] == 1.0
    assert lines[BASE].fast["1.5"] == 0.0
    found = lines[NEXT].solutions[0]
    assert found.speedup == pytest.approx(3.0, rel=0.05) and found.low is not None and found.low < 3.05
    assert (found.problem, found.launches) == ("level1/one.py", 10)


def test_where_some_kernels_were_chosen_the_rest_is_not_missing(tmp_path: Path) -> None:
    write_pairs(tmp_path, Spec(), missing=["level1/2_b.py"])
    evidence = load_evidence(tmp_path)
    assert {(line.problems, line.missing) for line in scores(evidence, count_missing=True)} == {(2, 1)}
    found = evidence.run.kernelbench
    assert found is not None
    more = replace(found, pairs={**found.pairs, "not_chosen": "level1/3_c.py"})
    chosen = dataclasses.replace(evidence, run=replace(evidence.run, kernelbench=more))
    assert {(line.problems, line.missing) for line in scores(chosen, count_missing=True)} == {(1, 0)}


def test_what_is_wrong_in_validation_is_incorrect_with_its_reason(tmp_path: Path) -> None:
    write_pairs(tmp_path, Spec(cases={(NEXT, "kernel", "*"): Case(passed=19)}))
    evidence = load_evidence(tmp_path)
    line = newer(evidence)
    assert line.fast["0"] == 0.0 and line.problems == 1
    assert line.solutions[0].why.startswith("wrong: ") and line.solutions[0].speedup is None


def test_what_a_launch_found_out_is_incorrect_too(tmp_path: Path) -> None:
    write_pairs(tmp_path, Spec())
    evidence = load_evidence(tmp_path)
    launches = evidence.launches[NEXT, "attention_scalar", "cpu", "seed-fp32", "kernel"]
    launches[3] = launches[3]._replace(correct=False, message="its output does not follow its inputs")
    line = newer(evidence)
    assert line.fast["0"] == 0.0
    assert line.solutions[0].why == "launch 4: its output does not follow its inputs"


def test_a_launch_that_the_solution_ended_is_held_against_it(tmp_path: Path) -> None:
    write_pairs(tmp_path, Spec())
    evidence = load_evidence(tmp_path)
    key = (NEXT, "attention_scalar", "cpu")
    ended = {"status": "crashed", "message": "exited with 0", "timings": []}
    evidence.launch_records[key] = [replace(record, **ended) for record in evidence.launch_records[key]]
    launches = {found: rows for found, rows in evidence.launches.items() if found[0] != NEXT}
    line = newer(dataclasses.replace(evidence, launches=launches))
    assert (line.problems, line.fast["0"]) == (1, 0.0) and line.solutions[0].why == "crashed in launch 1: exited with 0"


def test_a_reference_that_does_not_run_leaves_its_problem_out(tmp_path: Path) -> None:
    refused = Case(status="unsupported", message="no such operator")
    crashed = Case(status="crashed", message="the same")
    write_pairs(tmp_path, Spec(cases={(NEXT, "model", "*"): refused, (NEXT, "kernel", "*"): crashed}))
    evidence = load_evidence(tmp_path)
    line = newer(evidence)
    assert (line.problems, line.left_out) == (0, 1) and line.solutions[0].why == "no such operator"


def test_the_page_and_the_summaries_say_it(tmp_path: Path) -> None:
    cases = {(NEXT, "model", "*"): Case(slowdown=3.0), (BASE, "kernel", "*"): Case(passed=19)}
    write_pairs(tmp_path, Spec(cases=cases), missing=["level1/<b>.py"])
    report = Report(load_evidence(tmp_path))
    page = render_page(report)
    section = page.partition('<section id="kernelbench">')[2].partition("</section>")[0]
    assert "Without a solution: 1, not counted; --count-missing" in section
    assert re.search(r'<span class="num">(3|3\.0\d|2\.9\d)\S \[', section), "with its interval"
    assert "incorrect" in section and "level1/&lt;b&gt;.py" in section
    text = render_summary_text(report)
    assert "### fast_p" in text and "Without a solution: 1, not counted." in text
    assert '"kernelbench":[{' in render_summary(report)
    counted = render_page(Report(load_evidence(tmp_path), count_missing=True))
    assert "Without a solution: 1, counted as not solved." in counted


def test_a_run_without_problem_files_has_no_such_section(tmp_path: Path) -> None:
    write_run(tmp_path, Spec())
    report = Report(load_evidence(tmp_path))
    assert report.kernelbench == [] and 'id="kernelbench"' not in render_page(report)
