"""What validation says besides right and wrong: which wrong answers it would detect, and whether bits repeat. Pure.

A wrong answer is detected where one of a workload's recipes detects it.

Sums whose order is not fixed (atomic additions, split-K) round differently each time. Every run of a trial is held
against the rule, so what is right here is right in each; only `deterministic: true` in matrix.yaml makes it a failure.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from harness.schema.records import DEVICES, ValidationRecord
from harness.worker import protocol
from reports.load.evidence import Evidence
from reports.model import Comparison, CorrectnessSide
from reports.sentences import sentence


def _answers(record: ValidationRecord) -> dict[str, bool]:
    """Return whether any recipe detected a known wrong answer, by its name."""
    found: dict[str, bool] = {}
    for recipe in record.recipes:
        for wrong in recipe.power:
            found[wrong.name] = wrong.seen or found.get(wrong.name, False)
    return found


def undetected(record: ValidationRecord) -> list[str]:
    return [name for name, seen in _answers(record).items() if not seen]


def undetected_text(record: ValidationRecord) -> str:
    return sentence("checks", "undetected", undetected(record), bool(_answers(record)))


def precision_text(names: Iterable[str]) -> str:
    """Return the arithmetic that a kernel was judged as."""
    return sentence("checks", "precision", list(names))


def blind_spots(evidence: Evidence) -> list[str]:
    """Return a sentence for each workload on which something that is wrong would pass."""
    found: dict[tuple[str, tuple[str, ...]], dict[str, None]] = {}
    for record in evidence.validations.values():
        if missed := undetected(record):
            found.setdefault((record.workload, tuple(missed)), {})[record.device] = None
    return [
        sentence("checks", "blind_spot", workload, missed, list(devices))
        for (workload, missed), devices in found.items()
    ]


def one_length(evidence: Evidence, kernel: str) -> str:
    """What to say of an attention kernel that saw sequences of one length: a loop's end is often what is wrong."""
    records = [
        record
        for environment, device in itertools.product(evidence.run.environments, DEVICES)
        for record in evidence.validations_of(environment, kernel, device)
        if record.status in protocol.RAN
    ]
    infos = [evidence.workload(record.workload) for record in records]
    lengths = {info.kv_len or info.seq_len for info in infos if info is not None and info.seq_len}
    return f"other lengths: it was tested at {lengths.pop()} keys only" if len(lengths) == 1 else ""


def repeat_text(side: CorrectnessSide) -> str:
    """Return such as "other bits in 3 of 20 trials, at most 0.42 rounding units apart"."""
    return sentence("checks", "repeats", side)


def differs_though_right(side: CorrectnessSide) -> bool:
    """Whether all that is wrong of it is that runs give other bits: each is within tolerance."""
    whole = side.rate is not None and side.rate.passed == side.rate.trials
    return whole and side.repeats_differ > 0 and not (side.inputs_mutated or side.unwritten_trials)


def is_wrong(side: CorrectnessSide) -> bool:
    """Whether its values are: to give other bits each time, within tolerance, is not that."""
    return side.status == "wrong" and not differs_though_right(side)


def unrepeatable(rows: Sequence[Comparison]) -> list[str]:
    """A sentence for each target on a device, kernels first as the rows are."""
    found: dict[tuple[str, str, str], dict[tuple[str, str], CorrectnessSide]] = {}
    for row in rows:
        for side in (row.correctness.baseline, row.correctness.this):
            if side.repeats_differ:
                sides = found.setdefault((row.kind, row.target, row.device), {})
                sides[row.workload, side.environment] = side
    return [_unrepeatable(kind, target, device, sides) for (kind, target, device), sides in found.items()]


def _unrepeatable(kind: str, target: str, device: str, sides: dict[tuple[str, str], CorrectnessSide]) -> str:
    """Quote the one with the largest difference of all cells."""
    worst = max(sides, key=lambda place: (sides[place].repeats_max_units or 0.0, sides[place].repeats_differ))
    name = f"reference {target}" if kind == "reference" else target
    rest = [other for other in sides if other != worst]
    right = all(side.status == "ok" or differs_though_right(side) for side in sides.values())
    return sentence("checks", "unrepeatable", f"{name} ({device})", sides[worst], worst, rest, right)
