"""A kernel that runs in no environment: its own error, a build that fails, or what PyTorch refuses everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.schema.records import Outcome
from reports.attribute import causes
from reports.attribute.causes import STRONG
from reports.render.commands import render_run
from tests.unit.attributed import first, here, of_both, of_kernel, spec
from tests.unit.spec import BASE, NEXT, Case, Spec
from tests.unit.synthetic import write_run

MISSING = "independent: constructing ModelNew raised AttributeError: solution.py defines no ModelNew"
LACKS = 'Module [ModelNew] is missing the required "forward" function'
NO_FORWARD = f"independent: trial 0 raised NotImplementedError: {LACKS}"
TYPO = "independent: trial 0 raised AttributeError: module 'torch' has no attribute 'sofmax'"
SYNTAX = "independent: constructing ModelNew raised SyntaxError: invalid syntax (solution.py, line 3)"
SHAPES = "independent: trial 0 raised RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 4x8)"


MODULE = "independent: constructing ModelNew raised ModuleNotFoundError: No module named 'einops' (solution.py:2)"
PROBLEM = "making the inputs of problem.py raised ModuleNotFoundError: No module named 'einops' (problem.py:2)"
LAZY = "independent: trial 0 raised ModuleNotFoundError: No module named 'einops' (solution.py:9)"
UNNAMED = "independent: trial 0 raised NameError: name 'sofmax' is not defined (solution.py:9)"


@pytest.mark.parametrize("message", [MISSING, NO_FORWARD, TYPO, SYNTAX, SHAPES, MODULE, PROBLEM, LAZY, UNNAMED])
def test_an_exception_of_the_kernels_own_in_every_environment_is_its_own_error(message: str, tmp_path: Path) -> None:
    raises = Case(status="crashed", message=message)
    for number, made in enumerate((of_both(raises), of_both(raises, environments=(BASE,)))):
        found = first(tmp_path / str(number), made)
        assert (found.cause, found.grade) == (causes.OWN_ERROR, STRONG)
        assert message.removeprefix("independent: ") in found.statement and "run again" in found.statement
        assert found.evidence[0].record and "explain" not in found.next_command


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("trial 0 raised RuntimeError: \"softmax\" not implemented for 'Half'", causes.UNSUPPORTED_COMBINATION),
        (
            "trial 0 raised TypeError: scaled_dot_product_attention() got an unexpected keyword argument 'enable_gqa'",
            causes.UNSUPPORTED_COMBINATION,
        ),
        (
            "constructing ModelNew raised TypeError: ModelNew.__init__() got an unexpected keyword argument 'x'",
            causes.OWN_ERROR,
        ),
        ("the kernel's process died by SIGABRT", causes.WRONG_EVERYWHERE),
        ("trial 0 raised OSError: no such device", causes.WRONG_EVERYWHERE),
    ],
)
def test_what_pytorch_refuses_and_what_a_process_dies_of_is_no_error_of_its_own(
    message: str, cause: str, tmp_path: Path
) -> None:
    assert first(tmp_path, of_both(Case(status="crashed", message=f"independent: {message}"))).cause == cause


@pytest.mark.parametrize("message", [LAZY, UNNAMED])
def test_a_plain_mistake_is_one_where_the_kernel_runs_on_other_workloads_too(message: str, tmp_path: Path) -> None:
    raises = Case(status="crashed", message=message)
    made = Spec(trials=10, cases={(each, "kernel", "seed-fp16"): raises for each in (BASE, NEXT)})
    found = [cause for cause in of_kernel(tmp_path, made) if "seed-fp16" in cause.workloads]
    assert [cause.cause for cause in found] == [causes.OWN_ERROR] and message[-14:] in found[0].statement


@pytest.mark.parametrize("message", [SYNTAX, MODULE, PROBLEM, LAZY])
def test_a_mistake_is_shown_as_the_users_and_has_no_grade(message: str, tmp_path: Path) -> None:
    run = write_run(tmp_path, of_both(Case(status="crashed", message=message)))
    render_run(run.folder)
    page, summary = ((run.folder / name).read_text() for name in ("index.html", "summary.md"))
    assert f"({causes.TO_CORRECT})" in summary and f">{causes.TO_CORRECT}</span>" in page
    for text in (page.partition("The meaning of decisive")[0], summary):
        assert "(strong)" not in text and ">strong</span>" not in text and "not supported" not in text


def test_what_another_release_has_is_no_error_of_the_kernels_own(tmp_path: Path) -> None:
    third = "torch2.11.0-cu121-py311"
    made = of_both(Case(status="crashed", message=TYPO), environments=(BASE, NEXT, third))
    found = [cause.cause for cause in of_kernel(tmp_path, made)]
    assert causes.OWN_ERROR not in found and causes.UNSUPPORTED_COMBINATION in found


def test_a_kernel_that_builds_nowhere_does_not_build(tmp_path: Path) -> None:
    failed = Outcome(status="build_failed", message="k.cpp:3:1: error: expected ';' before '}' token")
    for number, environments in enumerate(((BASE, NEXT), (BASE,))):
        made = spec(builds=dict.fromkeys(environments, failed), environments=environments)
        found = first(tmp_path / str(number), made)
        assert found.cause == causes.DOES_NOT_BUILD and failed.message in found.statement
        assert [seen.record for seen in found.evidence] and all(seen.record for seen in found.evidence)
        assert found.parts == () and "explain" not in found.next_command


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (of_both(Case(status="crashed", message=SYNTAX)), "attention_scalar (cpu): crashes"),
        (
            spec(builds=dict.fromkeys((BASE, NEXT), Outcome(status="build_failed", message="k.cpp:1: error: x"))),
            "attention_scalar (cpu): does not build",
        ),
        (here(Case(status="crashed", message=SYNTAX)), ""),
    ],
)
def test_the_lines_say_what_ran_nowhere_and_that_a_gate_on_changes_passes_it(
    made: Spec, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path, made)
    render_run(run.folder)
    line, *rest, page = capsys.readouterr().out.splitlines()
    everywhere = f"{said} in 2.1.0 and in 2.5.0: the upgrade did not cause it"
    assert page.endswith("index.html") and (line == everywhere if said else " broke in 2.5.0" in line)
    assert any("`--fail-on` passes it" in each for each in rest) == bool(said)


def test_of_what_both_refuse_no_result_is_on_either_side(tmp_path: Path) -> None:
    refused = Case(status="unsupported", message="no")
    for number, (made, how) in enumerate(
        (
            (of_both(refused), "neither environment has results to compare"),
            (here(refused), "one environment has no results to compare"),
        )
    ):
        [ruled] = first(tmp_path / str(number), made).ruled_out
        assert ruled.how == how
