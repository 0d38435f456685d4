"""Draw mutants: committed code with one small mistake each, of seven kinds. Pure, but for reading the code."""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Patterns of before and after the rebuild: a file belongs to the first area that names it.
AREAS = {
    "statistics": ["harness/stats/**/*.py"],
    "agreement": ["harness/worker/**/agreement*.py"],
    "judging": [
        "harness/worker/judg*.py", "harness/worker/judging/**/*.py", "harness/worker/**/verdict*.py",
        "harness/worker/parts.py", "harness/worker/outputs.py",
    ],
    "comparing": ["reports/compare/**/*.py"],
    "attribution": ["reports/attribute/**/*.py"],
}  # fmt: skip
SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult,
}  # fmt: skip
OPAQUE = (ast.JoinedStr, ast.Import, ast.ImportFrom)  # positions within an f-string are those of another text


@dataclass(frozen=True)
class Mutant:
    area: str
    file: str
    line: int
    column: int
    function: str
    operator: str
    before: str
    after: str


def swapped(node: ast.expr, name: str, operator: ast.AST) -> str:
    """Return the expression with another operator in the place of its own."""
    other = copy.deepcopy(node)
    new = SWAPPED[type(operator)]()
    setattr(other, name, [new] if name == "ops" else new)
    return f"({ast.unparse(other)})"


def mistakes(node: ast.AST, function: str) -> Iterator[tuple[ast.AST, str, str]]:
    """Yield (the part to replace, the operator's name, the new text) for each mutant that this node allows."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in SWAPPED:
            yield node, "comparison swapped", swapped(node, "ops", operator)
        case ast.BoolOp(op=operator):
            yield node, "boolean negated", swapped(node, "op", operator)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, "boolean negated", f"({ast.unparse(operand)})"
        case ast.Constant(value=bool(value)):
            yield node, "boolean negated", str(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield node, "constant changed by one", repr(value + 1)
        case ast.BinOp(op=operator) if type(operator) in SWAPPED:
            yield node, "arithmetic swapped", swapped(node, "op", operator)
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield node, "return replaced", "return None"
        case ast.Expr(value=ast.Call()) | ast.Assign() | ast.AugAssign() if function:
            yield node, "statement removed", "pass"
        case ast.If(test=test) | ast.IfExp(test=test) if ast.unparse(test) != "TYPE_CHECKING":
            yield test, "branch condition forced", "True"
            yield test, "branch condition forced", "False"


def find_mutants(area: str, file: str, text: str) -> Iterator[Mutant]:
    """Yield every mutant of a file, in the order of the text. Annotations and decorators have none."""

    def walk(node: ast.AST, function: str) -> Iterator[Mutant]:
        for part, operator, after in mistakes(node, function):
            before = ast.get_source_segment(text, part) or ""
            yield Mutant(area, file, part.lineno, part.col_offset, function, operator, before, after)
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            function = f"{function}.{node.name}".lstrip(".")
        for name, value in ast.iter_fields(node):
            if name not in ("annotation", "returns", "decorator_list"):
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST) and not isinstance(child, OPAQUE):
                        yield from walk(child, function)

    yield from walk(ast.parse(text), "")


def mutated(text: str, mutant: Mutant) -> str:
    """Return the text with the mutant's mistake. ast counts columns in bytes."""
    lines = text.encode().splitlines(keepends=True)
    start = sum(map(len, lines[: mutant.line - 1])) + mutant.column
    whole, before = text.encode(), mutant.before.encode()
    assert whole[start : start + len(before)] == before
    result = (whole[:start] + mutant.after.encode() + whole[start + len(before) :]).decode()
    ast.parse(result)
    return result


def draw(tree: Path, areas: Sequence[str], count: int, seed: int) -> tuple[list[Mutant], dict[str, Any]]:
    """Return `count` mutants of each area, in turn, and how many there are to draw from."""
    taken: set[Path] = set()
    drawn, sizes = [], {}
    for area, patterns in AREAS.items():
        files = {path for pattern in patterns for path in tree.glob(pattern)} - taken
        taken |= files
        names = sorted(str(path.relative_to(tree)) for path in files)
        every = [mutant for name in names for mutant in find_mutants(area, name, (tree / name).read_text())]
        sizes[area] = {"files": len(names), "possible": len(every)}
        if area in areas:
            drawn.append(random.Random(f"{seed} {area}").sample(every, min(count, len(every))))
    most = max(map(len, drawn))
    return [one[n] for n in range(most) for one in drawn if n < len(one)], sizes
