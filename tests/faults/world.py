"""A project on a made-up machine: the real command, in a fork of this process, with workers that answer at once.

The workers write what real ones write, where they write it, and always the same. A fault is done to the fork: it is
killed, interrupted, or finds its disk full right before the file system is changed for the n-th time. The moments are
counted and not timed, so an example that fails fails again.
"""

from __future__ import annotations

import contextlib
import datetime
import enum
import errno
import functools
import hashlib
import io
import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

# Imported before a process is forked, so that a run starts at once.
import reports.render.bisection
import reports.render.sweep  # noqa: F401
from harness.cli.main import find_command, main
from harness.config.keys import code_digests
from harness.config.listing import Listed
from harness.config.matrix import Matrix
from harness.config.pins import load_pins
from harness.config.plan import Plan, PlannedEnvironment
from harness.errors import InfrastructureError, RecordError
from harness.executors import Answer, Executor, Task
from harness.executors.base import BaseExecutor, stage
from harness.executors.choose import Choice
from harness.executors.process import Ended
from harness.interrupts import keep_interrupts
from harness.run import folders
from harness.run.machine import Machine
from harness.schema.environment_records import EnvironmentRecord
from harness.schema.storage import Run, load_any, to_json
from harness.worker import codec, protocol, wire

HANGS_S = 240.0  # longer than a run takes on the busiest machine
VERSIONS = ("2.1.0", "2.5.0")
PACKAGES = {"numpy": "1.26.4", "ninja": "1.11.1.1", "setuptools": "69.5.1"}
MATRIX = """\
schema_version: 1
baseline: "2.1.0"
environments:
  - {torch: "2.1.0", cuda: "12.1", python: "3.11"}
  - {torch: "2.5.0", cuda: "12.1", python: "3.11"}
packages: [numpy==1.26.4, ninja==1.11.1.1, setuptools==69.5.1]
kernels:
  - {name: made_up, sources: {cpu: [csrc/made_up.cpp]}, binding: own}
workloads:
  - {name: first, shape: {batch: 1, heads: 1, seq_len: 8, head_dim: 8}, dtypes: {cpu: [float32]}, trials: 2,
     extra_trials: 1}
  - {name: second, shape: {batch: 1, heads: 1, seq_len: 9, head_dim: 8}, dtypes: {cpu: [float32]}, trials: 2,
     extra_trials: 0}
  - {name: crashes, shape: {batch: 1, heads: 1, seq_len: 10, head_dim: 8}, dtypes: {cpu: [float32]}, trials: 1,
     extra_trials: 0}
references: [math]
launches: 3
most_launches: 3
"""
# Without the workload on which the kernel crashes: a failure is tried again in every new run.
HEALTHY = MATRIX[: MATRIX.index("  - {name: crashes")] + MATRIX[MATRIX.index("references:") :]
# What two runs of the same may have otherwise.
OWN = {
    "run_id",
    "created_utc",
    "finished_utc",
    "started_utc",
    "duration_s",
    "ended_after_s",
    "prepared_s",
    "reused",
    "command",
    "selection",
}


def digest_of(*parts: object) -> str:
    return hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest()


# -- what workers answer ----------------------------------------------------------------------------------------------


class MadeUpExecutor(BaseExecutor):
    """Answers every task in this process. `world` says what is to go wrong."""

    name = "venv"
    holds_back = False

    def __init__(self, world: World, cache: Path, threads: int) -> None:
        super().__init__(cache, threads)
        self.world = world
        self.kernels: dict[
            str, Future[dict[str, str]]
        ] = {}  # by link: what the kernel that is met there was built with

    def folder(self, environment: EnvironmentRecord) -> Path:
        return self.cache / "environments" / f"{environment.id}-{environment.key[:12]}"

    def key(self, environment: PlannedEnvironment, pins: Path | None) -> str:
        return digest_of(environment.id, pins and protocol.sha256_file(str(pins)))

    def binds(self, environment: str) -> bool:
        return False

    def _make(self, environment: PlannedEnvironment, pins: Path | None, key: str) -> tuple[wire.Observation, bool, str]:
        assert pins is not None
        torch = environment.spec.torch
        if torch in self.world.broken:
            raise InfrastructureError("uv pip failed: the index cannot be reached", "check the network")
        marker = self.cache / "environments" / f"{environment.id}-{key[:12]}" / "complete.json"
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.write_text("{}")
        wheels = {name.replace("_", "-"): wire.Wheel(pin, digest_of(name)) for name, pin in load_pins(pins).items()}
        observed = wire.Observation(
            python="3.11.2",
            torch=f"{torch}+cu121",
            torch_cuda="12.1",
            torch_git=self.world.commit_of(torch),
            numpy="1.26.4",
            wheels=wheels,
            machine="x86_64",
            cpu_model="made up",
            cpu_flags_sha256="0",
            threads=1,
            kernel_release="6",
            libc="glibc",
        )
        return observed, False, ""

    def run(self, task: Task) -> Answer:
        self._refuse_if_stopped()
        ended = Ended(returncode=0, timed_out=False, duration_s=0.01, log="")
        if task.name == "host":
            self._kernel_at(str(task.terms.link)).set_result(built_with(task.request.kernel))
            return Answer(result=codec.dump(wire.Outcome("ok")), ended=ended)
        if task.name == "batch":
            return self._answer_batch(task)
        how = self.world.begin(task)
        if how is not None:
            return Answer(result=None, ended=how)
        if task.name == "candidate" and "crashes" in task.request.workload.id:
            return Answer(result=None, ended=replace(ended, returncode=-signal.SIGABRT))
        answer = getattr(self, f"_{task.name}")(task.request, task.environment)
        return Answer(result=json.loads(codec.to_bytes(answer)), ended=ended)

    def _answer_batch(self, task: Task) -> Answer:
        """Answer the requests of a batch one after the other. One that is killed takes the rest with it."""
        kind, answers = wire.TASKS[task.request.task].request, []
        for request in task.request.requests:
            answer = self.run(replace(task, name=task.request.task, request=codec.read(kind, request)))
            if answer.ended.from_outside:
                return answer
            answers.append(wire.Answered(answer.ended.duration_s, answer.result, answer.ended.timed_out))
        ended = Ended(returncode=0, timed_out=False, duration_s=0.01, log="")
        return Answer(result=codec.dump(wire.BatchResult(answers)), ended=ended)

    def _kernel_at(self, link: str) -> Future[dict[str, str]]:
        return self.kernels.setdefault(link, Future())

    def _version(self, environment: str) -> str:
        return environment.removeprefix("torch").split("-")[0]

    def _build(self, request: wire.BuildRequest, environment: str) -> wire.BuildResult:
        if request.defines.get("FAULT") == "build" or not self.world.story(self._version(environment), "builds", True):
            return wire.BuildResult("build_failed", "error: static assertion failed: FAULT")
        artifact = Path(request.build_dir) / f"{request.name}.so"
        source = Path(request.sources[0]).read_text()
        artifact.write_text(f"{json.dumps(request.defines)}\n{digest_of(environment, source) * 64}")
        return wire.BuildResult(
            "ok",
            compiler="made up 1.0",
            flags=["-O3"],
            build_ninja="rule",
            build_s=1.0,
            artifact=artifact.name,
            artifact_sha256=protocol.sha256_file(str(artifact)),
            artifact_bytes=artifact.stat().st_size,
        )

    def _candidate(self, request: wire.CandidateRequest, _environment: str) -> wire.CandidateResult:
        for recipe, trials in request.workload.recipes.items():
            folder = Path(request.out) / recipe
            folder.mkdir(parents=True, exist_ok=True)
            for trial in range(trials):
                (folder / f"{trial}.bin").write_text(digest_of(recipe, trial))
        return wire.CandidateResult("ok", built_with(request.kernel).get("FAULT", ""))

    def _judge(self, request: wire.JudgeRequest, environment: str) -> wire.JudgeResult:
        is_wrong = request.candidate is not None and request.candidate.message == "wrong"
        Path(request.arrays).write_bytes(arrays_of(environment))
        share = self.world.story(self._version(environment), "passes", None)
        recipes = []
        for recipe, trials in request.workload.recipes.items():
            for trial in range(trials if request.candidate is not None else 0):
                output = Path(request.candidate_out) / recipe / f"{trial}.bin"
                assert output.read_text() == digest_of(recipe, trial), "the candidate's output is damaged"
            truth = Path(request.truth_dir) / f"{recipe}.truth"
            truth.parent.mkdir(parents=True, exist_ok=True)
            truth.write_text("truth")
            targets = [
                wire.TargetResult(
                    "ok",
                    target=target,
                    against=[] if share is None else [agreement(round(share * trials))],
                    output_sha256=[digest_of(environment, target, recipe, trial) for trial in range(trials)],
                )
                for target in (*request.references, *(["kernel"] if request.candidate is not None else []))
            ]
            inputs = [digest_of("input", recipe, trial) for trial in range(trials)]
            recipes.append(
                wire.RecipeResult(
                    recipe=recipe,
                    trials=trials,
                    input_sha256=inputs,
                    truth_sha256=[],
                    rounding_cost=[],
                    targets=targets,
                )
            )
        return wire.JudgeResult("wrong" if is_wrong else "ok", "none is right" if is_wrong else "", recipes=recipes)

    def _time(self, request: wire.TimeRequest, environment: str) -> wire.TimeResult:
        built = self._kernel_at(request.link).result(HANGS_S) if request.link else {}
        version = self._version(environment)
        shares = built.get("TIME", "100").split("/")  # per cent, and on 2.5.0 where that is another
        share = int(shares[version == "2.5.0" and len(shares) > 1]) / 100 * self.world.story(version, "times", 1)
        timings = []
        for order, (workload, target) in enumerate(request.rows):
            seed = digest_of(environment, workload, target, request.order_seed)
            samples = [share * (100 + int(seed[i : i + 2], 16) / 100) for i in (0, 2, 4)]
            gpu = {"sampled_s": [0.001, 0.002, 0.003], "enqueue_us": [1.0] * 3} if request.device == "cuda" else {}
            timings.append(
                wire.TargetTiming("ok", workload=workload, target=target, order=order, samples_us=samples, **gpu)  # type: ignore[arg-type]
            )
        return wire.TimeResult("ok", threads=request.threads, load=wire.Load(0.0, 0.0, None, None), timings=timings)

    def _library(self, request: wire.LibraryRequest, _environment: str) -> wire.Outcome:
        Path(request.out).write_text("probe")
        return wire.Outcome("ok")

    def _conditions(self, request: wire.ConditionsRequest, _environment: str) -> wire.Outcome:
        fault = built_with(request.kernel).get("FAULT", "")
        for job in request.jobs:
            done = Path(request.out) / str(job.number) / "done.json"
            done.parent.mkdir(parents=True, exist_ok=True)
            done.write_bytes(codec.to_bytes(wire.JobResult("ok", fault)))
        return wire.Outcome("ok")

    def _weigh(self, request: wire.WeighRequest, _environment: str) -> wire.WeighResult:
        results = []
        for job in request.jobs:
            fault, repeats, runs = job.done.message, range(job.repeats), len(job.trials) * job.repeats
            bits = [[digest_of(trial, fault == "repeat" and repeat) for repeat in repeats] for trial in job.trials]
            if fault == "poison":
                bits = [[digest_of(trial, job.number) for _ in repeats] for trial in job.trials]
            inputs = [digest_of(trial) for trial in job.trials]
            seen = {"output_sha256": bits, "input_sha256": inputs}
            results.append(wire.WeighedJob("ok", number=job.number, runs=runs, passed=runs, max_units=1.0, **seen))  # type: ignore[arg-type]
        return wire.WeighResult("ok", results=results)

    def _ceilings(self, _request: wire.CeilingsRequest, _environment: str) -> wire.CeilingsResult:
        return wire.CeilingsResult("ok", matmul_tflops={"float16": 700.0}, copy_gbps=4000.0)


def built_with(kernel: wire.KernelRequest) -> dict[str, str]:
    """Return what a kernel was built with."""
    found: dict[str, str] = json.loads(Path(str(kernel.artifact)).read_text().partition("\n")[0])
    return found


def agreement(passed: int) -> wire.Agreement:
    return wire.Agreement(
        against="truth",
        passed={"rounding": passed},
        max_abs=0.0,
        mean_abs=0.0,
        nonfinite_trials=0,
        worst=None,
    )


@functools.cache
def arrays_of(environment: str) -> bytes:
    generator = np.random.default_rng(int(digest_of(environment)[:8], 16))
    held = {
        f"independent/0/{target}": generator.standard_normal((1, 1, 8, 8)).astype("float32")
        for target in ("kernel", "math")
    }
    buffer = io.BytesIO()
    np.savez(buffer, **held)  # type: ignore[arg-type]
    return buffer.getvalue()


# -- the machine ------------------------------------------------------------------------------------------------------

NIGHTLIES = tuple(f"2.9.0.dev202507{day:02}" for day in (1, 2, 5, 6, 9, 12))
RELEASES = ("2.1.0", "2.1.1", "2.1.2", "2.2.0", "2.2.1", "2.2.2", "2.3.0", "2.3.1", "2.4.0", "2.4.1", "2.5.0")


@dataclass
class MadeUpMachine(Machine):
    world: World

    def choose(self, *_: object) -> Choice:
        return Choice(executor="venv", reason="made up")

    def find_facts(self, matrix: Matrix, choice: Choice) -> dict[str, Any]:
        host = {"machine": "1f", "cpu": "made up", "compiler": "made up 1.0"}
        facts = {"executor": "venv", "executor_reason": "made up", "interpreters": {"3.11": "3.11.2"}, "host": host}
        return {**facts, "gpus": int(bool(self.world.gpu)), "gpu": self.world.gpu}

    def choose_indexes(self, matrix: Matrix, *_: object, **__: object) -> tuple[dict[str, str], dict[str, str]]:
        return {spec.id(): spec.wheel_index for spec in matrix.environments}, {}

    def make_executor(self, choice: Choice, matrix: Matrix, plan: Plan, root: Path, cache: Path) -> Executor:
        return MadeUpExecutor(self.world, cache, plan.threads)

    def probe_index(self, index: str) -> str:
        return ""

    def fetch_listing(self, index: str, package: str) -> list[Listed]:
        """Return releases and nightlies; one for another Python only, one that was yanked, and a candidate."""

        def wheel(version: str, python: str = "cp311", yanked: bool = False) -> Listed:
            name = f"torch-{version}+cu121-{python}-{python}-linux_x86_64.whl"
            return Listed(filename=name, yanked=yanked, requires_python=">=3.8")

        odd = [wheel("2.3.2", "cp312"), wheel("2.2.9", yanked=True), wheel("2.4.0rc1")]
        return [*map(wheel, (*RELEASES, *NIGHTLIES)), *odd]


# -- faults -----------------------------------------------------------------------------------------------------------


class Act(enum.Enum):
    KILL = signal.SIGKILL
    INTERRUPT = signal.SIGINT
    TERMINATE = signal.SIGTERM
    FILL_DISK = errno.ENOSPC
    LOSE_CACHE = errno.ENOENT  # its builds and probes are deleted


@dataclass(frozen=True)
class Fault:
    """What is done to a command right before its `at`-th change of the file system, counted from 1."""

    act: Act
    at: int


CREATES = ("os.mkdir", "tempfile.mkstemp", "os.symlink", "os.link", "shutil.copyfile")
CHANGES = (*CREATES, "os.rename", "os.remove", "os.rmdir", "os.chmod", "shutil.rmtree")


def arm(fault: Fault, cache: Path) -> None:
    """Let the fault happen to this process. It cannot be undone."""
    seen = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if event not in CHANGES and not writes:
            return
        seen += 1
        if fault.act is Act.FILL_DISK:
            if seen >= fault.at and (writes or event in CREATES):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fsdecode(arguments[0]))
        elif seen == fault.at and fault.act is Act.LOSE_CACHE:
            shutil.rmtree(cache / "builds", ignore_errors=True)
            shutil.rmtree(cache / "probes", ignore_errors=True)
        elif seen == fault.at:
            os.kill(os.getpid(), fault.act.value)

    sys.addaudithook(hook)


def set_clock(wrong_s: float) -> None:
    """Let the wall clock of this process be wrong. It cannot be undone."""
    right, now = time.time, folders.now
    time.time = lambda: right() + wrong_s
    folders.now = lambda: now() + datetime.timedelta(seconds=wrong_s)


class World:
    """A project, its cache, and commands that run in it."""

    def __init__(
        self, folder: Path, versions: Sequence[str] = VERSIONS, matrix: str = MATRIX, *, staged: bool = False
    ) -> None:
        self.root, self.cache, self.printed = folder / "project", folder / "cache", folder / "printed.txt"
        self.tasks = folder / "tasks.txt"
        self.broken: set[str] = set()  # versions whose environments cannot be made
        self.stories: Mapping[str, Mapping[str, Any]] = {}  # by version: what its workers answer
        self.gpu: dict[str, Any] = {}
        self.clock_s = 0.0  # by how much the wall clock is wrong
        self.lost_worker = 0  # the number of the task whose process is killed from outside
        self.late: set[int] = set()  # order seeds of timings that end at their time limit, if that is below a minute
        (self.root / "csrc").mkdir(parents=True)
        self.edit_source("made up")
        ends = zip(VERSIONS, (versions[0], versions[-1]), strict=True)
        self.matrix = self.root / "matrix.yaml"
        self.matrix.write_text(functools.reduce(lambda text, end: text.replace(*end), ends, matrix))
        pins = self.root / "docker" / "pins"
        pins.mkdir(parents=True)
        for version in versions:
            wanted = {"torch": version, **PACKAGES}
            text = "".join(f"{name}=={pin} --hash=sha256:{'0' * 64}\n" for name, pin in wanted.items())
            (pins / f"torch{version}-cu121-py311.txt").write_text(text)
        if staged:  # it is most of what a first run writes
            stage(self.cache)

    # -- what workers ask ---------------------------------------------------------------------------------------------

    def story(self, version: str, name: str, otherwise: Any) -> Any:
        return self.stories.get(version, {}).get(name, otherwise)

    def commit_of(self, version: str) -> str:
        """Return the commit of PyTorch that a version says it is built from."""
        return hashlib.sha1(version.encode()).hexdigest()

    def begin(self, task: Task) -> Ended | None:
        """Write down that a task begins. Return how its process ended, if that is to go wrong."""
        with self.tasks.open("a") as file:
            file.write(f"{task.name} {task.log.parent.name} {task.log.stem}\n")
        if self.lost_worker and len(self.tasks.read_text().splitlines()) == self.lost_worker:
            return Ended(returncode=-signal.SIGKILL, timed_out=False, duration_s=0.01, log="")
        if task.name == "time" and task.request.order_seed in self.late and task.terms.timeout_s < 60:
            return Ended(returncode=-signal.SIGKILL, timed_out=True, duration_s=task.terms.timeout_s, log="")
        return None

    # -- commands -----------------------------------------------------------------------------------------------------

    def start(
        self,
        *words: str,
        verb: str = "matrix",
        fault: Fault | None = None,
        printed: Path | None = None,
        user: int | None = None,
    ) -> int:
        """Start a command in a fork of this process. Return its number."""
        code_digests()  # once, for all forks
        find_command(verb)  # likewise: another user may not read what this one imports
        command = [verb, f"--matrix={self.matrix}", "--executor=venv", *words]
        command += ["--no-check", "--no-report"] if verb in ("matrix", "eval") else []
        child = os.fork()
        if child == 0:
            self._become(command, fault, printed or self.printed, user)
        return child

    def _become(self, command: list[str], fault: Fault | None, printed: Path, user: int | None) -> None:
        """Be the command, and end with its exit code."""
        code = 1
        try:
            os.environ["KERNEL_MATRIX_CACHE"] = str(self.cache)
            os.fsync = lambda _: None  # no power fails here
            out = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(out, 1)
            os.dup2(out, 2)
            sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.default_int_handler)
            keep_interrupts()
            set_clock(self.clock_s)
            if user is not None:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            if fault is not None:
                arm(fault, self.cache)
            code = main(command, MadeUpMachine(self))
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)

    def end(self, child: int) -> int:
        """Wait for a command. Return its exit code, negative for a signal."""
        ended = [0, 0]

        def has_ended() -> bool:
            ended[:] = os.waitpid(child, os.WNOHANG)
            return ended[0] != 0

        if not wait_until(has_ended):
            os.kill(child, signal.SIGKILL)
            raise AssertionError(f"it hangs: {self.printed.read_text()}")
        return os.waitstatus_to_exitcode(ended[1])

    def run(self, *words: str, verb: str = "matrix", fault: Fault | None = None) -> int:
        """Run a command. Return its exit code. A traceback is a failure in any case."""
        code = self.end(self.start(*words, verb=verb, fault=fault))
        assert "Traceback" not in self.text, self.text
        return code

    def done(self, *words: str, verb: str = "matrix", code: int = 0) -> str:
        """Return what a command printed that ends with this exit code."""
        assert self.run(*words, verb=verb) == code, self.text
        return self.text

    def count(self, *words: str, verb: str = "matrix") -> dict[str, int]:
        """Run a command to its end. Return how many tasks of each name it took."""
        self.tasks.write_text("")
        self.done(*words, verb=verb)
        return dict(Counter(line.split()[0] for line in self.tasks.read_text().splitlines()))

    @property
    def text(self) -> str:
        return self.printed.read_text() if self.printed.exists() else ""

    # -- edits --------------------------------------------------------------------------------------------------------

    def edit_source(self, text: str) -> None:
        (self.root / "csrc" / "made_up.cpp").write_text(f"// {text}\n")

    def edit(self, old: str, new: str) -> None:
        text = self.matrix.read_text()
        assert text.count(old) == 1
        self.matrix.write_text(text.replace(old, new))

    # -- what is there ------------------------------------------------------------------------------------------------

    @property
    def latest(self) -> Run:
        return Run((self.root / "reports" / "latest").resolve(strict=True))

    @property
    def runs(self) -> list[Path]:
        return sorted(path for path in (self.root / "reports" / "runs").glob("*") if path.is_dir())

    @property
    def kept(self) -> dict[Path, tuple[int, int]]:
        return identities(self.root / "reports" / "runs")

    def litter(self) -> list[str]:
        return litter(self.root, self.cache)


def litter(root: Path, cache: Path) -> list[str]:
    """Name what a killed command may leave, and a finished one may not."""
    left = [
        path
        for path in root.joinpath("reports").rglob("*")
        if path.name.endswith((".part", ".request.json", ".result.json"))
        or path.name == "scratch"
        or (path.parent.name == "runs" and not (path / "run.json").is_file())
    ]
    for pattern in ("**/.*.part", "**/*.scratch", "asked/*"):
        left += cache.glob(pattern)
    return list(map(str, left))


def wait_until(condition: Callable[[], bool], timeout_s: float = HANGS_S) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def identities(folder: Path) -> dict[Path, tuple[int, int]]:
    """Return (inode, time of change) of every finished validation, launch and crossing."""
    found = {}
    for kind in ("validations", "launches", "crossings"):
        for path in folder.glob(f"*/{kind}/**/*.json"):
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                found[path] = (status.st_ino, status.st_mtime_ns)
    return found


def contents(run: Run, *, skip_damaged: bool = False) -> dict[str, Any]:
    """Return every record of a run by its path, without what is its own, and its arrays by their digest unless damaged
    files are skipped."""
    found: dict[str, Any] = {}
    for path in sorted(run.folder.rglob("*.json")):
        place = path.relative_to(run.folder)
        if place.parts[0] != "logs":
            with contextlib.suppress(*[RecordError] * skip_damaged):
                found[str(place)] = _without_own(to_json(load_any(path)))
    for path in sorted(run.folder.rglob("*.npz")) if not skip_damaged else ():
        found[str(path.relative_to(run.folder))] = protocol.sha256_file(str(path))
    return found


def _without_own(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_own(item) for name, item in value.items() if name not in OWN}
    if isinstance(value, list):
        return [_without_own(item) for item in value]
    return value
