"""Which settings are tried next: Optuna's tree-structured Parzen estimator (Bergstra and others, NeurIPS 2011).

`ask` is a pure function of what is known. The study is made anew from the records each time, so that nothing but
they must survive a kill, and a sweep that goes on asks what it would have asked.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping, Sequence

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

from harness.config.kernels import Setting
from harness.search.sweep.space import all_settings, key_of

Search = Mapping[str, Sequence[int | str]]
PATIENCE = 20  # settings known already that the sampler may name, for each that it is asked for


Known = tuple[Setting, float | None]  # a setting that was tried, and its score; None where it was rejected


def ask(search: Search, known: Sequence[Known], count: int, seed: int) -> list[Setting]:
    """Up to `count` settings that are not known yet; fewer where fewer are left, none where all were tried."""
    tried = {key_of(setting): score for setting, score in known}
    left = [setting for setting in all_settings(search) if key_of(setting) not in tried]
    if len(left) <= count:
        return left
    study, spread = _study(search, known, seed), distributions(search)
    asked: dict[object, Setting] = {}
    for _ in range(count * PATIENCE):
        trial = study.ask(spread)
        setting = {name: _ranked(search, name)[trial.params.get(name, 0)] for name in search}
        key = key_of(setting)
        if key in tried:
            study.tell(trial, tried[key], state=_state(tried[key]))
        elif key not in asked:
            asked[key] = setting
        if len(asked) == count:
            break
    others = [setting for setting in left if key_of(setting) not in asked]
    asked |= {key_of(each): each for each in random.Random(seed).sample(others, count - len(asked))}
    return list(asked.values())


def distributions(search: Search) -> dict[str, BaseDistribution]:
    """Numbers are searched by their place in the list, so that the sampler knows which are neighbours."""
    found: dict[str, BaseDistribution] = {}
    for name, values in search.items():
        if len(values) > 1:
            ordered = all(isinstance(value, int) for value in values)
            places = len(values)
            found[name] = IntDistribution(0, places - 1) if ordered else CategoricalDistribution(tuple(range(places)))
    return found


def _ranked(search: Search, name: str) -> list[int | str]:
    values = list(search[name])
    return sorted(values, key=lambda value: (isinstance(value, str), value))


def _state(score: float | None) -> TrialState:
    return TrialState.PRUNED if score is None else TrialState.COMPLETE  # the sampler keeps away from pruned


def _study(search: Search, known: Sequence[Known], seed: int) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # `multivariate`, `constant_liar`
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)
    study = optuna.create_study(sampler=sampler)
    spread = distributions(search)
    for setting, score in known:
        params = {name: _ranked(search, name).index(setting[name]) for name in spread}
        study.add_trial(create_trial(state=_state(score), value=score, params=params, distributions=spread))
    return study
