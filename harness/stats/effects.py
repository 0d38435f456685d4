"""Launch medians of two environments in, ratio, interval and test out: what the report prints, and what decides whether
a run goes on (`harness.stats.decide`). Pure.

One launch's median is one replicate, and environments are compared within a block: a row is the differences of log
medians, one of each block. What a block's moment did to both sides cancels, whatever drifts.

Interval: of 8 blocks and more by the biweight, a mean that gives what lies far from the bulk no weight, with
0.7 (n - 1) degrees of freedom (Mosteller and Tukey, "Data Analysis and Regression", 1977, chapter 10; Kafadar, JASA 77,
1982): of slow launches on one side alone it stays where most launches are. Of fewer, by Student's t.
Test: Student's t of the mean without its largest and smallest tenth (Tukey and McLaughlin, Sankhya 25, 1963). Unlike
ranks, it reaches any level with any number of blocks. With few, the scatter of one row is hardly known: it is taken to
be at least what all rows of the page together say of it (Smyth, Stat. Appl. Genet. Mol. Biol. 3, 2004). That counts as
further blocks, the more of them the more alike the rows are; as half of what it is worth there, for rows of one page
need not be of one kind.

`python -m benchmarks.verdicts` measures what this finds and how often it is wrong: benchmarks/verdicts.md.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

BIWEIGHT_BLOCKS = 8  # fewer say too little of what is far from the bulk
CUT = 7.0  # median absolute deviations from the centre, beyond which a block has no weight
BIWEIGHT_FREEDOM = 0.7
TRIMMED = 0.1
RESOLUTION = 1e-6  # of log medians: spreads below are the clock's
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Ratio of this environment to the baseline over `blocks` blocks; None where one block alone says nothing.
    `error` is the standard error of its logarithm that the test uses, with `freedom`; `spread` is the standard
    deviation of a launch's log median, as the differences within blocks show it."""

    blocks: int
    ratio: float
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    error: float | None = None
    freedom: float | None = None
    spread: float | None = None


def _biweight(differences: Floats, narrowest: Floats) -> tuple[Floats, Floats]:
    """Centre and its standard error, by row. Nothing within `narrowest` of the centre loses all of its weight."""
    centre = np.median(differences, axis=1, keepdims=True)
    cut = np.maximum(CUT * np.median(np.abs(differences - centre), axis=1), narrowest)[:, None]
    for _ in range(10):
        weights = np.maximum(1 - ((differences - centre) / cut) ** 2, 0) ** 2
        centre = (weights * differences).sum(axis=1, keepdims=True) / weights.sum(axis=1, keepdims=True)
    distance = ((differences - centre) / cut) ** 2
    inside = np.maximum(1 - distance, 0)
    slope = np.abs(np.where(distance < 1, inside * (1 - 5 * distance), 0).sum(axis=1))
    squares = ((differences - centre) ** 2 * inside**4).sum(axis=1)
    error = np.sqrt(squares / np.maximum(slope * np.maximum(1, slope - 1), 1e-12))
    return centre[:, 0], error


def _trimmed(differences: Floats) -> tuple[Floats, Floats, int]:
    """Mean without the tails, its variance times the number of blocks, and the variance's degrees of freedom."""
    blocks = differences.shape[1]
    cut = int(TRIMMED * blocks)
    kept = blocks - 2 * cut
    ordered = np.sort(differences, axis=1)
    drawn_in = np.clip(ordered, ordered[:, [cut]], ordered[:, [blocks - 1 - cut]])
    variance = drawn_in.var(axis=1, ddof=1) * (blocks - 1) * blocks / (kept * (kept - 1))
    return ordered[:, cut : blocks - cut].mean(axis=1), np.maximum(variance, RESOLUTION**2), kept - 1


def _inverse_trigamma(value: float) -> float:
    """Newton's method, as in Smyth (2004), appendix."""
    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(special.polygamma(1, x))
        step = trigamma * (1 - trigamma / value) / float(special.polygamma(2, x))
        x += step
        if -step / x < 1e-8:
            break
    return x


def page_variance(variances: Floats, freedom: Floats) -> tuple[float, float]:
    """What all rows say of a row's variance, and the degrees of freedom that it is worth: Smyth (2004), section 6.2."""
    if len(variances) < 2:
        return 0.0, 0.0
    half = freedom / 2
    logs = np.log(variances) - special.digamma(half) + np.log(half)
    centre = float(logs.mean())
    excess = float(logs.var(ddof=1) - special.polygamma(1, half).mean())
    if excess <= 0:
        return math.exp(centre), math.inf
    worth = _inverse_trigamma(excess)
    return math.exp(centre + float(special.digamma(worth)) - math.log(worth)), 2 * worth


def _steadied(variances: Floats, freedom: Floats) -> tuple[Floats, Floats]:
    """Variances of at least what the page says of each, and their degrees of freedom: never more than all rows have."""
    prior, worth = page_variance(variances, freedom)
    if math.isinf(worth):
        shrunk = np.full_like(variances, prior)
    else:
        shrunk = (worth * prior + freedom * variances) / (worth + freedom)
    return np.maximum(variances, shrunk), np.minimum(freedom + worth / 2, freedom.sum())


def estimates(rows: Sequence[Floats], confidence: float) -> list[Estimate]:
    """Of all rows of a page together, each its differences of log medians, this less the baseline, by block."""
    shapes: dict[int, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        shapes[len(row)].append(index)
    by_row = {index: Estimate(blocks=1, ratio=math.exp(float(rows[index][0]))) for index in shapes.pop(1, [])}
    order = [index for indices in shapes.values() for index in indices]
    tables = {blocks: np.stack([rows[index] for index in indices]) for blocks, indices in shapes.items()}
    trimmed = [_trimmed(table) for table in tables.values()]
    if not trimmed:
        return [by_row[index] for index in range(len(rows))]
    means = np.concatenate([mean for mean, _, _ in trimmed])
    freedom = np.concatenate([np.full(len(mean), float(own)) for mean, _, own in trimmed])
    variances, freedom = _steadied(np.concatenate([variance for _, variance, _ in trimmed]), freedom)
    blocks_of = np.array([len(rows[index]) for index in order])
    errors = np.sqrt(variances / blocks_of)
    p_values: Floats = 2 * np.asarray(stats.t.sf(np.abs(means) / errors, freedom))
    centres = means.copy()
    halves: Floats = np.asarray(stats.t.ppf(0.5 + confidence / 2, freedom)) * errors
    start = 0
    for blocks, table in tables.items():
        here, start = slice(start, start + len(table)), start + len(table)
        if blocks >= BIWEIGHT_BLOCKS:
            centres[here], error = _biweight(table, np.sqrt(variances[here]))
            halves[here] = float(stats.t.ppf(0.5 + confidence / 2, BIWEIGHT_FREEDOM * (blocks - 1))) * error
    for place, index in enumerate(order):
        by_row[index] = Estimate(
            blocks=len(rows[index]),
            ratio=math.exp(centres[place]),
            low=math.exp(centres[place] - halves[place]),
            high=math.exp(centres[place] + halves[place]),
            p_value=float(p_values[place]),
            error=float(errors[place]),
            freedom=float(freedom[place]),
            spread=math.sqrt(variances[place] / 2),
        )
    return [by_row[index] for index in range(len(rows))]


def compare_launches(pairs: Sequence[tuple[Sequence[float], Sequence[float]]], confidence: float) -> list[Estimate]:
    """Estimates for (baseline medians, this environment's medians) of the same blocks, each of at least one."""
    return estimates([np.log(np.asarray(this)) - np.log(np.asarray(base)) for base, this in pairs], confidence)
