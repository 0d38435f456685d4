"""Outputs of a problem's model, one by one: what is not as in the baseline. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from harness.worker import protocol
from reports.model import Comparison, CorrectnessSide, OutputSide


def pairs(row: Comparison) -> Iterator[tuple[OutputSide, OutputSide]]:
    """Outputs that both environments have, the baseline's first. Gradients come after what they are of."""
    judged = row.correctness
    before = {output.name: output for output in judged.baseline.outputs}
    yield from ((before[output.name], output) for output in judged.this.outputs if output.name in before)


def other_bits(row: Comparison) -> list[str]:
    """Names of outputs that have other bits on the same inputs. Of what does not repeat they say nothing."""
    bits = row.correctness.bits
    if row.alone or bits.unsteady or not bits.compared or bits.inputs_differ:
        return []
    return [shown(here) for base, here in pairs(row) if base.sha256 != here.sha256]


def wrong_outputs(side: CorrectnessSide) -> list[str]:
    """Names of the outputs that are wrong, where others are right; empty where all are, or only one is given."""
    wrong = dict.fromkeys(shown(output) for output in side.outputs if output.wrong)
    every = dict.fromkeys(map(shown, side.outputs))
    return list(wrong) if side.status == protocol.WRONG and 0 < len(wrong) < len(every) else []


def forms(row: Comparison) -> list[tuple[str, str, str]]:
    """(output, what it was like, what it is like) where that is not the same: memory format, type, shape, presence."""
    if row.alone:
        return []
    found = []
    for base, here in pairs(row):
        if (base.dtype, base.shape) != (here.dtype, here.shape):
            found.append((shown(here), f"{base.dtype} {list(base.shape)}", f"{here.dtype} {list(here.shape)}"))
        elif base.layout != here.layout:
            found.append((shown(here), base.layout, here.layout))
    one, two = ({output.name: output for output in side.outputs} for side in (row.correctness.baseline,
                                                                             row.correctness.this))  # fmt: skip
    if one and two:
        found += [(shown(one[name]), "returned", "not returned") for name in one if name not in two]
        found += [(shown(two[name]), "not returned", "returned") for name in two if name not in one]
    return found


def shown(output: OutputSide) -> str:
    return f"output {output.name}" if output.name[:1].isdigit() else output.name or "the output"
