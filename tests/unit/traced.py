"""Small traces made by hand: operators by name, with digests in place of tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.trace.model import End, Operator, Place, Trace, Value

FLOAT = "float32[4]"


def op(
    name: str,
    reads: Sequence[tuple[str, Place | None]] = (),
    gives: Sequence[str] = (),
    line: str = "s.py:1",
    scalars: Sequence[str] = (),
    value: str = "",
    generator: str = "",
    strides: Sequence[int] = (1,),
) -> Operator:
    """`reads`: digest and source of each input; `gives`: digest of each output. Its index comes from `trace`."""
    return Operator(
        index=-1,
        name=name,
        phase="forward",
        module="",
        line=line,
        scalars=tuple(scalars),
        inputs=tuple(Value(digest, FLOAT, tuple(strides), source) for digest, source in reads),
        outputs=tuple(Value(digest, FLOAT, (1,), None, 0 if digest else None) for digest in gives),
        generator=generator,
        value=value,
    )


def trace(*operators: Operator, alive: Sequence[Place] = (), end: End | None = None) -> Trace:
    numbered = [Operator(**{**vars(each), "index": index}) for index, each in enumerate(operators)]
    return Trace(operators=tuple(numbered), end=end or End(), alive=tuple(alive), sketches=np.ones((1, 64)))
