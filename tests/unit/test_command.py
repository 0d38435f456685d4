"""`kernel-matrix`: which command stands behind each verb, and whose exit code it ends with."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli import main
from harness.errors import BAD_INPUT, BUILD_FAILED, INFRASTRUCTURE


class Started:
    """What was started, by words; `codes` are what the run and its report end with."""

    def __init__(self, *codes: int, records: bool = True) -> None:
        self.codes, self.records = list(codes), records
        self.words = list[list[str]]()

    def harness(self, arguments: list[str]) -> int:
        path = next((word.partition("=")[2] for word in arguments if word.startswith("--run-path=")), "")
        if path and self.records:
            Path(path).write_text("FOLDER")
        self.words.append([word for word in arguments if not word.startswith("--run-path=")])
        return self.codes.pop(0)

    def reports(self, arguments: list[str]) -> int:
        self.words.append(["report of", *arguments])
        return self.codes.pop(0)


def start(monkeypatch: pytest.MonkeyPatch, started: Started, *arguments: str) -> int:
    monkeypatch.setattr(main, "_harness", started.harness)
    monkeypatch.setattr(main, "_reports", started.reports)
    return main.main(arguments)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["matrix", "--quick"], [["matrix", "--quick"], ["report of", "FOLDER", "--quick"]]),
        (["eval", "--torch", "2.5.0", "--quick"],
         [["eval", "--torch", "2.5.0", "--quick"], ["report of", "FOLDER", "--quick"]]),
        (["eval", "--torch=2.5.0"], [["eval", "--torch=2.5.0"], ["report of", "FOLDER"]]),
        (["explain", "DIR"], [["explain", "DIR"], ["report of", "FOLDER"]]),
        (["bisect", "--good=2.1.0"], [["bisect", "--good=2.1.0"], ["report of", "bisection", "FOLDER"]]),
        (["sweep", "--kernel=k"], [["sweep", "--kernel=k"], ["report of", "sweep", "FOLDER"]]),
        (["kernelbench", "P", "S", "--quick"],
         [["matrix", "--problems=P", "--solutions=S", "--quick"],
          ["report of", "FOLDER", "--problems=P", "--solutions=S", "--quick"]]),
        (["gate", "--reference=flash", "--make", "--quick"],
         [["matrix", "--quick"], ["report of", "gate", "FOLDER", "--reference=flash"]]),
        (["gate", "DIR"], [["report of", "gate", "DIR"]]),
        (["report", "DIR"], [["report of", "DIR"]]),
        (["pins"], [["pins"]]),
    ],
)  # fmt: skip
def test_a_verb_runs_and_reports(given: list[str], words: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    started = Started(0, 0)
    assert start(monkeypatch, started, *given) == 0
    assert started.words == words


@pytest.mark.parametrize(
    ("codes", "code"), [((0, 10), 10), ((BUILD_FAILED, 0), BUILD_FAILED), ((INFRASTRUCTURE, 10), INFRASTRUCTURE)]
)
def test_the_exit_code_is_of_whichever_says_more(
    codes: tuple[int, int], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start(monkeypatch, Started(*codes), "matrix") == code
    assert capsys.readouterr().err == f"exit code {code}: {main.MEANINGS[code]}\n"


@pytest.mark.parametrize(("code", "records"), [(BAD_INPUT, True), (0, False)])
def test_what_ended_early_or_only_listed_is_not_reported(
    code: int, records: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = Started(code, records=records)
    assert start(monkeypatch, started, "matrix", "--list") == code and len(started.words) == 1


@pytest.mark.parametrize("given", [["nonsense"], ["kernelbench", "P"], ["kernelbench", "--quick", "P"]])
def test_what_it_cannot_do_is_refused_with_what_it_can(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(given) == BAD_INPUT
    assert "usage: kernel-matrix VERB" in capsys.readouterr().err


@pytest.mark.parametrize("given", [[], ["--help"], ["kernelbench", "--help"], ["matrix", "--help"]])
def test_help_is_no_error(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(given) == 0
    assert "usage" in capsys.readouterr().out
