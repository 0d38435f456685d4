"""Records of what compiles at run time: what its compilers generated.

experiments/<environment>/<kernel>-<device>/<workload>/compiled.json
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from harness.schema.records import CellRecord, Record, without


class GeneratedFile(Record):
    """One file that a compiler left in its cache; numbers that it did not tell are None."""

    kind: str = Field(
        description="inductor: a graph's output code, with the sources of its kernels; so: machine code of a C++ "
        "kernel; ttir, ttgir, llir, ptx, amdgcn, cubin, hsaco: a stage of a Triton kernel"
    )
    name: str = Field(description="without hashes: the kernel's, or the graph's by its number")
    size_bytes: int
    sha256: str = Field(
        description="of its text without folders, hashes and places in source files; of machine code of its "
        "disassembly, or of its bytes, marked raw:, where nothing disassembles it"
    )
    text: str = Field(default="", description="that text, where it is not long")
    registers: int | None = None
    spills: int | None = Field(default=None, description="registers that the driver reports as spilled")
    shared_bytes: int | None = None
    num_warps: int | None = None
    num_stages: int | None = None


class Picked(Record):
    """The configuration that tuning picked for a kernel."""

    kernel: str
    key: str = Field(default="", description="the arguments that it was picked for, as Triton's tuner tells them apart")
    configuration: dict[str, str]


class Compilation(Record):
    """One fresh process with empty caches, in which the first call compiled."""

    generated_sha256: str = Field(description="digest of all that was generated")

    @model_validator(mode="before")
    @classmethod
    def _read_earlier(cls, value: Any) -> Any:
        return without(value, "block", "cold_s", "warm_s", "later_us")


class CompiledRecord(CellRecord):
    """`generated` and `picked` are of the first sample."""

    samples: list[Compilation] = []
    generated: list[GeneratedFile] = []
    picked: list[Picked] = []

    @property
    def repeats(self) -> bool:
        """Whether every process generated the same."""
        return len({sample.generated_sha256 for sample in self.samples}) == 1
