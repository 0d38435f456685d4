"""Kernels that work on a stream other than the one they were given: what launches saw of it. Pure.

Every output is right where nobody else works on the device. Whoever puts work before or behind the kernel on the stream
that it was given, as PyTorch does, is not waited for, and does not wait.
"""

from __future__ import annotations

from harness.schema.records import Timing
from harness.worker import protocol
from reports.load.evidence import Evidence

# What launches said before they recorded whether calls escaped.
UNWRITTEN = "outputs unwritten: what a call does is not in the graph"
SENTENCE = "what its calls do is on another stream than the one they are given"


def escapes(timing: Timing) -> bool:
    return timing.escaped is True or (timing.escaped is None and UNWRITTEN in timing.hot_message)


def escaping(evidence: Evidence, environment: str, kernel: str, workload: str, device: str) -> list[Timing]:
    """The kernel's timings on that workload, of all launches, whose calls no graph held because they escaped it."""
    return [
        timing
        for launch in evidence.launch_records.get((environment, kernel, device), [])
        for timing in launch.timings
        if (timing.workload, timing.target) == (workload, protocol.KERNEL) and escapes(timing)
    ]
