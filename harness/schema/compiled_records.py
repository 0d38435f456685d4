"""Records of what compiles at run time: what its compilers generated.

experiments/<environment>/<kernel>-<device>/<workload>/compiled.json
"""

from __future__ import annotations

from dataclasses import field

from harness.schema.records import CellRecord, Record
from harness.worker.wire import GeneratedFile

__all__ = ["Compilation", "CompiledRecord", "GeneratedFile"]


class Compilation(Record):
    """One fresh process with empty caches, in which the first call compiled."""

    generated_sha256: str  # digest of all that was generated


class CompiledRecord(CellRecord, kw_only=True):
    """`generated` is of the first sample."""

    samples: list[Compilation] = field(default_factory=list)
    generated: list[GeneratedFile] = field(default_factory=list)

    @property
    def repeats(self) -> bool:
        """Whether every process generated the same."""
        return len({sample.generated_sha256 for sample in self.samples}) == 1
