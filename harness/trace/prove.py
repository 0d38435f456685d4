"""The experiment: one version runs again with the other's outputs put in, where they first differ.

Kinds of operators, by name, are put back together. In the run each output is replaced only where its operator's inputs
are, bit for bit, those of the other version: so an operator behind an origin that was put back shows whether it is one
too, and no output is replaced because of what came before it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.trace.align import align
from harness.trace.ends import Result, distance, result_of
from harness.trace.localise import Site, examine
from harness.trace.model import Place, Trace
from harness.trace.runs import Side

MOST_ROUNDS = 8
Say = Callable[[str], None]


@dataclass
class Proof:
    """What putting back showed. `kinds`: the smallest set that was found; `sites`: of every kind, the first origin."""

    kinds: list[str] = field(default_factory=list)
    sites: dict[str, Site] = field(default_factory=dict)
    seen_in: dict[str, Trace] = field(default_factory=dict)  # the trace in which its first origin was seen
    dropped: list[str] = field(default_factory=list)  # not needed for the end result
    shares: dict[str, float | None] = field(default_factory=dict)  # of the difference, that goes with it
    puts: dict[str, list[int]] = field(default_factory=dict)  # operators whose outputs were replaced
    not_put: list[str] = field(default_factory=list)  # origins that cannot be put back
    comes_back: bool = False  # bit for bit
    left: float = math.inf  # the distance that is left
    after: Trace | None = None  # the bad version's, with all of them put back


def origins(sites: Iterable[Site], unstable: Iterable[int]) -> list[Site]:
    """Of these sites, what is an origin and repeats."""
    skip = set(unstable)
    return [site for site in sites if site.is_origin and not skip.intersection(site.bad)]


def requests(sites: Sequence[Site], kinds: Iterable[str], store: str) -> dict[str, Any]:
    """What the recorder is asked for, to put back all sites of these kinds."""
    puts, feeds, guards = (defaultdict[int, list[Any]](list) for _ in range(3))
    wanted = set(kinds)
    for group, site in enumerate(sites):
        if site.kind in wanted and site.stored:
            for guard in (*site.guards, *(feed.guard for feed in site.feeds if feed.guard.digest)):
                guards[guard.operator].append([guard.position, guard.digest, group])
            for (g, good_slot), (b, slot) in site.outputs:
                if b in site.bad:
                    puts[b].append([slot, f"{store}/{g}-{good_slot}.pt", group])
            for guard, (g, good_slot) in site.feeds:
                feeds[guard.operator].append([guard.position, f"{store}/{g}-{good_slot}.pt", group])
    return {"puts": puts, "feeds": feeds, "guards": guards}


def stored(sites: Iterable[Site], kinds: Iterable[str]) -> dict[int, list[int]]:
    """Outputs of the good trace that putting back needs."""
    wanted = set(kinds)
    places = {place for site in sites if site.kind in wanted for place in site.stored}
    found = defaultdict[int, list[int]](list)
    for index, slot in sorted(places):
        found[index].append(slot)
    return found


def programs(sites: Mapping[str, Site], side: str) -> list[dict[str, Any]]:
    """What the recorder stores, so that the first origin of each kind can run again alone."""
    found = []
    for place, site in enumerate(sites.values()):
        operators = site.good if side == "good" else site.bad
        keep: list[Place] = [pair[side == "bad"] for pair in site.outputs]
        keep = [each for each in dict.fromkeys(keep) if each[0] in operators]
        if operators and keep:
            found.append({"name": f"{side}-{place}", "operators": list(operators), "keep": keep})
    return found


class Experiment:
    """Puts outputs of `giver` into runs of `taker`."""

    def __init__(self, giver: Side, taker: Side, given: Trace, taken: Trace, say: Say) -> None:
        self.giver, self.taker, self.given, self.taken, self.say = giver, taker, given, taken, say
        self.wanted, self.had = result_of(given), result_of(taken)
        self.alignment = align(given, taken)
        self.sites = examine(given, taken, self.alignment)

    def run(self, kinds: Sequence[str], **more: Any) -> Trace:
        self.say(f"{self.taker.version} with {', '.join(kinds)} of {self.giver.version} put in")
        return self.taker.record(**requests(self.sites, kinds, str(self.giver.store)), **more)

    def prove(self, unstable: set[int]) -> Proof:
        """Kinds join until nothing more is found, or the end result is the other version's; then those that are not
        needed leave. `unstable`: operators of the taker that do not repeat."""
        proof, trace, sites = Proof(), self.taken, self.sites
        for _ in range(MOST_ROUNDS):
            fresh = _fresh(origins(sites, unstable), trace, proof)
            if not fresh:
                break
            self.sites = sites
            every = [*proof.kinds, *fresh]
            self.giver.record(store=stored(sites, every), programs=programs(proof.sites, "good"))
            trace = self.run(every, programs=programs(proof.sites, "bad"))
            proof.kinds, proof.after = every, trace
            sites = examine(self.given, trace, align(self.given, trace))
            if result_of(trace).equals(self.wanted):
                break
        if proof.after is not None:
            self._conclude(proof)
        return proof

    def _conclude(self, proof: Proof) -> None:
        assert proof.after is not None
        found = result_of(proof.after)
        proof.comes_back, proof.left = found.equals(self.wanted), distance(self.wanted, found)
        self._reduce(proof)
        wanted, replaced = set(proof.kinds), {each.index for each in proof.after.operators if each.put or each.fed}
        for site in self.sites:
            changed = [b for b in (*site.bad, *(feed.guard.operator for feed in site.feeds)) if b in replaced]
            if site.kind in wanted and changed:
                proof.puts.setdefault(site.kind, []).append(changed[0])

    def _reduce(self, proof: Proof) -> None:
        """Leave out each kind in turn; and put them back one after the other, for what goes with each. None is put back
        alone: behind another origin its inputs are not the other version's."""
        assert proof.after is not None
        known = {tuple(proof.kinds): proof.after}

        def run(kinds: list[str]) -> Trace:
            return known.get(tuple(kinds)) or known.setdefault(tuple(kinds), self.run(kinds))

        left = [self.had, *(result_of(run(proof.kinds[: count + 1])) for count in range(len(proof.kinds)))]
        for kind, before, after in zip(proof.kinds, left, left[1:], strict=False):
            proof.shares[kind] = share(self.wanted, self.had, before, after)
        for kind in list(proof.kinds):
            others = [each for each in proof.kinds if each != kind]
            if proof.comes_back and others:
                trace = run(others)
                if result_of(trace).equals(self.wanted):
                    proof.kinds, proof.after = others, trace
                    proof.dropped.append(kind)

    def confirm(self, kinds: Sequence[str], unstable: set[int]) -> list[str] | None:
        """Kinds that must be put in besides these, so that the taker ends as the giver did: of the reverse experiment.
        None where it does not.

        What comes after them may be matched in another way then, and operators may move there that give equal outputs
        for the inputs that the taker has by itself: it is tried as long as more can be put in.
        """
        every, count = list(kinds), -1
        for _ in range(MOST_ROUNDS):
            self.giver.record(store=stored(self.sites, every))
            trace = self.run(every)
            if result_of(trace).equals(self.wanted):
                return every[len(kinds) :]
            before, count = count, sum(bool(each.put or each.fed) for each in trace.operators)
            self.sites = examine(self.given, trace, align(self.given, trace))
            found = [site.kind for site in origins(self.sites, unstable) if site.stored and site.kind not in every]
            if count <= before and not found:
                break
            every += dict.fromkeys(found)
        return None


def _fresh(found: Iterable[Site], trace: Trace, proof: Proof) -> list[str]:
    """Kinds of these origins that are new and can be put back; all new ones are added to the proof."""
    fresh = list[str]()
    for site in found:
        if site.kind in proof.sites:
            continue
        proof.sites[site.kind], proof.seen_in[site.kind] = site, trace
        if site.stored:
            fresh.append(site.kind)
        else:
            proof.not_put.append(site.kind)
    return fresh


def share(wanted: Result, had: Result, before: Result, after: Result) -> float | None:
    """How much of the distance goes from one result to the next one; None where it cannot be measured. It is negative
    where the distance grows."""
    whole, *two = (distance(wanted, each) for each in (had, before, after))
    if not whole or not all(map(math.isfinite, (whole, *two))):
        return 1.0 if before is had and after.equals(wanted) else None
    return (two[0] - two[1]) / whole


def reversed_kinds(kinds: Iterable[str]) -> list[str]:
    """Names of the same kinds where the two traces are exchanged."""
    return [" -> ".join(reversed(kind.split(" -> "))) for kind in kinds]


def unstable_operators(one: Trace, other: Trace) -> set[int]:
    """Operators of a version's trace whose outputs another run of the same version does not repeat."""
    pairs = align(one, other).pairs
    matched = {a for a, _ in pairs}
    moved = {
        a
        for a, b in pairs
        if any(x.differs(y) for x, y in zip(one.operators[a].outputs, other.operators[b].outputs, strict=False))
        or one.operators[a].value != other.operators[b].value
    }
    return moved | {each.index for each in one.operators if each.index not in matched}


def first_unrepeated(one: Trace, other: Trace) -> Site | None:
    """The first origin between two runs of one version: what does not repeat by itself. Where there is none, as where
    a seed differs, the first that has other outputs."""
    sites = [site for site in examine(one, other, align(one, other)) if site.differs]
    return next((site for site in sites if site.is_origin), next(iter(sites), None))
