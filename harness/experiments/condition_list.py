"""The conditions of each experiment, and the sizes at which a wrong kernel is tried: pure lists.

Lengths lie around where a tile ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.schema.experiment_records import Condition, ConditionsExperiment, Layout, Pattern, Site
from harness.schema.records import Device
from harness.schema.run_records import WorkloadInfo
from harness.stats.shrink import HEAD_DIM, LENGTH, own_sizes
from harness.worker import protocol

SAME_CALLS = 50
TILES = (16, 32, 64, 128)
FEW = (1, 2, 3, 4)  # heads, and sequences of a batch
HEAD_DIMS = (16, 32, 40, 48, 64, 72, 80, 96, 128)
MOST_SCORES = 1 << 26  # of all heads: what is longer takes too long to compute in float64
SITES: dict[Device, tuple[Site, ...]] = {
    # Last what changes the allocator of the process for good. PyTorch's own allocator on the CPU is the heap.
    "cpu": ("output", "around", "stack", "heap"),
    "cuda": ("output", "around", "workspace", "shared"),
}
SITE_WORDS = {"around": "around the inputs", "shared": "shared memory"}  # of the others their names
PATTERNS: tuple[Pattern, ...] = ("zero", "nan", "max", "random")
PATTERN_WORDS = {"zero": "zero", "nan": "NaN", "max": "largest finite", "random": "random numbers"}
LAYOUTS: tuple[Layout, ...] = ("offset", "misaligned", "strided")
RECIPE_WORDS = {
    "independent": "independent Q, K, V",
    "shared_qkv": "Q = K = V",
    "large_logits": "logits times 8",
    "steep_logits": "logits times 64",
    "dominant_tail": "the last keys dominate",
    "offset_logits": "all logits beyond float16's range",
    "flat_logits": "logits a 64th",
    "constant_v": "all rows of V equal",
    "zero_q": "Q = 0",
    "halved_4": "inputs a sixteenth as large",
    "halved_8": "inputs 1/256 as large",
}
PROCESSES = (1, 2)
LAYOUT_WORDS = {
    "offset": "inputs 16 elements into their memory",
    "misaligned": "inputs one element into their memory",
    "strided": "inputs strided",
}


def conditions_of(
    experiment: ConditionsExperiment,
    device: Device,
    references: Sequence[str],
    *,
    problem: bool,
    recipes: Sequence[str] = (),
    sizes: Sequence[Condition] = (),
) -> list[Condition]:
    """An experiment's conditions, what all others are compared with first. A problem file has one recipe, and its own
    layout. `recipes` are those of the sequences of calls, and `sizes` the conditions of the experiment on lengths."""
    if experiment == "poison":
        return _poison(device)
    if experiment == "predecessor":
        return [
            Condition(label="after itself"),
            *(Condition(label=f"right after {name}", before=name) for name in references),
            Condition(label="right after an unrelated operator", before="unrelated"),
            Condition(label="first in a fresh process", before="fresh"),
        ]
    if experiment == "inputs":
        return _inputs(device, problem)
    if experiment == "history":
        label = "{}: call after call, fresh process {}".format
        return [
            Condition(label=label(RECIPE_WORDS[r], n), recipe=r, before="fresh", process=n)
            for r in recipes
            for n in PROCESSES
        ]
    if experiment == "lengths":
        return list(sizes)
    if experiment == "wider":
        return [
            Condition(label="as validated"),
            Condition(label="inputs and weights in float64", dtype="float64"),
        ]
    return [
        Condition(label=f"{SAME_CALLS} times, alone"),
        Condition(label=f"{SAME_CALLS} times, beside other work", load="beside"),
    ]


def _poison(device: Device) -> list[Condition]:
    def label(site: Site, pattern: Pattern) -> str:
        # The heap's allocator fills with one byte.
        one_byte = site == "heap" and pattern == "max"
        return f"{SITE_WORDS.get(site, site)}: {'bytes 0x7B, large and finite' if one_byte else PATTERN_WORDS[pattern]}"

    return [
        Condition(label=label(site, pattern), site=site, pattern=pattern)
        for site in SITES[device]
        for pattern in PATTERNS
    ]


def _inputs(device: Device, problem: bool) -> list[Condition]:
    plain = ("independent",) if problem else (*protocol.RECIPES, *protocol.EXTRA_RECIPES)
    recipes = (*plain, *protocol.SCALED_RECIPES)
    conditions = [Condition(label=RECIPE_WORDS[recipe], recipe=recipe) for recipe in recipes]
    if not problem:
        conditions += [Condition(label=LAYOUT_WORDS[layout], layout=layout) for layout in LAYOUTS]
    if device == "cuda":
        conditions.append(Condition(label="on another stream", stream="side"))
    return conditions


def lengths(workload: WorkloadInfo) -> list[int]:
    """The workload's own first; none of a problem file's, which has no shape."""
    batch, heads, seq_len, head_dim = workload.batch, workload.heads, workload.seq_len, workload.head_dim
    if not (batch and heads and seq_len and head_dim):
        return []
    candidates = [seq_len, seq_len - 1, seq_len + 1, 1, 2, 3, *TILES]
    for tile in TILES:
        candidates += [seq_len // tile * tile, seq_len // tile * tile + tile]
    return [length for length in dict.fromkeys(candidates) if length > 0 and batch * heads * length**2 <= MOST_SCORES]


def size_conditions(workload: WorkloadInfo) -> list[Condition]:
    """Other lengths, numbers of heads, batches and head dimensions, and the smallest of all but of the last."""
    own = own_sizes(workload)
    tried = [{LENGTH: length} for length in lengths(workload)]
    dims = [{HEAD_DIM: size} for size in HEAD_DIMS if tried and size != own[HEAD_DIM]]
    few = [{name: count} for name in ("heads", "batch") for count in FEW if tried and count != own[name]]
    least = {name: 1 for name in own if name != HEAD_DIM}
    return sized([*tried, *few, *dims, least] if tried else [], own)


def sized(chosen: Sequence[Mapping[str, int]], own: Mapping[str, int]) -> list[Condition]:
    """Conditions of those sizes, as far as they can be computed in float64."""
    whole = [{**own, **each} for each in chosen]
    computed = [each for each in whole if each["batch"] * each["heads"] * each[LENGTH] ** 2 <= MOST_SCORES]
    return [_of_sizes(each, own) for n, each in enumerate(computed) if each not in computed[:n]]


def _of_sizes(sizes: Mapping[str, int], own: Mapping[str, int]) -> Condition:
    words = {LENGTH: "{} rows", "heads": "heads: {}", "batch": "batch: {}", HEAD_DIM: "head dimension: {}"}
    other: dict[str, Any] = {name: size for name, size in sizes.items() if size != own[name] or name == LENGTH}
    label = ", ".join(words[name].format(size) for name, size in sorted(other.items(), reverse=True))
    return Condition(label=label, **other)
