"""Causes of latency changes, from the records alone. Pure.

Targets of the same launches are each other's controls: where the kernel got slower and every other target of the same
process did not, the machine is not the reason, and the reverse.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from reports import model
from reports.compare import KERNEL
from reports.differences import differing
from reports.evidence import Evidence
from reports.factors import DIFFERS, SAME, build_inputs, machine_code, operator_names, operators_seen
from reports.model import Comparison, Finding
from reports.model import Evidence as Seen

LATENCY = "latency"
CALLED = (model.REGRESSED, model.IMPROVED)
# Fewer other rows than this cannot show that a whole environment moved.
FEWEST_OTHERS = 3


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """All rows with times of one environment and device, counted by latency verdict."""

    rows: int
    verdicts: Counter[str]
    median_ratio: float


def neighbourhoods(rows: Sequence[Comparison]) -> dict[tuple[str, str], Neighbours]:
    grouped: dict[tuple[str, str], list[tuple[str, float]]] = defaultdict(list)
    for row in rows:
        if row.latency.ratio is not None:
            grouped[row.environment, row.device].append((row.latency.verdict, row.latency.ratio))
    return {
        key: Neighbours(
            rows=len(found),
            verdicts=Counter(verdict for verdict, _ in found),
            median_ratio=statistics.median(ratio for _, ratio in found),
        )
        for key, found in grouped.items()
    }


def latency_findings(
    evidence: Evidence, row: Comparison, neighbours: dict[tuple[str, str], Neighbours]
) -> list[Finding]:
    """Only for rows that were called: an undecided row has its reason, and no cause."""
    if row.alone or row.latency.verdict not in CALLED:
        return []
    latency = row.latency
    seen = [Seen(text=latency.why, record=latency.this.record)]
    command = f"{row.command} --fresh"
    word = "slower" if latency.verdict == model.REGRESSED else "faster"
    around = neighbours[row.environment, row.device]
    others, same_way = around.rows - 1, around.verdicts[latency.verdict] - 1
    if others:
        text = (
            f"{same_way} of {others} other targets of this environment are {word} too "
            f"(median ratio of all {around.median_ratio:.3f})"
        )
        seen.append(Seen(text=text))
    if others >= FEWEST_OTHERS and same_way == others:
        base, this = (evidence.environments.get(name) for name in (row.baseline, row.environment))
        texts = differing(base, this) if base is not None and this is not None else []
        return [
            _finding(
                "environment_wide",
                model.UNDECIDED if not texts else "suspected",
                f"Every target of this environment is {word}, kernel and references alike: look at the environment "
                "(threads, instruction set, clock), not at one of them.",
                [*seen, *(Seen(text=text) for text in texts)],
                [],
                command,
            )
        ]
    steady = around.verdicts[model.PASS]
    rules_out = [f"the machine: {steady} other targets of the same environment did not move"] if steady else []
    if row.kind != KERNEL:
        return [_reference(row, word, seen, rules_out, command)]
    if latency.this.wrong_output or latency.baseline.wrong_output:
        why = latency.this.message or latency.baseline.message
        seen.append(
            Seen(
                text="the output that was timed is wrong, so the time is not that of the problem"
                + (f": {why}" if why else ""),
                record=row.correctness.this.record,
            )
        )
    place = (row.target, row.device, row.baseline, row.environment)
    code = machine_code(evidence, *place)
    seen += [code.seen, *build_inputs(evidence, *place)]
    if code.state == SAME:
        return [
            _finding(
                "runtime_moved",
                "suspected",
                f"The kernel is {word} with identical machine code: what surrounds it "
                "differs (threads, memory placement, launch overhead, clock).",
                seen,
                [*rules_out, "the kernel's machine code"],
                command,
            )
        ]
    if code.state == DIFFERS:
        return [
            _finding(
                "build_moved",
                "suspected",
                f"The kernel is {word}, and its machine code moved too. Running this "
                "environment's object code in the other would tell.",
                seen,
                rules_out,
                command,
            )
        ]
    return [
        _finding(
            model.UNDECIDED,
            model.UNDECIDED,
            f"The kernel is {word}; whether its machine code moved is not recorded.",
            seen,
            rules_out,
            command,
        )
    ]


def _reference(row: Comparison, word: str, seen: list[Seen], rules_out: list[str], command: str) -> Finding:
    one, two = row.correctness.baseline.operators, row.correctness.this.operators
    rules_out = [*rules_out, "the kernel: it takes no part in a reference's time"]
    if one and two and operator_names(one) != operator_names(two):
        text = f"operator: {', '.join(one)} in the baseline, {', '.join(two)} here"
        return _finding(
            "reference_operator",
            "suspected",
            f"PyTorch's {row.target} is {word}, and another operator runs under its name.",
            [*seen, Seen(text=text, record=row.correctness.this.record)],
            rules_out,
            command,
        )
    if one:
        seen = [*seen, operators_seen(row.correctness.baseline, row.correctness.this)]
    return _finding(
        "reference_latency",
        "shown" if rules_out[:-1] else "suspected",
        f"PyTorch's own {row.target} is {word}. A kernel's speed-up over it moves by as much, with no change of the "
        "kernel.",
        seen,
        rules_out,
        command,
    )


def _finding(
    cause: str, certainty: str, statement: str, seen: list[Seen], rules_out: list[str], command: str
) -> Finding:
    return Finding(
        cause=cause,
        about=LATENCY,
        certainty=certainty,
        statement=statement,
        evidence=seen,
        rules_out=rules_out,
        next_command=command,
    )
