"""The experiment: one version runs again with the other's outputs substituted, where the two first diverge.

Operators of one kind are substituted together. In the run each output is substituted only where its operator's inputs
are, bit for bit, those of the other version. So an operator behind a substituted one shows whether it diverges too, and
no output is substituted because of what came before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.trace.align import align
from harness.trace.diverge import Site, compare_traces
from harness.trace.model import OperatorKind, Slot, Trace
from harness.trace.results import distance, find_result
from harness.trace.runs import TracedVersion

MOST_ROUNDS = 8
Say = Callable[[str], None]


@dataclass
class KindProof:
    """What substitution showed of one kind."""

    site: Site  # the first that diverges
    seen_in: Trace  # the trace in which it was seen
    substituted: list[int] = field(default_factory=list)  # operators
    is_needed: bool = True

    @property
    def kind(self) -> OperatorKind:
        return self.site.kind


@dataclass
class Proof:
    """What substitution showed."""

    all: dict[OperatorKind, KindProof] = field(default_factory=dict)  # that diverge, as they were found
    comes_back: bool | None = None  # bit for bit; None: nothing was substituted
    left: float | None = None  # the distance that is left
    after: Trace | None = None  # the bad version's, with all that is needed substituted

    @property
    def kinds(self) -> list[OperatorKind]:
        """Return the smallest set of kinds that was found, of those that can be substituted."""
        return [kind for kind, proof in self.all.items() if proof.site.stored and proof.is_needed]

    def join(self, diverging: Iterable[Site], trace: Trace) -> bool:
        """Add new kinds; return whether one of them can be substituted."""
        before = len(self.kinds)
        for site in diverging:
            self.all.setdefault(site.kind, KindProof(site, trace))
        return len(self.kinds) > before


def find_diverging(sites: Iterable[Site], unstable: Iterable[int]) -> list[Site]:
    """Return the sites that diverge, and repeat."""
    skip = set(unstable)
    return [site for site in sites if site.diverges and not skip.intersection(site.bad)]


def request_substitution(sites: Sequence[Site], kinds: Iterable[OperatorKind], store: str) -> dict[str, Any]:
    """Return what the recorder is asked for, to substitute all sites of these kinds: rows with an operator's index
    first, and the site's number last."""
    puts, feeds, guards = list[Any](), list[Any](), list[Any]()
    wanted = set(kinds)
    for number, site in enumerate(sites):
        if site.kind in wanted and site.stored:
            guards += [[*guard, number] for guard in site.guards]
            for good, (b, slot) in site.outputs:
                if b in site.bad:
                    puts.append([b, slot, _name_file(store, good), number])
            for guard, good in site.feeds:
                feeds.append([guard.operator, guard.position, _name_file(store, good), number])
                if guard.digest:
                    guards.append([*guard, number])
    return {"puts": puts, "feeds": feeds, "guards": guards}


def _name_file(store: str, slot: Slot) -> str:
    return f"{store}/{slot[0]}-{slot[1]}.pt"


def request_outputs(sites: Iterable[Site], kinds: Iterable[OperatorKind]) -> list[Slot]:
    """Return the outputs of the good trace that the recorder stores for a substitution."""
    wanted = set(kinds)
    return sorted({slot for site in sites if site.kind in wanted for slot in site.stored})


def request_programs(sites: Iterable[Site], side: str) -> list[dict[str, Any]]:
    """Return what the recorder stores, so that the first site of each kind can run again alone."""
    programs = []
    for number, site in enumerate(sites):
        operators = site.good if side == "good" else site.bad
        slots = dict.fromkeys(pair[side == "bad"] for pair in site.outputs)
        outputs = [slot for slot in slots if slot[0] in operators]
        if operators and outputs:
            programs.append({"name": f"{side}-{number}", "operators": list(operators), "outputs": outputs})
    return programs


class Experiment:
    """Substitutes outputs of `giver` in runs of `taker`."""

    def __init__(self, giver: TracedVersion, taker: TracedVersion, given: Trace, taken: Trace, say: Say) -> None:
        self.giver, self.taker, self.given, self.taken, self.say = giver, taker, given, taken, say
        self.wanted, self.had = find_result(given), find_result(taken)
        self.alignment = align(given, taken)
        self.sites = compare_traces(given, taken, self.alignment)

    def run(self, kinds: Sequence[OperatorKind], **more: Any) -> Trace:
        """Run the taker with outputs of these kinds substituted."""
        self.say(f"{self.taker.version} with {', '.join(map(str, kinds))} of {self.giver.version} substituted")
        return self.taker.record(**request_substitution(self.sites, kinds, str(self.giver.store)), **more)

    def prove(self, unstable: set[int]) -> Proof:
        """Let kinds join until nothing more diverges, or the end result is the giver's; then leave out those that are
        not needed. `unstable`: operators of the taker that do not repeat."""
        proof, trace, sites = Proof(), self.taken, self.sites
        for _ in range(MOST_ROUNDS):
            if not proof.join(find_diverging(sites, unstable), trace):
                break
            self.sites, kinds = sites, proof.kinds
            first = [each.site for each in proof.all.values()]
            self.giver.record(store=request_outputs(sites, kinds), programs=request_programs(first, "good"))
            proof.after = trace = self.run(kinds, programs=request_programs(first, "bad"))
            sites = compare_traces(self.given, trace)
            if self._gives_wanted(trace):
                break
        if proof.after is not None:
            proof.comes_back = self._gives_wanted(proof.after)
            proof.left = distance(self.wanted, find_result(proof.after))
            proof.after = self._reduce(proof, proof.after)
            self._list_substituted(proof, proof.after)
        return proof

    def _gives_wanted(self, trace: Trace) -> bool:
        return find_result(trace).equals(self.wanted)

    def _reduce(self, proof: Proof, after: Trace) -> Trace:
        """Leave out each kind in turn. Return the trace of the smallest set. None is substituted by itself: behind
        another one its inputs are not the giver's."""
        for kind in proof.kinds if proof.comes_back else []:
            others = [each for each in proof.kinds if each != kind]
            if others:
                trace = self.run(others)
                proof.all[kind].is_needed = not self._gives_wanted(trace)
                after = after if proof.all[kind].is_needed else trace
        return after

    def _list_substituted(self, proof: Proof, after: Trace) -> None:
        changed = {operator.index for operator in after.operators if operator.put or operator.fed}
        for site in self.sites:
            own = [b for b in (*site.bad, *(feed.guard.operator for feed in site.feeds)) if b in changed]
            if site.kind in proof.kinds and own:
                proof.all[site.kind].substituted.append(own[0])


def find_unstable(one: Trace, other: Trace) -> set[int]:
    """Return operators of a version's trace whose outputs another run of the same version does not repeat."""
    unstable = {operator.index for operator in one.operators}
    for a, b in align(one, other).pairs:
        left, right = one.operators[a], other.operators[b]
        differing = (x.differs(y) for x, y in zip(left.outputs, right.outputs, strict=False))
        if left.value == right.value and not any(differing):
            unstable.discard(a)
    return unstable


def find_first_unstable(one: Trace, other: Trace) -> Site | None:
    """Return the first site that diverges between two runs of one version: what does not repeat by itself. Where there
    is none, as where a seed differs, return the first that has other outputs."""
    sites = [site for site in compare_traces(one, other) if site.differs]
    return next((site for site in sites if site.diverges), next(iter(sites), None))
