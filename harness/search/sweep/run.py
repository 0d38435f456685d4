"""The workflow of a sweep: settings in batches until the budget is used, the best of them again, the winner confirmed.

Each step is an ordinary run of the incumbent and some settings, in every environment of the matrix:
`harness.run.workflow` builds them side by side, refuses those that are not right, repeatable and clean
(`harness.experiments.admission`), and launches the others beside the incumbent, one launch at a time. A run that was
made is found, and one that was interrupted goes on; a batch's record is written once it is done.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.cli.progress import printable
from harness.config.matrix import Matrix, Setting
from harness.errors import InfrastructureError, InputError
from harness.experiments.admission import records_of, refusals, untried
from harness.run.folders import now_utc
from harness.run.prepare import Options
from harness.run.workflow import run_matrix
from harness.schema.storage import Run, load_record, save_record
from harness.schema.sweep_records import BatchRecord, Confirmation, SweepQuestion, SweepRecord, Trial
from harness.search.sweep import answer
from harness.search.sweep.measure import by_score, confirm, times_of, trial_of
from harness.search.sweep.sampler import Known, ask
from harness.search.sweep.space import Phase, Subject, derived_matrix, selection_of, variant
from harness.worker import protocol


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The command's options."""

    subject: Subject
    options: Options
    budget_s: float


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One run, and what it says of each setting."""

    run: Run
    trials: list[Trial]
    untried: list[str]


@dataclass
class Sweep:
    """One sweep: its folder, its question, and what is recorded of it."""

    asked: Asked
    matrix: Matrix
    folder: Path
    question: SweepQuestion
    batches: list[BatchRecord] = field(default_factory=list)

    def batch_path(self, number: int) -> Path:
        return self.folder / "batches" / f"{number:03d}.json"

    def recall(self) -> None:
        while self.batch_path(len(self.batches)).exists():
            self.batches.append(load_record(self.batch_path(len(self.batches)), BatchRecord))

    @property
    def trials(self) -> list[Trial]:
        return [trial for batch in self.batches for trial in batch.trials]

    @property
    def spent_s(self) -> float:
        return sum(batch.duration_s for batch in self.batches)

    # -- measuring ----------------------------------------------------------------------------------------------

    def measure(self, settings: Sequence[Setting], phase: Phase) -> Measured:
        """The incumbent and these settings in one run. HarnessError where that tells nothing of them."""
        kernel = self.asked.subject.kernel
        derived = derived_matrix(self.matrix, self.asked.subject, settings, phase)
        options = replace(self.asked.options, derived=derived, explain=False, admit=True)
        run, _ = run_matrix(options, selection_of(self.asked.subject))
        for environment in run.environments():
            if environment.status != protocol.OK:
                raise InfrastructureError(
                    f"{environment.id}: {environment.message}",
                    "a setting must be right in every environment: mend it; the same command then goes on from here",
                )
        cells, launches = run.load().cells, run.launches()
        refused = refusals(run, cells)
        if kernel.name in refused:
            why = refused[kernel.name]
            raise InputError(
                f"the incumbent, {answer.setting_text(self.question.incumbent)}, is rejected itself: "
                f"{answer.STAGE_WORDS[why.stage]}, in {why.environment}: {why.outcome.message}",
                "nothing can be compared with it: set tunables in matrix.yaml that are right in every environment",
            )
        if not times_of(launches, kernel.name):
            said = next((launch.message for launch in launches if launch.message), "its launches hold none")
            raise InfrastructureError(f"no time of the incumbent: {said}", f"look at reports/runs/{run.folder.name}")
        trials = [
            trial_of(setting, variant(kernel, setting).name, kernel.name, launches, refused) for setting in settings
        ]
        return Measured(run=run, trials=trials, untried=untried(records_of(run, cells, kernel.name)[2]))

    def search(self) -> bool:
        """Batches until the budget is used. Whether every setting was tried."""
        question = self.question
        known = [Known(setting=question.incumbent, score=1.0)]
        known += [Known(setting=trial.setting, score=trial.score) for trial in self.trials]
        while True:
            number = len(self.batches)
            settings = ask(question.search, known, question.batch, question.seed + number)
            if not settings or (self.batches and self.spent_s >= self.asked.budget_s):
                return not settings
            print(f"batch {number + 1}: {self.spent_s:.0f} s of {self.asked.budget_s:.0f} s used", flush=True)
            begun, started = now_utc(), time.monotonic()
            measured = self.measure(settings, "search")
            # What sessions before this one measured counts too; what they were killed in was not measured.
            before = sum(launch.duration_s for launch in measured.run.launches() if launch.started_utc < begun)
            batch = BatchRecord(
                number=number,
                run=measured.run.folder.name,
                trials=measured.trials,
                untried=measured.untried,
                started_utc=begun,
                duration_s=round(time.monotonic() - started + before, 1),
            )
            save_record(self.batch_path(number), batch)
            self.batches.append(batch)
            known += [Known(setting=trial.setting, score=trial.score) for trial in batch.trials]
            for trial in batch.trials:
                told = f"{trial.score:.3f} of the incumbent's time" if trial.score else self._rejection(trial)
                print(printable(f"{answer.setting_text(trial.setting)}: {told}"), flush=True)

    def _rejection(self, trial: Trial) -> str:
        assert trial.stage is not None
        return f"rejected: {answer.STAGE_WORDS[trial.stage]} in {trial.environment}: {trial.message}"

    def confirm(self, winner: Setting) -> Confirmation:
        measured = self.measure([winner], "confirm")
        [trial] = measured.trials
        confirmed, why = confirm(trial)
        return Confirmation(run=measured.run.folder.name, trial=trial, confirmed=confirmed, why=why)

    # -- from the first batch to the answer ---------------------------------------------------------------------

    def run(self, *, write: bool) -> SweepRecord:
        """All of it. What `write` does comes after: it only changes what is to be done next."""
        question = self.question
        exhausted = self.search()
        best = [trial.setting for trial in by_score(self.trials)[: question.finalists]]
        finals = self.measure(best, "final") if best else None
        leading = by_score(finals.trials)[:1] if finals else []
        confirmation = None
        if leading and leading[0].score is not None and leading[0].score < 1:
            print(f"confirming {answer.setting_text(leading[0].setting)} in fresh launches", flush=True)
            confirmation = self.confirm(leading[0].setting)
        verdict = answer.verdict_of(finals.trials if finals else [], confirmation)
        run = confirmation.run if confirmation else self.batches[-1].run
        command = list(self.asked.options.command)
        record = SweepRecord(
            question=question,
            command=command,
            budget_s=self.asked.budget_s,
            spent_s=round(self.spent_s, 1),
            exhausted=exhausted,
            batches=self.batches,
            finals=finals.trials if finals else [],
            finals_run=finals.run.folder.name if finals else "",
            confirmation=confirmation,
            verdict=verdict,
            winner=leading[0].setting if leading else None,
            answer=answer.answer(question, self.trials, verdict, confirmation),
            next_command=answer.next_command(
                command, verdict, self.asked.budget_s, exhausted=exhausted, run=run, written=write
            ),
            finished_utc=now_utc(),
        )
        save_record(self.folder / "sweep.json", record)
        return record
