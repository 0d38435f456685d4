"""The digest of code: what it does decides, and neither its words nor where it lies.

A module's digest is that of its syntax tree, without docstrings, comments and annotations of functions, with the local
variables of functions numbered in the order in which they are bound. An import of our own code counts by the last part
of its name. So a reworded docstring, a renamed variable and a file in another folder leave every digest as it was.
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

OWN = "harness."  # how an absolute import of our own code begins
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
READS_NAMES = {"locals", "vars", "eval", "exec", "dir"}  # who calls them sees how variables are called


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
    normaliser = _Normaliser(path)
    tree = normaliser.visit(ast.parse(source))
    if not tree.body and not normaliser.imports:
        return ""
    return hashlib.sha256(f"{sorted(normaliser.imports)}{ast.dump(tree)}".encode()).hexdigest()


class _Normaliser(ast.NodeTransformer):
    """Removes what only people read, and numbers local variables. Imports of our own code are taken out: `imports`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.imports: list[str] = []
        self.names: Mapping[str, str] = {}  # of the variables that are in scope
        self.count = 0

    def visit_Module(self, node: ast.Module) -> ast.AST:
        _drop_docstring(node)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self.names.get(node.id, node.id)
        return node

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.AST:
        node.names = [self.names.get(name, name) for name in node.names]
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        module = node.module or ""
        if not node.level and not module.startswith(OWN):
            return node
        for each in node.names:
            place = self.path.parents[max(0, node.level - 1)].joinpath(*module.split("."), f"{each.name}.py")
            home = "" if node.level and place.is_file() else f"{module.rpartition('.')[2]}."  # a module is itself
            self.imports.append(f"{home}{each.name} as {each.asname}")
        return None

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        _drop_docstring(node)
        around = self.names
        node.decorator_list, node.bases, node.keywords = (
            [self.visit(each) for each in part] for part in (node.decorator_list, node.bases, node.keywords)
        )
        bound = set(_stored(node.body)) | set(_bound_otherwise(node.body))
        in_class = {name: made for name, made in around.items() if name not in bound}
        for number, each in enumerate(node.body):
            self.names = around if isinstance(each, SCOPES) else in_class
            node.body[number] = self.visit(each)
        self.names = around
        return node

    def _visit_function(self, node: Function) -> ast.AST:
        arguments = node.args
        arguments.defaults = [self.visit(each) for each in arguments.defaults]
        arguments.kw_defaults = [each and self.visit(each) for each in arguments.kw_defaults]
        if not isinstance(node, ast.Lambda):
            node.decorator_list = [self.visit(each) for each in node.decorator_list]
            node.returns = None
            _drop_docstring(node)
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        parameters += [each for each in (arguments.vararg, arguments.kwarg) if each is not None]
        for each in parameters:
            each.annotation = None
        kept = {each.arg for each in parameters} | set(_bound_otherwise(body))
        outer = {name for each in _own_nodes(body) if isinstance(each, ast.Nonlocal) for name in each.names}
        own = [] if _reads_names(body) else [name for name in _stored(body) if name not in kept | outer]
        around = self.names
        self.names = {name: made for name, made in around.items() if name not in kept} | self._numbered(own)
        if isinstance(node, ast.Lambda):
            node.body = self.visit(node.body)
        else:
            node.body = [self.visit(each) for each in node.body]
        self.names = around
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = _visit_function

    def _visit_comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> ast.AST:
        node.generators[0].iter = self.visit(node.generators[0].iter)  # in the scope around it
        around, first = self.names, node.generators[0].iter
        node.generators[0].iter = ast.Constant(None)
        self.names = {**around, **self._numbered(_stored([each.target for each in node.generators]))}
        self.generic_visit(node)
        self.names, node.generators[0].iter = around, first
        return node

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _visit_comprehension

    def _numbered(self, names: Iterable[str]) -> dict[str, str]:
        made = {}
        for name in dict.fromkeys(names):
            self.count += 1
            made[name] = f"<{self.count}>"  # no name in any source
        return made


def _drop_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    if ast.get_docstring(node, clean=False) is not None:
        node.body = node.body[1:] or ([] if isinstance(node, ast.Module) else [ast.Pass()])


def _own_nodes(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes of a scope, with its nested scopes, but not what is inside of these."""
    left = list(body)[::-1]
    while left:
        node = left.pop()
        yield node
        if isinstance(node, SCOPES):
            continue
        if isinstance(node, COMPREHENSIONS):  # of which only `:=` binds in the scope around it
            inside = [each for each in ast.walk(node) if isinstance(each, ast.NamedExpr)]
            left += [each.target for each in reversed(inside)]
            continue
        left += list(ast.iter_child_nodes(node))[::-1]


def _stored(body: Iterable[ast.AST]) -> list[str]:
    """Return the variables that a scope binds, in the order of the text."""
    nodes = _own_nodes(body)
    return [node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)]


def _bound_otherwise(body: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the names of a scope that keep their name: functions, classes, imports, and what is declared elsewhere."""
    for node in _own_nodes(body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (each.asname or each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.Global):
            yield from node.names
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name
        elif isinstance(node, ast.MatchMapping) and node.rest:
            yield node.rest


def _reads_names(body: Iterable[ast.AST]) -> bool:
    every = (node for part in body for node in ast.walk(part))
    return any(isinstance(node, ast.Name) and node.id in READS_NAMES for node in every)
