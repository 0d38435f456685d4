"""Messages of others as people can read them: without a terminal's commands, and cut where least is lost."""

from __future__ import annotations

import linecache
import os
import re
import sys
import traceback
from functools import partial
from typing import Callable, Iterator

GAP = " [...] "
EXCERPT_CHARACTERS, NAME_CHARACTERS = 8000, 500
STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep
OURS = (os.path.dirname(os.path.abspath(__file__)) + os.sep, "<frozen importlib")
# Colours, movements of the cursor and titles.
COMMANDS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[ -/]*[0-~])|\x9b[0-?]*[ -/]*[@-~]")
_cause = BaseException.__dict__["__cause__"].__get__  # a class of the code under test may have another
_context = BaseException.__dict__["__context__"].__get__
_suppressed = BaseException.__dict__["__suppress_context__"].__get__


def plain(text: str) -> str:
    """Without what would command a terminal; a sign stands for each other character that cannot be shown."""
    lines = COMMANDS.sub("", text).split("\n")
    text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)  # the last that a line was overwritten by
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def cut(text: str, most: int) -> str:
    """Its beginning and its end, where it is longer than `most`: the end of a message often says why."""
    if len(text) <= most:
        return text
    head = max(0, most - len(GAP)) // 3
    return f"{text[:head]}{GAP}{text[len(text) - (most - head - len(GAP)) :]}"


def one_line(text: str) -> str:
    """The first line of a message, and the last: what lies between is in the log."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()] or ["(no message)"]
    return lines[0] if len(lines) == 1 else GAP.join((lines[0], lines[-1])) if len(lines) > 2 else " ".join(lines)


def first_line(text: str) -> str:
    """Return the first line of a message that somebody else wrote."""
    return (text.strip().splitlines() or ["(no message)"])[0]


def last_line(log: str) -> str:
    """The last line of a log that says something."""
    return next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "")


def chain(error: BaseException) -> Iterator[BaseException]:
    """An exception, and those that it was raised from, the outermost first."""
    seen: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and not any(each is other for other in seen):
        seen.append(each)
        yield each
        each = _cause(each) or (None if _suppressed(each) else _context(each))


def raised(error: BaseException, doing: str, most: int) -> str:
    """Return what was raised while `doing`, with all that it was raised from and the user's line, in at most so many
    characters. Of a SyntaxError the message has the line."""
    where = "" if issubclass(type(error), SyntaxError) else _place(most // 4)
    told = [f"{type_name(each)}: {one_line(text_of(each))}" for each in chain(error)]
    return cut(f"{doing} raised {', from '.join(told)}", most - len(where)) + where


def _place(most: int) -> str:
    """`` (solution.py:12: y = f(x))``: the last line of a file of the user's that the exception that is handled came
    through; empty where there is none."""
    found, trace = "", sys.exc_info()[2]
    while trace is not None:
        name, number = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        if name.endswith(".py") and not name.startswith((*OURS, STANDARD_LIBRARY)) and "-packages" not in name:
            place = f"{said(partial(os.path.basename, name))}:{number}"
            line = said(partial(linecache.getline, name, number)).strip()
            found = f" ({cut(': '.join(filter(None, (place, line))), most)})"
        trace = trace.tb_next
    return found


def traceback_text() -> str:
    """Of the exception that is handled, from the first line on that is not this package's own."""
    kind, error, trace = sys.exc_info()
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(OURS):
        trace = trace.tb_next
    return "".join(traceback.format_exception(kind, error, trace))


def said(make: Callable[[], object]) -> str:
    """Text from the code under test, whatever that does when it is asked: printable, and of our own type."""
    try:
        words = str.__str__(str(make()))  # what __str__ returns may be of a subclass
    except BaseException:
        words = "(its text cannot be had)"
    if len(words) > 2 * EXCERPT_CHARACTERS:
        words = f"{words[:EXCERPT_CHARACTERS]}\n[...]\n{words[-EXCERPT_CHARACTERS:]}"
    return plain(words)


def text_of(error: BaseException) -> str:
    return said(lambda: error)


def type_name(value: object) -> str:
    return said(lambda: _name_of(type(value)))[:NAME_CHARACTERS]


_name_of: Callable[[type], str] = type.__dict__["__name__"].__get__  # a metaclass may have another
