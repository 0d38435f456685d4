"""Which lines of one Python file run meanwhile."""

from __future__ import annotations

import contextlib
import linecache
import sys
import threading
from types import FrameType
from typing import Any, Collection, Iterator

MOST_LINES, TEXT_CHARACTERS = 2000, 160


@contextlib.contextmanager
def running(path: str) -> Iterator[set[int]]:
    """Gives a set that the numbers of `path`'s lines go into as they run, in this thread and those that it starts."""
    numbers: set[int] = set()
    tracing = [True]

    def of_a_call(frame: FrameType, _event: str, _value: Any) -> Any:
        return of_a_line if tracing and frame.f_code.co_filename == path else None

    def of_a_line(frame: FrameType, event: str, _value: Any) -> Any:
        if event == "line" and tracing:
            numbers.add(frame.f_lineno)
        return of_a_line if tracing else None

    before = sys.gettrace()
    threading.settrace(of_a_call)
    sys.settrace(of_a_call)
    try:
        yield numbers
    finally:
        tracing.clear()  # threads that go on are left alone
        sys.settrace(before)
        threading.settrace(None)


def told(path: str, numbers: Collection[int]) -> list[dict[str, Any]]:
    """These lines, each with its number and text; none where there are too many, or where Dynamo compiled something:
    what it compiled runs without its lines, and what it gave up runs with them."""
    if len(numbers) > MOST_LINES or _dynamo_compiled():
        return []
    return [
        {"number": number, "text": linecache.getline(path, number).strip()[:TEXT_CHARACTERS]}
        for number in sorted(numbers)
    ]


def _dynamo_compiled() -> bool:
    utils = sys.modules.get("torch._dynamo.utils")
    return bool(utils is not None and utils.counters["frames"])
