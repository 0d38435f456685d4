"""How often latency verdicts are wrong, and what they find: the shipped rules on launches whose truth is known.

    python -m benchmarks.verdicts [--pages 400] [--write benchmarks/verdicts.md]

A page is a table of rows by blocks: differences of log launch medians, this environment less the baseline. It is
judged by what judges a run, `harness.stats.effects` and `harness.stats.decide`; "default" is a run that goes on while
rows stay undecided, as `harness.run.extend` does. The noise is of `benchmarks.noises`: synthetic, with luck that rows
of a launch share and without, or of this repository's records.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.noises import RECORDED, SYNTHETIC, Table, drawn
from harness.stats import decide, effects
from reports.compare.correctness import pass_interval

PLANNED, MOST = 10, 40
CONFIDENCE, RATE = 0.95, 0.05


@dataclass(frozen=True, kw_only=True)
class Setting:
    """`launches`: None goes on as a run by default does. `effect` is of the first row alone."""

    noise: str
    rows: int
    launches: int | None
    shared: bool
    effect: float = 0.0

    @property
    def min_effect(self) -> float:
        return RECORDED.get(self.noise, 0.01)


@dataclass
class Count:
    pages: int = 0
    wrong: int = 0  # pages with any row called that did not move
    found: int = 0  # pages that called the one that did, and rightly
    rows: int = 0
    held: int = 0  # intervals that hold the truth
    held_of_page: list[float] = field(default_factory=list)  # as a share
    undecided: int = 0
    launches: list[int] = field(default_factory=list)

    def __add__(self, other: Count) -> Count:
        return Count(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))


def judge(table: Table, min_effect: float, looks: Sequence[int]) -> tuple[int, list[effects.Estimate], list[str]]:
    """(blocks used, estimates, verdicts): as a run, at one look after another."""
    rule = decide.DecisionRule(confidence=CONFIDENCE, rate=RATE, rows=len(table), looks=len(looks))
    for blocks in looks:
        estimates = effects.estimates(list(table[:, :blocks]), CONFIDENCE)
        q_values = decide.adjust([each.p_value for each in estimates], len(looks))
        verdicts = [decide.decide(each, q, min_effect, RATE) for each, q in zip(estimates, q_values, strict=True)]
        if not any(
            decide.goes_on(each, verdict, rule, min_effect, looks[-1])
            for each, verdict in zip(estimates, verdicts, strict=True)
        ):
            break
    return blocks, estimates, verdicts


def _holds(estimate: effects.Estimate) -> bool:
    return estimate.low is not None and estimate.high is not None and estimate.low <= 1 <= estimate.high


def simulate(setting: Setting, pages: int, seed: int = 0) -> Count:
    looks = decide.look_counts(PLANNED, MOST) if setting.launches is None else (setting.launches,)
    noise = drawn(setting.noise) if setting.noise in RECORDED else SYNTHETIC[setting.noise]
    count = Count()
    for page in range(pages):
        generator = np.random.default_rng([seed, page, looks[0], len(looks), setting.rows])
        table = noise(generator, setting.rows, looks[-1], setting.shared)
        table[0] += np.log1p(setting.effect)
        blocks, estimates, verdicts = judge(table, setting.min_effect, looks)
        still = list(zip(estimates, verdicts, strict=True))[1 if setting.effect else 0 :]
        count += Count(
            pages=1,
            wrong=any(verdict not in (decide.SAME, decide.UNDECIDED) for _, verdict in still),
            found=verdicts[0] == decide.SLOWER,
            rows=len(still),
            held=(held := sum(_holds(each) for each, _ in still)),
            held_of_page=[held / len(still)],
            undecided=sum(verdict == decide.UNDECIDED for _, verdict in still),
            launches=[blocks],
        )
    return count


# -- what is asked for, and the table -----------------------------------------------------------------------------

ROWS, LAUNCHES = (12, 24, 200), (5, 10, 20, 40, None)
BIMODAL = "0.9%, one launch in ten 8% slower"
Done = dict[Setting, Count]


def settings() -> Iterator[Setting]:
    for noise in SYNTHETIC:
        for rows in ROWS:
            for launches in LAUNCHES:
                for shared in (False, True):
                    yield Setting(noise=noise, rows=rows, launches=launches, shared=shared)
    for noise in RECORDED:
        for launches in LAUNCHES:
            yield Setting(noise=noise, rows=0, launches=launches, shared=True)
    for shared in (False, True):
        for rows in (24, 200):
            yield Setting(noise="0.9%", rows=rows, launches=None, shared=shared, effect=0.03)
            yield Setting(noise=BIMODAL, rows=rows, launches=None, shared=shared, effect=0.05)
        for rows in ROWS:
            for launches in (3, 4, 5, 6, 10):
                for noise in ("0.3%", "0.9%", "3%"):
                    yield Setting(noise=noise, rows=rows, launches=launches, shared=shared, effect=1.0)


def pages_of(setting: Setting, pages: int) -> int:
    """Fewer of large pages: they cost more, and have more intervals each."""
    return max(10, pages // 4) if setting.rows > 24 or setting.noise in RECORDED else pages


def share(count: int, of: int) -> str:
    low, high = pass_interval(count, of, 0.95)
    return f"{count / of:.1%} [{low:.1%}, {high:.1%}]"


def _worst(done: Done, rate: Callable[[Count], float]) -> str:
    setting, count = max(done.items(), key=lambda item: rate(item[1]))
    launches = "default" if setting.launches is None else f"{setting.launches} launches"
    rows = setting.rows or count.rows // count.pages
    return f"{rate(count):.1%} ({rows} rows, {launches}{', shared luck' if setting.shared else ''})"


def sentence(name: str, aim: str, measured: str, met: bool) -> str:
    return f"| {name} | {aim} | {measured} | {'met' if met else '**missed**'} |"


def lines(done: Done, command: str) -> Iterator[str]:
    """Markdown. An aim is met where what was measured meets it, in the worst of many settings but for chance."""
    yield f"Made by `{command}`; what it simulates, and how, is said at its top.\n"
    yield "| what | aim | measured, 95% interval | |\n|---|---|---|---|"
    found = {setting: count for setting, count in done.items() if setting.effect}
    for name, effect, noise, aim in (
        ("a lone +3% at 0.9%, default", 0.03, "0.9%", 0.95),
        ("a lone +5%, one launch in ten 8% slower, default", 0.05, BIMODAL, 0.9),
    ):
        for rows in (24, 200):
            mine = [c for s, c in found.items() if (s.effect, s.noise, s.rows) == (effect, noise, rows)]
            total = sum(mine, Count())
            met = total.found / total.pages >= aim
            yield sentence(f"{name}, {rows} rows", f"at least {aim:.0%}", share(total.found, total.pages), met)
    doubled = {setting: count for setting, count in found.items() if setting.effect == 1.0}
    for noise in ("0.3%", "0.9%", "3%"):
        mine = {s: c for s, c in doubled.items() if s.noise == noise}
        total = sum(mine.values(), Count())
        worst = _worst(mine, lambda count: 1 - count.found / count.pages)
        text = f"{share(total.found, total.pages)}; most missed {worst}"
        met = all(c.found / c.pages >= 0.95 for c in mine.values())
        yield sentence(f"a lone doubling at {noise}, 3 to 10 launches, 12 to 200 rows", "found (95%)", text, met)
    for noise, min_effect in RECORDED.items():
        count = done[Setting(noise=noise, rows=0, launches=None, shared=True)]
        ten = done[Setting(noise=noise, rows=0, launches=10, shared=True)]
        text = f"{count.undecided / count.rows:.1%}; {ten.undecided / ten.rows:.1%} after {PLANNED} launches; "
        text += f"{np.mean(count.launches):.0f} launches on average"
        met = count.undecided / count.rows <= 0.1
        yield sentence(f"undecided rows, noise of {noise}, default, {min_effect:.0%} counts", "at most 10%", text, met)
    yield "\nWhere nothing moved, over 12 to 200 rows (recorded noise: its own), 5 to 40 launches and the default:\n"
    yield (
        "| noise | pages with a wrong call (aim: 5%) | the worst setting | "
        "| intervals that hold the truth (aim: 93%) | the worst setting | |"
    )
    yield "|---|---|---|---|---|---|---|"
    yield from alarm_lines(done, (*SYNTHETIC, *RECORDED))


def alarm_lines(done: Done, noises: Sequence[str]) -> Iterator[str]:
    for noise in noises:
        mine = {s: c for s, c in done.items() if s.noise == noise and not s.effect}
        total = sum(mine.values(), Count())
        # Of many settings the worst is beyond its aim by chance: it counts where its whole interval is.
        alarms = total.wrong / total.pages <= 0.05 and all(
            pass_interval(c.wrong, c.pages, 1 - 0.05 / len(mine))[0] <= 0.05 for c in mine.values()
        )
        holds = total.held / total.rows >= 0.93 and all(_covers(c) for c in mine.values())
        yield (
            f"| {noise} | {share(total.wrong, total.pages)} | {_worst(mine, lambda c: c.wrong / c.pages)} | "
            f"{'met' if alarms else '**missed**'} | {total.held / total.rows:.1%} | "
            f"{_worst(mine, lambda c: 1 - c.held / c.rows).replace('%', '% do not', 1)} | "
            f"{'met' if holds else '**missed**'} |"
        )


def _covers(count: Count) -> bool:
    """Whether intervals hold the truth as often as they should, within two standard errors over pages."""
    error = float(np.std(count.held_of_page) / np.sqrt(count.pages))
    return count.held / count.rows + 2 * error >= 0.93


def _one(given: tuple[Setting, int]) -> tuple[Setting, Count]:
    return given[0], simulate(*given)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pages", type=int, default=400, help="of each setting; default 400")
    parser.add_argument("--write", type=Path, help="a file for the table, instead of printing it")
    options = parser.parse_args()
    asked = [(setting, pages_of(setting, options.pages)) for setting in settings()]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        done = dict(pool.map(_one, asked, chunksize=1))
    text = "\n".join(lines(done, f"python -m benchmarks.verdicts --pages {options.pages}")) + "\n"
    if options.write:
        options.write.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
