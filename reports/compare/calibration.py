"""What the controls of one run say, stored, so that the page of another can cite it.

    python -m reports control RUN [--launches 10] [--write calibration.json]

It is derived from that run's records, which are kept beside it; it carries their run, GPU and driver.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from harness.cli.options import Parser
from harness.errors import HarnessError, InputError
from harness.schema.run_records import Thresholds
from reports.compare.control import LAUNCHES, Controls, Stored, controls, share_text
from reports.compare.gpus import cards
from reports.compare.latency import group_launches
from reports.load.evidence import Evidence, load_evidence
from reports.render.files import write_file

FILE = "calibration.json"


class Calibration(Stored):
    """The controls of one run, to be cited by the page of another."""

    schema_version: Literal[1]
    run_id: str
    created_utc: str
    command: list[str]
    gpus: list[str]
    drivers: list[str]
    environments: list[str]
    thresholds: Thresholds
    controls: Controls


def calibrate(evidence: Evidence, launches: int = LAUNCHES) -> Calibration:
    """InputError where the run holds no control, or too few launches for one trial of it."""
    found = controls(evidence, group_launches(evidence.launches), launches)
    if found is None:
        raise InputError(
            f"{evidence.paths.folder}: holds neither replicas of one environment nor a slowed kernel",
            "give an environment of matrix.yaml a `replica:`, or a kernel `control_of:`, and run it",
        )
    if not found.aa and not found.detections:
        raise InputError(f"{evidence.paths.folder}: {found.missing[0]}", "run more launches, or give fewer: --launches")
    run, gpus = evidence.run, cards(evidence)
    return Calibration(
        schema_version=1,
        run_id=run.run_id,
        created_utc=run.created_utc,
        command=run.command,
        gpus=[card.name for card in gpus],
        drivers=sorted({card.driver for card in gpus}),
        environments=run.environments,
        thresholds=run.thresholds,
        controls=found,
    )


def load_calibration(path: Path) -> Calibration:
    try:
        return Calibration.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror}", f"make one: python -m reports control RUN --write {FILE}"
        ) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(
            f"{path}: is no calibration: {where + ': ' if where else ''}{first['msg']}",
            f"make one: python -m reports control RUN --write {FILE}",
        ) from None


def lines(found: Controls) -> list[str]:
    """In words, for a terminal."""
    said = [
        f"A/A, {' and '.join(each.environments)}: {each.trials} disjoint trials of {found.launches} launches each; "
        f"rows called a change: {share_text(each.rows)}; trials with any: {share_text(each.alarmed)}"
        for each in found.aa
    ]
    for each in found.detections:
        interval = f" [{each.low:.4f}, {each.high:.4f}]" if each.low is not None and each.high is not None else ""
        drawn = f"; {each.resampled.count} of {each.resampled.of} resampled groups" if each.resampled else ""
        said.append(
            f"{each.slowed} on {each.workload}, {each.mode}, {each.environment}: true ratio {each.ratio:.4f}{interval} "
            f"from {each.launches} + {each.launches} launches; "
            f"found in {each.found.count} of {each.found.of} trials{drawn}"
        )
    for mode in dict.fromkeys(each.mode for each in found.detections):
        said.append(f"slowed kernels found, {mode}, over all of these: {share_text(found.found(mode))}")
    if found.detections:
        said.append(f"references beside them, called a change: {share_text(found.unchanged)}")
    if found.aa and found.detections:
        said.append(f"false alarms, over all rows of both kinds: {share_text(found.false_alarms)}")
    return said + [f"no trial: {reason}" for reason in found.missing]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser(prog="python -m reports control", description="What the controls of a run say of its procedure.")
    parser.add_argument("run_folder", type=Path)
    parser.add_argument(
        "--launches", type=_at_least_two, default=LAUNCHES, help=f"blocks in a trial; default: {LAUNCHES}"
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="store it, for the pages of other runs to cite")
    try:
        options = parser.parse_args(arguments)
        found = calibrate(load_evidence(options.run_folder), options.launches)
        if options.write is not None:
            write_file(options.write, found.model_dump_json(indent=1) + "\n", "give another --write")
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    print("\n".join(lines(found.controls)))
    return 0


def _at_least_two(text: str) -> int:
    value = int(text)
    if value < 2:
        raise argparse.ArgumentTypeError("must be at least 2")
    return value
