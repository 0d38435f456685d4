"""The digest of code: what it does decides, and neither its words nor where it lies.

A module's digest is that of its bytecode, which knows local variables by their number, and neither comments nor
lines. Docstrings, and annotations of functions, are removed before it is compiled. An import of our own code counts by
the last part of its name. So a reworded docstring, a renamed variable and a file in another folder leave every digest
as it was. Another version of Python compiles to other bytecode, and then everything is measured again.
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

OWN = "harness."  # how an absolute import of our own code begins
READS_NAMES = {"locals", "vars", "eval", "exec", "dir"}  # a caller of these sees the names of its variables
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)


def digest_of(files: Iterable[Path]) -> str:
    """Return the digest of several modules, in whatever order and folder."""
    digests = sorted(module_digest(path.read_text(encoding="utf-8"), path) for path in files)
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def closure(files: Iterable[Path]) -> set[Path]:
    """Return these modules, and those that they import relatively, at once or later, directly or not."""
    found, left = set[Path](), [path.resolve() for path in files]
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            left += _imported(path)
    return found


def _imported(path: Path) -> Iterator[Path]:
    for level, module, names in _relative_imports(path.read_text(encoding="utf-8")):
        place = path.parents[level - 1].joinpath(*module.split(".")) if module else path.parents[level - 1]
        for name in ("", *names):
            target = place / name if name else place
            candidates = (target.with_suffix(".py"), target / "__init__.py")
            yield from (each.resolve() for each in candidates if each.is_file())


@functools.cache
def _relative_imports(source: str) -> tuple[tuple[int, str, tuple[str, ...]], ...]:
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom) and node.level]
    return tuple((node.level, node.module or "", tuple(each.name for each in node.names)) for node in nodes)


@functools.cache
def module_digest(source: str, path: Path) -> str:
    """Return the digest of one module, which lies at `path`; '' of one that holds nothing, as a new folder's may."""
    stripper = _Stripper(path)
    tree = stripper.visit(ast.parse(source))
    if all(isinstance(node, ast.Pass) for node in tree.body) and not stripper.imports:
        return ""
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt | ast.expr | ast.excepthandler):
            # A line of its own may leave a trace in the bytecode.
            node.lineno, node.end_lineno, node.col_offset, node.end_col_offset = 1, 1, 0, 0
    bytecode = compile(tree, "module", "exec", dont_inherit=True)
    return hashlib.sha256(f"{sorted(stripper.imports)}{_describe(bytecode)}".encode()).hexdigest()


class _Stripper(ast.NodeTransformer):
    """Removes docstrings, annotations of functions, and imports of our own code, which it lists in `imports`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.imports: list[str] = []

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.copy_location(ast.Pass(), node.body[0])]
        return super().visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        module = node.module or ""
        if not node.level and not module.startswith(OWN):
            return node
        for each in node.names:
            place = self.path.parents[max(0, node.level - 1)].joinpath(*module.split("."), f"{each.name}.py")
            home = "" if node.level and place.is_file() else f"{module.rpartition('.')[2]}."  # a module is itself
            self.imports.append(f"{home}{each.name} as {each.asname}")
        return ast.copy_location(ast.Pass(), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node


def _describe(part: object) -> object:
    """Return what a constant, or a piece of bytecode with its own constants, is to a reader of its digest."""
    if isinstance(part, frozenset):
        return sorted(map(repr, part))  # its order is another in each process
    if not isinstance(part, CodeType):
        return repr(part)
    named = len(part.co_varnames) if READS_NAMES & set(part.co_names) else part.co_argcount + part.co_kwonlyargcount
    constants = [_describe(each) for each in part.co_consts]
    return [
        part.co_code,
        getattr(part, "co_exceptiontable", b""),
        part.co_flags,
        part.co_names,
        part.co_varnames[:named],
        constants,
    ]
