"""A trace, as the recorder wrote it: operators, with digests and sketches of what goes in and comes out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

Slot = tuple[int, int]  # an operator's index, and which of its outputs
Sketch = np.ndarray[Any, np.dtype[np.float64]]
BUCKETS = 64
UNKNOWN = "?"  # in place of a digest, or of an argument: what an operator was given cannot be read


@dataclass(frozen=True)
class Value:
    """A tensor at an operator. `digest` is empty where nothing was computed, as of uninitialised memory and views.
    `source` is the output that an input is; `row` the row of a floating output's sketch."""

    digest: str
    type: str
    strides: tuple[int, ...]
    source: Slot | None = None
    row: int | None = None

    def differs(self, other: Value) -> bool:
        return self.type != other.type or (self.digest != other.digest and bool(self.digest and other.digest))


@dataclass(frozen=True)
class Operator:
    """One call of an operator."""

    index: int
    name: str
    phase: str
    module: str
    line: str
    function: str = ""  # that the line calls, as far as that is known
    scalars: tuple[str, ...] = ()
    inputs: tuple[Value, ...] = ()
    outputs: tuple[Value, ...] = ()
    generator: str = ""  # digest of the state that it drew from
    value: str = ""  # that left PyTorch
    put: tuple[int, ...] = ()  # outputs that were substituted
    fed: tuple[int, ...] = ()  # inputs that were substituted: `inputs` has what they were

    @property
    def is_given_unknown(self) -> bool:
        """Return whether something that it was given cannot be read, and may differ."""
        return UNKNOWN in self.scalars or any(value.digest == UNKNOWN for value in self.inputs)

    @property
    def is_view(self) -> bool:
        """Return whether it computes nothing."""
        return bool(self.outputs) and not any(output.digest for output in self.outputs)


@dataclass(frozen=True)
class Raised:
    """Where the exception that ended a script comes from."""

    line: str
    function: str = ""  # of PyTorch, that the line calls
    operator: str = ""  # that raised it
    given: tuple[str, ...] = ()  # digests of the tensors that this was given
    is_lacking: bool = False  # PyTorch has no such name

    @property
    def is_pytorchs(self) -> bool:
        """Return whether PyTorch raised it, or lacks what is asked for."""
        return bool(self.function or self.operator or self.is_lacking)


@dataclass(frozen=True)
class End:
    """How a run of the script ended."""

    torch: str = ""
    code: int = 0
    exception: str = ""
    unsupported: str = ""
    duration_s: float = 0.0
    notes: tuple[str, ...] = ()
    raised: Raised | None = None
    alive: tuple[Slot, ...] = ()  # outputs that the script still held at its end

    @property
    def failure(self) -> str:
        """Return the exception or exit code; empty where it ended well."""
        return self.exception or (f"exit code {self.code}" if self.code else "")


@dataclass(frozen=True)
class Trace:
    """The operators of one run, in order, and how the run ended."""

    operators: tuple[Operator, ...]
    end: End
    sketches: Sketch  # a row each, as `Value.row` numbers them

    def output(self, slot: Slot) -> Value:
        return self.operators[slot[0]].outputs[slot[1]]

    def sketch(self, value: Value) -> Sketch | None:
        return None if value.row is None else self.sketches[value.row]

    def find_last_outputs(self) -> list[Slot]:
        """Return the outputs of the last operator that has a floating one."""
        for operator in reversed(self.operators):
            if any(value.row is not None for value in operator.outputs):
                return [(operator.index, slot) for slot, value in enumerate(operator.outputs) if value.row is not None]
        return []

    def find_final_outputs(self) -> list[Slot]:
        """Return what the script held at its end, and the last outputs, as far as something was computed."""
        slots = dict.fromkeys([*self.end.alive, *self.find_last_outputs()])
        return [slot for slot in slots if self.output(slot).digest]

    def find_read_outputs(self) -> set[Slot]:
        """Return the outputs that an operator reads."""
        return {value.source for operator in self.operators for value in operator.inputs if value.source is not None}

    def name_operators(self, indices: Iterable[int], with_views: bool = False) -> tuple[str, ...]:
        """Return the names of these operators, each once; those that compute nothing only `with_views`."""
        operators = [self.operators[index] for index in indices]
        return tuple(dict.fromkeys(each.name for each in operators if with_views or not each.is_view))


@dataclass(frozen=True)
class Kind:
    """The operators of a site, by name. Sites of one kind are substituted together."""

    good: tuple[str, ...]
    bad: tuple[str, ...]
    is_region: bool = False

    def __str__(self) -> str:
        """Return the short form of a table: `mm`, or `mul -> flash`."""
        return f"{_list(self.good)} -> {_list(self.bad)}" if self.is_region else _list(self.bad)


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "nothing"


OPERATOR, END = TypeAdapter(Operator), TypeAdapter(End)


def load_end(folder: Path) -> End:
    """Return how the run in a folder ended."""
    return END.validate_json((folder / "end.json").read_bytes())


def load_trace(folder: Path) -> Trace:
    """Return the trace of a folder. OSError or ValueError where it is not whole."""
    with (folder / "trace.jsonl").open("rb") as lines:
        operators = tuple(map(OPERATOR.validate_json, lines))
    sketches = np.fromfile(folder / "sketches.bin", dtype="<f8").reshape(-1, BUCKETS)
    return Trace(operators, load_end(folder), sketches)
