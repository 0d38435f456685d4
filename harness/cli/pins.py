"""`kernel-matrix pins`: resolve the pins of every environment again, where its wheel index answers."""

from __future__ import annotations

import argparse

from harness.cli.options import Parser, add_matrix
from harness.config.indexes import probe_index
from harness.config.matrix import load_matrix
from harness.config.pins import ensure_pins
from harness.config.plan import PlannedEnvironment
from harness.errors import DONE, HarnessError
from harness.typed import typed


def add_options(parser: Parser) -> None:
    add_matrix(parser)


def run(options: argparse.Namespace) -> int:
    """An index that cannot be reached gets no pins."""
    matrix, _ = load_matrix(options.matrix)
    root, written = options.matrix.resolve().parent, 0
    problems: dict[str, str] = {}
    for spec in matrix.pinned_environments:
        for index in dict.fromkeys(spec.indexes):
            if index not in problems:
                problems[index] = probe_index(index)
                if problems[index]:
                    print(f"no pins from {index}: {problems[index]}")
            if not problems[index]:
                environment = PlannedEnvironment(spec=spec, index=index)
                path, _ = ensure_pins(root, environment, matrix, again=True)
                written += 1
                print(f"{path.relative_to(root)}: resolved")
    if not written:
        raise HarnessError("no index answers, so nothing was resolved", f"check the network with: {typed('doctor')}")
    return DONE
