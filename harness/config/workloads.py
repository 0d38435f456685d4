"""Workloads as matrix.yaml has them: shapes and dtypes of attention problems."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from harness.config.kernels import Dtype, Name
from harness.config.yaml_files import YamlModel
from harness.config.yaml_problems import RefusedValue
from harness.worker import dtypes, protocol
from harness.worker.protocol import BACKWARD

Mask = Literal["padding", "random", "empty_rows", "bias"]


class Shape(YamlModel):
    """Q, K, V and the output are tensors of [batch, heads, seq_len, head_dim]; K and V may have fewer heads, and
    another number of rows."""

    batch: int = Field(ge=1, description="sequences")
    heads: int = Field(ge=1, description="attention heads")
    seq_len: int = Field(ge=1, description="queries, and keys where `kv_len` says nothing else")
    head_dim: int = Field(ge=1, description="elements of a row")
    kv_heads: int | None = Field(
        default=None, ge=1, description="heads of K and V, each shared by as many of Q in turn: it divides `heads`"
    )
    kv_len: int | None = Field(default=None, ge=1, description="keys, where they are more or fewer than the queries")

    @model_validator(mode="after")
    def _divides(self) -> Shape:
        if self.kv_heads and self.heads % self.kv_heads:
            raise RefusedValue(f"kv_heads: {self.kv_heads} does not divide heads, {self.heads}", "take a divisor")
        return self

    @property
    def keys(self) -> int:
        return self.kv_len or self.seq_len

    @property
    def elements(self) -> int:
        """Of Q, and of the output."""
        return self.batch * self.heads * self.seq_len * self.head_dim

    @property
    def kv_elements(self) -> int:
        """Of K, and of V."""
        return self.batch * (self.kv_heads or self.heads) * self.keys * self.head_dim


class Dtypes(YamlModel):
    """The dtypes that a workload is run at. Each is a workload of its own, such as seed-fp16."""

    cpu: list[Dtype] = Field(default=[], description="on the CPU")
    cuda: list[Dtype] = Field(default=[], description="on a GPU")


class Workload(YamlModel):
    """An attention problem: what kernels and references are validated and timed on."""

    name: Name = Field(description="as it is called on the page and after --workload")
    shape: Shape = Field(description="of Q, K and V")
    dtypes: Dtypes = Field(description="by device")
    causal: bool = Field(default=False, description="whether query i sees keys 0 to i alone, however many there are")
    mask: Mask | None = Field(
        default=None,
        description="drawn for each input set, the same for all heads; padding hides the keys after a length of each "
        "sequence's own, random half of all pairs, empty_rows these and every eighth row; bias is added to the logits",
    )
    dropout: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="probability with which a weight of the softmax is dropped; a kernel is given the draws. SDPA "
        "cannot be, so there is no reference, and the truth alone judges",
    )
    backward: bool = Field(
        default=False,
        description="whether gradients of Q, K and V are compared, and a call with them is timed, too; of references "
        "also the backward pass by itself: a workload of its own beside this one, such as seed.backward-fp16",
    )
    scale: float | None = Field(default=None, gt=0, description="factor of the logits; default: 1 / sqrt(head_dim)")
    trials: int = Field(default=20, ge=1, le=10_000, description="input sets of independent Q, K and V")
    extra_trials: int = Field(
        default=5, ge=0, le=1000, description="input sets of each other recipe: Q = K = V, large logits"
    )

    @model_validator(mode="after")
    def _no_other_id(self) -> Workload:
        if self.name.endswith(BACKWARD):
            raise RefusedValue(f"name: {BACKWARD} ends the ids of what `backward: true` adds", "give it another name")
        return self

    @model_validator(mode="after")
    def _one_mask(self) -> Workload:
        if self.causal and self.mask:
            raise RefusedValue("mask: not beside causal: true, because SDPA takes one of the two", "remove one")
        return self

    def masks_bytes(self, dtype: Dtype) -> int:
        """Of the mask and of the draws of dropout."""
        pairs = self.shape.batch * self.shape.seq_len * self.shape.keys
        mask = dtypes.size_bytes(dtype if self.mask == "bias" else "bool", (pairs,)) if self.mask else 0
        return mask + (pairs * self.shape.heads if self.dropout else 0)

    def ids(self, dtype: Dtype) -> dict[str, bool]:
        """Such as ``seed-fp16`` and ``seed.backward-fp16``, each with whether gradients are outputs."""
        ways = {"": False, BACKWARD: True} if self.backward else {"": False}
        return {f"{self.name}{way}-{protocol.DTYPES[dtype]}": backward for way, backward in ways.items()}

    @property
    def names(self) -> set[str]:
        """What a user may call it: its name, and its ids at each dtype."""
        return {self.name, *(id for dtype in (*self.dtypes.cpu, *self.dtypes.cuda) for id in self.ids(dtype))}
