"""The whole content of a report, as one value: the page, summary.json, summary.md and junit.xml render it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from reports import model
from reports.attribute import attribute
from reports.attribute.packages import package_answers
from reports.compare.compiled import compiled
from reports.compare.differences import build_differences, confounders, environment_items
from reports.compare.gpus import cards, measuring, what_ran
from reports.compare.identical import controls_of
from reports.compare.kernelbench import fast_p, scores
from reports.compare.outcomes import cell_states, failures, version_of
from reports.compare.properties import blind_spots, unrepeatable
from reports.compare.rows import compare, has_moved, significance
from reports.load.evidence import Evidence
from reports.model import Comparison, LatencySide, MemorySide
from reports.render.answers import answers
from reports.render.explanations import causes_by_row, explanations, unmoved
from reports.render.reproduce import with_scripts
from reports.text import ABSENT, effect_text, matrix_command, shape_text, tally_text


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One target on one workload in one environment, the baseline's included. `hot` and `backward`: as `Comparison`
    has them."""

    environment: str
    kind: str
    target: str
    workload: str
    device: str
    cold: LatencySide
    hot: LatencySide | None
    backward: LatencySide | None
    memory: MemorySide


class Report:
    """`count_missing`: see `kernelbench.scores`."""

    def __init__(self, evidence: Evidence, *, count_missing: bool = False) -> None:
        self.evidence = evidence
        self.rows = rows = compare(evidence)
        self.explanations = with_scripts(evidence, explanations(attribute(evidence, rows), evidence.names))
        self.by_row = causes_by_row(self.explanations)
        self.moved = sorted((row for row in rows if has_moved(row, unmoved(row, self.by_row))), key=significance)
        self.unrepeatable = unrepeatable(rows)
        self.blind_spots = blind_spots(evidence)
        self.versions = [version_of(evidence, name) for name in evidence.run.environments]
        self.confounders = confounders(evidence)
        self.answers = answers(evidence, self.versions, rows, self.explanations, self.confounders)
        self.cells = cell_states(evidence)
        self.fast_p = fast_p(evidence)
        self.kernelbench = scores(evidence, count_missing)
        self.identical_controls = controls_of(evidence)
        self.environment_items = environment_items(evidence)
        self.packages = package_answers(evidence, rows)
        self.compiled = compiled(evidence)
        self.builds = build_differences(evidence)
        self.failures = failures(evidence)
        self.correctness_counts = counts(row.correctness.verdict for row in rows)
        self.latency_counts, self.hot_counts, self.backward_counts = (
            counts(verdict for _, verdict in _of_mode(rows, mode)) for mode in (model.COLD, model.HOT, model.BACKWARD)
        )
        self.memory_counts = counts(row.memory.verdict for row in rows if not row.uncompared(row.memory))
        self.cards = cards(evidence)
        self.measuring = measuring(evidence)
        self.ran = what_ran(evidence, "cuda") or what_ran(evidence, "cpu")
        self.measured = measured(evidence, rows)
        self.matrix_command = matrix_command(evidence.run.command)

    @property
    def tallied(self) -> list[tuple[str, list[tuple[str, dict[str, int]]]]]:
        """Each aspect, and how many rows of kernels and of references came out how."""
        judged: dict[str, list[tuple[Comparison, str]]] = {
            "correctness": [(row, row.correctness.verdict) for row in self.rows],
            "latency": _of_mode(self.rows, model.COLD),
        }
        for mode in (model.HOT, model.BACKWARD):
            if any(mode in row.modes for row in self.rows):
                judged[f"{mode} latency"] = _of_mode(self.rows, mode)
        if self.has_memory:
            judged["memory"] = [(row, row.memory.verdict) for row in self.rows if not row.uncompared(row.memory)]
        kinds = {f"{row.kind}s": row.kind for row in self.rows}
        return [
            (aspect, [(name, found) for name, kind in kinds.items() if (found := _of_kind(rows, kind))])
            for aspect, rows in judged.items()
        ]

    @property
    def tallies(self) -> list[tuple[str, str]]:
        """The same in words."""
        return [
            (aspect, "; ".join(f"{name} {tally_text(found)}" for name, found in kinds) or self.no_tally)
            for aspect, kinds in self.tallied
        ]

    @property
    def shapes(self) -> dict[str, str]:
        """Each workload's, where it has one."""
        shown = {row.workload for row in self.rows}
        every = {info.id: shape_text(info) for info in self.evidence.run.workloads if info.id in shown}
        return {name: text for name, text in every.items() if text}

    @property
    def workloads_by_shape(self) -> dict[str, list[str]]:
        return {text: [name for name, own in self.shapes.items() if own == text] for text in self.shapes.values()}

    @property
    def has_hot(self) -> bool:
        return any(row.hot is not None for row in self.rows)

    @property
    def has_memory(self) -> bool:
        """Whether any target's memory was measured, which records from before that lack."""
        return any(side.peaks_bytes for row in self.rows for side in (row.memory.baseline, row.memory.this))

    @property
    def has_smallest_effect(self) -> bool:
        """Whether any time shows how small a change would have been detected."""
        return any(effect_text(each.smallest_effect) != ABSENT for row in self.rows for each in row.timed)

    @property
    def alone(self) -> bool:
        """Whether the baseline is the only environment."""
        return bool(self.rows) and all(row.alone for row in self.rows)

    @property
    def no_tally(self) -> str:
        """In place of a count of rows, where there are none."""
        return "nothing to compare with" if self.alone else "none"


def _of_mode(rows: Iterable[Comparison], mode: str) -> list[tuple[Comparison, str]]:
    timed = ((row, row.modes.get(mode)) for row in rows)
    return [(row, each.verdict) for row, each in timed if each is not None and not row.uncompared(each)]


def _of_kind(judged: Iterable[tuple[Comparison, str]], kind: str) -> dict[str, int]:
    return counts(verdict for row, verdict in judged if row.kind == kind)


def measured(evidence: Evidence, rows: list[Comparison]) -> list[Measured]:
    """Every target on every workload, then environments in the run's order."""
    found: dict[tuple[str, str, str, str, str], Measured] = {}
    targets: dict[tuple[str, str, str, str], int] = {}  # in the order in which they first appear
    for row in rows:
        targets.setdefault((row.kind, row.target, row.workload, row.device), len(targets))
        for name in ("baseline", "this"):
            cold: LatencySide = getattr(row.latency, name)
            each = Measured(
                environment=cold.environment,
                kind=row.kind,
                target=row.target,
                workload=row.workload,
                device=row.device,
                cold=cold,
                hot=getattr(row.hot, name) if row.hot is not None else None,
                backward=getattr(row.backward, name) if row.backward is not None else None,
                memory=getattr(row.memory, name),
            )
            found.setdefault((row.device, row.workload, row.kind, row.target, cold.environment), each)
    environments = evidence.run.environments
    workloads = {workload.id: number for number, workload in enumerate(evidence.run.workloads)}

    def place(each: Measured) -> tuple[str, int, int, int]:
        target = targets[each.kind, each.target, each.workload, each.device]
        return each.device, workloads[each.workload], target, environments.index(each.environment)

    return sorted(found.values(), key=place)


def counts(verdicts: Iterable[str]) -> dict[str, int]:
    found = Counter(verdicts)
    return {verdict: found[verdict] for verdict in model.VERDICTS if found[verdict]}
