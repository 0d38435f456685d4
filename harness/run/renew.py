"""A run that is found again, under other thresholds and limits than it was made under: what of it is made again.

Thresholds only judge: the run has the new ones from now on, and its records are reported by them. Limits only stop:
what ended at a limit that was raised is dropped, and made again; all else does not depend on it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from harness.config.keys import ENDED_AT
from harness.config.plan import Plan
from harness.run.folders import now_utc
from harness.schema.storage import KINDS, Run, kind_of, load_record, save_record

FOLDERS = ("builds", "validations", "launches", "ceilings", "experiments")


def renew(run: Run, plan: Plan, text: str) -> bool:
    """Bring a run up to the plan's thresholds. Whether a limit was raised since it was made, and something may follow.

    The limits themselves are recorded once the run is finished under them (`settle`): an interrupted one comes back
    here.
    """
    known = run.load()
    asked = {"thresholds": plan.thresholds, "matrix_text": text}
    if any(getattr(known, name) != value for name, value in asked.items()):
        save_record(run.run_path(), known.model_copy(update=asked))
    raised = {name for name, most in plan.limits.model_dump().items() if is_raised(known.limits.get(name), most)}
    for path in list(outgrown(run, raised)):
        path.unlink()
    return bool(raised)


def settle(run: Run, plan: Plan) -> None:
    """Record that the run is finished, and under which limits."""
    known = run.load()
    now = {"limits": plan.limits.model_dump(), "finished_utc": known.finished_utc or now_utc()}
    if known.model_dump(include=set(now)) != now:
        save_record(run.run_path(), known.model_copy(update=now))


def is_raised(before: float | None, now: float | None) -> bool:
    """None is a share of the machine's memory: how it compares is not known, so what ended there is tried again."""
    return before != now and (before is None or now is None or now > before)


def outgrown(run: Run, raised: Collection[str]) -> Iterator[Path]:
    """The records, or those with a result, that ended at one of these limits."""
    paths = [path for folder in FOLDERS for path in (run.folder / folder).rglob("*.json")] if raised else []
    for path in paths:
        kind = kind_of(path)
        record = load_record(path, KINDS[kind])
        statuses = {getattr(each, "status", "") for each in (record, *getattr(record, "results", ()))}
        limits = {limit for status in statuses for limit in ENDED_AT.get(kind, {}).get(status, ())}
        if limits & set(raised):
            yield path
