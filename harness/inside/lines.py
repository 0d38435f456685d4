"""Which lines of one Python file run meanwhile."""

import contextlib
import linecache
import sys
import threading

MOST_LINES, TEXT_CHARACTERS = 500, 160


@contextlib.contextmanager
def running(path):
    """Gives a set that the numbers of `path`'s lines go into as they run, in this thread and those that it starts."""
    numbers = set()

    def of_a_call(frame, _event, _value):
        return of_a_line if frame.f_code.co_filename == path else None

    def of_a_line(frame, event, _value):
        if event == "line":
            numbers.add(frame.f_lineno)
        return of_a_line

    before = sys.gettrace()
    threading.settrace(of_a_call)
    sys.settrace(of_a_call)
    try:
        yield numbers
    finally:
        sys.settrace(before)
        threading.settrace(None)


def told(path, numbers):
    """The first of these lines, each with its number and text."""
    return [
        {"number": number, "text": linecache.getline(path, number).strip()[:TEXT_CHARACTERS]}
        for number in sorted(numbers)[:MOST_LINES]
    ]
