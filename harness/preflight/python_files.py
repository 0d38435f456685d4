"""Problem files and solutions, read without running them: what they define, and what they import."""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import InputProblem, meant
from harness.preflight import Findings
from harness.worker.wheels import normalise

PROBLEM, SOLUTION = ("Model", "get_inputs", "get_init_inputs"), ("ModelNew",)
# What torch's wheels of any release bring, and the packages that every environment holds, as they are imported.
BROUGHT = frozenset(
    {
        "caffe2",
        "cmake",
        "cuda",
        "distutils",
        "filelock",
        "fsspec",
        "functorch",
        "isympy",
        "jinja2",
        "lit",
        "markupsafe",
        "mpmath",
        "networkx",
        "ninja",
        "numpy",
        "nvidia",
        "pkg_resources",
        "setuptools",
        "sympy",
        "torch",
        "torchgen",
        "triton",
        "typing_extensions",
    }
)
# Of the standard library of Python 3.8 to 3.12, and no longer of this Python's, where that is newer.
FORMER = frozenset(
    {
        "aifc",
        "asynchat",
        "asyncore",
        "audioop",
        "binhex",
        "cgi",
        "cgitb",
        "chunk",
        "crypt",
        "formatter",
        "imghdr",
        "imp",
        "lib2to3",
        "mailcap",
        "msilib",
        "nis",
        "nntplib",
        "ossaudiodev",
        "parser",
        "pipes",
        "smtpd",
        "sndhdr",
        "spwd",
        "sunau",
        "symbol",
        "telnetlib",
        "uu",
        "xdrlib",
    }
)
# A file that makes names in a way that reading it does not tell.
PATHS = re.compile(r"sys\s*\.\s*(path|modules|meta_path)|addsitedir|import_module")
DYNAMIC = re.compile(r"\b(exec|eval|globals|vars|locals|setattr|__dict__|__getattr__)\b|\bimport \*")


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What is known of the environments that the files will run in."""

    packages: Sequence[str]  # besides torch: NAME==VERSION
    pythons: Callable[[], Collection[tuple[int, int]]]  # their versions; asked where it matters
    site_packages: Sequence[Path]  # of those environments that exist
    complete: bool  # whether all of them exist
    has_host: bool  # whether one is this machine's own, with packages that nobody listed

    @property
    def names(self) -> set[str]:
        """Of what can be imported, as far as that is known."""
        listed = {package.partition("==")[0].replace("-", "_") for package in self.packages}
        return {*sys.stdlib_module_names, *FORMER, *BROUGHT, *listed}

    def has(self, module: str) -> bool | None:
        """Whether some environment can import a module; None where that is not certain."""
        if module in self.names or normalise(module) in {normalise(name) for name in self.names}:
            return True
        if any(any(folder.glob(pattern)) for folder in self.site_packages for pattern in (module, f"{module}.*")):
            return True
        others = {normalise(package.partition("==")[0]) for package in self.packages} - set(map(normalise, BROUGHT))
        # A package may be imported by another name than it is installed by, and bring others.
        return None if self.has_host or (others and not self.complete) else False


def check_file(path: Path, name: str, wanted: Sequence[str], around: Surroundings) -> Findings:
    """A file, called `name`, that must define the names that are `wanted`."""
    found, source = Findings(), path.read_bytes()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an escape that a string does not know
            tree = ast.parse(source, name)
            compile(tree, name, "exec", dont_inherit=True)  # which finds more, and runs nothing
    except SyntaxError as error:
        if all(version <= sys.version_info[:2] for version in around.pythons()):
            where = f"{name}:{error.lineno or 1}"
            found.problems.append(
                InputProblem(where=where, what=f"{type(error).__name__}: {error.msg}", remedy="correct the line")
            )
        else:
            found.unchecked.append(f"{name}: written for a newer Python than the one that runs this command")
        return found
    except (ValueError, RecursionError, MemoryError) as error:
        found.unchecked.append(f"{name}: cannot be read: {error}")
        return found
    text = source.decode("utf-8", "replace")
    found.problems += _undefined(tree, text, name, wanted)
    for line, module in _imports(tree):
        there = around.has(module) if module else False
        if there is None:
            found.unchecked.append(f"{name}:{line}: whether `packages` in matrix.yaml bring {module}")
        elif not there and PATHS.search(text):
            found.unchecked.append(f"{name}:{line}: whether it finds {module}: it changes where Python looks")
        elif not there:
            found.problems.append(_not_there(path, name, line, module, around))
    if not found.problems:
        found.passed.append(f"{name}: defines {', '.join(wanted)}")
    return found


def _undefined(tree: ast.Module, text: str, name: str, wanted: Sequence[str]) -> Iterator[InputProblem]:
    defined = dict(_defined(tree.body))
    if DYNAMIC.search(text):
        return
    for each in wanted:
        if each in defined:
            continue
        near = meant(each, defined)
        line = defined.get(near.removeprefix("did you mean ").rstrip("? "), 1)
        kind = f"def {each}()" if each.startswith("get_") else f"class {each}(torch.nn.Module)"
        yield InputProblem(where=f"{name}:{line}", what=f"defines no {each}", remedy=f"{near}add `{kind}` to the file")


def _defined(body: Sequence[ast.stmt]) -> Iterator[tuple[str, int]]:
    """Names that statements may bind in their module, in whichever branch, and their lines."""
    for node in body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from ((alias.asname or alias.name.partition(".")[0], node.lineno) for alias in node.names)
        else:
            for inner in ast.walk(node):
                if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                    yield inner.id, inner.lineno
            for part in ("body", "orelse", "finalbody"):
                yield from _defined(getattr(node, part, []))
            for part in ("handlers", "cases"):
                for branch in getattr(node, part, []):
                    yield from _defined(branch.body)


def _imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and top-level module of what the file imports whenever it is loaded; no module of a relative import."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "" if node.level else (node.module or "").partition(".")[0]


def _not_there(path: Path, name: str, line: int, module: str, around: Surroundings) -> InputProblem:
    if not module or (path.parent / f"{module}.py").is_file() or (path.parent / module).is_dir():
        what = f"imports {module or 'a module'} from beside it, and runs without the files beside it"
        return InputProblem(where=f"{name}:{line}", what=what, remedy="move that code into this file")
    near = meant(module, around.names, 0.8)
    remedy = f"{near}remove the import, or add {module}==VERSION to `packages` in matrix.yaml"
    what = f"imports {module}, which no environment will have"
    return InputProblem(where=f"{name}:{line}", what=what, remedy=remedy)
