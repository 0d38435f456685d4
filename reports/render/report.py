"""The whole content of a report, as one value: the page, summary.json, summary.md and junit.xml render it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reports import model
from reports.attribute import attribute
from reports.compare.compiled import compiled
from reports.compare.differences import build_differences, confounders, environment_items
from reports.compare.gpus import cards, what_ran
from reports.compare.identical import controls_of
from reports.compare.kernelbench import scores
from reports.compare.outcomes import cell_states, failures, version_of
from reports.compare.properties import blind_spots, unrepeatable
from reports.compare.rows import REFERENCE, compare, has_moved, significance
from reports.load.evidence import Evidence
from reports.model import Comparison, LatencySide, MemorySide
from reports.render.answers import answers
from reports.render.explanations import causes_by_row, explanations, unmoved
from reports.render.reproduce import with_scripts
from reports.sentences import sentence
from reports.text import ABSENT, effect_text, matrix_command

Judged = list[tuple[Comparison, str]]  # rows, each with its verdict of one aspect


@dataclass(frozen=True, kw_only=True)
class TargetTimes:
    """What was measured in one environment, the baseline's included. `hot` and `backward`: as `Comparison` has them."""

    row: Comparison
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
        self.unrepeatable_references = unrepeatable([row for row in rows if row.kind == REFERENCE])
        self.blind_spots = blind_spots(evidence)
        self.versions = [version_of(evidence, name) for name in evidence.run.environments]
        self.confounders = confounders(evidence)
        self.answers = answers(evidence, self.versions, rows, self.explanations, self.confounders)
        self.cells = cell_states(evidence)
        self.kernelbench = scores(evidence, count_missing)
        self.identical_controls = controls_of(evidence)
        self.environment_items = environment_items(evidence)
        self.compiled = compiled(evidence)
        self.builds = build_differences(evidence)
        self.failures = failures(evidence)
        self.judged = judge_aspects(rows)
        self.counts = {aspect: _counts(verdict for _, verdict in judged) for aspect, judged in self.judged.items()}
        self.cards = cards(evidence)
        self.ran = what_ran(evidence, "cuda") or what_ran(evidence, "cpu")
        self.measured = list_times(evidence, rows)
        self.matrix_command = matrix_command(evidence.run.command)

    @property
    def tallied(self) -> list[tuple[str, list[tuple[str, dict[str, int]]]]]:
        """Each aspect that was measured, and how many rows of each kind came out how."""
        kinds = dict.fromkeys(row.kind for row in self.rows)
        shown = {"correctness", "latency", *(["memory"] if self.has_memory else [])}
        shown |= {f"{mode}_latency" for row in self.rows for mode in row.modes}
        found = []
        for aspect in [aspect for aspect in self.judged if aspect in shown]:
            own = [
                (kind, _counts(verdict for row, verdict in self.judged[aspect] if row.kind == kind)) for kind in kinds
            ]
            found.append((aspect.replace("_", " "), [(f"{kind}s", counts) for kind, counts in own if counts]))
        return found

    @property
    def shapes(self) -> dict[str, str]:
        """Each workload's, where it has one."""
        shown = {row.workload for row in self.rows}
        every = {
            info.id: sentence("numbers", "shape", info) for info in self.evidence.run.workloads if info.id in shown
        }
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


def judge_aspects(rows: Sequence[Comparison]) -> dict[str, Judged]:
    """Return the rows that have a verdict of each aspect, with that verdict."""
    found: dict[str, Judged] = {"correctness": [(row, row.correctness.verdict) for row in rows]}
    for mode in (model.COLD, model.HOT, model.BACKWARD):
        timed = [(row, row.modes[mode]) for row in rows if mode in row.modes]
        name = "latency" if mode == model.COLD else f"{mode}_latency"
        found[name] = [(row, each.verdict) for row, each in timed if not row.uncompared(each)]
    found["memory"] = [(row, row.memory.verdict) for row in rows if not row.uncompared(row.memory)]
    return found


def _counts(verdicts: Iterable[str]) -> dict[str, int]:
    """Count verdicts, the worst first."""
    found = Counter(verdicts)
    return {verdict: found[verdict] for verdict in model.VERDICTS if found[verdict]}


def list_times(evidence: Evidence, rows: Sequence[Comparison]) -> list[TargetTimes]:
    """Return every target on every workload, then environments in the run's order."""
    found: dict[tuple[str, str, str, str, str], TargetTimes] = {}
    for row in rows:
        for name in ("baseline", "this"):
            cold, hot, backward = (getattr(timed, name, None) for timed in (row.latency, row.hot, row.backward))
            assert cold is not None
            memory = getattr(row.memory, name)
            times = TargetTimes(row=row, cold=cold, hot=hot, backward=backward, memory=memory)
            found.setdefault((row.device, row.workload, row.kind, row.target, cold.environment), times)
    workloads = [workload.id for workload in evidence.run.workloads]
    targets = list(dict.fromkeys(key[:4] for key in found))  # in the order in which they first appear
    order = {key: number for number, key in enumerate(targets)}
    environments = evidence.run.environments

    def place(key: tuple[str, str, str, str, str]) -> tuple[str, int, int, int]:
        return key[0], workloads.index(key[1]), order[key[:4]], environments.index(key[4])

    return [found[key] for key in sorted(found, key=place)]
