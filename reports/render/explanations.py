"""Causes as a reader meets them: one explanation for all subjects with the same cause. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from reports.attribute.causes import BAD, GOOD, GRADES, About, Cause, Entry, Figure, Kind, order
from reports.compare.rows import KERNEL
from reports.load.groups import grouped
from reports.model import Comparison
from reports.text import count_of


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """`lead` is shown in full; `others` are the same cause for other subjects; `under` are kernels whose agreement
    with the reference moved with it. `script`: the file that reproduces it without this project, where there is one."""

    number: int
    lead: Cause
    others: list[Cause] = field(default_factory=list)
    under: list[Cause] = field(default_factory=list)
    script: str = ""

    @property
    def causes(self) -> list[Cause]:
        return [self.lead, *self.others, *self.under]

    @property
    def subjects(self) -> list[str]:
        return list(dict.fromkeys(cause.subject for cause in (self.lead, *self.others)))

    @property
    def under_it(self) -> list[str]:
        """What is to say of the kernels whose agreement moved with it."""
        return list(dict.fromkeys(cause.statement for cause in self.under))

    @property
    def workloads(self) -> list[str]:
        return list(dict.fromkeys(name for cause in self.causes for name in cause.workloads))

    @property
    def environments(self) -> list[str]:
        return list(dict.fromkeys(cause.environment for cause in self.causes))

    @property
    def rows(self) -> list[str]:
        return list(dict.fromkeys(row for cause in self.causes for row in cause.rows))

    @property
    def records(self) -> list[str]:
        """The records to check it by, in the order in which they are cited."""
        every = (self.lead, *self.lead.parts)
        cited = [drawn.record for cause in every for drawn in cause.figures]
        cited += [seen.record for cause in every for seen in cause.evidence]
        cited += [each.record for cause in every for each in cause.ruled_out]
        return list(dict.fromkeys(record for record in cited if record))


def explanations(causes: Sequence[Cause], names: Mapping[str, str] | None = None) -> list[Explanation]:
    """In the order of the causes. `names`: of environments, by default their ids."""
    found: dict[tuple[str, ...], Explanation] = {}
    for cause in causes:
        known = found.get(cause.group_key)
        if known is None:
            found[cause.group_key] = Explanation(number=0, lead=cause)
        else:
            known.others.append(cause)
    folded = [_best_first(each, names or {}) for each in _fold(list(found.values()))]
    return [replace(each, number=number) for number, each in enumerate(sorted(folded, key=_order), 1)]


def _order(explanation: Explanation) -> tuple[object, ...]:
    """Of causes that rank alike, the one with more rows first."""
    return *order(explanation.lead), -len(explanation.rows)


def _best_first(explanation: Explanation, names: Mapping[str, str]) -> Explanation:
    """The one with the highest grade leads, with the evidence of all; what it says of one version, it says of all."""
    grades = list(GRADES)
    lead, *others = sorted((explanation.lead, *explanation.others), key=lambda cause: grades.index(cause.grade))
    if others:
        references = ", ".join(dict.fromkeys(cause.reference for cause in (lead, *others)))
        lead = lead.retold(_versions([lead, *others], names), references)
        evidence = dict.fromkeys([*lead.evidence, *(cause.evidence[0] for cause in others if cause.evidence)])
        lead = replace(lead, evidence=tuple(evidence))
    return replace(explanation, lead=lead, others=others)


def _versions(causes: Iterable[Cause], names: Mapping[str, str]) -> str:
    return " and ".join(dict.fromkeys(names.get(cause.environment, cause.environment) for cause in causes))


MOST_ROWS = 10
MOST_BAD_ROWS = 16
Row = tuple[str, tuple[Entry, ...]]


def rows_shown(figure: Figure) -> tuple[list[Row], str]:
    """Its first rows, with those that are bad first of all, and a word on those that are left out."""
    is_bad = [any(entry.state == BAD for entry in row[1]) for row in figure.rows]
    bad = [number for number, found in enumerate(is_bad) if found]
    rest = [number for number, found in enumerate(is_bad) if not found]
    shown = sorted([*bad[:MOST_BAD_ROWS], *rest[: max(0, MOST_ROWS - len(bad))]])
    left = [row for number, row in enumerate(figure.rows) if number not in shown]
    if not left:
        return list(figure.rows), ""
    rates = all(row[1] and row[1][0].state == GOOD and "/" in row[1][0].text for row in left)
    what = ", all within tolerance" if rates else ""
    return [figure.rows[number] for number in shown], f"{count_of(len(left), 'more row')}{what}, in summary.json"


def _fold(found: list[Explanation]) -> list[Explanation]:
    """A kernel whose agreement moved because a reference did goes with the reference's explanation, if there is one."""
    own = [each for each in found if each.lead.is_reference]
    kept = []
    for each in found:
        lead = each.lead
        home = None
        rivals = all(part.under and part.not_excluded for part in lead.parts)  # the reference's card names them, too
        if lead.kernel and rivals and lead.cause in (Kind.REFERENCE_MOVED, Kind.DEFAULT_BACKEND_MOVED):
            home = next((other for other in own if _same_cause(other, each)), None)
        if home is None:
            kept.append(each)
        else:
            home.under.extend(each.causes)
    return kept


def _same_cause(own: Explanation, under: Explanation) -> bool:
    return (
        own.lead.about == About.CORRECTNESS
        and own.lead.cause == under.lead.cause
        and own.lead.device == under.lead.device
        and any(reference in under.lead.under for reference in own.subjects)
        and bool(set(own.environments) & set(under.environments))
    )


def causes_by_row(explained: Sequence[Explanation]) -> dict[str, list[tuple[Explanation, Cause]]]:
    """Return of every comparison the explanations that it belongs to."""
    return grouped((row, (each, cause)) for each in explained for cause in each.causes for row in cause.rows)


def unmoved(row: Comparison, by_row: dict[str, list[tuple[Explanation, Cause]]]) -> bool:
    """A kernel that did not change under a reference that did."""
    return row.kind == KERNEL and any(cause.cause == Kind.REFERENCE_MOVED for _, cause in by_row.get(row.id, []))
