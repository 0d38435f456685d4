"""Causes of what moved, from the records alone. Pure.

This is the level that needs no further experiment: it eliminates, it never guesses. A finding is `shown` where the
records leave no other factor, `suspected` where a factor moved together with the result and nothing separates the
two yet, and `undecided` where evidence is missing or conflicts; the last two name the command that gets further.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.inside import protocol
from reports import model
from reports.compare import KERNEL
from reports.differences import differing
from reports.evidence import Evidence
from reports.factors import (
    DIFFERS,
    SAME,
    UNKNOWN,
    Factor,
    build_inputs,
    inputs,
    machine_code,
    operators_seen,
    output,
    references,
    yardstick,
)
from reports.latency_causes import latency_findings, neighbourhoods
from reports.model import Comparison, Finding, Rate
from reports.model import Evidence as Seen

SHOWN, SUSPECTED, UNDECIDED = "shown", "suspected", "undecided"
CORRECTNESS = "correctness"


def attribute(evidence: Evidence, rows: Sequence[Comparison]) -> list[Comparison]:
    """The same rows, each with its findings."""
    around = neighbourhoods(rows)
    return [
        replace(row, findings=[*correctness_findings(evidence, row), *latency_findings(evidence, row, around)])
        for row in rows
    ]


def correctness_findings(evidence: Evidence, row: Comparison) -> list[Finding]:
    if row.alone:
        return []
    judged = row.correctness
    if judged.verdict in (model.BROKEN, model.NO_LONGER_SUPPORTED, model.NEWLY_SUPPORTED):
        return [_stopped(row)]
    if judged.verdict in (model.REGRESSED, model.FIXED):
        return [_moved(evidence, row)]
    found = []
    if judged.verdict == model.FAILING and judged.baseline.status == "wrong":
        found.append(_always_wrong(evidence, row))
    elif judged.verdict in (model.UNDECIDED, model.FAILING):
        found.append(_undecided(row, judged.why, []))
    if row.kind == KERNEL and judged.this.rate is not None and judged.baseline.rate is not None:
        found += _agreement_moved(evidence, row)
    elif row.kind != KERNEL and judged.bits.word == "differ":
        found.append(_reference_drift(evidence, row))
    return found


def _side(row: Comparison) -> Seen:
    this = row.correctness.this
    return Seen(text=this.message or this.status.replace("_", " "), record=this.record)


def _fresh(row: Comparison, *extra: str) -> str:
    return " ".join([row.command, "--fresh", *extra])


def _undecided(row: Comparison, why: str, seen: list[Seen]) -> Finding:
    return Finding(
        cause="undecided",
        about=CORRECTNESS,
        certainty=UNDECIDED,
        statement=f"The records do not tell why: {why}.",
        evidence=seen or [_side(row)],
        rules_out=[],
        next_command=_fresh(row, "--trials", "200"),
    )


def _stopped(row: Comparison) -> Finding:
    """It did not run, or runs at last: the status itself is the cause that can be shown."""
    this = row.correctness.this
    causes = {
        "build_failed": "It does not build in this environment",
        "crashed": "It crashes in this environment",
        "timed_out": "It does not finish within its limit in this environment",
        "killed": "It exceeds a limit in this environment, and is killed",
        "broken": "The environment is not the one that was asked for, so nothing of it was measured",
        "unsupported": "Refused in this environment",
        "ok": "Refused in the baseline, and accepted here",
    }
    refused = row.correctness.baseline if this.status == "ok" else this
    said = refused.message or refused.status.replace("_", " ")
    seen = [Seen(text=said, record=refused.record)]
    return Finding(
        cause=this.status if this.status != "ok" else "newly_supported",
        about=CORRECTNESS,
        certainty=SHOWN,
        statement=f"{causes.get(this.status, 'It did not run')}: {said}",
        evidence=seen,
        rules_out=["a change of numerical results: there are none to compare"] if this.status != "ok" else [],
        next_command=_fresh(row),
    )


def _moved(evidence: Evidence, row: Comparison) -> Finding:
    """Against one truth, the verdict moved. Order matters: a factor that moved before the kernel ran comes first."""
    target = protocol.KERNEL if row.kind == KERNEL else row.target
    bytes_in, judge = inputs(evidence, row), yardstick(evidence, row)
    bits = output(row.correctness.bits, evidence, row, target)
    rates = Seen(text=row.correctness.why, record=row.correctness.this.record)
    seen = [rates, bytes_in.seen, judge.seen, bits.seen]
    if bytes_in.state == DIFFERS:
        return _finding(
            "inputs_differ",
            SUSPECTED,
            "The inputs are not the same bytes in both environments, so the results "
            "answer different questions. Nothing else can be concluded until they are.",
            seen,
            [],
            _fresh(row),
        )
    if judge.state == DIFFERS:
        return _finding(
            "yardstick_moved",
            SUSPECTED,
            "The yardstick moved between the environments: the truth or its tolerance "
            "is not the same, so the verdicts cannot be compared.",
            seen,
            [],
            _fresh(row),
        )
    unsteady = max(row.correctness.baseline.repeats_differ, row.correctness.this.repeats_differ)
    if unsteady:
        text = f"the same call gave other bits in {unsteady} trials"
        return _finding(
            "not_deterministic",
            SUSPECTED,
            "The same inputs give other bits from call to call: a race, or a read of "
            "uninitialised memory. The PyTorch version may only change how often it shows.",
            [*seen, Seen(text=text, record=row.correctness.this.record)],
            _ruled(bytes_in, judge),
            _fresh(row, "--trials", "200"),
        )
    if bits.state == SAME:
        return _undecided(
            row,
            "outputs, inputs and yardstick are identical and yet the verdicts differ: "
            "these records contradict each other",
            seen,
        )
    if UNKNOWN in (bytes_in.state, judge.state, bits.state):
        return _undecided(row, "inputs, yardstick and outputs are not all recorded on both sides", seen)
    ruled = _ruled(bytes_in, judge)
    if row.kind == KERNEL:
        return _kernel_moved(evidence, row, seen, ruled)
    return _finding(
        "reference_moved",
        SHOWN,
        f"PyTorch's own {row.target} gives other bits on the same inputs, and its error "
        "against the truth moved with them. No kernel under test takes part in this.",
        [*seen, operators_seen(row.correctness.baseline, row.correctness.this)],
        [*ruled, "the kernel"],
        _fresh(row),
    )


def _finding(
    cause: str, certainty: str, statement: str, seen: list[Seen], rules_out: list[str], command: str
) -> Finding:
    return Finding(
        cause=cause,
        about=CORRECTNESS,
        certainty=certainty,
        statement=statement,
        evidence=seen,
        rules_out=rules_out,
        next_command=command,
    )


def _ruled(bytes_in: Factor, judge: Factor) -> list[str]:
    ruled = ["the inputs"] if bytes_in.state == SAME else []
    return ruled + (
        ["the truth, the rule and the tolerance", "the references: the rule is against the truth"]
        if judge.state == SAME
        else []
    )


def _kernel_moved(evidence: Evidence, row: Comparison, seen: list[Seen], ruled: list[str]) -> Finding:
    """The kernel's own bits moved on the same inputs: its code, or what runs under it."""
    place = (row.target, row.device, row.baseline, row.environment)
    code = machine_code(evidence, *place)
    seen = [*seen, code.seen, *build_inputs(evidence, *place)]
    base, this = (evidence.environments.get(name) for name in (row.baseline, row.environment))
    others = differing(base, this) if base is not None and this is not None else []
    if code.state == SAME:
        more = [Seen(text=text) for text in others]
        return _finding(
            "runtime_moved",
            SUSPECTED,
            "The kernel's output moved although its machine code did not: what runs "
            "around it differs (runtime library, launch, memory it reads without writing, the processor).",
            [*seen, *more],
            [*ruled, "the kernel's machine code", "compiler flags"],
            _fresh(row, "--trials", "200"),
        )
    if code.state == DIFFERS:
        return _finding(
            "build_moved",
            SUSPECTED,
            "The kernel's output and its machine code moved together. Whether the code is "
            "the cause takes one more step: running this environment's object code in the other.",
            seen,
            ruled,
            _fresh(row),
        )
    return _finding(
        "kernel_output_moved",
        SUSPECTED,
        "The kernel's own output moved on the same inputs. Whether its machine code did too is not recorded.",
        seen,
        ruled,
        _fresh(row),
    )


def _always_wrong(evidence: Evidence, row: Comparison) -> Finding:
    judged = row.correctness
    bits = output(judged.bits, evidence, row, protocol.KERNEL if row.kind == KERNEL else row.target)
    seen = [Seen(text=judged.why, record=judged.this.record), bits.seen]
    for name, side in (("baseline", judged.baseline), ("here", judged.this)):
        if side.max_units is not None:
            text = f"{name}: largest error {side.max_units:.3g} units of correct rounding"
            seen.append(Seen(text=text, record=side.record))
    subject = "The kernel" if row.kind == KERNEL else f"The reference {row.target}"
    return _finding(
        "always_wrong",
        SHOWN,
        f"{subject} is wrong against the float64 truth in the baseline too: this fault is not new in this environment.",
        seen,
        ["the upgrade as the origin of the fault"],
        _fresh(row),
    )


def _reference_drift(evidence: Evidence, row: Comparison) -> Finding:
    """Other bits, same verdict: no fault, but the reason why agreement with this reference may move."""
    judged = row.correctness
    seen = [output(judged.bits, evidence, row, row.target).seen, operators_seen(judged.baseline, judged.this)]
    one, two = judged.baseline.max_units, judged.this.max_units
    if one is not None and two is not None:
        seen.append(
            Seen(
                text=f"largest error against the truth: {one:.3g} units in the baseline, {two:.3g} here",
                record=row.correctness.this.record,
            )
        )
    return _finding(
        "reference_drift",
        SHOWN,
        f"PyTorch's own {row.target} gives other bits on the same inputs; against the truth "
        f"its verdict is {row.correctness.verdict.replace('_', ' ')} all the same.",
        seen,
        ["the kernel"],
        _fresh(row),
    )


def _fell(one: Rate | None, two: Rate | None) -> bool:
    return one is not None and two is not None and two.share < one.share


def _agreement_moved(evidence: Evidence, row: Comparison) -> list[Finding]:
    """Agreement with a reference fell: the kernel moved, or the reference did. The story that started this project."""
    judged = row.correctness
    names = [name for name, rate in judged.this.agreement.items() if _fell(judged.baseline.agreement.get(name), rate)]
    if not names:
        return []
    kernel = output(judged.bits, evidence, row, protocol.KERNEL)
    known = references(evidence, row)
    found = []
    for name in names:
        one, two = judged.baseline.agreement[name], judged.this.agreement[name]
        text = (
            f"agreement with {name} ({two.rule}): {one.passed} of {one.trials} trials in the baseline, "
            f"{two.passed} of {two.trials} here"
        )
        seen = [Seen(text=text, record=judged.this.record), kernel.seen]
        seen.append(Seen(text=f"kernel against the truth: {judged.why}", record=judged.this.record))
        if name not in known:
            found.append(_undecided(row, f"{name}'s own outputs are not recorded", seen))
            continue
        moved, base_side, this_side = known[name]
        seen.append(moved.seen)
        if base_side.operators != this_side.operators:
            seen.append(operators_seen(base_side, this_side))
        if kernel.state == SAME and moved.state == DIFFERS:
            found.append(
                _finding(
                    "reference_moved",
                    SHOWN,
                    f"The reference {name} moved, not the kernel: the kernel's bits are the same "
                    f"in both environments, and {name}'s are not.",
                    seen,
                    ["the kernel", "its build", "its inputs"],
                    _fresh(row),
                )
            )
        elif kernel.state == DIFFERS and moved.state == SAME:
            found.append(
                _finding(
                    "kernel_output_moved",
                    SHOWN,
                    f"The kernel moved, not the reference {name}: {name}'s bits are the same "
                    "in both environments, and the kernel's are not.",
                    seen,
                    [f"the reference {name}"],
                    _fresh(row),
                )
            )
        else:
            found.append(_undecided(row, f"the kernel's bits: {kernel.state}; {name}'s bits: {moved.state}", seen))
    return found
