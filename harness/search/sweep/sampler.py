"""Which settings are tried next: Optuna's tree-structured Parzen estimator (Bergstra and others, NeurIPS 2011).

`ask` is a pure function of what is known. The study is made anew from the records each time, so that nothing but
they must survive a kill, and a sweep that goes on asks what it would have asked.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import Trial, TrialState, create_trial

from harness.config.kernels import Setting
from harness.search.sweep.space import all_settings, key_of

Search = Mapping[str, Sequence[int | str]]
PATIENCE = 20  # settings known already that the sampler may name, for each that it is asked for


@dataclass(frozen=True, kw_only=True)
class Known:
    """A setting that was tried; `score` is None where it was rejected."""

    setting: Setting
    score: float | None


def ask(search: Search, known: Sequence[Known], count: int, seed: int) -> list[Setting]:
    """Up to `count` settings that are not known yet; fewer where fewer are left, none where all were tried."""
    tried = {key_of(each.setting): each for each in known}
    left = [setting for setting in all_settings(search) if key_of(setting) not in tried]
    if len(left) <= count:
        return left
    study, spread = _study(search, known, seed), distributions(search)
    asked: dict[object, Setting] = {}
    for _ in range(count * PATIENCE):
        trial = study.ask(spread)
        setting = _decode(search, trial.params)
        key = key_of(setting)
        if key in tried:
            _tell(study, trial, tried[key])
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


def _decode(search: Search, places: Mapping[str, int]) -> Setting:
    return {name: _ranked(search, name)[places.get(name, 0)] for name in search}


def _encode(search: Search, setting: Setting) -> dict[str, int]:
    return {name: _ranked(search, name).index(setting[name]) for name in distributions(search)}


def _study(search: Search, known: Sequence[Known], seed: int) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # `multivariate`, `constant_liar`
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)
    study = optuna.create_study(sampler=sampler)
    spread = distributions(search)
    for each in known:
        state = TrialState.PRUNED if each.score is None else TrialState.COMPLETE  # the sampler keeps away from pruned
        params = _encode(search, each.setting)
        study.add_trial(create_trial(state=state, value=each.score, params=params, distributions=spread))
    return study


def _tell(study: optuna.Study, trial: Trial, known: Known) -> None:
    state = TrialState.PRUNED if known.score is None else TrialState.COMPLETE
    study.tell(trial, known.score, state=state)
