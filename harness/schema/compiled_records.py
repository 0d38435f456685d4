"""Records of what compiles at run time: its first calls, and what its compilers generated.

experiments/<environment>/<kernel>-<device>/<workload>/compiled.json
"""

from __future__ import annotations

from pydantic import Field

from harness.schema.records import CellRecord, Record


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


class FirstCall(Record):
    """One sample: two fresh processes, the first with empty caches, the second with what that left in them."""

    block: int = Field(description="samples of all environments with one number were taken one after another")
    cold_s: float = Field(description="from making the model until its first call has returned, with empty caches")
    warm_s: float = Field(description="the same with filled caches, in a fresh process")
    later_us: float = Field(description="median of later calls in the first process")
    generated_sha256: str = Field(description="digest of all that was generated with empty caches")


class CompiledRecord(CellRecord):
    """`generated` and `picked` are of the first sample."""

    samples: list[FirstCall] = []
    generated: list[GeneratedFile] = []
    picked: list[Picked] = []

    @property
    def repeats(self) -> bool:
        """Whether every process generated the same."""
        return len({sample.generated_sha256 for sample in self.samples}) == 1
