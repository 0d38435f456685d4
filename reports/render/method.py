"""What method.html.j2 states: how it was measured and which rule decides, so that a reader can judge a number. Pure."""

from __future__ import annotations

import shlex
from typing import Any

from harness.config.matrix import parse_matrix
from harness.errors import InputError
from harness.stats.decide import POWER
from harness.stats.effects import BIWEIGHT_BLOCKS
from reports.compare.gpus import gpu_launches
from reports.render.report import Report


def refused(matrix_text: str) -> str:
    """Why this version does not take a run's matrix.yaml, and what to do about it; empty where it does."""
    try:
        parse_matrix(matrix_text)
    except InputError as error:
        return f"{error.message} ({error.remedy})"
    return ""


def method_values(report: Report) -> dict[str, Any]:
    evidence = report.evidence
    launches = [launch for group in evidence.launch_records.values() for launch in group]
    return {
        "command": shlex.join(evidence.run.command),
        "refused": refused(evidence.run.matrix_text),
        "launches": launches,
        "timings": [timing for launch in launches for timing in launch.timings],
        "validations": list(evidence.validations.values()),
        "watched": [launch.gpu for launch in gpu_launches(evidence) if launch.gpu is not None],
        "tested": sum(timed.p_value is not None for row in report.rows for timed in row.timed),
        "added": sum(launch.index >= evidence.run.launches for launch in launches),
        "power": POWER,
        "biweight_blocks": BIWEIGHT_BLOCKS,
        "min_effects": {device: evidence.min_effect(device) for device in sorted({row.device for row in report.rows})},
    }
