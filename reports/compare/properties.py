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
from reports.text import ABSENT

PRECISIONS = {
    "tf32_convolution": "TF32 in convolutions",
    "tf32_matmul": "TF32 in matrix products",
    "tf32x3_matmul": "three TF32 products for each matrix product",
    "tf32x3_attention": "three TF32 products for each product inside attention, if it has any",
    "float16_sums": "float16 accumulators",
}


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
    if not _answers(record):
        return ABSENT
    return ", ".join(undetected(record)) or "none of those tried"


def precision_text(names: Iterable[str]) -> str:
    """The arithmetic that a kernel was judged as."""
    return " and ".join(PRECISIONS.get(name, name) for name in names) or "plain arithmetic in the dtype"


def blind_spots(evidence: Evidence) -> list[str]:
    """A sentence for each workload on which something that is wrong would pass."""
    found: dict[tuple[str, str], list[str]] = {}
    for record in evidence.validations.values():
        if missed := undetected(record):
            sentence = f"validation would not detect {', '.join(missed)}"
            places = found.setdefault((record.workload, sentence), [])
            if record.device not in places:
                places.append(record.device)
    return [f"{workload} ({', '.join(devices)}): {sentence}" for (workload, sentence), devices in found.items()]


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
    """Such as "other bits in 3 of 20 trials, at most 0.42 rounding units apart"."""
    if side.status not in ("ok", "wrong") or not side.recipes:
        return ABSENT
    if not side.repeats_differ:
        return "the same in every repeated trial"
    size = ""
    if side.repeats_max_units is not None:
        size = f", at most {side.repeats_max_units:.3g} rounding units apart"
    elif side.repeats_max_abs is not None:
        size = f", at most {side.repeats_max_abs:.3g} apart"
    return f"other bits in {side.repeats_differ} of {sum(recipe.trials for recipe in side.recipes)} trials{size}"


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
    """Of all cells the one with the largest difference is quoted."""
    (workload, environment), side = max(
        sides.items(), key=lambda item: (item[1].repeats_max_units or 0.0, item[1].repeats_differ)
    )
    rest = [other for other in sides if other != (workload, environment)]
    same = [name for other, name in rest if other == workload]
    more = f"; also in {', '.join(same) if len(same) == len(rest) else f'{len(rest)} other cells'}" if rest else ""
    right = all(side.status == "ok" or differs_though_right(side) for side in sides.values())
    name = f"reference {target}" if kind == "reference" else target
    return (
        f"{name} ({device}) is not bit-repeatable: on the same inputs a second run gave {repeat_text(side)} "
        f"({workload} in {environment}{more}), and {'every output is' if right else 'some outputs are not'} within "
        "tolerance"
    )
