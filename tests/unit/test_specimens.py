"""Specimens: their format, their projects, what they must show, and a session of them."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.cli.main import main
from harness.config.matrix import Matrix, load_matrix, parse_matrix
from harness.errors import BAD_INPUT, BUILD_FAILED, InfrastructureError, InputError
from harness.specimens import asking, running
from harness.specimens.again import ask_again
from harness.specimens.format import CAUSES, Specimen, load_specimens, parse_specimen
from harness.specimens.project import make_project, matrix_text, project_folder
from harness.specimens.running import Options, chosen, coverage, run_specimens
from harness.specimens.showing import missing, shown_by
from tests.unit.spec import BASE, NEXT, Case
from tests.unit.specimens import SMALL, Given, written


@pytest.fixture(scope="module")
def every() -> dict[str, Specimen]:
    return load_specimens(Path(__file__).parents[2] / "csrc" / "specimens")


@pytest.fixture
def shipped(root: Path) -> Matrix:
    return load_matrix(root / "matrix.yaml")[0]


# -- the format -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("half: development", "half: both", ["half", "both"]),
        ("[build_moved,", "[build_movd,", ["causes[0]", "build_movd"]),
        ("[build_moved, kernel_code_moved]", "[]", ["causes"]),
        ("[build_moved, kernel_code_moved]", "[race, race]", ["twice"]),
        ("[build_moved, kernel_code_moved]", "[race, nothing_moved]", ["nothing_moved is the main cause"]),
        ("story: Right", "stori: Right", ["story", "add it"]),
        ("[[ok], [wrong, crashed]]", "[[ok]]", ["shows.validation", "2 environments"]),
        ("[wrong, crashed]", "[bad]", ["shows.validation[1][0]", "bad"]),
        ('torch: "2.1.0"', "torch: 2.1", ["environments[0].torch", "quotes"]),
        ("OMP_NUM_THREADS", "LD_PRELOAD", ["environments[1].variables", "LD_PRELOAD"]),
        ("{cxx: [", "{cc: [", ["environments[1].flags.cc", "unknown key"]),
        ("kernel: {", "kernel: {name: telling, ", ["called attention"]),
        ("kernel: {", "kernel: {tunables: {low: 1}, ", ["kernel.tunables.low"]),
        ("{cpu: [attention.cpp]}", "{cpu: [attention.cpp], cuda: [attention.cu]}", ["one device", "cpu and cuda"]),
        ("[attention.cpp]", "[../other.cpp]", ["kernel.sources.cpu[0]", "inside the folder"]),
        ("seq_len: 8", "seq_len: 0", ["workloads[0].shape.seq_len"]),
        ("workloads:\n", "ignored:\n", ["unknown key"]),
    ],
)
def test_a_wrong_value_is_named_with_its_path(old: str, new: str, said: list[str]) -> None:
    assert old in SMALL
    with pytest.raises(InputError) as caught:
        parse_specimen(SMALL.replace(old, new), "here/specimen.yaml")
    assert caught.value.code == BAD_INPUT and caught.value.remedy
    for part in ["here/specimen.yaml", *said]:
        assert part in str(caught.value)


def test_a_problem_has_no_workloads_and_sources_have() -> None:
    problem = SMALL.partition("kernel:")[0] + "kernel: {problem: a.py, model_new: b.py, devices: [cpu]}\n"
    assert parse_specimen(problem).files == ["a.py", "b.py"] and parse_specimen(problem).device == "cpu"
    for text in (SMALL.partition("workloads:")[0], problem + SMALL[SMALL.index("workloads:") :]):
        with pytest.raises(InputError, match="workloads"):
            parse_specimen(text)


def test_a_source_that_is_not_there_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "csrc" / "specimens" / "one"
    folder.mkdir(parents=True)
    (folder / "specimen.yaml").write_text(SMALL)
    with pytest.raises(InputError, match=r"one/specimen\.yaml: kernel: attention\.cpp: no such file"):
        load_specimens(tmp_path / "csrc" / "specimens")
    (folder / "attention.cpp").write_text("")
    assert list(load_specimens(tmp_path / "csrc" / "specimens")) == ["one"]


def test_the_development_half_covers_every_cause(every: dict[str, Specimen]) -> None:
    half = [specimen for specimen in every.values() if specimen.half == "development"]
    assert len(half) >= 27 and sum(specimen.device == "cuda" for specimen in half) >= 8
    assert sum(specimen.healthy for specimen in half) >= 7
    assert {specimen.causes[0] for specimen in half} == set(CAUSES), "every class is a main cause at least once"
    assert f"{len(every)} specimens" in coverage(every)


def test_what_is_held_out_for_a_gpu_covers_its_faults(every: dict[str, Specimen]) -> None:
    """Those for the CPU were scored, and are development specimens since."""
    half = [specimen for specimen in every.values() if specimen.half == "held_out" and specimen.device == "cuda"]
    assert len(half) >= 8 and sum(specimen.healthy for specimen in half) >= 2
    assert {specimen.causes[0] for specimen in half} >= {"race", "out_of_bounds", "uninitialised_shared"}


TELLING = re.compile(
    r"(?<![a-z])(bug|fault|wrong|broken|race|uninitiali[sz]ed|specimen)(?![a-z])|"
    + "|".join(cause for cause in CAUSES if "_" in cause),
    re.I,
)


def test_no_source_tells_its_cause(every: dict[str, Specimen], root: Path) -> None:
    """What the attribution may see: file names, and what may come into a log of a compiler."""
    for name in every:
        for path in (root / "csrc" / "specimens" / name).iterdir():
            if path.name != "specimen.yaml":
                told = TELLING.search(f"{path.name}\n{path.read_text()}")
                assert told is None, f"{path} tells what is wrong with it: {told.group()}"


@pytest.mark.parametrize(
    ("text", "tells"),
    [
        ("data_race", True),
        ("race_1.cu", True),
        ("a Bug: of old", True),
        ("at_out_of_bounds2", True),
        ("uninitialized_", True),
        ("trace, default, debug", False),
    ],
)
def test_what_tells_is_a_word_between_what_is_no_letter(text: str, tells: bool) -> None:
    assert bool(TELLING.search(text)) is tells


# -- the project ------------------------------------------------------------------------------------------


def test_every_specimen_is_a_matrix(every: dict[str, Specimen], shipped: Matrix) -> None:
    for specimen in every.values():
        matrix = parse_matrix(matrix_text(specimen, shipped))
        assert [e.torch for e in matrix.environments] == [place.torch for place in specimen.environments]
        assert matrix.is_baseline(matrix.environments[0]) and matrix.packages == shipped.packages


def test_a_project_holds_what_differs_and_nothing_of_the_truth(root: Path, shipped: Matrix, tmp_path: Path) -> None:
    name = "fast_math_by_version"
    specimen = load_specimens(root / "csrc" / "specimens")[name]
    path = make_project(name, specimen, shipped, root, tmp_path)
    assert path == project_folder(tmp_path, name) / "matrix.yaml"
    matrix = parse_matrix(path.read_text())
    assert [e.flags.cxx for e in matrix.environments] == [[], ["-ffast-math"]]
    kernel = matrix.kernels[0]
    assert kernel.name == "attention" and kernel.sources is not None and kernel.sources.cpu == ["kernel/attention.cpp"]
    there = {str(p.relative_to(path.parent)) for p in path.parent.rglob("*") if p.is_file()}
    assert there == {"matrix.yaml", "kernel/attention.cpp", "kernel/common.h"}
    assert not any("specimen" in p or name in p for p in there)
    text = path.read_text()
    assert name not in text and specimen.story.split(",")[0] not in text and not any(c in text for c in CAUSES)

    (path.parent / "reports").mkdir()
    (path.parent / "kernel" / "stale.h").write_text("")
    make_project(name, specimen, shipped, root, tmp_path)
    assert (path.parent / "reports").is_dir() and not (path.parent / "kernel" / "stale.h").exists()


def test_shipped_sources_stay_where_they_are(shipped: Matrix) -> None:
    text = matrix_text(parse_specimen(SMALL.replace("attention.cpp", "csrc/attention_scalar_cpu.cpp")), shipped)
    assert yaml.safe_load(text)["kernels"][0]["sources"]["cpu"] == ["csrc/attention_scalar_cpu.cpp"]


def test_a_version_that_the_matrix_lacks_is_refused_and_the_host_s_is_not(shipped: Matrix) -> None:
    with pytest.raises(InputError, match=r"(?s)torch 1\.0\.0.*2\.1\.0, 2\.5\.0"):
        matrix_text(parse_specimen(SMALL.replace('"2.1.0"', '"1.0.0"')), shipped)
    text = matrix_text(parse_specimen(SMALL.replace('"2.1.0"', "host")), shipped)
    assert parse_matrix(text).environments[0].is_host


# -- what it shows ----------------------------------------------------------------------------------------


def test_a_run_shows_statuses_steadiness_and_times(tmp_path: Path) -> None:
    cases = {(NEXT, "kernel", "*"): Case(passed=3, slowdown=2.0, repeats_differ=1)}
    seen = shown_by(written(tmp_path / "a", cases=cases))
    assert seen.environments == (BASE, NEXT) and seen.statuses == ("ok", "wrong") and seen.unsteady
    assert seen.ratio == pytest.approx(2.0, rel=0.1)
    assert missing(parse_specimen(SMALL), seen) == []
    slower = SMALL.replace("crashed]]", "crashed]], slower: 3, unsteady: true")
    assert missing(parse_specimen(slower), seen) == [f"{seen.ratio:.2f} times, not 3 times slower"]

    steady = shown_by(written(tmp_path / "b"))
    assert missing(parse_specimen(slower), steady) == [
        f"{NEXT}: ok, not wrong or crashed",
        "every run again gave the same bits",
        f"{steady.ratio:.2f} times, not 3 times slower",
    ]


# -- the session ------------------------------------------------------------------------------------------


class Harness:
    """Stands in for `python -m harness`: a run that is written at once."""

    def __init__(self, code: int = 0, **changes: Any) -> None:
        self.code, self.changes = code, changes
        self.calls: list[list[str]] = []

    def __call__(self, words: Sequence[str], project: Path) -> int:
        self.calls.append(list(words))
        assert (project / "matrix.yaml").is_file()
        run = written(project / "reports" / "runs" / "one", **self.changes)
        (project / "reports" / "latest").symlink_to(run.folder)
        return self.code


def options(root: Path, tmp_path: Path, **changes: Any) -> Options:
    only = ("fast_math_by_version", "healthy_plain")
    return Options(**{"matrix_path": root / "matrix.yaml", "out": tmp_path, "only": only, **changes})


def test_specimens_are_run_explained_asked_and_scored(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    harness, asked = Harness(code=BUILD_FAILED), []

    def ask(folder: Path) -> list[Given]:
        asked.append(folder)
        return [Given("build_moved", "decisive")]

    code, path = run_specimens(options(root, tmp_path), begin=harness, asked=ask)
    assert [(words[0], words[2]) for words in harness.calls] == [("matrix", "--explain=auto")] * 2
    assert len(asked) == 2 and all(not re.search("fast_math|healthy", word) for call in harness.calls for word in call)
    result = json.loads(path.read_text())
    assert code == 1, "the synthetic run is right in both: the faulty one does not show its story"
    assert [bool(row["missing"]) for row in result["specimens"]] == [True, False]
    assert result["score"]["right"] == 1 and result["score"]["healthy_blamed"] == 1
    printed = capsys.readouterr().out
    assert "DOES NOT SHOW ITS STORY" in printed and "right: 1 of 2" in printed


def test_runs_that_were_made_before_are_asked_again(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of a session, and those that are packed by name; nothing is run."""
    run_specimens(options(root, tmp_path / "session"), begin=Harness(), asked=lambda folder: [])
    written(tmp_path / "packed" / "healthy_plain")
    for folder, names in (("session", ["fast_math_by_version", "healthy_plain"]), ("packed", ["healthy_plain"])):
        asked = ask_again(options(root, tmp_path), tmp_path / folder)
        assert [(one.name, one.right) for one in asked] == [(name, "healthy" in name) for name in names]
    printed = capsys.readouterr().out
    assert "WRONG  fast_math_by_version" in printed and "right  healthy_plain: nothing_moved" in printed
    assert main(["specimens", f"--matrix={root / 'matrix.yaml'}", f"--again={tmp_path}"]) == BAD_INPUT
    assert "holds no run of a specimen" in capsys.readouterr().err


def test_without_causes_nothing_is_explained_or_asked(root: Path, tmp_path: Path) -> None:
    harness = Harness()
    code, path = run_specimens(options(root, tmp_path, only=("healthy_plain",), causes=False), begin=harness)
    assert code == 0 and "--explain=never" in harness.calls[0] and "score" not in path.read_text()


def test_a_specimen_that_cannot_be_run_stops_the_session(root: Path, tmp_path: Path) -> None:
    given = options(root, tmp_path, only=("healthy_plain",))
    with pytest.raises(InfrastructureError, match=r"healthy_plain: .*exit code 64"):
        run_specimens(given, begin=Harness(code=64), asked=lambda folder: [])


def test_an_attribution_that_is_not_there_is_said_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing_module(name: str) -> None:
        raise ImportError(f"no module named {name}")

    monkeypatch.setattr(asking.importlib, "import_module", missing_module)
    with pytest.raises(InfrastructureError, match=r"(?s)cannot be asked.*--no-causes"):
        asking.ask(tmp_path)


def test_a_selection_is_a_half_a_device_or_names(root: Path, tmp_path: Path, every: dict[str, Specimen]) -> None:
    def names(**changes: Any) -> set[str]:
        return set(chosen(every, options(root, tmp_path, **{"only": (), **changes})))

    assert names() == set(every) and names(devices=("cuda",)) == {n for n, s in every.items() if s.device == "cuda"}
    assert names(half="development") == {n for n, s in every.items() if s.half == "development"}
    with pytest.raises(InputError, match="--only nothing: no such specimen"):
        names(only=("nothing",))
    with pytest.raises(InputError, match="no specimen is left"):
        names(only=("healthy_plain",), devices=("cuda",))


def test_what_stops_one_loses_nothing_of_those_before(root: Path, tmp_path: Path) -> None:
    class Stops(Harness):
        def __call__(self, words: Sequence[str], project: Path) -> int:
            return super().__call__(words, project) if len(self.calls) < 1 else 64

    both = options(root, tmp_path, causes=False)
    with pytest.raises(InfrastructureError, match="healthy_plain"):
        run_specimens(both, begin=Stops())
    assert [row["name"] for row in json.loads((tmp_path / "results.json").read_text())["specimens"]] == [both.only[0]]


@pytest.mark.process
def test_a_started_harness_is_this_one_also_where_python_sets_its_own_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As a bundle's Python does."""
    packages = os.pathsep.join(path for path in sys.path if path.endswith("-packages"))
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexport PYTHONPATH="{packages}"\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(running.sys, "executable", str(python))
    assert running.start(["matrix", "--no-such-option"], tmp_path) == 64
    assert "--no-such-option" in capfd.readouterr().err


def test_the_list_tells_stories_and_coverage(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["specimens", f"--matrix={root / 'matrix.yaml'}", "--list", "--half=development", "--device=cuda"]) == 0
    printed = capsys.readouterr().out
    assert "cuda_rescale_by_vote (cuda, development): uninitialised_shared" in printed and "healthy (nothing" in printed
    assert "values_from_keys" not in printed
