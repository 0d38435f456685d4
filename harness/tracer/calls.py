"""Which function a line calls: an operator is often only a part of it, as `expand` is of `cosine_similarity`."""

from __future__ import annotations

import ast
import dis
import linecache
import os
from types import CodeType
from typing import Any, Iterable, Tuple

import torch

MODULES = os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "nn", "modules") + os.sep
Step = Tuple[CodeType, int, int]  # of a frame: its code, its last instruction's offset, its line


class Calls:
    """Names of called functions, by the place of the call."""

    def __init__(self) -> None:
        self.names: dict[tuple[CodeType, int], str] = {}

    def name(self, frames: Iterable[Step]) -> str:
        """The function that the first of these frames, the outermost one, calls. A module of PyTorch's own is looked
        into: `Linear` calls `linear`. Empty where the place of the call cannot be told, or is no call by a name."""
        steps = list(frames)
        place = 0
        while place + 1 < len(steps) and steps[place + 1][0].co_filename.startswith(MODULES):
            place += 1
        code, offset, line = steps[place]
        if (code, offset) not in self.names:
            inner = steps[place + 1][0].co_name if place + 1 < len(steps) else ""
            self.names[code, offset] = _called(code, offset, line, inner)
        return self.names[code, offset]


def in_pytorch(frame: Any, offset: int) -> bool:
    """Whether a frame was calling something of PyTorch's. Of what has no frame of its own, only the name tells."""
    code = frame.f_code
    if "CALL" not in dis.opname[code.co_code[offset]]:
        return False
    names = code.co_names + code.co_varnames + code.co_freevars
    known = {**frame.f_globals, **frame.f_locals}
    text = _text(code, offset, frame.f_lineno)
    root = text.lstrip("(").partition("(")[0].partition(".")[0].strip()
    return root in names and is_of_pytorch(known.get(root))


def is_of_pytorch(value: object) -> bool:
    """Whether it is PyTorch, a module of its, or what such a module defines."""
    is_module = isinstance(value, type(torch))
    name = getattr(value, "__name__" if is_module else "__module__", None)
    own = isinstance(name, str) and name.partition(".")[0] == "torch"
    return own or getattr(getattr(value, "__self__", None), "__module__", "") == "torch._C"


def _called(code: CodeType, offset: int, line: int, inner: str) -> str:
    """`inner`: the function whose frame was entered there; empty where it is not Python's."""
    text = _text(code, offset, line)
    tree = _parsed(f"({text})")
    body = tree.body[0] if tree is not None and tree.body else None
    if isinstance(body, ast.Expr) and text:
        return _function(body.value)
    return inner or _only_call(linecache.getline(code.co_filename, line))


def _text(code: CodeType, offset: int, line: int) -> str:
    """What runs there: the expression since Python 3.11, the line before."""
    if not hasattr(code, "co_positions"):
        return linecache.getline(code.co_filename, line).strip()
    places = list(code.co_positions())
    first, last, start, end = places[offset // 2] if offset // 2 < len(places) else (None,) * 4
    if first is None or last is None or start is None or end is None:
        return ""
    lines = [linecache.getline(code.co_filename, number).encode() for number in range(first, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    return b"".join(lines).decode(errors="replace")


def _only_call(line: str) -> str:
    tree = _parsed(line.strip())
    calls = [] if tree is None else [each for each in ast.walk(tree) if isinstance(each, ast.Call)]
    return _function(calls[0]) if len(calls) == 1 else ""


def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def _function(node: ast.AST) -> str:
    """The last part of the name that is called; empty of anything else."""
    called = node.func if isinstance(node, ast.Call) else None
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
