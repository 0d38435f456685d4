"""Outputs of a problem's model, one by one: what is not as in the baseline. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.worker import protocol
from harness.worker.protocol import FailureKind
from reports.load.groups import grouped
from reports.model import Comparison, CorrectnessSide, OutputSide
from reports.sentences import sentence

Side = tuple[str, CorrectnessSide]  # an environment's
Where = Callable[[Sequence[str]], str]  # such as "in 2.5.0", of environments


@dataclass(frozen=True, kw_only=True)
class OtherType:
    """An output of another dtype, another shape, or both."""

    name: str
    before: str
    here: str

    def text(self, before: str, here: str) -> str:
        """Return the sentence; `before` and `here` are the versions."""
        return f"{self.name} is {self.here} in {here}, {self.before} in {before}"


def lacks_operator(side: CorrectnessSide) -> bool:
    """Return whether this PyTorch has no such operator."""
    return side.failure is FailureKind.MISSING_OPERATOR


def other_types(base: CorrectnessSide, this: CorrectnessSide) -> list[OtherType]:
    return [
        OtherType(name=shown(now), before=_typed(then, now), here=_typed(now, then))
        for then, now in _pairs(base, this)
        if (then.dtype, then.shape) != (now.dtype, now.shape)
    ]


def _typed(output: OutputSide, other: OutputSide) -> str:
    """Return what differs from the other output: its dtype, its shape, or both."""
    shape = [str(list(output.shape))] if output.shape != other.shape else []
    return " ".join(([output.dtype] if output.dtype != other.dtype else []) + shape)


def _pairs(base: CorrectnessSide, this: CorrectnessSide) -> Iterator[tuple[OutputSide, OutputSide]]:
    before = {output.name: output for output in base.outputs}
    yield from ((before[output.name], output) for output in this.outputs if output.name in before)


def pairs(row: Comparison) -> Iterator[tuple[OutputSide, OutputSide]]:
    """Outputs that both environments have, the baseline's first. Gradients come after what they are of."""
    return _pairs(row.correctness.baseline, row.correctness.this)


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
    """Return (output, what it was like, what it is like) where that is not the same: memory format, or presence.
    Another dtype or shape is a verdict of its own (`other_types`)."""
    if row.alone:
        return []
    found = []
    for base, here in pairs(row):
        if base.shape == here.shape and base.layout != here.layout:
            found.append((shown(here), base.layout, here.layout))
    one, two = (
        {output.name: output for output in side.outputs} for side in (row.correctness.baseline, row.correctness.this)
    )
    if one and two:
        found += [(shown(one[name]), "returned", "not returned") for name in one if name not in two]
        found += [(shown(two[name]), "not returned", "returned") for name in two if name not in one]
    return found


def shown(output: OutputSide) -> str:
    return f"output {output.name}" if output.name[:1].isdigit() else output.name or "the output"


def by_other_type(rows: Iterable[Comparison], names: Mapping[str, str]) -> dict[str, list[Comparison]]:
    """Return sentences on outputs of another type, with the rows of each. `names`: of environments."""
    return grouped(
        (each.text(*(names.get(name, name) for name in (row.baseline, row.environment))), row)
        for row in rows
        for each in other_types(row.correctness.baseline, row.correctness.this)
    )


def notes_text(sides: Iterable[Side], where: Where) -> list[str]:
    """Return a sentence on each input that is written to, and one on why what is wrong may be infinite or zero."""
    written: dict[str, dict[str, None]] = {}
    lost: dict[str, None] = {}
    for environment, side in sides:
        for name in side.writes:
            written.setdefault(name, {})[environment] = None
        if side.leaves_range and side.status == protocol.WRONG:
            lost[environment] = None
    notes = [sentence("checks", "writes", name, where(list(environments))) for name, environments in written.items()]
    return notes + ([sentence("checks", "leaves_range", where(list(lost)), protocol.LEAVES_RANGE)] if lost else [])
