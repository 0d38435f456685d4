"""A folder of problem files in KernelBench's form beside a folder of solutions, as a matrix: each pair is a kernel.

KernelBench names a problem by its level's folder and a number: ``level1/19_ReLU.py``. Its solution is the file of the
same path; else the one of the same level and number, whatever its name (``level1/19.py``, ``level1/19_mine.py``), which
may be a sample of a run of KernelBench's own (``level_1_problem_19_sample_0_kernel.py``). A folder of solutions without
levels is of the level of the problems, where these are all of one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from harness.config.kernels import Dtype, Kernel
from harness.config.matrix import Matrix
from harness.errors import InputError
from harness.schema.run_records import KernelBench

LEVEL = re.compile(r"level_?(\d+)")
NUMBERED = re.compile(r"(\d+)(_.*)?\.py")
SAMPLED = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py")
NAME_CHARACTERS = 64  # of a kernel's name, see `matrix.Name`


@dataclass(frozen=True, kw_only=True)
class Folders:
    """What the user gave. Paths are as typed: from the folder where the command was started."""

    problems: Path
    solutions: Path
    sample: int = 0
    dtype: Dtype = "float32"


@dataclass(frozen=True, kw_only=True)
class Named:
    """What a file's path says: level ('' where it names none) and number."""

    path: str
    level: str
    number: int


def parse_name(path: str, sample: int) -> Named | None:
    """None where it is no problem's or solution's name, or that of another sample."""
    *folders, name = PurePosixPath(path).parts
    found = SAMPLED.fullmatch(name)
    if found:
        return Named(path=path, level=found[1], number=int(found[2])) if int(found[3]) == sample else None
    found = NUMBERED.fullmatch(name)
    return Named(path=path, level=_level(folders), number=int(found[1])) if found else None


def pair(problems: Sequence[str], solutions: Sequence[str], sample: int = 0) -> dict[str, str | None]:
    """Every problem's path to its solution's, None where there is none; both as listed, with the folders' own names.

    The first part of each path is the name of the folder that was given. InputError where a choice is left.
    """
    known = [named for named in (parse_name(path, sample) for path in solutions) if named]
    asked = [named for named in (parse_name(path, sample) for path in problems) if named]
    levels = {named.level for named in asked}
    below = {_below(named.path): named.path for named in known}
    found: dict[str, str | None] = {}
    for problem in sorted(asked, key=lambda named: (named.level, named.number, named.path)):
        same = [
            solution.path
            for solution in known
            if solution.number == problem.number
            and (solution.level == problem.level or (len(levels) == 1 and not solution.level))
        ]
        exact = below.get(_below(problem.path))
        if exact is None and len(same) > 1:
            raise InputError(f"{problem.path} has {len(same)} solutions: {', '.join(same)}", "keep one of them")
        found[problem.path] = exact or (same[0] if same else None)
    return found


def _below(path: str) -> str:
    return "/".join(PurePosixPath(path).parts[1:])


def kernel_name(problem: str) -> str:
    """Such as ``level1.19_relu``: what the file is called, as a kernel may be called."""
    stem = re.sub(r"[^a-z0-9_.]", "_", PurePosixPath(problem).stem.lower())
    level = _level(PurePosixPath(problem).parts)
    return (f"level{level}.{stem}" if level else stem)[:NAME_CHARACTERS]


def _level(folders: Sequence[str]) -> str:
    return next((known[1] for known in map(LEVEL.fullmatch, reversed(folders)) if known), "")


def with_pairs(matrix: Matrix, root: Path, folders: Folders) -> tuple[Matrix, KernelBench]:
    """The matrix with the pairs in place of its kernels, and what was found. InputError where there is no pair."""
    listed = {given: _listed(root, given) for given in (folders.problems, folders.solutions)}
    problems, solutions = listed[folders.problems], listed[folders.solutions]
    pairs = pair(list(problems), list(solutions), folders.sample)
    kernels: dict[str, Kernel] = {}
    of: dict[str, str] = {}
    for path, solution in ((path, solution) for path, solution in pairs.items() if solution is not None):
        name = kernel_name(path)
        if name in kernels:
            raise InputError(f"{path}: another problem's name also begins {name!r}", "rename one of the files")
        of[name] = _below(path)
        kernels[name] = Kernel(name=name, problem=problems[path], model_new=solutions[solution], dtype=folders.dtype)
    if not kernels:
        raise InputError(
            f"{folders.problems} and {folders.solutions}: no problem has a solution",
            "name them alike, as KernelBench does: level1/19_ReLU.py in both folders",
        )
    found = KernelBench(
        problems=_top(root, folders.problems).relative_to(root).as_posix(),
        solutions=_top(root, folders.solutions).relative_to(root).as_posix(),
        sample=folders.sample,
        dtype=folders.dtype,
        pairs=of,
        missing=[_below(path) for path, solution in pairs.items() if solution is None],
        unused=[_below(path) for path in solutions if path not in pairs.values()],
    )
    return matrix.model_copy(update={"kernels": list(kernels.values())}), found


def _top(root: Path, folder: Path) -> Path:
    """A folder in its place below `root`: a link there stays what it is called, wherever it leads."""
    top = folder.absolute()
    return top if ".." not in folder.parts and top.is_relative_to(root) else folder.resolve()


def _listed(root: Path, folder: Path) -> Mapping[str, str]:
    """Python files by their path from the folder's own name on, to their path from `root` on."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder", "give the folders of problems and of solutions")
    top = _top(root, folder)
    if not top.is_relative_to(root):
        raise InputError(
            f"{folder}: not inside {root}, where matrix.yaml is", f"copy it there, or link it: ln -s {top} {root}/"
        )
    files = sorted(path for path in top.rglob("*.py") if path.is_file())
    return {path.relative_to(top.parent).as_posix(): path.relative_to(root).as_posix() for path in files}
