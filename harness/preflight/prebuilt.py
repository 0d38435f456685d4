"""What is built already: shared objects and wheels, by their names and their bytes. Nothing of them is loaded.

Refused is what no environment could load: another machine's code, another Python's, and what is called and not there.
"""

from __future__ import annotations

import ast
import platform
import zipfile
from collections.abc import Sequence
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion

from harness.config.environments import Environment
from harness.config.kernels import Kernel
from harness.config.wheel_files import supported_tags
from harness.errors import Problem, meant
from harness.preflight.findings import Findings
from harness.worker import elf

REBUILD = "build it for the Pythons of the environments, or give them its own in matrix.yaml"


def check_prebuilt(kernel: Kernel, file: Path, environments: Sequence[Environment]) -> Findings:
    """Of a file that is there."""
    assert kernel.prebuilt is not None
    found = Findings()
    pinned = [each for each in environments if not each.is_host]
    if kernel.entry is None:
        _check_library(kernel.prebuilt, file, pinned, found)
    else:
        _check_wheel(kernel.prebuilt, file, kernel.entry, pinned, found)
    if not found.problems:
        found.passed.append(f"{kernel.name}: {kernel.prebuilt} has what is called; whether it loads, the run tells")
    return found


def _check_library(name: str, file: Path, pinned: Sequence[Environment], found: Findings) -> None:
    def refuse(what: str, remedy: str) -> None:
        found.problems.append(Problem(where=name, what=what, remedy=remedy))

    here = platform.machine()
    try:
        shared = elf.read(str(file))
    except ValueError as error:
        refuse(str(error), f"name a shared object for {here}, as g++ -shared makes one")
        return
    if shared.machine != here:
        refuse(f"is built for {shared.machine}, and this machine is {here}", f"build it for {here}")
        return
    module = file.name.split(".")[0]
    if shared.modules and module not in shared.modules:
        other = shared.modules[0]
        remedy = f"rename it to {other}.so: Python loads a module by its file's name"
        refuse(f"defines the Python module {other}, and is called {module}", remedy)
    elif not shared.modules and (missing := [each for each in elf.CALLED if each not in shared.defined]):
        near = meant(missing[0], [each for each in shared.defined if "attention" in each])
        what = f"exports no {' and no '.join(missing)}, and is no Python module (PyInit_{module})"
        remedy = f'{near}export them as csrc/attention.h declares them: extern "C", with default visibility'
        refuse(what, remedy)
    elif python := elf.python_of(file.name):
        _match(name, f"is built for Python {python}", [each.python == python for each in pinned], pinned, found)


def _match(name: str, what: str, fits: Sequence[bool], pinned: Sequence[Environment], found: Findings) -> None:
    """Refused where it fits no environment; told where it fits some."""
    unlike = [each for each, fit in zip(pinned, fits, strict=True) if not fit]
    others = list(dict.fromkeys(f"{each.torch} on Python {each.python}" for each in unlike))
    if others and not any(fits):
        found.problems.append(Problem(where=name, what=f"{what}, and no environment has that", remedy=REBUILD))
    elif others:
        found.unchecked.append(f"{name}: {what}, and will not load in {', '.join(others)}")


def _check_wheel(name: str, file: Path, entry: str, pinned: Sequence[Environment], found: Findings) -> None:
    def refuse(what: str, remedy: str) -> None:
        found.problems.append(Problem(where=name, what=what, remedy=remedy))

    try:
        _, _, _, given = parse_wheel_filename(file.name)
    except (InvalidWheelFilename, InvalidVersion):
        refuse("is not named as a wheel is", "keep the name that it was built with: mine-1.0-py3-none-any.whl, say")
        return
    what = f"is built for {', '.join(sorted(map(str, given))[:3])}"
    _match(name, what, [bool(given & supported_tags(each.python)) for each in pinned], pinned, found)
    module, _, function = entry.partition(":")
    path = module.replace(".", "/")
    try:
        with zipfile.ZipFile(file) as archive:
            names = [each.partition(".data/")[2].partition("/")[2] or each for each in archive.namelist()]
            source = next((each for each in (f"{path}.py", f"{path}/__init__.py") if each in names), None)
            text = archive.read(source).decode() if source in archive.namelist() and source else ""
    except (zipfile.BadZipFile, OSError, NotImplementedError, UnicodeDecodeError) as error:
        refuse(f"cannot be read as a wheel: {error}", "build it again")
        return
    if source is None and not any(each.startswith(f"{path}.") and each.endswith(".so") for each in names):
        files = [each.removesuffix(".py") for each in names if each.endswith(".py")]
        modules = [each.replace("/", ".").removesuffix(".__init__") for each in files]
        remedy = f"{meant(module, modules)}correct entry in matrix.yaml"
        refuse(f"has no module {module}, which entry: {entry} names", remedy)
    elif text and (known := _defined(text)) is not None and function.split(".")[0] not in known:
        remedy = f"{meant(function, known)}correct entry in matrix.yaml"
        refuse(f"{source} defines no {function}, which entry: {entry} names", remedy)


def _defined(text: str) -> set[str] | None:
    """The names that a module's text defines; None where that cannot be told."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # of a newer Python, say
        return None
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(each.asname or each.name).split(".")[0] for each in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return None if found & {"*", "__getattr__", "globals"} or "globals()" in text else found
