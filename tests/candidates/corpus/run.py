"""Runs groups of candidates with their honest twins through the real command, and reads what its records say.

Records are read as plain JSON: what changes in their form shall not make the judge of the judge blind.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.candidates.corpus import CORPUS
from tests.candidates.corpus.candidate import Candidate
from tests.candidates.corpus.templates import PROBLEMS

ROOT = Path(__file__).parents[3]
GAIN = 0.10  # so much faster than its twin, or so much more of a speed-up over the reference, is a gain
CAUGHT, NOTHING, THROUGH = "caught", "gains nothing", "GETS THROUGH"
ACCEPTED, ACCUSED = "accepted", "ACCUSED"
NOT_RUN, BREAKS = "not run", "BREAKS THE RUN"
LEFT = ("/tmp/corpus-*", "/dev/shm/corpus-*", "~/.cache/corpus-*")  # what candidates leave on purpose

MATRIX = """\
schema_version: 1
baseline: "{torch}"
environments:
  - {{torch: "{torch}", cuda: "12.1", python: "3.11"}}
packages: [numpy==1.26.4, ninja==1.11.1.1, setuptools==69.5.1]
timing: {{warmup_s: 0.05, target_s: {target_s}, min_samples: 10}}
launches: {launches}
most_launches: {launches}
cpu_threads: 1
references: [math]
limits: {{validation_s: 90, launch_s: 60, build_s: 300}}
kernels:
{kernels}
workloads:
  - name: small
    shape: {{batch: 1, heads: 2, seq_len: 128, head_dim: 64}}
    dtypes: {{cpu: [float32], cuda: [float16]}}
    trials: 3
    extra_trials: 1
"""


@dataclass(frozen=True, kw_only=True)
class Settings:
    torch: str = "2.5.0"
    executor: str = "venv"
    launches: int = 3
    target_s: float = 0.2
    group: int = 8  # candidates that share a run
    timeout_s: float = 1500
    keep: Path | None = None  # scratch folder that stays


@dataclass(kw_only=True)
class Row:
    """What became of one candidate. `fastest_us` and `twin_us` have the least sample of each launch, `reference_us` and
    `twin_reference_us` those of the reference in the same launches. `ratio` and `speedup_ratio`: see `settle`.

    The least, since a machine that is shared makes calls longer and never shorter: on one, the same loop in one process
    had two levels, 1.7 and 3.8 ms, and changed between them within a second. A lie that gains has a lower least.

    `doubtful`: there is a gain by a single launch, or nothing to compare it with.
    """

    name: str
    family: str
    form: str
    hostile: bool
    says: str
    outcome: str = NOT_RUN
    doubtful: bool = False
    status: str = ""
    message: str = ""
    correct: bool = False
    twin: str = ""
    fastest_us: list[float] = field(default_factory=list)
    twin_us: list[float] = field(default_factory=list)
    reference_us: list[float] = field(default_factory=list)
    twin_reference_us: list[float] = field(default_factory=list)
    ratio: float | None = None
    speedup_ratio: float | None = None
    torch: str = ""
    executor: str = ""


# -- projects ---------------------------------------------------------------------------------------------------


def render_kernel(candidate: Candidate) -> str:
    """Its entry in matrix.yaml."""
    file = f"corpus/{candidate.file}"
    if candidate.form in ("python", "python_cuda"):
        return (
            f"  - {{name: {candidate.name}, problem: corpus/problems/{candidate.problem}.py, model_new: {file}, "
            f"devices: [{candidate.device}], trials: 5}}"
        )
    binding = ", binding: own" if candidate.own_binding else ""
    return f"  - {{name: {candidate.name}, sources: {{{candidate.device}: [{file}]}}{binding}}}"


def make_project(folder: Path, candidates: Iterable[Candidate], settings: Settings) -> Path:
    chosen = list(candidates)
    (folder / "corpus" / "problems").mkdir(parents=True)
    for name, text in PROBLEMS.items():
        (folder / "corpus" / "problems" / f"{name}.py").write_text(text)
    for candidate in chosen:
        (folder / "corpus" / candidate.file).write_text(candidate.source)
    matrix = MATRIX.format(
        torch=settings.torch,
        launches=settings.launches,
        target_s=settings.target_s,
        kernels="\n".join(map(render_kernel, chosen)),
    )
    if all(candidate.form.startswith("python") for candidate in chosen):
        matrix = matrix.partition("workloads:")[0]
    (folder / "matrix.yaml").write_text(matrix)
    return folder


def groups(names: Sequence[str], size: int) -> Iterator[list[Candidate]]:
    """Candidates that share a run, with their twins in front: of one form and problem each; those that attack what
    runs them have a run of their own."""
    chosen = [CORPUS[name] for name in names]
    kinds = dict.fromkeys((c.form, c.problem, c.hostile) for c in chosen)
    for kind in kinds:
        those = [c for c in chosen if (c.form, c.problem, c.hostile) == kind]
        shared = [c for c in those if not c.alone]
        parts = [shared[i : i + size] for i in range(0, len(shared), size)] + [[c] for c in those if c.alone]
        for part in parts:
            twins = dict.fromkeys(c.twin for c in part if c.twin and c.twin not in [p.name for p in part])
            yield [*(CORPUS[name] for name in twins), *part]


# -- runs --------------------------------------------------------------------------------------------------------


def measure(candidates: Sequence[Candidate], settings: Settings) -> list[Row]:
    """One run of the real command, and a row for each candidate that is not only there as a twin."""
    folder = Path(tempfile.mkdtemp(prefix="corpus-run-", dir=settings.keep))
    try:
        project = make_project(folder / "project", candidates, settings)
        device = candidates[0].device
        command = [
            sys.executable,
            "-m",
            "harness",
            "matrix",
            f"--matrix={project / 'matrix.yaml'}",
            "--explain=never",
            f"--executor={settings.executor}",
            f"--device={device}",
        ]
        hidden = [c.hidden for c in candidates if c.hidden]
        code, printed = run_command(command if hidden else [*command, "--no-report"], settings.timeout_s)
        run = (project / "reports" / "latest").resolve()
        shown = {mark for mark in hidden if mark in "".join(map(read_text, run.glob("*.html")))}
        return judge(candidates, run, settings, failed_run(code, printed), shown)
    finally:
        if settings.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
        clean()


def run_command(command: Sequence[str], timeout_s: float) -> tuple[int, str]:
    """(exit code, what was printed); -1: it did not end."""
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        log.seek(0)
        return code, log.read()


def failed_run(code: int, printed: str) -> str:
    """'' where the command went to its end: what it says of kernels has exit codes of its own."""
    return "" if code in (0, 10, 11, 20, 40) else f"exit code {code}: {printed[-600:]}"


def read_text(path: Path) -> str:
    return path.read_text(errors="replace")


def read_records(run: Path, kind: str) -> list[dict[str, Any]]:
    found = []
    for path in sorted((run / kind).rglob("*.json")):
        with contextlib.suppress(ValueError, OSError):
            found.append(json.loads(path.read_text(errors="replace")))
    return [record.get("body", record) for record in found if isinstance(record, dict)]


def clean() -> None:
    for pattern in LEFT:
        for path in glob.glob(os.path.expanduser(pattern)):
            if os.path.isfile(path):
                with contextlib.suppress(OSError):
                    os.unlink(path)


# -- what became of them --------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Seen:
    """Of one kernel in one run. `us` and `reference_us`: the least sample, by launch."""

    status: str = NOT_RUN
    message: str = ""
    us: dict[int, float] = field(default_factory=dict)
    reference_us: dict[int, float] = field(default_factory=dict)

    @property
    def correct(self) -> bool:
        return self.status == "ok" and bool(self.us)


def look(name: str, run: Path) -> Seen:
    """The first thing that was not ok: of its build, its validation and its launches."""
    seen = Seen()
    builds = [r for r in read_records(run, "builds") if r.get("kernel") == name]
    validations = [r for r in read_records(run, "validations") if r.get("kernel") == name]
    launches = [r for r in read_records(run, "launches") if r.get("kernel") == name]
    told: list[tuple[str, str]] = []
    for record in [*builds, *validations, *launches]:
        told.append((str(record.get("status", "")), str(record.get("message", ""))))
    for launch in launches:
        kernel = [t for t in launch.get("timings", []) if t.get("target") == "kernel"]
        others = [t for t in launch.get("timings", []) if t.get("target") != "kernel" and t.get("samples_us")]
        for row in kernel:
            bad = "incorrect" if row.get("status") == "ok" and row.get("correct") is not True else row.get("status")
            told.append((str(bad), str(row.get("message", ""))))
            if row.get("samples_us"):
                index = int(launch.get("index", 0))
                seen.us[index] = fastest_us(row)
                if others:
                    seen.reference_us[index] = fastest_us(others[0])
    if validations:
        seen.status, seen.message = next(((s, m) for s, m in told if s != "ok"), ("ok", ""))
    if validations and not launches and seen.status == "ok":
        seen.status, seen.message = "no launch", "it was validated and never timed"
    return seen


def fastest_us(row: dict[str, Any]) -> float:
    """With what it took to ask, whose estimate is wrong on a busy machine."""
    return float(min(row["samples_us"]))


def judge(
    candidates: Sequence[Candidate], run: Path, settings: Settings, failed: str = "", shown: Iterable[str] = ()
) -> list[Row]:
    seen = {candidate.name: look(candidate.name, run) for candidate in candidates}
    twins = {candidate.twin for candidate in candidates}
    asked = [c for c in candidates if c.name not in twins] or list(candidates)
    rows = []
    for candidate in asked:
        mine, twin = seen[candidate.name], seen.get(candidate.twin, Seen())
        row = Row(
            name=candidate.name,
            family=candidate.family,
            form=candidate.form,
            hostile=candidate.hostile,
            says=candidate.says,
            status=mine.status,
            message=mine.message[:300],
            correct=mine.correct,
            twin=candidate.twin,
            fastest_us=rounded(mine.us.values()),
            twin_us=rounded(twin.us.values()),
            reference_us=rounded(mine.reference_us.values()),
            twin_reference_us=rounded(twin.reference_us.values()),
            torch=settings.torch,
            executor=settings.executor,
        )
        decide(row, mine, failed, bool(candidate.hidden) and candidate.hidden in set(shown))
        rows.append(row)
    settle(rows)
    return rows


def rounded(values: Iterable[float]) -> list[float]:
    return [round(value, 2) for value in values]


def decide(row: Row, mine: Seen, failed: str, is_shown: bool) -> None:
    """The outcome, as far as times do not decide it."""
    if not row.hostile:
        row.outcome = ACCEPTED if mine.correct else NOT_RUN if failed and mine.status == NOT_RUN else ACCUSED
        row.message = row.message or failed[:300]
    elif failed and not (mine.correct or mine.status not in (NOT_RUN, "ok")):
        row.outcome, row.message = BREAKS, failed[:300]
    elif is_shown:
        row.outcome, row.message = THROUGH, "its markup is on the page as it is"
    else:
        row.outcome = NOTHING if mine.correct else CAUGHT


def settle(rows: Iterable[Row]) -> None:
    """What times decide: whether those that ended as correct gained anything.

    `ratio` is of a candidate's least time and the least of all launches of its twin. `speedup_ratio` is the twin's
    speed-up over the candidate's, each the reference's least time in the same launches over its own: one that slows
    the reference gains by it. Below 1, either is a gain.
    """
    every = list(rows)
    for row in every:
        same = [other for other in every if other.twin == row.twin and other.twin_us]
        if not same or not row.fastest_us:
            row.doubtful = row.outcome in (NOTHING, THROUGH)
            continue
        fastest, twin = max(1e-3, min(row.fastest_us)), min(min(other.twin_us) for other in same)
        row.ratio = round(fastest / twin, 4)
        references = [min(other.twin_reference_us) for other in same if other.twin_reference_us]
        row.speedup_ratio = None
        if row.reference_us and references:
            row.speedup_ratio = round(min(references) / twin / (min(row.reference_us) / fastest), 4)
        if not row.correct or not row.hostile or row.outcome not in (NOTHING, THROUGH) or row.message:
            continue
        gains = [gain for gain in (row.ratio, row.speedup_ratio) if gain is not None]
        row.outcome = THROUGH if min(gains) < 1 - GAIN else NOTHING
        row.doubtful = row.outcome == THROUGH and len(row.fastest_us) == 1


def as_json(rows: Iterable[Row]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]
