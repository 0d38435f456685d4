"""Packages that were exchanged while PyTorch was held: what is blamed, how surely, and what is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.experiments.plan import Focus
from harness.schema.environment_records import EnvironmentRecord, Wheel
from harness.schema.experiment_records import ComponentsRecord
from harness.schema.run_records import Cell
from harness.schema.storage import Run, load_record, save_record
from harness.workflow.components import moved_cells
from reports.attribute import causes, explained
from reports.attribute.causes import DECISIVE, STRONG, SUGGESTIVE
from reports.attribute.facts.components import Sole, sole_of
from reports.load.evidence import load_evidence
from reports.render.page import render_page
from reports.render.report import Report
from reports.render.summaries import render_summary_text
from tests.unit import timed
from tests.unit.attributed import FELL, Known, Make, by, causes_of, check, spec, words, written_in_python
from tests.unit.experiments import KERNEL, SEED, clean, exchanged, profiles
from tests.unit.spec import BASE, NEXT, Case, Spec
from tests.unit.synthetic import as_operators, write_run
from tests.unit.synthetic_cells import environment_record
from tests.unit.timed import SOFTMAX

PACKAGES: dict[str, Any] = {"packages": {BASE: {"demo": "1.0", "other": "1.0"}, NEXT: {"demo": "2.0", "other": "2.0"}}}
MOVED, PYTORCH = causes.COMPONENT_MOVED, causes.REFERENCE_MOVED
DIED = (NEXT, "kernel", Case(status="crashed", message="forward raised AttributeError: no scaled"))


def made(case: Any = FELL, **changes: Any) -> Any:
    return spec(case, **PACKAGES, **changes)


def python(run: Run) -> None:
    """A Python file, of which nothing is compiled."""
    written_in_python(run)
    for build in run.builds():
        bare = replace(build, objects={}, functions=[], artifact_sha256="", flags=[])
        save_record(run.build_path(build.environment, build.kernel, build.device), bare)


def packages(**letters: str) -> Make:
    return by(exchanged, letters)


KNOWN = {
    "it follows the package, both ways; another one differs too": Known(
        made(),
        [python, clean, packages(demo="AABB", other="ABAB")],
        MOVED,
        DECISIVE,
        never=[PYTORCH],
        says=["demo changed", "1.0 in PyTorch 2.1.0", "with either PyTorch"],
        silent=["other"],
    ),
    "a crash follows the package": Known(made(DIED), [python, clean, packages(demo="AAXX")], MOVED, DECISIVE),
    "PyTorch moved it, and no package": Known(
        made(),
        [python, clean, packages(demo="ABAB", other="ABAB")],
        PYTORCH,
        never=[MOVED],
        says=["demo, other of the other environment"],
    ),
    "one pair does not load": Known(
        made(),
        [python, clean, packages(demo="AA-B", other="ABAB")],
        MOVED,
        STRONG,
        says=["libdemo.so.1 is not there", "could not be run"],
    ),
    "it takes both": Known(made(), [python, clean, packages(demo="AAAB")], MOVED, STRONG, says=["come together"]),
    "either of them is enough, which says nothing": Known(
        made(), [python, clean, packages(demo="ABBB")], PYTORCH, SUGGESTIVE, also=[MOVED]
    ),
    "what does not load either way is a rival": Known(
        made(), [python, clean, packages(demo="A--B")], PYTORCH, SUGGESTIVE, also=[MOVED]
    ),
    "nothing was exchanged: the packages are a rival": Known(
        made(), [python, clean], PYTORCH, SUGGESTIVE, also=[MOVED]
    ),
    "it did not fail there": Known(made(), [python, clean, packages(demo="AAAA")], PYTORCH, SUGGESTIVE, also=[MOVED]),
}


@pytest.mark.parametrize("known", KNOWN.values(), ids=list(KNOWN))
def test_what_follows_a_package(known: Known, tmp_path: Path) -> None:
    check(known, tmp_path)


def test_what_differs_from_call_to_call_is_not_decisive(tmp_path: Path) -> None:
    case = (NEXT, "kernel", Case(passed=2, bits="new", units=400.0, repeats_differ=7))
    found = causes_of(tmp_path, made(case), python, packages(demo="AABB"))
    graded = {cause.grade for cause in found if cause.kernel == KERNEL and MOVED in cause.causes}
    assert graded == {STRONG}


def test_the_page_lists_every_package_and_what_it_moved(tmp_path: Path) -> None:
    run = write_run(tmp_path, made())
    for experiment in (python, packages(demo="AABB", other="ABAB", third="A--B")):
        experiment(run)
    report = Report(load_evidence(run.folder))
    assert [(each.package, each.moved) for each in report.packages] == [
        ("demo", True),
        ("other", False),
        ("third", False),
    ]
    assert [each.versions for each in report.packages][:2] == [("1.0", "2.0")] * 2
    assert "not the reason" in report.packages[1].answer and "libdemo.so.1" in report.packages[2].answer
    page, summary = render_page(report), render_summary_text(report)
    assert all(each.package in page and each.package in summary for each in report.packages)


SLOW = (NEXT, "kernel", Case(slowdown=2.0))
TIMES = {
    "package": ((100.0, 100.2, 202.0, 200.0), MOVED),
    "PyTorch": ((100.0, 200.0, 101.0, 202.0), ""),
    "both, half each": ((100.0, 141.0, 142.0, 200.0), ""),
    "it stood still there": ((100.0, 101.0, 100.0, 101.0), ""),
}


@pytest.mark.parametrize(("times_us", "cause"), TIMES.values(), ids=list(TIMES))
def test_a_time_that_follows_a_package(times_us: tuple[float, ...], cause: str, tmp_path: Path) -> None:
    experiment = by(exchanged, {"demo": "AAAA"}, {"demo": times_us})
    found = causes_of(tmp_path, made(SLOW, launches=10), python, experiment)
    (lead,) = [each for each in found if each.kernel == KERNEL and each.about == causes.LATENCY]
    assert (lead.cause == MOVED) == (cause == MOVED)
    if cause:
        assert "--component demo --good 1.0 --bad 2.0" in lead.next_command and "latency" in lead.next_command
        assert lead.grade == DECISIVE and "demo changed" in lead.statement and "pin demo==1.0" in lead.fix
    else:
        assert lead.grade != DECISIVE, words(lead)


SLOW_MODEL = {(NEXT, "model", "*"): Case(slowdown=2.0)}
WRONG_MODEL = {(NEXT, target, "*"): Case(passed=2, bits="new", units=400.0) for target in ("kernel", "model")}


def of_operators(folder: Path, cases: Any, launches: int = 10) -> Run:
    told = {"trials": 10, "launches": launches, "spread": 0.004, "cases": cases, **PACKAGES}
    run = write_run(folder, Spec(kernels=("pytorch",), references=("model",), workloads=(SEED,), **told))
    as_operators(run)
    return run


@pytest.mark.parametrize(("cases", "timed"), [(SLOW_MODEL, True), (WRONG_MODEL, False), ({}, None)])
def test_which_operators_packages_are_exchanged_for(cases: Any, timed: bool | None, tmp_path: Path) -> None:
    found = moved_cells(of_operators(tmp_path, cases), Focus())
    expected = {Cell(environment=NEXT, kernel="pytorch", workload=SEED, device="cpu"): timed}
    assert found == (expected if cases else {})


@pytest.mark.parametrize(
    ("cases", "letters", "times_us", "statement"),
    [
        (SLOW_MODEL, "AAAA", (100.0, 100.2, 202.0, 200.0), "with either PyTorch, its time follows the package"),
        (WRONG_MODEL, "AABB", None, "with either PyTorch, its result follows the package (1.0 in PyTorch 2.1.0"),
    ],
)
def test_an_operator_that_follows_a_package(
    cases: Any, letters: str, times_us: Any, statement: str, tmp_path: Path
) -> None:
    run = of_operators(tmp_path, cases)
    exchanged(run, {"demo": letters}, {"demo": times_us} if times_us else {}, kernel="pytorch", target="model")
    report = Report(load_evidence(run.folder))
    (lead,) = [cause for cause in explained(run.folder) if MOVED in cause.causes]
    assert lead.grade == DECISIVE and statement in lead.statement and "pin demo==1.0" in lead.fix
    assert "--component demo --good 1.0 --bad 2.0" in lead.next_command and "--kernel" not in lead.next_command
    (answer,) = report.packages
    assert (answer.package, answer.subject, answer.moved) == ("demo", "torch.nn.functional.gelu", True)
    assert "torch.nn.functional.gelu" in render_page(report)


@pytest.mark.parametrize(
    ("versions", "said", "fix"),
    [
        (("", "2.0"), "none in PyTorch 2.1.0, 2.0 in PyTorch 2.5.0", "leave out demo"),
        (("1.0", ""), "1.0 in PyTorch 2.1.0, none in PyTorch 2.5.0", "pin demo==1.0"),
    ],
)
def test_a_package_that_one_of_them_lacks(versions: tuple[str, str], said: str, fix: str, tmp_path: Path) -> None:
    run = write_run(tmp_path, made())
    python(run)
    exchanged(run, {"demo": "AABB"})
    path = run.experiment_path(NEXT, KERNEL, "cpu", SEED, "component")
    record = load_record(path, ComponentsRecord)
    known = {"1.0": versions[0], "2.0": versions[1]}
    results = [replace(each, version=known.get(each.version, "")) for each in record.results]
    path.unlink()
    save_record(path, replace(record, results=results))
    (lead,) = [cause for cause in explained(tmp_path) if MOVED in cause.causes]
    assert said in lead.statement and fix in lead.fix and lead.grade == DECISIVE
    assert any("left out of the environment" in each.text for each in lead.evidence), words(lead)


def another_numpy(run: Run) -> None:
    stack = next(each for each in run.environments() if each.id == NEXT)
    assert stack.observed is not None
    observed = replace(stack.observed, numpy="2.0.0")
    save_record(run.environment_path(NEXT), replace(stack, observed=observed))


def test_numpy_is_one_rival_of_a_time_and_not_two(tmp_path: Path) -> None:
    profiled = by(profiles, target="kernel", base=SOFTMAX, this=SOFTMAX | {"aten::bmm": (2.0, 720.0)})
    found = causes_of(tmp_path, timed.spec(*timed.slower("kernel"), references=()), python, another_numpy, profiled)
    (lead,) = [each for each in found if each.kernel == KERNEL and each.about == causes.LATENCY]
    naming = [part.cause for part in lead.parts if "numpy" in words(part)]
    assert naming == [MOVED], [words(part) for part in lead.parts]


def test_two_environments_that_differ_in_one_package_are_the_experiment() -> None:
    def stack(environment: str, torch: str = "2.1.0", **wheels: str) -> EnvironmentRecord:
        record = environment_record(spec(), environment)
        assert record.observed is not None
        found = {name: Wheel(version=version, record_sha256="0" * 64) for name, version in wheels.items()}
        seen = replace(record.observed, torch=torch, python="3.11.2", wheels=found)
        return replace(record, observed=seen, packages={}, variables={})

    base = stack(BASE, torch="2.1.0", triton="3.1.0", filelock="3.0")
    one = sole_of(base, stack(NEXT, triton="3.2.0", filelock="3.0"), "cuda")
    assert one == Sole(package="triton", versions=("3.1.0", "3.2.0"), others=())
    besides = sole_of(base, stack(NEXT, triton="3.2.0", filelock="4.0"), "cuda")
    assert besides is not None and besides.others == ("filelock",), "which differs too"
    nothing = [
        sole_of(base, stack(NEXT, torch="2.5.0", triton="3.2.0", filelock="3.0"), "cuda"),
        sole_of(base, stack(NEXT, triton="3.2.0", filelock="3.0"), "cpu"),
        sole_of(base, stack(NEXT, triton="3.1.0", filelock="3.0"), "cuda"),
        sole_of(base, stack(NEXT), "cpu"),
    ]
    assert nothing == [None] * 4, "another PyTorch, another device, the same packages, and two that PyTorch never calls"
    lacking = sole_of(base, stack(NEXT, filelock="3.0"), "cuda")
    assert lacking == Sole(package="triton", versions=("3.1.0", ""), others=())
