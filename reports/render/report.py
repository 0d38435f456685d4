"""The whole content of a report, as one value: the page, summary.json, summary.md and junit.xml render it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from reports import model
from reports.attribute import attribute
from reports.attribute.causes import Cause
from reports.compare.calibration import Calibration, Controls
from reports.compare.control import controls
from reports.compare.differences import (
    BuildDifference,
    Confounder,
    Property,
    build_differences,
    confounders,
    environment_items,
)
from reports.compare.gpus import Card, Measuring, Ran, cards, measuring, what_ran
from reports.compare.kernelbench import Score, fast_p, scores
from reports.compare.outcomes import CellState, Failure, Version, cell_states, failures, version_of
from reports.compare.properties import blind_spots, unrepeatable
from reports.compare.rows import compare, has_moved, never_right, significance
from reports.load.evidence import Evidence
from reports.model import Comparison, FastP, LatencySide
from reports.render.explanations import Explanation, causes_by_row, explanations, unmoved
from reports.render.headline import headline
from reports.render.reproduce import with_scripts
from reports.text import matrix_command, place_options, tally_text


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One target on one workload in one environment, the baseline's included; `hot` is None on a CPU."""

    environment: str
    kind: str
    target: str
    workload: str
    device: str
    cold: LatencySide
    hot: LatencySide | None


@dataclass(frozen=True, kw_only=True)
class Report:
    evidence: Evidence
    rows: list[Comparison]
    explanations: list[Explanation]
    by_row: dict[str, list[tuple[Explanation, Cause]]]
    moved: list[Comparison]
    never_right: list[Comparison]
    unrepeatable: list[str]
    blind_spots: list[str]
    versions: list[Version]
    confounders: list[Confounder]
    cells: list[CellState]
    fast_p: list[FastP]
    kernelbench: list[Score]
    environment_items: list[Property]
    builds: list[BuildDifference]
    failures: list[Failure]
    correctness_counts: dict[str, int]
    latency_counts: dict[str, int]
    hot_counts: dict[str, int]
    cards: list[Card]
    measuring: Measuring | None
    ran: list[Ran]
    measured: list[Measured]
    controls: Controls | None
    calibration: Calibration | None
    headline: str
    matrix_command: str

    @property
    def tallies(self) -> list[tuple[str, str]]:
        """Each aspect, and how many rows came out how."""
        counted = [("correctness", self.correctness_counts), ("latency", self.latency_counts)]
        counted += [("hot latency", self.hot_counts)] if self.has_hot else []
        return [(aspect, tally_text(counts) or self.no_tally) for aspect, counts in counted]

    @property
    def has_hot(self) -> bool:
        return any(row.hot is not None for row in self.rows)

    @property
    def alone(self) -> bool:
        """Whether the baseline is the only environment."""
        return bool(self.rows) and all(row.alone for row in self.rows)

    @property
    def no_tally(self) -> str:
        """In place of a count of rows, where there are none."""
        return "nothing to compare with" if self.alone else "none"


def build_report(evidence: Evidence, calibration: Calibration | None = None, *, count_missing: bool = False) -> Report:
    """`calibration`: the controls of another run; `count_missing`: see `kernelbench.scores`."""
    rows = compare(evidence)
    explained = with_scripts(evidence, explanations(attribute(evidence, rows)))
    by_row = causes_by_row(explained)
    versions = [version_of(evidence, name) for name in evidence.run.environments]
    cells = cell_states(evidence)
    moved = sorted((row for row in rows if has_moved(row, unmoved(row, by_row))), key=significance)
    return Report(
        evidence=evidence,
        rows=rows,
        explanations=explained,
        by_row=by_row,
        moved=moved,
        never_right=never_right(rows),
        unrepeatable=unrepeatable(rows),
        blind_spots=blind_spots(evidence),
        versions=versions,
        confounders=confounders(evidence),
        cells=cells,
        fast_p=fast_p(evidence),
        kernelbench=scores(evidence, count_missing),
        environment_items=environment_items(evidence),
        builds=build_differences(evidence),
        failures=failures(evidence),
        correctness_counts=counts(row.correctness.verdict for row in rows),
        latency_counts=counts(row.latency.verdict for row in rows if not row.uncompared(row.latency)),
        hot_counts=counts(row.hot.verdict for row in rows if row.hot and not row.uncompared(row.hot)),
        cards=cards(evidence),
        measuring=measuring(evidence),
        ran=what_ran(evidence, "cuda") or what_ran(evidence, "cpu"),
        measured=measured(evidence, rows),
        controls=controls(evidence),
        calibration=calibration,
        headline=headline(versions, rows, by_row),
        matrix_command=matrix_command(place_options(evidence.run.command)),
    )


def measured(evidence: Evidence, rows: list[Comparison]) -> list[Measured]:
    """Every target on every workload, then environments in the run's order."""
    found: dict[tuple[str, str, str, str, str], Measured] = {}
    for row in rows:
        for name in ("baseline", "this"):
            cold: LatencySide = getattr(row.latency, name)
            found.setdefault(
                (row.device, row.workload, row.kind, row.target, cold.environment),
                Measured(
                    environment=cold.environment,
                    kind=row.kind,
                    target=row.target,
                    workload=row.workload,
                    device=row.device,
                    cold=cold,
                    hot=getattr(row.hot, name) if row.hot is not None else None,
                ),
            )
    order = {name: number for number, name in enumerate(evidence.run.environments)}
    workloads = {workload.id: number for number, workload in enumerate(evidence.run.workloads)}
    targets = {key[:4]: number for number, key in enumerate(found)}

    def place(key: tuple[str, str, str, str, str]) -> tuple[str, int, int, int]:
        device, workload, _, _, environment = key
        return device, workloads.get(workload, len(workloads)), targets[key[:4]], order.get(environment, len(order))

    return [found[key] for key in sorted(found, key=place)]


def counts(verdicts: Iterable[str]) -> dict[str, int]:
    found = Counter(verdicts)
    return {verdict: found[verdict] for verdict in model.VERDICTS if found[verdict]}
