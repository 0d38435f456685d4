"""Outputs of one target, each by itself: against the truth, and its two runs against each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, NamedTuple

import numpy as np

from . import agreement, dtypes, outputs, protocol, wire

if TYPE_CHECKING:
    from .inputs import Shape
    from .judging import Output
    from .truth import Exact
    from .workload import Trial


class Part(NamedTuple):
    """What is kept of one of a target's outputs of one trial."""

    dtype: str
    shape: Shape
    layout: str
    sha256: str
    apart: tuple[float, float | None] | None  # how far its second run is from its first, where it has other bits
    truth: agreement.Compared | None
    leaves_range: bool  # `rounding.ErrorScale` of its truth


class Seen(NamedTuple):
    """What is kept of one target's outputs of one trial."""

    parts: dict[str, Part]
    mutated: bool
    unwritten: bool

    @property
    def sha256(self) -> str:
        """Of what is returned; of what is written to inputs where that is all."""
        returned = {name: part for name, part in self.parts.items() if not name.startswith(outputs.WRITTEN)}
        digests = [part.sha256 for part in (returned or self.parts).values()]
        return digests[0] if len(digests) == 1 else protocol.digest(digests)

    @property
    def apart(self) -> tuple[float, float | None] | None:
        """Of the output that is furthest from itself."""
        return max((part.apart for part in self.parts.values() if part.apart), key=lambda each: each[0], default=None)


def look(output: Output, own: Exact | None, trial: Trial, limits: Mapping[str, float]) -> Part:
    """One output, by its truth where there is one. Indices that choose equal elements of an input are as right as the
    truth's."""
    value = dtypes.decode(output.array, output.dtype)
    again = None if output.again is None else dtypes.decode(output.again, output.dtype)
    truth = None
    if own is not None and own.values.shape == value.shape:
        if output.is_counted and not np.array_equal(value, own.values):
            dtype = trial.workload.dtype
            sources = [dtypes.decode(a, dtype) for a in trial.sources if a.dtype == dtypes.STORAGE[dtype]]
            if agreement.chooses_alike(sources, value, own.values):
                value = own.values
        truth = agreement.compare_both(value, again, own.values, limits, own.error_scale)
    apart = None
    if again is not None:
        between = (own.values, own.error_scale) if own is not None else ()
        apart = agreement.apart(value, again, *between)
    leaves_range = own is not None and own.error_scale.leaves_range
    return Part(output.dtype, output.array.shape, output.layout, output.sha256, apart, truth, leaves_range)


def output_result(name: str, trials: list[Part]) -> wire.OutputResult:
    first, compared = trials[0], [part.truth for part in trials if part.truth is not None]
    return wire.OutputResult(
        name=name,
        dtype=first.dtype,
        shape=list(first.shape),
        layout=", ".join(dict.fromkeys(part.layout for part in trials)),
        output_sha256=[part.sha256 for part in trials],
        repeats_differ=sum(part.apart is not None for part in trials),
        truth=agreement.combine(protocol.TRUTH, compared) if len(compared) == len(trials) else None,
    )
