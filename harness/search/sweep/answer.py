"""What follows from what was measured: the verdict, one sentence, and the next command. Pure, but for what prints."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence

from harness.config.kernels import Setting
from harness.schema.experiment_records import Stage
from harness.schema.sweep_records import Confirmation, SweepQuestion, SweepRecord, Trial, Verdict
from harness.search.loop import print_rows, without_option
from harness.search.sweep.measure import by_score
from harness.typed import typed_by_nox, words_of

SHOWN = 10
STAGE_WORDS: dict[Stage, str] = {
    "build": "did not compile",
    "correctness": "not correct everywhere",
    "repeat": "not bit-repeatable",
    "poison": "not clean under poison",
    "time": "no time",
}


def setting_text(setting: Setting) -> str:
    return " ".join(f"{name}={value}" for name, value in setting.items())


def change_text(ratio: float) -> str:
    """A ratio of times as a person says it: 4.2% faster."""
    return f"{abs(1 - ratio):.1%} {'faster' if ratio < 1 else 'slower'}"


def rejected_text(trials: Sequence[Trial]) -> str:
    """`3 did not compile, 1 not clean under poison`; '' where none was rejected."""
    counts: Counter[Stage] = Counter(trial.stage for trial in trials if trial.stage)
    return ", ".join(f"{counts[stage]} {words}" for stage, words in STAGE_WORDS.items() if counts[stage])


def verdict_of(finals: Sequence[Trial], confirmation: Confirmation | None) -> Verdict:
    if confirmation is not None:
        return "confirmed" if confirmation.confirmed else "not_confirmed"
    return "none_faster" if by_score(finals) else "none_admitted"


def answer(
    question: SweepQuestion, trials: Sequence[Trial], verdict: Verdict, confirmation: Confirmation | None
) -> str:
    stays = f"{setting_text(question.incumbent)} stays"
    tried = f"{len(trials)} of {question.settings - 1} other settings tried"
    if verdict == "none_admitted":
        return f"{stays}: none that was tried could be timed ({tried})."
    if confirmation is None:
        return f"{stays}: nothing was faster when the best of the search were measured again ({tried})."
    winner = setting_text(confirmation.trial.setting)
    if verdict == "not_confirmed":
        return f"{stays}: {winner} looked fastest, and is not confirmed: {confirmation.why} ({tried})."
    ratio = confirmation.trial.score
    assert ratio is not None
    return f"{winner} is {change_text(ratio)} than the incumbent, confirmed in every environment ({tried})."


def next_command(
    command: Sequence[str], verdict: Verdict, budget_s: float, *, exhausted: bool, run: str, written: bool
) -> str:
    """Write what is confirmed; else search on, where anything is left to search; else look at the records."""
    if verdict == "confirmed" and not written:
        return shlex.join([*command, "--write"])
    if verdict == "confirmed":
        return shlex.join(words_of("matrix", nox=typed_by_nox(command)))
    if exhausted:
        return shlex.join(words_of("report", f"reports/runs/{run}", nox=typed_by_nox(command)))
    kept = without_option(command, "--budget")
    return shlex.join([*(word for word in kept if word != "--write"), f"--budget={2 * budget_s:g}s"])


def print_question(question: SweepQuestion) -> None:
    values = "; ".join(f"{name} {', '.join(map(str, each))}" for name, each in question.search.items())
    print(f"{question.kernel} on {', '.join(question.workloads)} ({question.device}): {question.settings} settings")
    print(f"values: {values}")
    print(f"incumbent: {setting_text(question.incumbent)}")
    print(f"environments: {', '.join(question.environments)}")
    print("minimised: time over the incumbent's in the same blocks, geometric mean of environments and workloads")


def print_table(record: SweepRecord) -> None:
    """The best of the search, then the answer."""
    trials = [trial for batch in record.batches for trial in batch.trials]
    finals = {trial.kernel: trial for trial in record.finals}
    rows = []
    for place, trial in enumerate(by_score(trials)[:SHOWN], 1):
        again = finals[trial.kernel].score if trial.kernel in finals else None
        rows.append((str(place), setting_text(trial.setting), f"{trial.score:.3f}", f"{again:.3f}" if again else ""))
    print_rows(("", "setting", "search", "again"), rows)
    print("times over the incumbent's, geometric mean over every environment and workload")
    rejected = rejected_text(trials)
    print(f"{len(trials)} settings tried, {record.spent_s:.0f} s" + (f"; rejected: {rejected}" if rejected else ""))
    print(f"next: {record.next_command}")
