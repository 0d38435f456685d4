"""A trace, as the recorder wrote it: operators, with digests and sketches of what goes in and comes out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from harness.worker import protocol

Place = tuple[int, int]  # an operator's index, and which of its outputs
BUCKETS = 64
UNKNOWN = "?"  # in place of a digest, or of an argument: what an operator was given cannot be read


@dataclass(frozen=True)
class Value:
    """A tensor at an operator. `digest` is empty where nothing was computed, as of uninitialised memory and views.
    `source` is the output that it is, of an input; `row` that of the sketch, of a floating output."""

    digest: str
    type: str
    strides: tuple[int, ...]
    source: Place | None = None
    row: int | None = None

    def differs(self, other: Value) -> bool:
        return self.type != other.type or (self.digest != other.digest and bool(self.digest and other.digest))


@dataclass(frozen=True)
class Operator:
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
    put: tuple[int, ...] = ()  # outputs that were replaced
    fed: tuple[int, ...] = ()  # inputs that were replaced: `inputs` has what they were

    @property
    def is_given_unknown(self) -> bool:
        """Whether something that it was given cannot be read, and may differ."""
        return UNKNOWN in self.scalars or any(value.digest == UNKNOWN for value in self.inputs)

    @property
    def is_view(self) -> bool:
        """Whether it computes nothing."""
        return bool(self.outputs) and not any(output.digest for output in self.outputs)


@dataclass(frozen=True)
class Raised:
    """Where the exception that ended a script comes from."""

    line: str
    function: str = ""  # of PyTorch, that the line calls
    operator: str = ""  # that raised it
    given: tuple[str, ...] = ()  # digests of the tensors that this was given
    lacks: bool = False  # PyTorch has no such name

    @property
    def is_pytorch(self) -> bool:
        """Whether PyTorch raised it, or lacks what is asked for."""
        return bool(self.function or self.operator or self.lacks)


@dataclass(frozen=True)
class End:
    """How a run of the script ended."""

    torch: str = ""
    code: int = 0
    exception: str = ""
    unsupported: str = ""
    duration_s: float = 0.0
    start_bytes: int = 0  # resident before the script began: PyTorch itself
    peak_bytes: int = 0  # resident at most
    elsewhere: tuple[str, ...] = ()  # numbers that left PyTorch outside of the part that is recorded
    printed: str = ""
    notes: tuple[str, ...] = ()
    raised: Raised | None = None

    @property
    def failure(self) -> str:
        """The exception or exit code; empty where it ended well."""
        return self.exception or f"exit code {self.code}" * bool(self.code)


@dataclass(frozen=True)
class Trace:
    operators: tuple[Operator, ...]
    end: End = End()
    alive: tuple[Place, ...] = ()  # outputs that the script still held at its end, or that what is not recorded read
    sketches: np.ndarray[Any, np.dtype[np.float64]] = field(default_factory=lambda: np.zeros((0, BUCKETS)))

    def output(self, place: Place) -> Value:
        return self.operators[place[0]].outputs[place[1]]

    def sketch(self, place: Place) -> np.ndarray[Any, np.dtype[np.float64]] | None:
        row = self.output(place).row
        return None if row is None or row >= len(self.sketches) else self.sketches[row]


def parse_operator(line: str) -> Operator:
    each: Mapping[str, Any] = json.loads(line)
    return Operator(
        index=each["i"],
        name=each["n"].removeprefix("aten::"),
        phase=each["p"],
        module=each["m"],
        line=each["l"],
        function=each.get("f", ""),
        scalars=tuple(each["s"]),
        inputs=tuple(Value(d, t, tuple(s), tuple(source) if source else None) for d, t, s, source in each["in"]),
        outputs=tuple(Value(d, t, tuple(s), None, row) for d, t, s, row in each["out"]),
        generator=each.get("g", ""),
        value=each.get("v", ""),
        put=tuple(each.get("put", ())),
        fed=tuple(each.get("fed", ())),
    )


def load_end(folder: Path) -> End:
    found = protocol.read_json(str(folder / "end.json"))
    names = ("torch", "code", "exception", "unsupported", "duration_s", "start_bytes", "peak_bytes")
    printed = (folder / "stdout.txt").read_text(encoding="utf-8", errors="replace")
    values = {**{name: found[name] for name in names}, **{name: tuple(found[name]) for name in ("elsewhere", "notes")}}
    raised = dict(found.get("raised") or {})
    if raised:
        raised |= {"operator": raised["operator"].removeprefix("aten::"), "given": tuple(raised["given"])}
    return End(**values, printed=printed, raised=Raised(**raised) if raised else None)


def load_trace(folder: Path) -> Trace:
    """The trace of a folder. OSError, ValueError or KeyError where it is not whole."""
    lines = (folder / "trace.jsonl").read_text(encoding="utf-8").splitlines()
    alive = protocol.read_json(str(folder / "end.json"))["alive"]
    return Trace(
        operators=tuple(map(parse_operator, lines)),
        end=load_end(folder),
        alive=tuple((op, slot) for op, slot in alive),
        sketches=np.fromfile(folder / "sketches.bin", dtype="<f8").reshape(-1, BUCKETS),
    )
