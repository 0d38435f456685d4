"""Starts the script inside two environments, pinned ones or the host's PyTorch, with the recorder or without it.

Every run has a folder of its own below `out`: what it printed, how it ended, its trace, and the tensors it stored.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from harness.config.environments import HOST, Environment, Package, package_versions
from harness.config.indexes import choose_indexes
from harness.config.matrix import ENVIRONMENTS, Matrix, load_matrix
from harness.config.pins import ensure_pins
from harness.config.plan import PlannedEnvironment
from harness.errors import InfrastructureError, InputError
from harness.executors.base import stage
from harness.executors.host import HostExecutor
from harness.executors.process import tail
from harness.executors.venv import VenvExecutor
from harness.search.bisect.subject import environment_of
from harness.tools import cache_folder, physical_cores
from harness.trace.model import ScriptEnd, Trace, load_end, load_trace
from harness.worker import protocol

TRACER = Path(__file__).parent.parent / "tracer"
OLDEST = (2, 1)  # the recorder needs what PyTorch 2.1 has
PIN = TypeAdapter(Package)
USAGE = "write -- python SCRIPT.py ARGUMENTS, -- python -m MODULE ARGUMENTS, or -- pytest ARGUMENTS"


@dataclass(frozen=True)
class Script:
    """What is run: `python FILE`, `python -m MODULE` or `pytest`, with its arguments, in the user's folder."""

    kind: str
    target: str
    arguments: tuple[str, ...]
    eager: bool = False
    timeout_s: float = 3600.0


def parse_script(words: Sequence[str], **more: Any) -> Script:
    """Return the script of a command. InputError where the words are no command that can be traced."""
    program, *rest = words or [""]
    if program == "pytest":
        return Script("module", "pytest", tuple(rest), **more)
    if program not in ("python", "python3") or not rest:
        raise InputError(f"{program or 'no command'}: only Python scripts and pytest can be traced", USAGE)
    if rest[0] == "-m" and len(rest) > 1:
        return Script("module", rest[1], tuple(rest[2:]), **more)
    if rest[0].startswith("-"):
        raise InputError(f"python {rest[0]}: options of Python are not supported", USAGE)
    if not Path(rest[0]).is_file():
        raise InputError(f"{rest[0]}: no such file", "name the script relative to this folder")
    return Script("file", rest[0], tuple(rest[1:]), **more)


@dataclass
class TracedVersion:
    """One version: its interpreter, and its runs of the script."""

    version: str
    python: Path
    script: Script
    out: Path
    threads: int
    variables: Mapping[str, str] = field(default_factory=dict)
    count: int = 0
    tracer: subprocess.Popen[str] | None = None

    @property
    def store(self) -> Path:
        return self.out / f"store-{self.version}"

    def run_plainly(self) -> ScriptEnd:
        """Run the script without the recorder."""
        return load_end(self.run({"is_recorded": False}))

    def record(self, **request: Any) -> Trace:
        """Run the script with the recorder. InputError where it does what the recorder cannot see."""
        folder = self.run({"is_recorded": True, **request})
        trace = load_trace(folder)
        if trace.end.unsupported:
            raise InputError(trace.end.unsupported, "see docs/trace.md, what cannot be traced")
        for path in folder.glob("*.pt"):
            self.store.mkdir(exist_ok=True)
            path.replace(self.store / path.name)
        (folder / "trace.jsonl").unlink()
        return trace

    def run(self, request: Mapping[str, Any]) -> Path:
        """Run the script with these keys of the request; return the run's folder."""
        return self._start({"task": "run", **asdict(self.script), **request}, "end.json")

    def replay(self, programs: Sequence[Path]) -> Path:
        """Run stored programs again; return the folder with `result.json`, by their files' stems, and the values."""
        return self._start({"task": "replay", "programs": {path.stem: str(path) for path in programs}}, "result.json")

    def _start(self, request: Mapping[str, Any], product: str) -> Path:
        folder = self.out / f"run-{self.version}-{self.count}"
        self.count += 1
        folder.mkdir(parents=True)
        path = folder / "request.json"
        protocol.write_json(str(path), {**request, "out": str(folder)})
        code = self._send(path)
        if not (folder / product).is_file():
            raise InfrastructureError(
                f"{self.version}: the traced process ended with {code} before it could say how: "
                f"{tail(folder / 'stderr.txt', 800) or tail(self.out / f'tracer-{self.version}.txt', 800)}",
                "run the script by itself in that version; where it works there, the recorder is at fault",
            )
        return folder

    def _send(self, request: Path) -> int:
        """Return the request's exit code. InputError where it takes too long."""
        if self.tracer is None:
            self.tracer = self._start_tracer()
        assert self.tracer.stdin is not None and self.tracer.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.tracer.stdin.write(f"{request}\n")
            self.tracer.stdin.flush()
        limit_s = self.script.timeout_s
        if not select.select([self.tracer.stdout], [], [], limit_s)[0]:
            self.close()
            raise InputError(f"{self.version}: the script took longer than {limit_s:.0f} s", "--timeout SECONDS")
        answer = self.tracer.stdout.readline().strip()
        return int(answer) if answer else self.tracer.wait()

    def _start_tracer(self) -> subprocess.Popen[str]:
        with (self.out / f"tracer-{self.version}.txt").open("ab") as errors:
            return subprocess.Popen(
                [str(self.python), "-m", "tracer"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=self._variables(),
                text=True,
                start_new_session=True,
            )

    def close(self) -> None:
        """End the tracer, and what it started."""
        if self.tracer is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.tracer.pid, signal.SIGKILL)
            with contextlib.suppress(BrokenPipeError):
                self.tracer.communicate()
            self.tracer = None

    def _variables(self) -> dict[str, str]:
        """Return the user's variables, but for what would make the versions differ in more than PyTorch."""
        users = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONHOME")}
        paths = [str(stage(cache_folder(), TRACER)), users.get("PYTHONPATH", "")]
        return {
            **users,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "PYTHONHASHSEED": "0",
            "PYTHONNOUSERSITE": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": users.get("OMP_NUM_THREADS", str(self.threads)),
            "PATH": f"{self.python.parent}{os.pathsep}{users.get('PATH', '')}",
            **self.variables,
        }


def find_programs(good: TracedVersion, bad: TracedVersion, number: int) -> dict[str, Path]:
    """Return the files of the first site of a kind, as each side stored it; empty where one of them did not."""
    files = {label: side.store / f"{label}-{number}.pt" for label, side in (("good", good), ("bad", bad))}
    return files if all(path.exists() for path in files.values()) else {}


# -- environments -------------------------------------------------------------------------------------------------


def load_requirements(path: Path) -> list[str]:
    """Return the exact pins of a file, but for torch's: both versions must have the same of everything. InputError
    where the file cannot be read, or a line is no exact pin."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", "name the file of the script's packages") from None
    pins = []
    for number, line in enumerate(lines, 1):
        pin = line.partition("#")[0].strip()
        try:
            if pin and "torch" not in package_versions([PIN.validate_python(pin)]):
                pins.append(pin)
        except ValidationError:
            raise InputError(f"{path}:{number}: {pin!r} is no exact version", "write it as NAME==VERSION") from None
    return pins


def make_matrix(path: Path, versions: Sequence[str], requirements: Sequence[str]) -> Matrix:
    """Return a matrix of the two environments: those of matrix.yaml where it has these versions, else the usual
    ones."""
    for version in versions:
        numbers = version.partition(".dev")[0].split(".")
        if version != HOST and tuple(int(number) for number in numbers[:2] if number.isdecimal()) < OLDEST:
            raise InputError(f"PyTorch {version}: the recorder needs 2.1 or newer", "choose a later version")
    matrix = load_matrix(path)[0] if path.exists() else Matrix.model_construct(baseline=ENVIRONMENTS[0].id())
    good, bad = (_find_environment(matrix, version, versions[0]) for version in versions)
    if good == bad:
        bad = bad.model_copy(update={"replica": 1})
    required = package_versions(requirements)
    packages = [pin for pin in matrix.packages if required.keys().isdisjoint(package_versions([pin]))]
    changes = {"environments": [good, bad], "packages": [*packages, *requirements], "kernels": [], "operators": []}
    return matrix.model_copy(update={**changes, "baseline": good.id()})


def _find_environment(matrix: Matrix, version: str, good: str) -> Environment:
    """Return the environment of a version: the good one's, with the packages that matrix.yaml gives this version."""
    if version == HOST:
        return Environment(torch=HOST)
    environment = environment_of(matrix, version, good)
    own = next((spec for spec in matrix.pinned_environments if spec.torch == version and spec.packages), None)
    if own is None or version == good:
        return environment
    return environment.model_copy(update={"packages": own.packages})


def prepare(matrix: Matrix, root: Path, script: Script, out: Path) -> tuple[list[TracedVersion], list[str]]:
    """Return the two sides, their environments made and proven; and notes on what differs from what was asked for.

    InfrastructureError where an environment cannot be made, InputError where it lacks what the script starts with.
    """
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    indexes, fallbacks = choose_indexes(matrix, strict=False)
    notes = list(dict.fromkeys(f"wheels come from a fallback: {reason}" for reason in fallbacks.values()))
    sides, pythons = list[TracedVersion](), dict[str, str]()
    for spec in matrix.environments:
        environment = PlannedEnvironment(spec=spec, index=indexes.get(spec.id(), ""))
        side, python = _prepare_side(environment, matrix, root, script, out)
        if sides and side.version == sides[0].version:
            side.version = f"{side.version}-again"
        sides.append(side)
        pythons[side.version] = python
    if len(set(pythons.values())) > 1:
        notes.append("; ".join(f"{version} runs on Python {python}" for version, python in pythons.items()))
    return sides, notes


def _prepare_side(
    environment: PlannedEnvironment, matrix: Matrix, root: Path, script: Script, out: Path
) -> tuple[TracedVersion, str]:
    """Return a side, and its Python's version."""
    is_host, threads = environment.spec.is_host, physical_cores()
    executor = HostExecutor(cache_folder(), threads) if is_host else VenvExecutor(cache_folder(), threads)
    pins = None if is_host else ensure_pins(root, environment, matrix)[0]
    record = executor.prepare(environment, pins)
    if record.status != protocol.OK:
        raise InfrastructureError(f"{environment.id}: {record.message}", "see: nox -s doctor")
    if script.kind == "module" and script.target == "pytest" and pins is not None and "pytest" not in record.pins:
        remedy = "--requirements FILE, with a line such as pytest==8.3.4"
        raise InputError("pytest: not in the environments", remedy)
    side = TracedVersion(record.torch, executor.python(environment.id), script, out, threads)
    if is_host:
        side.variables = {"PYTHONNOUSERSITE": ""}  # its packages may be the user's own
    return side, record.python
