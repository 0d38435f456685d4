"""Which settings are asked for: each once, the same ones from the same records, and the good ones soon."""

from __future__ import annotations

import pytest

from harness.config.kernels import Setting
from harness.search.sweep.sampler import Known, ask, distributions
from harness.search.sweep.space import all_settings, key_of

SEARCH = {"A": [64, 16, 32], "B": ["x", "y"], "C": [1, 2, 4], "D": [7]}
FIRST: Setting = {"A": 32, "B": "x", "C": 1, "D": 7}


def test_every_setting_is_asked_for_once_and_then_none() -> None:
    known: list[Known] = [(FIRST, 1.0)]
    batches = []
    for number in range(20):
        batch = ask(SEARCH, known, 4, number)
        if not batch:
            break
        batches.append(batch)
        known += [(setting, 1.0 if i else None) for i, setting in enumerate(batch)]
    assert [len(batch) for batch in batches] == [4, 4, 4, 4, 1]
    assert {key_of(setting) for setting, _ in known} == {key_of(setting) for setting in all_settings(SEARCH)}


def test_the_same_records_ask_for_the_same_settings() -> None:
    known = [(setting, float(i)) for i, setting in enumerate(list(all_settings(SEARCH))[:6], 1)]
    assert ask(SEARCH, known, 4, 3) == ask(SEARCH, known, 4, 3)
    assert ask(SEARCH, known, 4, 3) != ask(SEARCH, known, 4, 4)


def test_it_learns_what_is_rejected_and_where_the_best_are() -> None:
    """Half of the settings are wrong, and it asks for fewer of them than chance would; it finds the best of 200."""
    search = {"FAULT": ["none", "wrong"], "A": list(range(10)), "B": list(range(10))}
    late: list[Known] = []
    for seed in (0, 1000, 2000):
        known: list[Known] = [({"FAULT": "none", "A": 5, "B": 5}, 2.0)]
        for number in range(8):
            for setting in ask(search, known, 4, seed + number):
                score = 1.0 + abs(int(setting["A"]) - 2) / 5 + abs(int(setting["B"]) - 7) / 5
                known.append((setting, None if setting["FAULT"] == "wrong" else score))
        assert min(score for _, score in known if score) <= 1.2, "as good are 5 of 100"
        late += known[17:]
    assert sum(score is None for _, score in late) < 0.45 * len(late)


def test_numbers_are_neighbours_by_size_and_words_are_not() -> None:
    spread = distributions(SEARCH)
    assert {name: type(each).__name__ for name, each in spread.items()} == {
        "A": "IntDistribution",
        "B": "CategoricalDistribution",
        "C": "IntDistribution",
    }, "D has one value: there is nothing to choose"


def test_a_mixed_list_is_a_list_of_words() -> None:
    assert type(distributions({"A": [1, "auto"]})["A"]).__name__ == "CategoricalDistribution"
    assert sorted(map(str, (setting["A"] for setting in ask({"A": [1, "auto"]}, [], 2, 0)))) == ["1", "auto"]


@pytest.mark.parametrize("count", [1, 3])
def test_a_batch_is_as_large_as_asked(count: int) -> None:
    batch = ask(SEARCH, [(FIRST, 1.0)], count, 0)
    assert len(batch) == count == len(set(map(key_of, batch)))
