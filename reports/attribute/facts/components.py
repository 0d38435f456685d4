"""Packages that were exchanged between two environments while PyTorch was held, and what results, times and memory go
with. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from harness.experiments.components import counts, only_packages
from harness.experiments.screen import FEWEST_LAUNCHES, moved
from harness.schema.environment_records import EnvironmentRecord
from harness.schema.experiment_records import ComponentsRecord, TargetSeen
from harness.stats.peaks import counted
from harness.worker import protocol
from reports.attribute import thresholds
from reports.attribute.facts.swaps import MIXED, NEITHER, PLACE, Outcome, goes_with

COMPONENT, TOGETHER = "component", "together"


@dataclass(frozen=True, kw_only=True)
class Sole:
    """The one package that PyTorch is known to compute with, or that matrix.yaml names, by which two environments of
    one PyTorch differ; a version is '' where it is not there. `others`: what differs besides."""

    package: str
    versions: tuple[str, str]
    others: tuple[str, ...]


def sole_of(base: EnvironmentRecord | None, this: EnvironmentRecord | None, device: str) -> Sole | None:
    """None where more, or something else, differs between the two."""
    if base is None or this is None:
        return None
    packages, named = only_packages(base, this), base.packages.keys() | this.packages.keys()
    matter = [name for name in packages if name in named or counts(name, device)]
    if len(matter) != 1:
        return None
    (package,) = matter
    others = tuple(name for name in packages if name != package)
    return Sole(package=package, versions=packages[package], others=others)


def package_text(package: str, version: str) -> str:
    """As sentences have it after "with": the package in that version, or none."""
    return f"{package} {version}" if version else f"no {package}"


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One package. `cells` by (PyTorch of, package of); `problems`: why a pair could not be run."""

    package: str
    versions: tuple[str, str]
    base: str
    this: str
    cells: dict[tuple[str, str], TargetSeen]
    problems: tuple[str, ...]
    timed: bool
    run: str
    path: str

    @property
    def _four(self) -> list[TargetSeen | None]:
        """The baseline's package in both environments, then the other's."""
        places = ((torch, package) for package in (self.base, self.this) for torch in (self.base, self.this))
        return [self.cells.get(place) for place in places]

    @property
    def one_way(self) -> bool:
        """Whether one of the two exchanges could not be run."""
        return None in self._four

    @property
    def follows(self) -> str | None:
        """What right and wrong go with; of what is right everywhere NEITHER. None: too little ran."""
        return _followed([_result(each) if each else None for each in self._four])

    @property
    def bits(self) -> str | None:
        return _followed([_bits(each) if each else None for each in self._four])

    def time_follows(self, min_effect: float) -> str | None:
        """The same of times, as far as `_figures_follow` tells."""
        return _figures_follow([each.times_us if each else [] for each in self._four], min_effect)

    def memory_follows(self, min_effect: float) -> str | None:
        """The same of peaks of memory."""
        peaks = [each.peaks_bytes if each else [] for each in self._four]
        return _figures_follow([list(map(counted, each)) for each in peaks], min_effect)


MOST, SOME, NONE = "most", "some", "none"


def _figures_follow(figures: Sequence[Sequence[float]], min_effect: float) -> str | None:
    """What launches' figures go with, where both environments' own were apart here too. A factor's effect counts where
    no launch lies among those without it, and makes up most of the change; it is none where launches of both lie among
    each other, and their medians differ by less than half of the change."""
    one, two, three, four = figures
    if moved(one, four, min_effect) is None:
        return NEITHER if min(len(one), len(four)) >= FEWEST_LAUNCHES else None
    whole = math.log(statistics.median(four) / statistics.median(one))
    package = [_effect(one, three, whole, min_effect), _effect(two, four, whole, min_effect)]
    torch = [_effect(one, two, whole, min_effect), _effect(three, four, whole, min_effect)]
    if all(each is None for each in package):
        return None
    told = {each for each in package if each is not None}
    rest = {each for each in torch if each is not None}
    if told == {MOST} and rest <= {NONE}:
        return COMPONENT
    if told == {NONE} and rest == {MOST} and None not in package:
        return PLACE
    return MIXED


def _effect(without: Sequence[float], with_it: Sequence[float], whole: float, min_effect: float) -> str | None:
    """How much of the whole change, a logarithm, a factor makes; None where it was not timed."""
    if min(len(without), len(with_it)) < FEWEST_LAUNCHES:
        return None
    own = math.log(statistics.median(with_it) / statistics.median(without))
    apart = moved(without, with_it, min_effect) is not None
    if own / whole >= thresholds.MOST and apart:
        return MOST
    return SOME if apart or abs(own) >= thresholds.MOST * abs(whole) else NONE


def _followed(outcomes: Sequence[Outcome]) -> str | None:
    """As `goes_with`. Of one exchange alone: what it shows if PyTorch's side is known too. TOGETHER: only the other's
    package with the other's PyTorch gives what the other does."""
    one, two, three, four = outcomes
    if one is None or four is None or (two is None and three is None):
        return None
    if two is None or three is None:
        package = three == four if two is None else two == one
        return NEITHER if one == four else COMPONENT if package else None
    if one == two == three != four:
        return TOGETHER
    return goes_with(outcomes, COMPONENT, PLACE)


def _result(seen: TargetSeen) -> Outcome:
    """The share of runs that were right; of what ended otherwise, how."""
    if seen.status not in protocol.RAN:
        return seen.status, seen.message
    return seen.passed / seen.runs if seen.runs else None


def _bits(seen: TargetSeen) -> Outcome:
    return (seen.status, seen.message) if seen.status not in protocol.RAN else tuple(seen.output_sha256) or None


def exchanges_of(record: ComponentsRecord, path: str, target: str) -> list[Exchange]:
    base, this = record.baseline, record.environment
    found = []
    for package in dict.fromkeys(result.package for result in record.results if result.package):
        results = [result for result in record.results if result.package in ("", package)]
        of = {result.package_of: result.version for result in results if result.package}
        found.append(
            Exchange(
                package=package,
                versions=(of.get(base, ""), of.get(this, "")),
                base=base,
                this=this,
                cells={
                    (result.torch_of, result.package_of): seen
                    for result in results
                    for seen in result.targets
                    if seen.target == target and seen.status != protocol.NOT_RUN
                },
                problems=tuple(
                    f"{result.package} of {result.package_of} in {result.torch_of}: {result.message}"
                    for result in results
                    if result.status != protocol.OK
                ),
                timed=record.timed,
                run=record.run,
                path=path,
            )
        )
    return found
