"""What sequences of calls in fresh processes say: whether an output is a function of its inputs, of the calls before
it, of the process, or of chance. Pure.

    the first calls agree, and so do all others, call by call     the calls before decide what differs within
    the first calls agree, later ones do not                      chance has a part
    each process repeats itself, no two agree                     something is drawn, or met, once for each process
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from harness.schema.experiment_records import ConditionResult
from reports.attribute.observed import Conditions, settled


@dataclass(frozen=True, kw_only=True)
class History:
    """The same sequence of calls in two fresh processes or more; `elsewhere` are the wrong outputs on the first call's
    inputs where other calls came before, each of which was seen more than once."""

    environment: str
    recipe: str
    path: str
    sequences: tuple[ConditionResult, ...]
    elsewhere: frozenset[str] = frozenset()

    @property
    def _calls(self) -> list[list[str]]:
        return [[digest for trial in each.output_sha256 for digest in trial] for each in self.sequences]

    @property
    def agree(self) -> bool:
        """Whether the first calls of all processes gave the same bits."""
        return len({calls[0] for calls in self._calls}) == 1

    @property
    def replays(self) -> bool:
        """Whether all calls did, one by one: the calls before may decide, and chance does not."""
        shortest = min(len(calls) for calls in self._calls)
        return len({tuple(calls[:shortest]) for calls in self._calls}) == 1

    @property
    def first_right(self) -> bool:
        return all(each.within and each.within[0] and each.within[0][0] for each in self.sequences)

    @property
    def fails(self) -> bool:
        return any(each.passed < each.runs for each in self.sequences)

    @property
    def remembers(self) -> bool:
        """Deterministic, and not a function of the inputs: a repeated call gives other bits than the first of its kind,
        or the very first call is right, and the same call after others is wrong. Other bits within rounding do not
        count."""
        if not self.replays or not (self.fails or self.elsewhere):
            return False
        within = settled(self.sequences) is False
        return within or (self.first_right and bool(self.elsewhere))

    @property
    def drawn(self) -> bool:
        """Each process repeats itself, and on no inputs do two of them agree."""
        if settled(self.sequences) is not True or any(each.nonfinite for each in self.sequences):
            return False
        trials = [set(first) for first in zip(*(self._firsts(each) for each in self.sequences), strict=False)]
        return bool(trials) and all(len(outputs) == len(self.sequences) for outputs in trials)

    @staticmethod
    def _firsts(sequence: ConditionResult) -> list[str]:
        return [trial[0] for trial in sequence.output_sha256]


def histories(found: Iterable[Conditions], elsewhere: dict[tuple[str, str, str], set[str]]) -> list[History]:
    """Of each environment and recipe whose sequence ran in two processes. `elsewhere`: see `wrong_elsewhere`."""
    made = []
    for conditions in found:
        by_recipe: dict[str, list[ConditionResult]] = {}
        for result in conditions.ran:
            if result.output_sha256 and result.input_sha256:
                by_recipe.setdefault(result.condition.recipe, []).append(result)
        for recipe, sequences in by_recipe.items():
            if len(sequences) > 1:
                environment = conditions.record.environment
                known = elsewhere.get((environment, recipe, sequences[0].input_sha256[0]), set())
                made.append(
                    History(
                        environment=environment,
                        recipe=recipe,
                        path=conditions.path,
                        sequences=tuple(sequences),
                        elsewhere=frozenset(known),
                    )
                )
    return made


def wrong_elsewhere(found: Iterable[Conditions]) -> dict[tuple[str, str, str], set[str]]:
    """Wrong outputs that were given twice on the same inputs, which lay as in validation, by processes that had made
    other calls before: by environment, recipe and inputs."""
    told: dict[tuple[str, str, str], set[str]] = {}
    for conditions in found:
        for result in conditions.ran:
            condition = result.condition
            plain = condition.as_laid_out and not condition.site
            if not plain or condition.before == "fresh" or condition.variables_of:
                continue
            for given, outputs, within in zip(result.input_sha256, result.output_sha256, result.within, strict=False):
                if len(outputs) > 1 and len(set(outputs)) == 1 and not any(within):
                    key = (conditions.record.environment, condition.recipe, given)
                    told.setdefault(key, set()).add(outputs[0])
    return told
