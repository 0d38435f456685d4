"""One launch's time of one target: the median of its samples, and of which, where a GPU's power cap began among them.

Under its power cap a GPU runs below its full clock, 10% slower say, from some moment of a launch on
(`harness.run.throttling`). The cap says more of when a row's turn came than of its kernel, so the median is of the
samples before it, while these are half of all or more. Of fewer it goes over to the median under the cap in
proportion, and reaches it where no sample is free: a time that took one or the other would jump by 10% with one
sample. Pure.
"""

from __future__ import annotations

from statistics import median

from harness.schema.records import TargetTiming
from harness.worker import protocol

COLD, HOT = "cold", "hot"  # calls as they come, and replays of a CUDA graph
FREE_SHARE = 0.5  # of the samples: with so many before the power cap, those under it count for nothing


def time_us(timing: TargetTiming, mode: str) -> float | None:
    """None where it has no times, or one that is not positive."""
    samples, capped = (timing.samples_us, timing.capped) if mode == COLD else (timing.hot_us, timing.hot_capped)
    good = timing.status == protocol.OK and bool(timing.samples_us) and min(timing.samples_us) > 0
    if not good or not samples or min(samples) <= 0:
        return None
    if not capped:
        return median(samples)
    under = set(capped)
    free = [sample for index, sample in enumerate(samples) if index not in under]
    slow = median(samples[index] for index in capped)
    weight = min(1.0, len(free) / len(samples) / FREE_SHARE)
    return weight * median(free) + (1 - weight) * slow if free else slow
