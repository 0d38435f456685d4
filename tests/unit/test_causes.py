"""What trials follow, how sure a cause is, and the causes of made-up runs, row by row."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.attribute import explained
from reports.attribute.causes import STANDS_FOR, About, Cause, Grade, Kind, Rival, RuledOut, combined
from reports.attribute.finding import Shown, grade_of
from reports.attribute.trials import Follows, Trial, Varied, figures_effect, follows
from reports.attribute.wording import TEMPLATES
from reports.model import Seen
from tests.unit.cause_rows import CauseRow, rows, told
from tests.unit.synthetic import write_run

ROWS = rows()


def four(outcomes: Any) -> list[Trial]:
    """The baseline's level in both homes, then the other's."""
    places = product(("base", "this"), ("base", "this"))
    return [
        Trial(factor=Varied.CODE, level=level, home=home, outcome=outcome)
        for (level, home), outcome in zip(places, outcomes, strict=True)
    ]


@pytest.mark.parametrize(
    ("outcomes", "state"),
    [
        ("AABB", Follows.FACTOR),
        ("ABAB", Follows.PLACE),
        ("AAAA", Follows.NEITHER),
        ("AAAB", Follows.BOTH),
        ("ABBB", Follows.BOTH),
        ("ABBA", Follows.BOTH),
        ("ABCD", Follows.BOTH),
        (["A", None, "B", "B"], Follows.FACTOR),
        (["A", "A", None, "B"], Follows.FACTOR),
        (["A", "B", None, "B"], Follows.UNKNOWN),
        (["A", None, None, "B"], Follows.UNKNOWN),
        (["A", None, "A", "A"], Follows.NEITHER),
        ([None, "A", "A", "A"], Follows.UNKNOWN),
    ],
)
def test_what_four_trials_follow(outcomes: Any, state: Follows) -> None:
    assert follows(four(outcomes)) is state


@pytest.mark.parametrize(
    ("levels", "state"),
    [
        ({"zero": ["A"], "nan": ["B"]}, Follows.FACTOR),
        ({"zero": ["A"], "nan": ["A"], "max": ["A"]}, Follows.NEITHER),
        ({"zero": ["A", "B"], "nan": ["A"]}, Follows.CHANCE),
        ({"zero": ["A"]}, Follows.UNKNOWN),
        ({"zero": ["A"], "nan": [None]}, Follows.UNKNOWN),
    ],
)
def test_what_levels_in_one_home_are_followed(levels: dict[str, list[str | None]], state: Follows) -> None:
    trials = [
        Trial(factor=Varied.FILLING, level=level, home="trial 0", outcome=outcome)
        for level, outcomes in levels.items()
        for outcome in outcomes
    ]
    assert follows(trials) is state


@pytest.mark.parametrize(
    ("medians", "state"),
    [
        ((100, 100, 200, 200), Follows.FACTOR),
        ((100, 200, 100, 200), Follows.PLACE),
        ((100, 100, 100, 200), Follows.BOTH),
        ((100, 140, 145, 200), Follows.BOTH),
        ((100, 100, 100, 100), Follows.NEITHER),
        ((100, None, 200, 200), Follows.FACTOR),
    ],
)
def test_what_times_follow(medians: tuple[float | None, ...], state: Follows) -> None:
    launches = [None if us is None else [us, us * 1.001, us * 1.002] for us in medians]
    effect = figures_effect(launches[0] or (), launches[-1] or (), 0.01)
    assert follows(four(launches), effect) is state


@given(st.lists(st.sampled_from("ABC"), min_size=4, max_size=4))
def test_factor_and_home_are_told_apart_by_nothing_but_their_names(outcomes: list[str]) -> None:
    one, two, three, four_ = outcomes
    mirrored = {Follows.FACTOR: Follows.PLACE, Follows.PLACE: Follows.FACTOR}
    state = follows(four(outcomes))
    assert follows(four([one, three, two, four_])) is mirrored.get(state, state)


# -- how sure a cause is ----------------------------------------------------------------------------------


@given(st.sampled_from(Shown), st.lists(st.sampled_from(Rival)))
def test_only_a_factor_that_was_followed_with_no_rival_left_is_proven(shown: Shown, missing: list[Rival]) -> None:
    grade = grade_of(shown, missing)
    assert (grade is Grade.PROVEN) == (shown is Shown.FOLLOWED and not missing)
    assert (grade is Grade.UNDECIDED) == (shown is Shown.NOT)


def cause(kind: Kind, grade: Grade, rivals: list[Rival]) -> Cause:
    return Cause(
        cause=kind,
        grade=grade,
        about=About.CORRECTNESS,
        kernel="k",
        reference="",
        workloads=("w",),
        device="cpu",
        environment="e",
        baseline="b",
        statement="s",
        evidence=(Seen(text="t"),),
        ruled_out=tuple(RuledOut(rival=each, how="h") for each in rivals if kind not in STANDS_FOR[each]),
    )


CAUSES = st.builds(
    cause,
    st.sampled_from(Kind),
    st.sampled_from([Grade.PROVEN, Grade.LIKELY, Grade.POSSIBLE]),
    st.lists(st.sampled_from(Rival), unique=True),
)


@given(CAUSES, st.lists(CAUSES, max_size=4))
def test_no_card_names_and_rules_out_the_same(lead: Cause, parts: list[Cause]) -> None:
    made = combined(lead, *parts)
    assert not {kind for each in made.excluded for kind in each.causes} & set(made.causes)


def test_a_card_that_names_what_it_rules_out_is_refused() -> None:
    with pytest.raises(ValueError, match="names and rules out"):
        Cause(**{**vars(cause(Kind.RACE, Grade.LIKELY, [])), "ruled_out": (RuledOut(rival=Rival.CHANCE, how="h"),)})


# -- made-up runs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.topic}: {row.name}")
def test_a_run_gives_its_causes(row: CauseRow, tmp_path: Path) -> None:
    run = write_run(tmp_path, row.spec)
    row.experiments(run)
    found = explained(tmp_path)
    assert [told(each) for each in found] == row.gives
    assert row.says in " ".join(each.statement for each in found)
    for each in found:
        assert each.statement and each.evidence and each.next_command.startswith("nox -s ") and each.workloads
        cited = [seen.record for seen in each.evidence] + [figure.record for figure in each.figures]
        assert all((tmp_path / record).exists() for record in cited if record)
        assert all(len(entries) == len(figure.columns) for figure in each.figures for _, entries in figure.rows)
        if each.grade is Grade.PROVEN:
            assert not any(seen.text.startswith("not excluded") for seen in each.evidence)


def test_every_cause_has_a_row_that_leads_to_it() -> None:
    given = " ".join(text for row in ROWS for text in row.gives)
    elsewhere = {Kind.MEANING_CHANGED, Kind.ABI_BREAK, Kind.OPERATOR_MOVED, Kind.COMPILED_CODE_MOVED}
    assert {kind for kind in Kind if f"{kind.value} " not in given} <= elsewhere


def test_every_cause_has_a_name_and_a_sentence() -> None:
    assert all(kind.label for kind in Kind)
    assert {kind for kind in Kind if not (TEMPLATES / f"{kind}.j2").is_file()} == set()
