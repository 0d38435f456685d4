"""Problem files and solutions, read without running them: their syntax, and what they define.

What a file imports is not looked up: the worker says of each environment what is not there.
"""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from harness.errors import InputProblem, meant
from harness.preflight import Findings

PROBLEM, SOLUTION = ("Model", "get_inputs", "get_init_inputs"), ("ModelNew",)
# A file that makes names in a way that reading it does not tell.
DYNAMIC = re.compile(r"\b(exec|eval|globals|vars|locals|setattr|__dict__|__getattr__)\b|\bimport \*")
Versions = Callable[[], Collection[tuple[int, int]]]  # of the Pythons that a file will run on


def check_file(path: Path, name: str, wanted: Sequence[str], pythons: Versions) -> Findings:
    """Check a file, called `name`, that must define the names that are `wanted`."""
    found, source = Findings(), path.read_bytes()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an escape that a string does not know
            tree = ast.parse(source, name)
            compile(tree, name, "exec", dont_inherit=True)  # which finds more, and runs nothing
    except SyntaxError as error:
        if all(version <= sys.version_info[:2] for version in pythons()):
            what = f"{type(error).__name__}: {error.msg}"
            found.problems.append(
                InputProblem(where=f"{name}:{error.lineno or 1}", what=what, remedy="correct the line")
            )
        else:
            found.unchecked.append(f"{name}: written for a newer Python than the one that runs this command")
        return found
    except (ValueError, RecursionError, MemoryError) as error:
        found.unchecked.append(f"{name}: cannot be read: {error}")
        return found
    if not DYNAMIC.search(source.decode("utf-8", "replace")):
        found.problems += _find_undefined(tree, name, wanted)
    if not found.problems:
        found.passed.append(f"{name}: defines {', '.join(wanted)}")
    return found


def _find_undefined(tree: ast.Module, name: str, wanted: Sequence[str]) -> Iterator[InputProblem]:
    defined = dict(_list_defined(tree.body))
    for each in wanted:
        if each not in defined:
            near = meant(each, defined)
            line = defined.get(near.removeprefix("did you mean ").rstrip("? "), 1)
            kind = f"def {each}()" if each.startswith("get_") else f"class {each}(torch.nn.Module)"
            yield InputProblem(
                where=f"{name}:{line}", what=f"defines no {each}", remedy=f"{near}add `{kind}` to the file"
            )


def _list_defined(body: Sequence[ast.stmt]) -> Iterator[tuple[str, int]]:
    """Yield names that statements may bind in their module, in whichever branch, and their lines."""
    for node in body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno
            continue
        for inner in ast.walk(node):
            if isinstance(inner, (ast.Import, ast.ImportFrom)):
                yield from ((alias.asname or alias.name.partition(".")[0], inner.lineno) for alias in inner.names)
            elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                yield inner.id, inner.lineno
            elif isinstance(inner, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                yield inner.name, inner.lineno
