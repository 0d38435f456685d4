"""One factor changed: a region that gives other bits in the two versions runs again in both, alone and from the same
inputs, with one thread, without oneDNN and so on; at last as it is again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.trace.outcome import DECISIVE
from harness.trace.runs import Side

EXPLAINS, NOTHING, OTHER = "same bits in both", "no other bits", "other bits"
OF_ATTENTION = "the attention backend that runs by itself"
WORDS = {  # with it; and what it decides about
    "threads": ("one thread", "how work is divided among threads"),
    "onednn": ("oneDNN off", "what oneDNN computes, or how PyTorch calls it"),
    "denormals": ("denormals flushed to zero", "how denormals are treated"),
    "vector": ("PyTorch's kernels without vector instructions", "PyTorch's vectorised kernels"),
    "mkl": ("MKL held to its compatible code", "the code that MKL picks"),
    "cudnn": ("cuDNN off", "what cuDNN computes, or how PyTorch calls it"),
    "tf32": ("TF32 off", "where TF32 is used"),
    "deterministic": ("deterministic algorithms", "which algorithm is picked"),
    "math": ("attention's math backend", OF_ATTENTION),
    "flash": ("attention's flash backend", OF_ATTENTION),
    "efficient": ("attention's efficient backend", OF_ATTENTION),
}
ALONE = ("vector", "mkl", "deterministic")  # read at a library's first call: each in a process of its own
Bits = Sequence[Sequence[str | None]] | None  # of a program, as `tracer.factors.vary_all` has them


def vary(good: Side, bad: Side, programs: Mapping[str, Mapping[str, Path]]) -> dict[str, dict[str, str]]:
    """By kind: what each factor that can matter changes. `programs`: by kind, and then by side."""
    seen: dict[str, dict[str, list[Bits]]] = {kind: {} for kind in programs}
    together = ["", *(name for name in WORDS if name not in ALONE), ""]
    for factors in (together, *([name] for name in ALONE)) if programs else ():
        for label, side in (("good", good), ("bad", bad)):
            every = side.vary([stored[label] for stored in programs.values()], factors)
            for kind, bits in zip(programs, every, strict=True):
                for name, each in zip(factors, bits, strict=True):
                    seen[kind].setdefault(name, []).append(each)
    return {kind: effects(each) for kind, each in seen.items()}


def effects(seen: Mapping[str, Sequence[Bits]]) -> dict[str, str]:
    """By factor: `seen` has the bits of both versions, and under "" those of each as it is, first and last. Empty where
    the versions do not repeat as they are, or give the same bits. Where a version refuses a factor, or does not repeat
    with it, that factor says nothing."""
    plain = [_repeated(each) for each in seen.get("", ())]
    if len(plain) != 4 or plain[0] != plain[1] or plain[2] != plain[3]:
        return {}
    one, other = plain[0], plain[2]
    if one is None or other is None or one == other or len(one) != len(other):
        return {}
    found = {}
    for factor in WORDS:
        # A factor that can matter in one version alone leaves the other as it is.
        sides = zip(seen.get(factor, ([], [])), (one, other), strict=True)
        good, bad = (own if each == [] else _repeated(each) for each, own in sides)
        if good is None or bad is None or not any(seen.get(factor, ())):
            continue
        outputs = list(zip(one, other, good, bad, strict=True))
        if all(x == y and (x is not None or before == after) for before, after, x, y in outputs):
            found[factor] = EXPLAINS
        else:
            kept = all(x in (before, None) and y in (after, None) for before, after, x, y in outputs)
            found[factor] = NOTHING if kept else OTHER
    return found


def _repeated(bits: Bits) -> Sequence[str | None] | None:
    """Its bits, if they are the same each time."""
    return bits[0] if bits and all(each == bits[0] for each in bits) else None


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
        said.append(f"In neither version does a bit change with: {', '.join(WORDS[name][0] for name in names)}.")
    return " ".join(said)
