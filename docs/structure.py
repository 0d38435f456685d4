"""Draw the folders of harness/ and reports/ and the imports between them, from the code, as an SVG.

    python docs/structure.py                                                            docs/structure.svg
    python docs/structure.py --commit 086c5b8 --write docs/structure-before.svg         of an earlier commit

The folders stand in the order with the fewest imports upwards. What is still drawn upwards, in red, is part of a cycle.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import tarfile
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
PACKAGES = ("harness", "reports")
START = "start"  # python -m harness, python -m reports, and the installed package
STEP, LEFT, NODE_WIDTH, NODE_HEIGHT, REACH = 52, 230, 170, 38, 27  # pixels
NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
Imports = Counter[tuple[str, str]]


def sources(commit: str | None) -> dict[PurePosixPath, str]:
    """Every Python file of the two packages: in the working tree, or in a commit."""
    if commit is None:
        paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
        found = {PurePosixPath(path.relative_to(ROOT).as_posix()): path.read_text(encoding="utf-8") for path in paths}
    else:
        packed = subprocess.check_output(["git", "archive", commit, *PACKAGES], cwd=ROOT)
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            files = ((entry, archive.extractfile(entry)) for entry in archive if entry.name.endswith(".py"))
            found = {PurePosixPath(entry.name): file.read().decode() for entry, file in files if file is not None}
    # below reports: no code
    made = {"examples", "runs", "latest", "specimens", "fault_cases", "sweeps", "bisections", "traces"}
    return {path: text for path, text in found.items() if path.parts[0] != "reports" or path.parts[1] not in made}


def folder_of(path: PurePosixPath) -> str:
    """harness/run for harness/run/launch.py; harness for its own files; START for what Python starts."""
    if len(path.parts) > 2:
        return "/".join(path.parts[:2])
    return START if path.name in ("__main__.py", "installed.py") else path.parts[0]


def target_of(module: str, files: Mapping[PurePosixPath, str]) -> str | None:
    """The folder that a module, or a name in it, is of; None for what is of neither package."""
    parts = module.split(".")
    if parts[0] not in PACKAGES:
        return None
    if any(path.parts[:2] == tuple(parts[:2]) and len(path.parts) > 2 for path in files):
        return "/".join(parts[:2])
    return folder_of(PurePosixPath(parts[0], f"{parts[1]}.py")) if len(parts) > 1 else parts[0]


def code_lines(text: str) -> int:
    """Lines that hold code: neither blank, nor a comment, nor a docstring."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node):
            lines.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines)


def imported(path: PurePosixPath, text: str) -> Iterator[str]:
    """The modules that a file imports, with the imports inside its functions."""
    package = path.parent.parts
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: len(package) - node.level + 1]] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            if "." in module:
                yield module
            else:  # from harness import gpu
                yield from (f"{module}.{alias.name}" for alias in node.names)


def ordered(folders: list[str], imports: Imports) -> list[str]:
    """An order with few imports upwards: each folder is moved to its best place until no move helps."""

    def upwards(order: list[str]) -> int:
        place = {folder: at for at, folder in enumerate(order)}
        return sum(count for (importer, target), count in imports.items() if place[importer] > place[target])

    order = sorted(folders, key=lambda each: sum(n for (_, target), n in imports.items() if target == each))
    while True:
        moves = []
        for folder in order:
            rest = [each for each in order if each != folder]
            moves += [[*rest[:at], folder, *rest[at:]] for at in range(len(order))]
        best = min(moves, key=upwards)
        if upwards(best) >= upwards(order):
            return order
        order = best


def render(order: list[str], lines: Counter[str], files: Counter[str], imports: Imports, title: str) -> str:
    """Folders from top to bottom; imports downwards to their right, upwards in red to their left."""
    middle = {folder: 70 + STEP * at for at, folder in enumerate(order)}
    place = {folder: at for at, folder in enumerate(order)}
    width, height = LEFT + NODE_WIDTH + REACH * len(order) + 60, 70 + STEP * len(order)
    red = sum(n for (importer, target), n in imports.items() if place[importer] > place[target])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        "<defs>",
        *(
            f'<marker id="{name}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="9" markerHeight="9"'
            f' markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L8 4L0 8z" fill="{color}"/></marker>'
            for name, color in (("down", "#57606a"), ("up", "#c00"))
        ),
        "</defs>",
        f'<text x="12" y="24" font-size="15" font-weight="600">{title}: {sum(files.values())} files, '
        f"{sum(lines.values()):,} lines of code, {imports.total()} imports between folders, {red} upwards</text>",
    ]
    for (importer, target), count in sorted(imports.items()):
        down = place[importer] < place[target]
        edge, side = (LEFT + NODE_WIDTH, 1) if down else (LEFT, -1)
        start, end = middle[importer] + (6 if down else -6), middle[target] - (6 if down else -6)
        reach = edge + side * REACH * abs(place[importer] - place[target]) * (1.33 if down else 0.8)
        color, marker = ("#8c959f", "down") if down else ("#c00", "up")
        apex = edge + 0.75 * (reach - edge)
        parts.append(
            f'<path d="M{edge} {start}C{reach:.0f} {start} {reach:.0f} {end} {edge + side * 2} {end}" fill="none"'
            f' stroke="{color}" stroke-width="{min(4.0, 0.8 + count / 12):.1f}" marker-end="url(#{marker})"/>'
            f'<text x="{apex:.0f}" y="{(start + end) / 2 + 4:.0f}" text-anchor="middle" stroke="#fff" stroke-width="4"'
            f' paint-order="stroke" fill="{"#24292f" if down else "#c00"}">{count}</text>'
        )
    for folder in order:
        fill = "#ddf4ff" if folder.startswith("harness") else "#fff8c5"
        top = middle[folder] - NODE_HEIGHT // 2
        name = folder if "/" in folder else {START: "where Python starts"}.get(folder, f"{folder}/*.py")
        parts.append(
            f'<rect x="{LEFT}" y="{top}" width="{NODE_WIDTH}" height="{NODE_HEIGHT}" rx="5" fill="{fill}"'
            ' stroke="#57606a"/>'
            f'<text x="{LEFT + 10}" y="{top + 17}" font-weight="600">{name}</text>'
            f'<text x="{LEFT + 10}" y="{top + 32}">{files[folder]} files, {lines[folder]:,} lines</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--commit", help="default: the working tree")
    parser.add_argument("--write", type=Path, default=ROOT / "docs" / "structure.svg", metavar="FILE")
    options = parser.parse_args()
    found = sources(options.commit)
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    imports: Imports = Counter()
    for path, text in found.items():
        folder = folder_of(path)
        lines[folder] += code_lines(text)
        files[folder] += 1
        for module in imported(path, text):
            target = target_of(module, found)
            if target is not None and target != folder:
                imports[folder, target] += 1
    title = "Now" if options.commit is None else f"At commit {options.commit}"
    options.write.write_text(render(ordered(sorted(files), imports), lines, files, imports, title), encoding="utf-8")


if __name__ == "__main__":
    main()
