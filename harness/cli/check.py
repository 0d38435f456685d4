"""What looks at matrix.yaml, and makes no run: `kernel-matrix check`, what cannot work, in seconds and without an
environment, with which `matrix` and `eval` begin; `pins`, which resolves the pins of every environment again, where its
wheel index answers; and `schema`, the JSON Schema of matrix.yaml."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from harness.cli.options import Command, Parser, add_devices, add_executor, add_matrix, add_names
from harness.config.indexes import probe_index
from harness.config.matrix import json_schema, load_matrix
from harness.config.pins import ensure_pins
from harness.config.plan import PlannedEnvironment
from harness.errors import DONE, HarnessError
from harness.preflight.preflight import preflight
from harness.run.prepare import RunOptions, draft_plan
from harness.schema.records import DEVICES
from harness.schema.run_records import Selection
from harness.typed import typed
from harness.worker import protocol


def add_check_options(parser: Parser) -> None:
    add_matrix(parser)
    add_names(parser, "kernel", "workload")
    add_devices(parser)
    add_executor(parser)


def check(options: argparse.Namespace) -> int:
    """Raise InputError with all that cannot work."""
    devices = options.device or DEVICES  # also of CUDA kernels where there is no GPU
    what = Selection(kernels=tuple(options.kernel), workloads=tuple(options.workload), devices=devices)
    where = RunOptions(
        matrix_path=options.matrix,
        command=(),
        executor=options.executor,
        base_image=options.base_image,
        bundle=options.bundle,
    )
    found = preflight(where, draft_plan(where, what, offline=True))
    for mark, lines in (("ok         ", found.passed), ("not checked", found.unchecked)):
        for line in lines:
            print(f"{mark}  {line}")
    refusal = found.refusal(where.root)
    if refusal is not None:
        raise refusal
    return DONE


def resolve_pins(options: argparse.Namespace) -> int:
    """Resolve pins; an index that cannot be reached gets none."""
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


def add_schema_options(parser: Parser) -> None:
    parser.add_argument("--write", type=Path, metavar="FILE", help="default: print it")


def print_schema(options: argparse.Namespace) -> int:
    text = json.dumps(json_schema(), indent=2) + "\n"
    if options.write:
        protocol.write_atomically(str(options.write), text.encode())
    else:
        print(text, end="")
    return DONE


COMMANDS = {
    "check": Command(add_check_options, check),
    "pins": Command(add_matrix, resolve_pins),
    "schema": Command(add_schema_options, print_schema),
}
