"""Refuse a house that grew: size in syntax nodes, long functions, class names defined twice, unformatted code.

    python ci/house.py             check the budget that stands in pyproject.toml, [tool.house]
    python ci/house.py --largest   print the twenty largest files instead

Size is counted in nodes of the syntax tree without docstrings, so neither packing code nor deleting comments lowers it.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import tomllib

ROOT = Path(__file__).parents[1]
PRODUCT, TESTS = ("harness", "reports"), ("tests",)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class File(NamedTuple):
    path: Path
    text: str
    tree: ast.Module
    nodes: int


def count_nodes(tree: ast.AST) -> int:
    """Return the number of syntax nodes of `tree`, without those of docstrings."""
    count = 0
    for node in ast.walk(tree):
        count += 1
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            count -= 2  # the expression and its constant
    return count


def list_names(root: Path) -> list[str]:
    """Return the Python files that git tracks, or would track: not what runs leave there."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *PRODUCT, *TESTS]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    return sorted(name for name in listed.split("\0") if name.endswith(".py"))


def read_files(root: Path, names: Iterable[str]) -> list[File]:
    """Return those of the files that are there: one that was removed is listed until it is committed."""
    files = []
    for name in names:
        if (root / name).is_file():
            text = (root / name).read_text(encoding="utf-8")
            tree = ast.parse(text)
            files.append(File(Path(name), text, tree, count_nodes(tree)))
    return files


def find_long_functions(files: list[File], limit: int) -> Iterator[str]:
    """Yield each function of more than `limit` lines."""
    for file in files:
        for node in ast.walk(file.tree):
            if isinstance(node, FUNCTIONS):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > limit:
                    yield f"{file.path}:{node.lineno}: {node.name} has {lines} lines (at most {limit})"


def find_repeated_classes(files: list[File]) -> Iterator[str]:
    """Yield each public name that several top-level classes share."""
    places: dict[str, list[Path]] = defaultdict(list)
    for file in files:
        for node in file.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(file.path)
    for name, paths in sorted(places.items()):
        if len(paths) > 1:
            yield f"class {name} is defined in {' and '.join(map(str, paths))}"


def check(budget: dict[str, int], every: Sequence[File]) -> Iterator[str]:
    """Yield a line for each figure of `budget` that these files exceed."""
    product = [file for file in every if file.path.parts[0] in PRODUCT]
    tests = [file for file in every if file.path.parts[0] in TESTS]
    for name, files in (("product", product), ("tests", tests)):
        sizes = {"nodes": sum(file.nodes for file in files), "files": len(files)}
        for unit, size in sizes.items():
            limit = budget[f"{name}_{unit}"]
            print(f"{name}: {size:,} {unit} (at most {limit:,})")
            if size > limit:
                yield f"{name}: {size:,} {unit}, {size - limit:,} too many"
    for file in (*product, *tests):
        if file.nodes > budget["file_nodes"]:
            yield f"{file.path}: {file.nodes:,} nodes (at most {budget['file_nodes']:,})"
    for unit, found in (
        ("long_functions", list(find_long_functions(product, budget["function_lines"]))),
        ("repeated_classes", list(find_repeated_classes(product))),
    ):
        if len(found) > budget[unit]:
            yield from found
    skips = sum(file.text.count("# fmt: skip") for file in (*product, *tests))
    if skips > budget["format_skips"]:
        yield f"{skips} comments turn the formatter off (at most {budget['format_skips']})"


def main() -> None:
    every = read_files(ROOT, list_names(ROOT))
    if sys.argv[1:] == ["--largest"]:
        for file in sorted(every, key=lambda file: -file.nodes)[:20]:
            print(f"{file.nodes:8,} {file.path}")
        return
    with open(ROOT / "pyproject.toml", "rb") as stream:
        budget = tomllib.load(stream)["tool"]["house"]
    faults = list(check(budget, every))
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
