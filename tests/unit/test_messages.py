"""Messages of others: no terminal's commands, the end that says why, the whole chain, the line in the user's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.executors.process import tail
from harness.progress import printable
from harness.schema.records import Outcome
from harness.worker import text
from reports.attribute.messages import lacks_code, mistaken, own_error
from reports.model import CorrectnessSide
from reports.text import message_text


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("\x1b[1;31merror:\x1b[0m no", "error: no"),
        ("\x1b]0;title\x07done", "done"),
        ("\x1b]8;;https://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b2Kdone", "done"),
        ("10%\r20%\r100%\nnext\r\n", "100%\nnext\n"),
        ("a\x00b", "a\N{REPLACEMENT CHARACTER}b"),
        ("\x1b(Bplain\ttab", "plain\ttab"),
    ],
)
def test_what_commands_a_terminal_is_left_out(given: str, shown: str, tmp_path: Path) -> None:
    assert text.plain(given) == shown
    assert printable(given) == shown.replace("\t", " ")
    (tmp_path / "log").write_bytes(given.encode())
    assert tail(tmp_path / "log") == shown


def test_the_end_of_a_message_survives_a_cut() -> None:
    long = f"trial 0 raised ValueError: {'x' * 5000} because of this"
    assert text.cut(long, 100).startswith("trial 0 raised Val") and text.cut(long, 100).endswith("because of this")
    assert len(text.cut(long, 100)) == 100 and text.cut("short", 100) == "short"
    assert Outcome(status="crashed", message=long).message.endswith("because of this")


def failed(source: str, tmp_path: Path) -> str:
    """The message of what a user's file raised."""
    path = tmp_path / str(len(source)) / "solution.py"
    path.parent.mkdir()
    path.write_text(source)
    try:
        exec(compile(source, str(path), "exec"), {})
    except Exception as error:
        return text.raised(error, "trial 0", 500)
    raise AssertionError("it raised nothing")


CHAINED = """\
def forward():
    try:
        {}["weights"]
    except KeyError as error:
        raise RuntimeError("cannot load") from error
forward()
"""


def test_an_exception_has_its_chain_and_its_line_in_the_users_file(tmp_path: Path) -> None:
    assert failed(CHAINED, tmp_path) == (
        "trial 0 raised RuntimeError: cannot load, from KeyError: 'weights' "
        '(solution.py:5: raise RuntimeError("cannot load") from error)'
    )
    divided = failed("x = 1\ny = 1 / 0\n", tmp_path)
    assert divided == "trial 0 raised ZeroDivisionError: division by zero (solution.py:2: y = 1 / 0)"
    lines = failed("raise RuntimeError('inductor raised:\\nCommand\\n...\\nundefined symbol')", tmp_path)
    assert lines.startswith("trial 0 raised RuntimeError: inductor raised: [...] undefined symbol (solution.py:1: ")


def test_a_long_message_keeps_its_type_its_end_and_its_line(tmp_path: Path) -> None:
    message = failed("raise ValueError('a' * 3000 + ' sizes 3 and 4')\n", tmp_path)
    assert message.startswith("trial 0 raised ValueError: aaa") and " sizes 3 and 4 (solution.py:1: raise" in message
    assert len(message) <= 500


def test_a_cause_is_read_from_the_message_and_not_from_the_users_line() -> None:
    side = CorrectnessSide(
        environment="b",
        status="crashed",
        message='trial 0 raised ValueError: no (s.py:3: raise NameError("CUDA is not supported, not implemented for"))',
    )
    assert own_error(side) and not lacks_code(side) and not mistaken(side)


def test_a_crash_has_the_last_line_of_its_log() -> None:
    side = CorrectnessSide(
        environment="b",
        status="crashed",
        message="the kernel's process died by SIGABRT",
        log_excerpt="loading\n\x1b[31mdouble free or corruption (out)\x1b[0m\n\n",
    )
    assert message_text(side) == (
        "the kernel's process died by SIGABRT; the last line of its log: double free or corruption (out)"
    )
