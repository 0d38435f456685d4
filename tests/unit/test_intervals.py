"""Intervals of pass rates and medians against simulated launches and published values."""

import numpy as np
import pytest

from reports.compare.correctness import pass_interval
from reports.compare.latency import median_interval


def test_published_pass_intervals() -> None:
    # "Rule of three" upper bound, exactly: 1 - 0.025 ** (1 / 100).
    assert pass_interval(0, 100, 0.95) == (0.0, pytest.approx(1 - 0.025**0.01))
    assert pass_interval(100, 100, 0.95)[1] == 1.0


def test_the_interval_of_a_median_holds_its_confidence_and_is_absent_where_none_exists() -> None:
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0], 0.95) == (None, None)
    assert median_interval([6.0, 1.0, 2.0, 3.0, 4.0, 5.0], 0.95) == (1.0, 6.0)
    assert median_interval(list(map(float, range(1, 11))), 0.95) == (2.0, 9.0)
    generator = np.random.default_rng(3)
    intervals = [median_interval(list(generator.lognormal(size=10)), 0.95) for _ in range(4000)]
    held = np.mean([low <= 1.0 <= high for low, high in intervals])  # type: ignore[misc]
    assert 0.97 <= held <= 0.99  # exactly 1 - 2 * 11 / 1024
