"""`kernel-matrix check`: what cannot work, in seconds and without an environment. `matrix` and `eval` begin with it."""

from __future__ import annotations

import argparse

from harness.cli.options import Parser, add_devices, add_executor, add_matrix, add_names
from harness.errors import DONE
from harness.preflight.preflight import preflight
from harness.run.prepare import Options, draft_plan
from harness.schema.records import DEVICES
from harness.schema.run_records import Selection


def add_options(parser: Parser) -> None:
    add_matrix(parser)
    add_names(parser, "kernel", "workload")
    add_devices(parser)
    add_executor(parser)


def run(options: argparse.Namespace) -> int:
    """InputError with all that cannot work."""
    devices = options.device or DEVICES  # also of CUDA kernels where there is no GPU
    what = Selection(kernels=tuple(options.kernel), workloads=tuple(options.workload), devices=devices)
    where = Options(
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
