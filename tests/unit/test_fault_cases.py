"""Fault cases: their index, their projects, what they must show, and a session of them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.config.matrix import Matrix, load_matrix, parse_matrix
from harness.errors import BAD_INPUT, BUILD_FAILED, InfrastructureError, InputError
from tests.fault_cases.__main__ import main
from tests.fault_cases.cases import CAUSES, HERE, FaultCase, load_cases, parse_index, read_sources
from tests.fault_cases.observed import not_shown, observed
from tests.fault_cases.project import make_project, matrix_text, project_folder
from tests.fault_cases.run import NOT_SHOWN, Options, chosen, run_cases, score_again
from tests.unit.spec import BASE, NEXT, Case, Spec
from tests.unit.synthetic import write_run
from tests.unit.test_fault_case_scores import SMALL, Given, small


def written(folder: Path, **changes: Any) -> Any:
    """A run of a case, written at once."""
    return write_run(folder, Spec(kernels=("attention",), workloads=("plain-fp32",), launches=2, **changes))


@pytest.fixture(scope="module")
def every() -> dict[str, FaultCase]:
    return load_cases()


@pytest.fixture(scope="module")
def shipped() -> Matrix:
    return load_matrix(HERE.parents[1] / "matrix.yaml")[0]


# -- the index --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("build_moved/01", "build_movd/01", ["causes[0]", "build_movd"]),
        ("[ok, [wrong, crashed]]", "[ok]", ["shows", "2 environments"]),
        ("[attention.cpp]", "[attention.cpp], cuda: [attention.cu]", ["one device", "cpu and cuda"]),
    ],
)
def test_a_wrong_value_is_named_with_its_path(old: str, new: str, said: list[str]) -> None:
    assert old in SMALL
    with pytest.raises(InputError) as caught:
        parse_index(SMALL.replace(old, new), "here/index.yaml")
    assert caught.value.code == BAD_INPUT and caught.value.remedy
    for part in ["here/index.yaml: cases.build_mov", *said]:
        assert part in str(caught.value)


def test_a_source_that_is_missing_and_a_name_given_twice_are_refused(tmp_path: Path) -> None:
    (tmp_path / "index.yaml").write_text(SMALL)
    with pytest.raises(InputError, match=r"build_moved/01-small\.cpp: attention\.cpp: no such file"):
        load_cases(tmp_path)
    read_sources.cache_clear()
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "build_moved.txtar").write_text("-- 01-small.cpp --\n")
    assert list(load_cases(tmp_path)) == ["small"]
    entry = SMALL[SMALL.index("  build_moved/01") :]
    with pytest.raises(InputError, match="small is another case's too"):
        parse_index(SMALL + entry.replace("01-small", "02-other"))


def test_the_cases_cover_every_cause_and_every_file_is_one_of_theirs(every: dict[str, FaultCase]) -> None:
    development = [case for case in every.values() if case.split == "development"]
    assert {case.causes[0] for case in every.values()} == set(CAUSES)
    assert sum(case.device == "cuda" for case in development) >= 8
    assert sum(case.negative_control for case in development) >= 7
    held_out = [case for case in every.values() if case.split == "held_out" and case.device == "cuda"]
    assert len(held_out) >= 8 and sum(case.negative_control for case in held_out) >= 2
    assert {case.causes[0] for case in held_out} >= {"race", "out_of_bounds", "uninitialised_shared"}

    for cause in CAUSES:
        names = [case.path.partition("/")[2] for case in every.values() if case.causes[0] == cause]
        numbers = [int(name.partition("-")[0]) for name in names]
        assert numbers == list(range(1, len(numbers) + 1)), cause
    for cause in CAUSES:
        entries = [case.path.partition("/")[2] for case in every.values() if case.causes[0] == cause]
        for name in read_sources(HERE / "sources" / f"{cause}.txtar"):
            assert any(name.startswith(entry) if entry.endswith("/") else name == entry for entry in entries), name


TELLING = re.compile(
    r"(?<![a-z])(bug|fault|wrong|broken|race|uninitiali[sz]ed|specimen)(?![a-z])|"
    + "|".join(cause for cause in CAUSES if "_" in cause),
    re.I,
)


def test_no_source_tells_its_cause(every: dict[str, FaultCase]) -> None:
    """What the attribution may see: the files' names in a project, and what may come into a log of a compiler."""
    assert all(map(TELLING.search, ("data_race", "race_1.cu", "a Bug: of old", "at_out_of_bounds2", "uninitialized_")))
    assert not TELLING.search("trace, default, debug")
    for case in every.values():
        for name, text in case.own_files().items():
            told = TELLING.search(f"{name}\n{text}")
            assert told is None, f"{case.path} tells what is wrong with it: {told.group()}"


# -- the project ------------------------------------------------------------------------------------------


def test_every_case_is_a_matrix(every: dict[str, FaultCase], shipped: Matrix) -> None:
    for case in every.values():
        matrix = parse_matrix(matrix_text(case, shipped))
        assert [e.torch for e in matrix.environments] == [variant.torch for variant in case.environments]
        assert matrix.is_baseline(matrix.environments[0]) and matrix.packages == shipped.packages


def test_a_project_holds_what_differs_and_nothing_of_the_truth(
    every: dict[str, FaultCase], shipped: Matrix, tmp_path: Path
) -> None:
    case = every["fast_math_by_version"]
    (project_folder(tmp_path, case.name) / "reports").mkdir(parents=True)
    (project_folder(tmp_path, case.name) / "kernel").mkdir()
    (project_folder(tmp_path, case.name) / "kernel" / "stale.h").write_text("")
    folder = make_project(case, shipped, tmp_path)
    assert folder == project_folder(tmp_path, case.name) and (folder / "reports").is_dir()
    there = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert there == {"matrix.yaml", "kernel/attention.cpp", "kernel/common.h"}
    text = (folder / "matrix.yaml").read_text()
    matrix = parse_matrix(text)
    assert [e.flags.cxx for e in matrix.environments] == [[], ["-ffast-math"]]
    kernel = matrix.kernels[0]
    assert kernel.name == "attention" and kernel.sources is not None and kernel.sources.cpu == ["kernel/attention.cpp"]
    truth = (case.name, case.scenario.split(",")[0], *CAUSES)
    assert not any(part in text + str(folder.relative_to(tmp_path)) for part in truth)


def test_sources_operators_and_packages_of_a_project(every: dict[str, FaultCase], shipped: Matrix) -> None:
    text = matrix_text(small(("attention.cpp", "csrc/attention_scalar_cpu.cpp")), shipped)
    assert yaml.safe_load(text)["kernels"][0]["sources"]["cpu"] == ["csrc/attention_scalar_cpu.cpp"]

    operator = yaml.safe_load(matrix_text(every["sinc_of_large_numbers"], shipped))
    assert operator["operators"][0]["problem"] == "kernel/problem.py" and operator["kernels"] == []
    numpy = parse_matrix(matrix_text(every["zero_point_in_a_byte"], shipped))
    assert [one.packages for one in numpy.environments] == [["einops==0.8.0"], ["numpy==2.0.2", "einops==0.8.0"]]

    with pytest.raises(InputError, match=r"(?s)torch 1\.0\.0.*2\.1\.0, 2\.5\.0"):
        matrix_text(small(('"2.1.0"', '"1.0.0"')), shipped)
    assert parse_matrix(matrix_text(small(('"2.1.0"', "host")), shipped)).environments[0].is_host


# -- what it shows ----------------------------------------------------------------------------------------


def test_a_run_shows_statuses_steadiness_times_and_memory(tmp_path: Path) -> None:
    cases = {(NEXT, "kernel", "*"): Case(passed=3, slowdown=2.0, repeats_differ=1)}
    peaks = {(BASE, "kernel"): (8 << 20, 0), (NEXT, "kernel"): (16 << 20, 0)}
    seen = observed(written(tmp_path / "a", cases=cases, peak_bytes=1 << 20, peaks_bytes=peaks))
    assert seen.environments == (BASE, NEXT) and seen.statuses == ("ok", "wrong") and seen.unsteady
    assert seen.ratio == pytest.approx(2.0, rel=0.1) and seen.memory == pytest.approx(2.0, rel=0.01)
    assert not_shown(small(), seen) == []
    asked = small(("    kernel:", "    slower: 3\n    memory: 3\n    unsteady: true\n    kernel:"))
    assert len(not_shown(asked, seen)) == 2, "neither so slow nor so large"
    assert len(not_shown(asked, observed(written(tmp_path / "b")))) == 4


# -- the session ------------------------------------------------------------------------------------------


class Harness:
    """Stands in for `python -m harness`: writes a run at once; `code` from the call number `after` on."""

    def __init__(self, code: int = 0, after: int = 0) -> None:
        self.code, self.after = code, after
        self.calls: list[list[str]] = []

    def __call__(self, words: Sequence[str], project: Path) -> int:
        self.calls.append(list(words))
        assert (project / "matrix.yaml").is_file()
        run = written(project / "reports" / "runs" / "one")
        (project / "reports" / "latest").symlink_to(run.folder)
        return self.code if len(self.calls) > self.after else 0


BOTH = ("fast_math_by_version", "healthy_plain")


def options(tmp_path: Path, **changes: Any) -> Options:
    return Options(**{"out": tmp_path, "only": BOTH, **changes})


def test_cases_are_run_explained_and_scored_and_stored_runs_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    harness, session = Harness(code=BUILD_FAILED), tmp_path / "session"
    code, path = run_cases(options(session), begin=harness, attributed=lambda folder: [Given("build_moved", "proven")])
    assert [(words[0], words[2]) for words in harness.calls] == [("matrix", "--explain=auto")] * 2
    assert not any(re.search("fast_math|healthy", word) for call in harness.calls for word in call)
    result = json.loads(path.read_text())
    assert code == 1, "the synthetic run is right in both: the fault case does not show what it must"
    names = {row["name"]: row["missing"] != [] for row in result["cases"]}
    assert names == {"fast_math_by_version": True, "healthy_plain": False}
    assert result["score"]["right"] == 1 and result["score"]["false_positives"] == 1
    printed = capsys.readouterr().out
    assert NOT_SHOWN in printed and "1 of 2 show" in printed and "right: 1 of 2" in printed

    written(tmp_path / "packed" / "healthy_plain")
    for folder, stored in ((session, set(BOTH)), (tmp_path / "packed", {"healthy_plain"})):
        scores = score_again(options(tmp_path), folder)
        assert {(one.name, one.right) for one in scores} == {(name, name == "healthy_plain") for name in stored}
    printed = capsys.readouterr().out
    assert "WRONG  fast_math_by_version" in printed and "right  healthy_plain: nothing_moved" in printed
    assert main([f"--again={tmp_path}"]) == BAD_INPUT
    assert "holds no run of these cases" in capsys.readouterr().err


def test_a_run_that_fails_ends_the_session_and_loses_nothing_of_those_before(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match=r"exit code 64"):
        run_cases(options(tmp_path, causes=False), begin=Harness(code=64, after=1))
    assert len(json.loads((tmp_path / "results.json").read_text())["cases"]) == 1


def test_a_selection_is_a_split_a_round_a_device_or_names(tmp_path: Path, every: dict[str, FaultCase]) -> None:
    def names(**changes: Any) -> set[str]:
        return {case.name for case in chosen(options(tmp_path, **{"only": (), **changes}))}

    assert names() == set(every) and names(devices=("cuda",)) == {n for n, c in every.items() if c.device == "cuda"}
    assert names(split="development") == {n for n, c in every.items() if c.split == "development"}
    assert len(names(rounds=("held_out-8",))) == 26 and len(names(rounds=("development",))) == 28
    with pytest.raises(InputError, match="--only nothing: no such case"):
        names(only=("nothing",))
    with pytest.raises(InputError, match="no case is left"):
        names(only=("healthy_plain",), devices=("cuda",))


def test_the_frozen_list_is_of_cases_with_the_causes_of_the_index(every: dict[str, FaultCase]) -> None:
    frozen = json.loads((HERE / "frozen.json").read_text())
    assert len({one["name"] for one in frozen}) == len(frozen) >= 120
    assert {one["cause"] for one in frozen} == {c.causes[0] for c in every.values() if c.device == "cpu"}
    for one in frozen:
        case = every[one["name"]]
        assert [one["cause"], *one["also"]] == case.causes and one["round"] == case.round
