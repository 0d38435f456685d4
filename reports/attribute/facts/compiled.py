"""The plain call of what is compiled: whether it moved, too. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from harness.worker import protocol
from reports import model
from reports.compare import correctness
from reports.load.evidence import Evidence
from reports.model import Comparison, Seen


@dataclass(frozen=True, kw_only=True)
class PlainCall:
    """`moved`: it ends otherwise, or, of a compiled call that is only more or less exact, it has other bits. `seen`
    says that it did neither."""

    moved: bool
    seen: Seen | None


def plain_call(evidence: Evidence, row: Comparison, workload: str) -> PlainCall | None:
    """None where not both environments have it."""
    of = {
        record.environment: record
        for record in evidence.validations.values()
        if (record.workload, record.device) == (workload, row.device) and record.kernel in evidence.run.pytorch
    }
    base, this = of.get(row.baseline), of.get(row.environment)
    if base is None or this is None or not {base.status, this.status} <= {*protocol.RAN}:
        return None
    bits = correctness.compare_bits(base, this, protocol.MODEL)
    same_bits, same_end = bits.word == "identical", base.status == this.status
    by_bits = row.correctness.verdict in model.EXACTNESS
    unmoved = same_bits or (same_end and not by_bits and not bits.unsteady)
    how = "gives the same bits in both environments" if same_bits else f"is {this.status} in both environments"
    path = evidence.validation_pointer(this)
    seen = Seen(text=f"{workload}: the same call without torch.compile {how}", record=path) if unmoved else None
    return PlainCall(moved=not same_end or (by_bits and bits.word == "differ"), seen=seen)
