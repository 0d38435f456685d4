"""The real command in a project whose environments are scripted: a whole run in about a second, always alike.

`python -m tests.faults.scripted VERB ...` is `python -m harness VERB ...` but for what a pinned Python would do, which
`interpreter.py` answers, and for what is asked of the network and of this machine.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import multiprocessing
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import numpy as np

# Imported before a process is forked, so that a run starts at once.
import harness.cli.search  # noqa: F401
import reports.render.bisection
import reports.render.sweep  # noqa: F401
from harness.cli import matrix as matrix_verb
from harness.cli.main import main
from harness.config import indexes
from harness.config.interpreters import Interpreter
from harness.config.listing import Listed
from harness.config.pins import load_pins
from harness.config.plan import PlannedEnvironment
from harness.errors import InfrastructureError
from harness.executors import Answer, Task, venv
from harness.interrupts import keep_interrupts
from harness.run import launch, prepare
from harness.schema.run_records import GpuFacts
from harness.schema.storage import KINDS, Run, from_json_value, load_record, to_json
from harness.search.bisect import run as running
from harness.worker import protocol
from harness.worker.wheels import normalise
from harness.workflow import matrix as workflow

HANGS_S = 240.0  # longer than the busiest machine takes
ROOT = Path(__file__).parents[2]
INTERPRETER = Path(__file__).with_name("interpreter.py")
PYTHON = Interpreter(path="/usr/bin/python3.11", version="3.11.2", headers=True)
STORY = "story.json"  # a file of the project: by version, the share of trials that `passes`, and by what it `times`
TASKS = "tasks.txt"  # a file of the project: where it is, every verb that is run is written down there
PROJECT = "SCRIPTED_PROJECT"  # a variable: the project's folder
GPU = "gpu.json"  # a file of the project: the GPU that this machine is said to have
BROKEN = "broken"  # a file of the project that names environments which cannot be made
VERSIONS = ("2.1.0", "2.5.0")
HANGS_S = 400  # which no run takes, however busy the machine is
PACKAGES = {"numpy": "1.26.4", "ninja": "1.11.1.1", "setuptools": "69.5.1"}
MATRIX = """\
schema_version: 1
baseline: "2.1.0"
environments:
  - {torch: "2.1.0", cuda: "12.1", python: "3.11"}
  - {torch: "2.5.0", cuda: "12.1", python: "3.11"}
packages: [numpy==1.26.4, ninja==1.11.1.1, setuptools==69.5.1]
kernels:
  - {name: scripted, sources: {cpu: [csrc/scripted.cpp]}, binding: own}
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
# What a disturbed run may have otherwise than an undisturbed one.
OWN = frozenset(
    {
        "run_id",
        "created_utc",
        "finished_utc",
        "started_utc",
        "duration_s",
        "ended_after_s",
        "ended_peak_bytes",
        "prepared_s",
        "reused",
        "command",
        "selection",
    }
)


def make_project(folder: Path, versions: Sequence[str] = VERSIONS) -> Path:
    (folder / "csrc").mkdir(parents=True)
    (folder / "csrc" / "scripted.cpp").write_text("// answered by interpreter.py\n")
    ends = zip(VERSIONS, (versions[0], versions[-1]), strict=True)
    (folder / "matrix.yaml").write_text(functools.reduce(lambda text, end: text.replace(*end), ends, MATRIX))
    pins = folder / "docker" / "pins"
    pins.mkdir(parents=True)
    for version in versions:
        wanted = {"torch": version, **PACKAGES}
        text = "".join(f"{name}=={pin} --hash=sha256:{'0' * 64}\n" for name, pin in wanted.items())
        (pins / f"torch{version}-cu121-py311.txt").write_text(text)
    return folder


def _arrays(environment: str) -> bytes:
    generator = np.random.default_rng(int(hashlib.sha256(environment.encode()).hexdigest()[:8], 16))
    held = {
        f"independent/0/{target}": generator.standard_normal((1, 1, 32, 32)).astype("float32")
        for target in ("kernel", "math")
    }
    buffer = io.BytesIO()
    np.savez(buffer, **held)
    return buffer.getvalue()


def commit_of(version: str) -> str:
    """The commit of PyTorch that a scripted version says it is built from."""
    return hashlib.sha1(version.encode()).hexdigest()


def _observation(environment: PlannedEnvironment, pins: Path) -> dict[str, Any]:
    wheels = {
        normalise(name): {"version": version, "record_sha256": hashlib.sha256(name.encode()).hexdigest()}
        for name, version in load_pins(pins).items()
    }
    return {
        "python": "3.11.2",
        "torch": environment.spec.torch + "+cu121",
        "torch_cuda": "12.1",
        "torch_git": commit_of(environment.spec.torch),
        "cxx11_abi": False,
        "numpy": "1.26.4",
        "cudnn": None,
        "wheels": wheels,
        "machine": "x86_64",
        "cpu_model": "scripted",
        "cpu_flags_sha256": "0",
        "cpu_capability": "AVX2",
        "threads": 1,
        "kernel_release": "6",
        "libc": "glibc",
        "gpus": [],
        "settings": {},
    }


class ScriptedExecutor(venv.VenvExecutor):
    """`venv` all through, but for what uv would install."""

    def __init__(self, root: Path, cache: Path, threads: int) -> None:
        super().__init__(cache, threads)
        self.root = root

    def _install(self, environment: PlannedEnvironment, pins: Path, folder: Path) -> None:
        broken = self.root / BROKEN
        if folder.exists():
            venv.shutil.rmtree(folder)
        bin = folder / "venv" / "bin"
        bin.mkdir(parents=True)
        if broken.exists() and environment.spec.torch in broken.read_text().split():
            raise InfrastructureError("uv pip failed: the index cannot be reached", "check the network")
        python = bin / "python"
        python.write_text(f"#!{sys.executable} -SE\n{INTERPRETER.read_text()}")
        python.chmod(0o755)
        (bin / "arrays.npz").write_bytes(_arrays(environment.id))
        story = self.root / STORY
        told = json.loads(story.read_text()).get(environment.spec.torch, {}) if story.exists() else {}
        settings = {"environment": environment.id, "observation": _observation(environment, pins), **told}
        (bin / "settings.json").write_text(json.dumps(settings))

    def run(self, task: Task) -> Answer:
        tasks = self.root / TASKS
        if tasks.exists() and task.name != "host":  # it is a part of `time`
            with tasks.open("a") as file:
                file.write(f"{task.name} {task.log.relative_to(task.log.parents[1]).with_suffix('')}\n")
        return super().run(task)

    def stop(self) -> None:
        super().stop()
        time.sleep(0.3)  # time for threads to record what they must not


def patch() -> None:
    matrix_verb.report_run = lambda folder, options: 0  # another test's matter, and a second each
    matrix_verb.check_first = lambda how, what: None  # it compiles, for real
    workflow.make_executor = lambda choice, limits, plan, root, cache: ScriptedExecutor(root, cache, plan.threads)
    launch.goes_ahead = lambda executor, device: True  # where more runs at once, more can go wrong
    indexes.probe_index = lambda index: ""
    prepare.host_facts = lambda: {"cpu": "scripted", "compiler": "scripted 1.0"}
    prepare.gpus = _gpus
    prepare.physical_cores = lambda: 1
    prepare.find_interpreter = lambda version: PYTHON
    venv.need_interpreter = lambda version: PYTHON
    running.fetch_listing = listing
    running.probe_index = lambda index: ""


def _gpus() -> list[GpuFacts]:
    path = Path(os.environ.get(PROJECT, "")) / GPU
    return [from_json_value(GpuFacts, json.loads(path.read_text()))] if path.exists() else []


NIGHTLIES = tuple(f"2.9.0.dev202507{day:02}" for day in (1, 2, 5, 6, 9, 12))
RELEASES = ("2.1.0", "2.1.1", "2.1.2", "2.2.0", "2.2.1", "2.2.2", "2.3.0", "2.3.1", "2.4.0", "2.4.1", "2.5.0")


def listing(index: str, package: str = "torch") -> list[Listed]:
    """What the index has: the releases, the nightlies of some days, one for another Python alone, one that was yanked,
    and a candidate. It has PyTorch alone."""
    assert package == "torch", package

    def wheel(version: str, python: str = "cp311", yanked: bool = False) -> Listed:
        name = f"torch-{version}+cu121-{python}-{python}-linux_x86_64.whl"
        return Listed(filename=name, yanked=yanked, requires_python=">=3.8")

    odd = [wheel("2.3.2", "cp312"), wheel("2.2.9", yanked=True), wheel("2.4.0rc1")]
    return [*map(wheel, (*RELEASES, *NIGHTLIES)), *odd]


# Events after which the file system, or a child, is another: what a kill can land between.
EVENTS = frozenset(
    {
        "os.mkdir",
        "os.rename",
        "os.remove",
        "os.rmdir",
        "os.symlink",
        "os.link",
        "os.chmod",
        "shutil.rmtree",
        "shutil.copyfile",
        "subprocess.Popen",
        "tempfile.mkstemp",
    }
)


def die_at(number: int) -> None:
    """SIGKILL to ourselves right before the file system is changed for the `number`-th time."""
    seen = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        opens = event == "open" and (arguments[2] if arguments[1] is None else "r" not in arguments[1] and os.O_WRONLY)
        if event in EVENTS or (opens and opens & (os.O_WRONLY | os.O_RDWR)):
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def _process(arguments: list[str], environment: Mapping[str, str], printed: str, die: int) -> None:
    os.environ.update(environment)
    out = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)
    keep_interrupts()
    patch()
    if die:
        die_at(die)
    try:
        code = main(arguments)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    os._exit(code)


_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.faults.scripted"])


class Scripted:
    """A project, its cache, and runs of it."""

    def __init__(self, folder: Path, versions: Sequence[str] = VERSIONS) -> None:
        self.root = make_project(folder / "project", versions)
        self.cache = folder / "cache"
        self.printed = folder / "printed.txt"

    def start(
        self, *arguments: str, die: int = 0, verb: str = "matrix", printed: Path | None = None
    ) -> ForkServerProcess:
        process = _context.Process(
            target=_process,
            args=(
                [verb, f"--matrix={self.root / 'matrix.yaml'}", "--executor=venv", *arguments],
                {"KERNEL_MATRIX_CACHE": str(self.cache), PROJECT: str(self.root)},
                str(printed or self.printed),
                die,
            ),
        )
        process.start()
        return process

    def run(self, *arguments: str, verb: str = "matrix") -> tuple[int, str]:
        process = self.start(*arguments, verb=verb)
        process.join(HANGS_S)
        assert process.exitcode is not None, f"it hangs: {self.printed.read_text()}"
        return process.exitcode, self.printed.read_text()

    def done(self, *arguments: str, verb: str = "matrix", code: int = 0) -> str:
        """What a run printed that ends with this exit code."""
        ended, printed = self.run(*arguments, verb=verb)
        assert ended == code, printed
        return printed

    def killed(self, die: int, *arguments: str, verb: str = "matrix") -> bool:
        """Whether a run that is killed before the `die`-th change of the file system came so far."""
        process = self.start(*arguments, die=die, verb=verb)
        process.join(HANGS_S)
        assert process.exitcode in (-9, 0), self.printed.read_text()
        return process.exitcode == -9

    @property
    def latest(self) -> Run:
        return Run((self.root / "reports" / "latest").resolve(strict=True))

    @property
    def kept(self) -> dict[Path, tuple[int, int]]:
        """(inode, time of change) of every finished validation, launch and crossing."""
        return identities(self.root / "reports" / "runs")

    def finish_as(self, undisturbed: Scripted, kept: Mapping[Path, tuple[int, int]] = {}) -> None:
        """A rerun completes, equals an undisturbed run, leaves nothing behind, and does nothing of `kept` again."""
        self.done()
        now = self.kept
        assert {path: now.get(path) for path in kept} == kept, "what was finished was done again, or lost"
        assert contents(self.latest) == contents(undisturbed.latest)
        assert not litter(self.root), litter(self.root)

    @property
    def runs(self) -> list[Path]:
        return sorted(path for path in (self.root / "reports" / "runs").glob("*") if path.is_dir())


def _without_own(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_own(item) for name, item in value.items() if name not in OWN}
    if isinstance(value, list):
        return [_without_own(item) for item in value]
    return value


def contents(run: Run) -> dict[str, Any]:
    """Every record of a run, by its path, without what is its own; and the digests of its arrays."""
    found: dict[str, Any] = {}
    for path in sorted(run.folder.rglob("*.json")):
        place = path.relative_to(run.folder)
        kind = place.parts[0].removesuffix(".json").removesuffix("s")
        if kind in KINDS:
            found[str(place)] = _without_own(to_json(load_record(path, KINDS[kind])))
    for path in sorted(run.folder.rglob("*.npz")):
        found[str(path.relative_to(run.folder))] = protocol.sha256_file(str(path))
    return found


def identities(folder: Path) -> dict[Path, tuple[int, int]]:
    """(inode, time of change) of every finished validation, launch and crossing."""
    return {
        path: (path.stat().st_ino, path.stat().st_mtime_ns)
        for kind in ("validations", "launches", "crossings")
        for path in folder.glob(f"*/{kind}/**/*.json")
    }


def wait_until(condition: Callable[[], bool], timeout_s: float = HANGS_S) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def check_search_survives_kills(
    draw: random.Random,
    new: Callable[[int], Scripted],
    verb: str,
    options: Sequence[str],
    *,
    rounds: int,
    kills: int,
    check: Callable[[Scripted], None],
) -> None:
    """Projects that `new` makes, in each of which a search is killed at random moments, then goes on to its end.

    What was recorded is neither measured again nor lost; nothing is left behind; and `check` holds. At least half of
    the kills land before the search is done.
    """
    landed = 0
    for number in range(rounds):
        scripted = new(number)
        kept: dict[Path, tuple[int, int]] = {}
        for die in [*(draw.randint(1, 900) for _ in range(kills)), 0]:
            if die:
                landed += scripted.killed(die, *options, verb=verb)
            else:
                scripted.done(*options, verb=verb)
            now = scripted.kept
            assert {path: now.get(path) for path in kept} == kept, "what was recorded was measured again, or lost"
            kept = now
        assert not litter(scripted.root)
        check(scripted)
    assert landed >= rounds * kills / 2, f"only {landed} of {rounds * kills} were killed before they were done"


def litter(root: Path) -> list[str]:
    """What a killed run may leave, and a finished one may not."""
    reports = root / "reports"
    return [
        str(path.relative_to(root))
        for path in reports.rglob("*")
        if path.name.endswith(".part")
        or path.name.startswith(".latest.")
        or path.name == "scratch"
        or (path.parent.name == "runs" and not (path / "run.json").is_file())
        or path.name.endswith((".request.json", ".result.json"))
    ]


if __name__ == "__main__":
    patch()
    sys.exit(main(sys.argv[1:]))
