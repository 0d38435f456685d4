"""What was generated for what compiles at run time, in one environment against the baseline. Pure."""

from __future__ import annotations

import difflib
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from harness.schema.compiled_records import CompiledRecord
from harness.schema.records import Device
from harness.worker import protocol
from harness.worker.generated import TEXT_CHARACTERS
from reports.compare.factors import DIFFERS, SAME, UNKNOWN
from reports.compare.rows import is_control
from reports.load.evidence import Evidence
from reports.text import words

MOST_LINES, CONTEXT = 120, 1  # of a difference that is shown
KINDS = {"inductor": "Inductor's output code", "so": "machine code of C++ kernels"}  # others by their own name
UNCOMPARED = "cannot be compared"
UNSTEADY = f"{UNCOMPARED}: what is generated differs from process to process"
TOO_LONG = "lines of difference; the record has both texts"


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """`sides`: the baseline's record and this one's."""

    kernel: str
    workload: str
    device: Device
    environment: str
    baseline: str
    sides: tuple[CompiledRecord, CompiledRecord]
    record: str
    control: bool = False

    @cached_property
    def kinds(self) -> dict[str, str]:
        """Of each kind of file whether it is the same. What one environment generates otherwise in each process says
        nothing of the other, and neither does a digest of bytes that nothing could disassemble."""
        one, two = map(_by_kind, self.sides)
        steady = all(side.repeats for side in self.sides)
        states = {}
        for kind in dict.fromkeys([*one, *two]):
            ours, theirs = one.get(kind, []), two.get(kind, [])
            raw = any(sha256.startswith("raw:") for _, sha256 in (*ours, *theirs))
            states[kind] = SAME if ours == theirs else DIFFERS if steady and not raw else UNKNOWN
        return states

    @property
    def diffs(self) -> dict[str, str]:
        """By file the difference as text, or how long it is."""
        base, this = self.sides
        one, two = map(_texts, self.sides)
        found = {}
        for place, before in one.items():
            here = two.get(place, before)
            if before != here:
                names = base.environment, this.environment
                lines = list(difflib.unified_diff(before, here, *names, lineterm="", n=CONTEXT))
                shown = "\n".join(lines) if len(lines) <= MOST_LINES else f"{len(lines)} {TOO_LONG}"
                found[" ".join(place)] = shown
        return found

    @property
    def state(self) -> str:
        """Whether the same was generated, of all that was looked at."""
        states = set(self.kinds.values())
        return DIFFERS if DIFFERS in states else SAME if states == {SAME} else UNKNOWN

    @property
    def failed(self) -> str:
        """Why a side has no samples, or fewer."""
        failed = [record for record in self.sides if record.status != protocol.OK]
        return "; ".join(f"{record.environment}: {record.message or words(record.status)}" for record in failed)

    @property
    def generated_text(self) -> str:
        unsteady = any(side.samples and not side.repeats for side in self.sides)
        told = {SAME: "is the same", DIFFERS: "differs", UNKNOWN: UNSTEADY if unsteady else UNCOMPARED}
        texts = [f"{KINDS.get(kind, kind)} {told[state]}" for kind, state in self.kinds.items()]
        return "; ".join(texts) or self.failed or "nothing was generated"

    @property
    def summary(self) -> dict[str, Any]:
        """For summary.json: without texts, which the records have."""
        return {
            "kernel": self.kernel,
            "workload": self.workload,
            "device": self.device,
            "environment": self.environment,
            "generated": self.kinds,
            "failed": self.failed,
            "record": self.record,
        }


def compiled(evidence: Evidence) -> list[Compiled]:
    """Return every subject with records in both environments."""
    baseline = evidence.run.baseline
    found = []
    for (environment, kernel, workload, device), (this, path) in evidence.compiled.items():
        base = evidence.compiled.get((baseline, kernel, workload, device))
        if environment != baseline and base is not None:
            found.append(pair(base[0], this, path, control=is_control(evidence, environment)))
    return found


def pair(base: CompiledRecord, this: CompiledRecord, path: str, *, control: bool = False) -> Compiled:
    """Return what was generated in two environments."""
    return Compiled(
        kernel=this.kernel,
        workload=this.workload,
        device=this.device,
        environment=this.environment,
        baseline=base.environment,
        sides=(base, this),
        record=path,
        control=control,
    )


def _by_kind(record: CompiledRecord) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for each in record.generated:
        found.setdefault(each.kind, []).append((each.name, each.sha256))
    return found


def _texts(record: CompiledRecord) -> dict[tuple[str, str], list[str]]:
    """The lines of each text that is there, by its file's kind and name, where one file alone is called so."""
    count = Counter((each.kind, each.name) for each in record.generated)
    return {
        (each.kind, each.name): each.text.splitlines()
        for each in record.generated
        if 0 < len(each.text) <= TEXT_CHARACTERS and count[each.kind, each.name] == 1
    }
