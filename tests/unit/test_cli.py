"""`kernel-matrix`: its verbs and their options, what it runs and reports, and the code that it ends with."""

from __future__ import annotations

import argparse
import errno
import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.cli import explain, gate, main, matrix, search
from harness.cli.options import Command
from harness.config import indexes
from harness.config.interpreters import Interpreter
from harness.errors import BAD_INPUT, BUILD_FAILED, DONE, INFRASTRUCTURE, HarnessError, InputError, exit_code
from harness.run import machine
from harness.schema.bisection_records import ProbeVerdict
from harness.schema.run_records import KernelBench, RunRecord, Selection
from harness.schema.storage import from_json_value, load_record, save_record
from harness.typed import BY_NOX
from tests.unit.spec import Spec
from tests.unit.synthetic import write_run

BISECT = ["bisect", "--good=2.1.0", "--bad=2.5.0"]
SWEEP = ["sweep", "--kernel=k", "--workload=w"]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No process, no connection, and the cache in a temporary folder."""
    monkeypatch.setenv("KERNEL_MATRIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(indexes, "probe_index", lambda index: "")
    monkeypatch.setattr(machine, "host_facts", lambda: {"cpu": "test"})
    monkeypatch.setattr(machine, "gpus", lambda: ())
    python = Interpreter(path="/usr/bin/python3.11", version="3.11.2", headers=True)
    monkeypatch.setattr(machine, "find_interpreter", lambda version: python)


# -- verbs and options ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["", *main.VERBS, *main.INTERNAL])
def test_help_is_plain_fits_a_screen_and_is_no_error(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([verb, "--help"] if verb else []) == DONE
    printed = capsys.readouterr().out
    assert printed.startswith(f"usage: kernel-matrix {verb}".rstrip()) and len(printed.splitlines()) <= 60
    assert not any(f"    {name} " in printed for name in main.INTERNAL), "listed for users"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["matrix", "--fail-on="], "'' is none of correctness"),
        (["matrix", "--launch=3"], "--launch=3"),  # never abbreviated
        (["kernelbench", "--quick"], "PROBLEMS"),
        ([*BISECT, "--executor=bundle"], "bundle"),
        ([*BISECT, "--fresh"], "--fresh"),
        (["gate", "--make", "--nonsense"], "--nonsense"),
    ],
)
def test_a_wrong_option_is_bad_input(
    words: list[str], said: str, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(root)
    assert main.main(words) == BAD_INPUT
    error = capsys.readouterr().err
    assert error.startswith("error: ") and said in error and "remedy: " in error
    assert error.endswith("exit code 64: bad input\n")


def parsed(*words: str) -> argparse.Namespace:
    return main.make_parser(words[0]).parse_args(words[1:], argparse.Namespace(verb=words[0], given=list(words[1:])))


@pytest.mark.parametrize(
    ("words", "recorded"),
    [
        ("matrix", "nox -s matrix"),
        ("matrix --quick --kernel a", "nox -s matrix -- --quick --kernel a"),
        ("eval --torch 2.5.0", "nox -s eval(torch='2.5.0')"),
        ("eval --quick --torch 2.5.0 --kernel=a", "nox -s eval(torch='2.5.0') -- --quick --kernel=a"),
        ("eval --torch=2.5.0 --quick", "nox -s eval(torch='2.5.0') -- --quick"),
        ("kernelbench P S --quick", "nox -s kernelbench -- P S --quick"),
        ("bisect --good 2.1.0 --bad=2.5.0", "nox -s bisect -- --good 2.1.0 --bad=2.5.0"),
        ("matrix --bundle /a/b", "nox -s matrix -- --bundle DIR"),
        ("sweep --kernel k --workload w --bundle=/a/b", "nox -s sweep -- --kernel k --workload w --bundle=DIR"),
        ("matrix --bundle=/a/b --kernel /a/bc", "nox -s matrix -- --bundle=DIR --kernel /a/bc"),
    ],
)
def test_the_recorded_command_is_what_was_typed_without_this_machines_folders(
    words: str, recorded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = " ".join(["kernel-matrix", *words.split()]).replace("/a/b ", "DIR ")
    typed = re.sub(r"/a/b( |$)", r"DIR\1", typed)
    assert " ".join(matrix.recorded_command(parsed(*words.split()))) == typed
    monkeypatch.setenv(BY_NOX, "1")
    assert " ".join(matrix.recorded_command(parsed(*words.split()))) == recorded


@pytest.mark.parametrize(
    ("words", "pairs"),
    [
        ("matrix --kernel a --workload w --device cpu,cuda --launches 3 --trials 2 --executor venv", None),
        ("eval --torch 2.5.0 --base-image b:1 --quick", None),
        (
            "kernelbench P S --sample 2 --dtype float16",
            KernelBench(problems="P", solutions="S", sample=2, dtype="float16", pairs={}),
        ),
    ],
)
def test_what_a_run_records_of_its_command_plans_it_again(
    words: str, pairs: KernelBench | None, tmp_path: Path
) -> None:
    options = parsed(*words.split())
    how, what = matrix.run_options(options), matrix.selection(options)
    changes = {"selection": what, "base_image": how.base_image, "kernelbench": pairs, "executor": "venv"}
    record = replace(write_run(tmp_path, Spec()).load(), **changes)
    save_record(tmp_path / "again" / "run.json", record)
    record = load_record(tmp_path / "again" / "run.json", RunRecord)
    assert record.selection == what
    again = explain.recorded_options(record, Path("matrix.yaml"), None)
    assert (again.executor, again.base_image) == ("venv", how.base_image)
    folders = replace(how.kernelbench, problems=Path("P").absolute(), solutions=Path("S").absolute()) if pairs else None
    assert again.kernelbench == folders


def test_an_older_run_selected_all(tmp_path: Path) -> None:
    values = asdict(write_run(tmp_path, Spec()).load())
    del values["selection"], values["base_image"]
    assert from_json_value(RunRecord, values).selection == Selection()


def test_a_bundle_is_the_one_given_else_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL_MATRIX_BUNDLE", "/there")
    assert explain.bundle_of(Path("/here"), Path("run")) == Path("/here")
    assert explain.bundle_of(None, Path("run")) == Path("/there")
    monkeypatch.delenv("KERNEL_MATRIX_BUNDLE")
    with pytest.raises(InputError, match="it used a bundle"):
        explain.bundle_of(None, Path("run"))


# -- what is run and reported -----------------------------------------------------------------------------------

RUN = SimpleNamespace(folder=Path("FOLDER"))


def start(monkeypatch: pytest.MonkeyPatch, words: list[str], made: list[int], reported: int) -> tuple[int, str]:
    """Exit code, and what was called, where a run and its report end with these codes."""
    called: list[str] = []
    monkeypatch.setattr(matrix, "draft_plan", lambda *_: None)
    bisection = SimpleNamespace(probes=[SimpleNamespace(verdict=ProbeVerdict.INCONCLUSIVE)])
    for module, name, result in (
        (matrix, "check_first", None),
        (matrix, "run_matrix", (RUN, made)),
        (matrix, "report_run", reported),
        (explain, "report_run", reported),
        (explain, "run_explain", made),
        (search, "run_bisection", (RUN.folder, bisection)),
        (search, "run_sweep", (RUN.folder, SimpleNamespace(winner=None))),
        (search, "report_search", 0),
        (gate, "judge", reported),
    ):
        monkeypatch.setattr(module, name, lambda *_, name=name, result=result, **__: called.append(name) or result)
    return main.main(words), " ".join(called)


@pytest.mark.parametrize(
    ("words", "codes", "called", "code"),
    [
        (["matrix", "--quick"], ([], 0), "check_first run_matrix report_run", 0),
        (["matrix", "--no-report"], ([BUILD_FAILED], 10), "check_first run_matrix", BUILD_FAILED),
        (["matrix", "--no-check"], ([], 10), "run_matrix report_run", 10),
        (["matrix"], ([], 10), "check_first run_matrix report_run", 10),
        (["matrix"], ([BUILD_FAILED], 0), "check_first run_matrix report_run", BUILD_FAILED),
        (["matrix"], ([INFRASTRUCTURE], 10), "check_first run_matrix report_run", INFRASTRUCTURE),
        (["eval", "--torch", "2.5.0"], ([], 0), "check_first run_matrix report_run", 0),
        (["kernelbench", "P", "S", "--quick"], ([], 0), "check_first run_matrix report_run", 0),
        (["gate", "--reference=flash", "--make", "--quick"], ([], 11), "check_first run_matrix judge", 11),
        (["gate", "DIR"], ([], 40), "judge", 40),
        (BISECT, ([], 0), "run_bisection report_search", 0),
        ([*BISECT, "--strict"], ([], 0), "run_bisection report_search", 40),
        (SWEEP, ([], 0), "run_sweep report_search", 0),
        ([*SWEEP, "--strict"], ([], 0), "run_sweep report_search", 40),
    ],
)
def test_a_verb_runs_then_reports_and_the_graver_code_is_its_own(
    words: list[str],
    codes: tuple[list[int], int],
    called: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert start(monkeypatch, words, *codes) == (code, called)
    printed = capsys.readouterr()
    assert "records: FOLDER" in printed.out or words == ["gate", "DIR"]
    meanings = main.MEANINGS | (main.OF_GATE if words[0] == "gate" else {})
    assert printed.err == (f"exit code {code}: {meanings[code]}\n" if code else "")


def test_explain_takes_the_latest_run_and_reports_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert start(monkeypatch, ["explain"], [], 0) == (BAD_INPUT, "")
    write_run(tmp_path / "reports" / "latest", Spec())
    assert start(monkeypatch, ["explain"], [], 10) == (10, "run_explain report_run")


@pytest.mark.parametrize("verb", [BISECT, SWEEP])
def test_a_search_that_is_only_listed_is_not_reported(verb: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((search, "run_bisection"), (search, "run_sweep")):
        monkeypatch.setattr(module, name, lambda *given, **options: None)
    assert main.main([*verb, "--list"]) == DONE


def test_list_prints_the_plan_and_changes_nothing(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(path.name for path in (root / "docker" / "pins").glob("*"))
    for words in (["matrix"], ["gate", "--make"]):
        assert main.main([*words, "--list", f"--matrix={root / 'matrix.yaml'}"]) == DONE
        printed = capsys.readouterr().out
        assert "cell     torch2.5.0-cu121-py311/attention_scalar/seed-fp16/cpu: 100 independent" in printed
        assert "launch     0 block 0" in printed
    assert sorted(path.name for path in (root / "docker" / "pins").glob("*")) == before


def test_a_folder_of_pairs_is_planned_like_kernels(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "matrix.yaml").write_text((root / "matrix.yaml").read_text())
    shutil.copytree(root / "tests" / "candidates" / "kernelbench", tmp_path / "bench")
    shutil.copytree(root / "csrc", tmp_path / "csrc")
    problems, solutions = (str(tmp_path / "bench" / name) for name in ("problems", "solutions"))
    usual = ["--list", f"--matrix={tmp_path / 'matrix.yaml'}", "--device=cpu"]
    plans = []
    for words in (
        ["kernelbench", problems, solutions],
        ["matrix", f"--problems={problems}", f"--solutions={solutions}"],
    ):
        assert main.main([*words, *usual]) == DONE
        plans.append(capsys.readouterr().out)
    assert plans[0] == plans[1]
    assert "/level1.3_embedding/level1.3_embedding/cpu: 5 independent" in plans[0]
    assert "6 cells" in plans[0] and "attention_scalar" not in plans[0]


# -- errors -----------------------------------------------------------------------------------------------------


def test_strict_refuses_the_fallback_and_without_it_the_fallback_is_said(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes, "probe_index", lambda index: "" if "pypi" in index else f"{index} answered 403")
    matrix_yaml = f"--matrix={root / 'matrix.yaml'}"
    assert main.main(["matrix", "--list", "--strict", matrix_yaml]) == INFRASTRUCTURE
    assert "cannot go on: " in (error := capsys.readouterr().err) and "--strict refuses the fallback" in error
    assert main.main(["matrix", "--list", matrix_yaml]) == DONE
    assert "fallback: torch2.5.0-pypi-py311" in capsys.readouterr().out


def command_raising(error: Exception) -> Command:
    def fail(options: object) -> int:
        raise error

    return Command(matrix.add_matrix_options, fail)


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (OSError(errno.ENOSPC, "No space left", "/full"), INFRASTRUCTURE, "/full: No space left"),
        (shutil.Error([("a", "/full", f"[Errno {errno.ENOSPC}] No space left")]), INFRASTRUCTURE, "No space left"),
        (OSError(errno.EROFS, "Read-only", "/fixed"), INFRASTRUCTURE, "KERNEL_MATRIX_CACHE"),
        (BrokenPipeError(), DONE, ""),
        (HarnessError("no", "yes"), INFRASTRUCTURE, "cannot go on: no\n  remedy: yes"),
    ],
)
def test_what_the_user_can_act_on_is_said(
    raised: Exception, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(matrix.COMMANDS, "matrix", command_raising(raised))
    monkeypatch.setattr("sys.stdout", main.sys.stdout)
    assert main.main(["matrix"]) == code
    assert said in capsys.readouterr().err


def test_a_fault_of_ours_is_shown_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(matrix.COMMANDS, "matrix", command_raising(OSError(errno.EIO, "broken")))
    with pytest.raises(OSError, match="broken"):
        main.main(["matrix"])


def test_the_first_code_of_the_order_wins() -> None:
    for codes, code in (([], 0), ([11, 40, 10], 10), ([11, 20, 30], 30), ([64, 30], 64), ([40, 11], 11)):
        assert exit_code(codes) == code


def test_the_version_is_told_and_what_is_internal_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--version"]) == DONE
    assert re.fullmatch(r"kernel-matrix (\d+\.\d+\.\d+|of a checkout)\n", capsys.readouterr().out)
    assert main.main(["--help"]) == DONE
    shown = capsys.readouterr().out
    assert "COMMAND" in shown and "VERB" not in shown and "schema" not in shown
    assert main.main(["nonsense"]) == BAD_INPUT and "schema" not in capsys.readouterr().err


def test_without_a_matrix_the_way_out_is_init(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.main(["matrix"]) == BAD_INPUT
    assert "remedy: create one: kernel-matrix init" in capsys.readouterr().err


def test_an_error_within_another_keeps_both_remedies_on_one_line() -> None:
    inner = str(HarnessError("no base image", "load one"))
    told = str(HarnessError(f"torch2.5.0: {inner}", "build it"))
    assert told == "torch2.5.0: no base image\n  remedy: load one; build it"
    assert str(HarnessError(inner, "load one")) == inner  # not twice


def test_the_plan_says_which_releases_nobody_has_asked_the_index_for(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "matrix.yaml"
    path.write_text(
        'environments:\n  - {torch: "2.5.9", cuda: "12.1", python: "3.11"}\n'
        "kernels:\n  - {name: mine, sources: {cpu: [mine.cpp]}}\n"
    )
    (tmp_path / "mine.cpp").write_text("")
    assert main.main(["matrix", "--list", f"--matrix={path}", "--device=cpu"]) == DONE
    assert "torch2.5.9-cu121-py311: not resolved yet; the run asks" in capsys.readouterr().out
