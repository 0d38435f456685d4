"""A sweep: settings in batches until the budget is used, the best of them again, the winner confirmed.

Each step is a run of the incumbent and some settings in every environment of the matrix: they are built side by side,
those that are not correct, repeatable and clean are refused (`harness.experiments.admission`), and the others are
launched beside the incumbent, one launch at a time. A batch's record is written once it is done.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.config import keys
from harness.config.kernels import Setting
from harness.config.matrix import Matrix, load_matrix
from harness.config.planner import kernel_sources
from harness.errors import InfrastructureError, InputError
from harness.experiments.admission import records_of, refusals, untried
from harness.gpu import gpus, models
from harness.progress import printable
from harness.run.folders import now_utc
from harness.run.prepare import Options, Prepared, folder_files, make_plan
from harness.schema.storage import Run, load_record, save_record
from harness.schema.sweep_records import BatchRecord, Confirmation, SweepQuestion, SweepRecord, Trial
from harness.search.loop import Search, recorded, working_on
from harness.search.sweep import answer, space
from harness.search.sweep.measure import LEVEL, by_score, confirm, times_of, trial_of
from harness.search.sweep.sampler import Known, ask
from harness.search.sweep.space import Phase, Subject, derived_matrix, selection_of, variant
from harness.worker import protocol


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One run, and what it shows of each setting."""

    run: Run
    trials: list[Trial]
    untried: list[str]


@dataclass(kw_only=True)
class Sweep(Search[list[Setting], SweepRecord]):
    """One sweep: its folder, its question, and what is recorded of it. `write`: a confirmed winner is written next."""

    subject: Subject
    options: Options
    budget_s: float
    matrix: Matrix
    folder: Path
    question: SweepQuestion
    write: bool = False
    batches: list[BatchRecord] = field(default_factory=list)
    exhausted: bool = False  # whether every setting was tried

    def batch_path(self, number: int) -> Path:
        return self.folder / "batches" / f"{number:03d}.json"

    def recall(self) -> str:
        while self.batch_path(len(self.batches)).exists():
            self.batches.append(load_record(self.batch_path(len(self.batches)), BatchRecord))
        return f"{len(self.trials)} settings recorded before, in {self.spent_s:.0f} s" if self.batches else ""

    @property
    def trials(self) -> list[Trial]:
        return [trial for batch in self.batches for trial in batch.trials]

    @property
    def spent_s(self) -> float:
        return sum(batch.duration_s for batch in self.batches)

    # -- the loop -----------------------------------------------------------------------------------------------

    def next_step(self) -> list[Setting] | None:
        question = self.question
        known: list[Known] = [(question.incumbent, 1.0), *((trial.setting, trial.score) for trial in self.trials)]
        settings = ask(question.search, known, question.batch, question.seed + len(self.batches))
        self.exhausted = not settings
        if not settings or (self.batches and self.spent_s >= self.budget_s):
            return None
        print(f"batch {len(self.batches) + 1}: {self.spent_s:.0f} s of {self.budget_s:.0f} s used", flush=True)
        return settings

    def take(self, step: list[Setting]) -> None:
        number, begun, started = len(self.batches), now_utc(), time.monotonic()
        measured = self.measured(step, "search")
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
        for trial in batch.trials:
            if trial.score:
                seen = f"{trial.score:.3f} of the incumbent's time"
            else:
                assert trial.stage is not None
                seen = f"rejected: {answer.STAGE_WORDS[trial.stage]} in {trial.environment}: {trial.message}"
            print(printable(f"{answer.setting_text(trial.setting)}: {seen}"), flush=True)

    def conclude(self) -> SweepRecord:
        """The best of the search again, and the winner of these confirmed."""
        best = [trial.setting for trial in by_score(self.trials)[: self.question.finalists]]
        finals = self.measured(best, "final") if best else None
        leading = by_score(finals.trials)[:1] if finals else []
        confirmation = None
        if leading and leading[0].score is not None and leading[0].score < 1:
            winner = leading[0].setting
            print(f"confirming {answer.setting_text(winner)} in fresh launches", flush=True)
            measured = self.measured([winner], "confirm")
            confirmed, why = confirm(measured.trials[0])
            confirmation = Confirmation(
                run=measured.run.folder.name, trial=measured.trials[0], confirmed=confirmed, why=why
            )
        verdict = answer.verdict_of(finals.trials if finals else [], confirmation)
        command = list(self.options.command)
        record = SweepRecord(
            question=self.question,
            command=command,
            budget_s=self.budget_s,
            spent_s=round(self.spent_s, 1),
            exhausted=self.exhausted,
            batches=self.batches,
            finals=finals.trials if finals else [],
            finals_run=finals.run.folder.name if finals else "",
            confirmation=confirmation,
            verdict=verdict,
            winner=leading[0].setting if leading else None,
            answer=answer.answer(self.question, self.trials, verdict, confirmation),
            next_command=answer.next_command(
                command,
                verdict,
                self.budget_s,
                exhausted=self.exhausted,
                run=confirmation.run if confirmation else self.batches[-1].run,
                written=self.write,
            ),
            finished_utc=now_utc(),
        )
        save_record(self.folder / "sweep.json", record)
        return record

    # -- measuring ----------------------------------------------------------------------------------------------

    def measured(self, settings: Sequence[Setting], phase: Phase) -> Measured:
        """The incumbent and these settings in one run. HarnessError where it shows nothing of them."""
        kernel = self.subject.kernel
        derived = derived_matrix(self.matrix, self.subject, settings, phase)
        run = self.measure(derived, selection_of(self.subject), admit=True)
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
            problem = next((launch.message for launch in launches if launch.message), "its launches hold none")
            raise InfrastructureError(f"no time of the incumbent: {problem}", f"look at reports/runs/{run.folder.name}")
        trials = [
            trial_of(setting, variant(kernel, setting).name, kernel.name, launches, refused) for setting in settings
        ]
        return Measured(run=run, trials=trials, untried=untried(records_of(run, cells, kernel.name)[2]))


def _question(subject: Subject, prepared: Prepared, matrix: Matrix, id: str) -> SweepQuestion:
    plan, kernel = prepared.plan, subject.kernel
    return SweepQuestion(
        id=id,
        created_utc=now_utc(),
        kernel=kernel.name,
        device=subject.device,
        workloads=[workload.id for workload in plan.workloads_of(kernel.name, subject.device)],
        environments=list(plan.measured),
        search={name: list(values) for name, values in kernel.search.items()},
        incumbent=space.incumbent_of(kernel),
        settings=kernel.settings,
        executor=plan.facts.executor,
        fallbacks=list(plan.fallbacks),
        seed=matrix.seed,
        batch=max(4, min(8, os.cpu_count() or 1)),  # enough for the machine, few enough to be done soon
        level=LEVEL,
        search_trials=space.SEARCH_TRIALS,
        search_launches=space.launches_of(matrix, "search"),
        final_launches=space.launches_of(matrix, "final"),
        confirming_launches=space.launches_of(matrix, "confirm"),
        finalists=space.FINALISTS,
    )


def find_subject(matrix: Matrix, root: Path, kernel_name: str, workloads: Sequence[str], device: str) -> Subject:
    """What is searched. InputError where matrix.yaml or this machine lacks it."""
    kernel = space.searched_kernel(matrix, kernel_name)
    sources = kernel_sources(kernel, folder_files(matrix, root))
    chosen = space.choose_device(kernel, device, list(sources), len(gpus()))
    capabilities = {capability for _, capability, _ in models()} if chosen == "cuda" else set()
    capability = capabilities.pop() if len(capabilities) == 1 else ""
    return Subject(kernel=kernel, workloads=tuple(workloads), device=chosen, capability=capability)


def run_sweep(
    options: Options,
    kernel_name: str,
    workloads: Sequence[str],
    device: str,
    *,
    budget_s: float,
    write: bool = False,
    list_only: bool = False,
) -> tuple[Path, SweepRecord] | None:
    """Sweep, or go on with what was begun. The folder of the records, and the answer; None with `list_only`."""
    matrix, _ = load_matrix(options.matrix_path, options.base_image)
    subject = find_subject(matrix, options.root, kernel_name, workloads, device)
    derived = derived_matrix(matrix, subject, [], "search")
    prepared = make_plan(replace(options, derived=derived), selection_of(subject), write_pins=not list_only)
    plan, kernel = prepared.plan, subject.kernel
    if not all(build.runnable for build in plan.builds):
        raise InputError(f"--device {subject.device}: there is none here to run on", "give another --device")
    key = keys.of(
        "sweep",
        run=plan.digest,
        search={name: list(values) for name, values in kernel.search.items()},
        launches=[space.launches_of(matrix, phase) for phase in ("search", "final", "confirm")],
        finalists=space.FINALISTS,
        limits=plan.limits.model_dump(),
    )
    asked = _question(subject, prepared, matrix, f"{kernel.name}-{subject.device}-{key[:12]}")
    if list_only:
        answer.print_question(asked)
        return None
    folder = options.root / "reports" / "sweeps" / asked.id

    with working_on("sweep", folder, key):
        question = recorded(folder, SweepQuestion, lambda: asked)
        answer.print_question(question)
        record = Sweep(
            subject=subject,
            options=options,
            budget_s=budget_s,
            matrix=matrix,
            folder=folder,
            question=question,
            write=write,
        ).run()
    answer.print_table(record)
    return folder, record
