"""What validation would have seen on each workload, and what not: of the known wrong answers that the judge made. Pure.

A fault is seen where one of a workload's recipes sees it. Of faults that come in sizes the smallest speaks.
"""

from __future__ import annotations

from collections.abc import Iterable

from harness.schema.records import KnownWrong, ValidationRecord
from reports.load.evidence import Evidence
from reports.render.durations import ABSENT

PRECISIONS = {
    "tf32_convolution": "TF32 in convolutions",
    "tf32_matmul": "TF32 in matrix products",
    "float16_sums": "float16 accumulators",
}


def answers(record: ValidationRecord) -> dict[str, tuple[KnownWrong, bool]]:
    """By name: a known wrong answer, and whether any recipe saw it."""
    found: dict[str, tuple[KnownWrong, bool]] = {}
    for recipe in record.recipes:
        for wrong in recipe.power:
            found[wrong.name] = wrong, wrong.seen or (wrong.name in found and found[wrong.name][1])
    return found


def unseen(record: ValidationRecord) -> list[str]:
    return [name for name, (_, seen) in answers(record).items() if not seen]


def smallest(record: ValidationRecord) -> list[str]:
    """The smallest of each graded kind that is seen."""
    found: dict[str, KnownWrong] = {}
    for wrong, seen in answers(record).values():
        if seen and wrong.size is not None:
            known = found.get(wrong.kind)
            if known is None or known.size is None or wrong.size < known.size:
                found[wrong.kind] = wrong
    return [wrong.name for wrong in found.values()]


def unseen_text(record: ValidationRecord) -> str:
    if not answers(record):
        return ABSENT
    return ", ".join(unseen(record)) or "nothing that was tried"


def precision_text(names: Iterable[str]) -> str:
    """What a kernel was judged as."""
    return " and ".join(PRECISIONS.get(name, name) for name in names) or "plain arithmetic in the dtype"


def blind_spots(evidence: Evidence) -> list[str]:
    """A sentence for each workload on which something that is wrong would pass."""
    found: dict[tuple[str, str], list[str]] = {}
    for record in evidence.validations.values():
        missed = unseen(record)
        if missed:
            sentence = f"would not have been seen here: {', '.join(missed)}"
            if best := smallest(record):
                sentence += f" (the smallest seen: {', '.join(best)})"
            places = found.setdefault((record.workload, sentence), [])
            if record.device not in places:
                places.append(record.device)
    return [f"{workload} ({', '.join(devices)}): {sentence}" for (workload, sentence), devices in found.items()]
