"""One factor changed: a region that gives other bits in the two versions runs again in both, alone and from the same
inputs, with one thread, without oneDNN and so on; at last as it is again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.trace.outcome import DECISIVE
from harness.trace.runs import Side

EXPLAINS, NOTHING, OTHER = "same bits in both", "no other bits", "other bits"
AGAIN = "as it is again"
WORDS = {  # with it; and what it decides about
    "threads": ("one thread", "how work is divided among threads"),
    "onednn": ("oneDNN off", "what oneDNN computes, or how PyTorch calls it"),
    "denormals": ("denormals flushed to zero", "how denormals are treated"),
    "vector": ("PyTorch's kernels without vector instructions", "PyTorch's vectorised kernels"),
    "mkl": ("MKL held to its compatible code", "the code that MKL picks"),
    "cudnn": ("cuDNN off", "what cuDNN computes, or how PyTorch calls it"),
    "tf32": ("TF32 off", "where TF32 is used"),
    "deterministic": ("deterministic algorithms", "which algorithm is picked"),
    "math": ("attention's math backend", "the backend of attention"),
    "flash": ("attention's flash backend", "the backend of attention"),
    "efficient": ("attention's efficient backend", "the backend of attention"),
}
Bits = list[list[str | None]]  # digests of the outputs, each time


def vary(good: Side, bad: Side, programs: Mapping[str, Mapping[str, Path]]) -> dict[str, dict[str, str]]:
    """By kind: what each factor that can matter changes. `programs`: by kind, and then by side."""
    if not programs:
        return {}
    paths = [[stored[label] for stored in programs.values()] for label in ("good", "bad")]
    seen = {
        name: [side.vary(own, factor) for side, own in zip((good, bad), paths, strict=True)]
        for name, factor in (("", ""), *((name, name) for name in WORDS), (AGAIN, ""))
    }
    found: dict[str, dict[str, str]] = {}
    for kind, one, other in zip(programs, *paths, strict=True):
        each = {factor: (sides[0][one.stem], sides[1][other.stem]) for factor, sides in seen.items()}
        found[kind] = effects({factor: pair for factor, pair in each.items() if any(x["applies"] for x in pair)})
    return found


def effects(seen: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, str]:
    """By factor. Empty where the versions do not repeat as they are, or give the same bits. Where a version refuses a
    factor, or does not repeat with it, that factor says nothing."""
    plain, again = ([_repeated(side) for side in seen[name]] for name in ("", AGAIN))
    one, other = plain
    if one is None or other is None or plain != again or one == other or len(one) != len(other):
        return {}
    found = {}
    for factor in WORDS:
        bits = [_repeated(side) for side in seen.get(factor, ())]
        if not bits or bits[0] is None or bits[1] is None:
            continue
        outputs = list(zip(one, other, bits[0], bits[1], strict=True))
        if all(x == y and (x is not None or before == after) for before, after, x, y in outputs):
            found[factor] = EXPLAINS
        else:
            kept = all(x in (before, None) and y in (after, None) for before, after, x, y in outputs)
            found[factor] = NOTHING if kept else OTHER
    return found


def _repeated(side: Mapping[str, Any]) -> list[str | None] | None:
    """Its bits, if they are the same each time."""
    times: Bits = side["bits"]
    return times[0] if times and all(each == times[0] for each in times) else None


def sentence(found: Mapping[str, str]) -> str:
    """What that says; empty where it says nothing."""
    by_effect = {effect: [name for name, each in found.items() if each == effect] for effect in (EXPLAINS, NOTHING)}
    said = []
    if names := by_effect[EXPLAINS]:
        what = list(dict.fromkeys(WORDS[name][1] for name in names))
        said.append(
            f"With {' or with '.join(WORDS[name][0] for name in names)} both versions give the same bits, and without "
            f"it other ones again: the difference is in {', together with '.join(what)} ({DECISIVE})."
        )
    if names := by_effect[NOTHING]:
        said.append(f"In neither version a bit changes with {' or '.join(WORDS[name][0] for name in names)}.")
    return " ".join(said)
