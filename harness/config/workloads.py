"""Workloads as matrix.yaml has them: shapes and dtypes of attention problems."""

from __future__ import annotations

from pydantic import Field

from harness.config.kernels import Dtype, Name
from harness.config.yaml_files import Model
from harness.worker import protocol


class Shape(Model):
    """Q, K, V and the output are tensors of [batch, heads, seq_len, head_dim]."""

    batch: int = Field(ge=1, description="sequences")
    heads: int = Field(ge=1, description="attention heads")
    seq_len: int = Field(ge=1, description="queries, and keys")
    head_dim: int = Field(ge=1, description="elements of a row")

    @property
    def elements(self) -> int:
        return self.batch * self.heads * self.seq_len * self.head_dim


class Dtypes(Model):
    """The dtypes that a workload is run at. Each is a workload of its own, such as seed-fp16."""

    cpu: list[Dtype] = Field(default=[], description="on the CPU")
    cuda: list[Dtype] = Field(default=[], description="on a GPU")


class Workload(Model):
    """An attention problem: what kernels and references are validated and timed on."""

    name: Name = Field(description="as it is called on the page and after --workload")
    shape: Shape = Field(description="of Q, K and V")
    dtypes: Dtypes = Field(description="by device")
    causal: bool = Field(default=False, description="whether a query sees only the keys up to its own position")
    scale: float | None = Field(default=None, gt=0, description="factor of the logits; default: 1 / sqrt(head_dim)")
    trials: int = Field(default=20, ge=1, le=10_000, description="input sets of independent Q, K and V")
    extra_trials: int = Field(
        default=5, ge=0, le=1000, description="input sets of each other recipe: Q = K = V, large logits"
    )

    def id(self, dtype: Dtype) -> str:
        """Such as ``seed-fp16``."""
        return f"{self.name}-{protocol.DTYPES[dtype]}"

    @property
    def names(self) -> set[str]:
        """What a user may call it: its name, and its id at each dtype."""
        return {self.name, *(self.id(dtype) for dtype in (*self.dtypes.cpu, *self.dtypes.cuda))}
