"""Starts the script inside the environments, with the recorder or without it.

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from harness.config.environments import Environment, Package, package_versions
from harness.config.indexes import choose_indexes
from harness.config.matrix import ENVIRONMENTS, Matrix, load_matrix
from harness.config.pins import ensure_pins
from harness.config.plan import PlannedEnvironment
from harness.errors import InfrastructureError, InputError
from harness.isolate.base import stage
from harness.isolate.process import tail
from harness.isolate.venv import VenvExecutor
from harness.schema.environment_records import EnvironmentRecord
from harness.tools import cache_folder, physical_cores
from harness.trace.model import End, Trace, load_end, load_trace
from harness.worker import protocol

OLDEST = (2, 1)  # the recorder needs what PyTorch 2.1 has
PIN = TypeAdapter(Package)
TRACER = Path(__file__).parent.parent / "tracer"
Steps = tuple[int, int | None]  # the first one, and the one behind the last


@dataclass(frozen=True)
class Script:
    """What is run: `python FILE`, `python -m MODULE` or `pytest`, with its arguments, in the user's folder."""

    kind: str
    target: str
    arguments: tuple[str, ...]
    eager: bool = False
    timeout_s: float = 3600.0
    only: str = ""  # the module below which operators are recorded
    steps: Steps | None = None

    @property
    def part(self) -> str:
        """What is recorded, in words; empty: all."""
        first, stop = self.steps or (0, None)
        last = "the last" if stop is None else f"{stop - 1}"
        steps = "" if self.steps is None else f"step {first}" if last == f"{first}" else f"steps {first} to {last}"
        return " in ".join(filter(None, [self.only, steps]))

    @property
    def options(self) -> list[str]:
        """As they were typed."""
        first, stop = self.steps or (0, None)
        span = f"--steps={first}:{'' if stop is None else stop}"
        chosen = ((self.eager, "--eager"), (self.only, f"--only={self.only}"), (self.steps, span))
        return [word for is_given, word in chosen if is_given]

    @property
    def package(self) -> str:
        return self.target.partition(".")[0] if self.kind == "module" else ""


def parse_script(words: Sequence[str], **more: Any) -> Script:
    """InputError where the words are no command that can be traced."""
    program, *rest = words or [""]
    known = "write -- python SCRIPT.py ARGUMENTS, -- python -m MODULE ARGUMENTS, or -- pytest ARGUMENTS"
    if program == "pytest":
        return Script("module", "pytest", tuple(rest), **more)
    if program not in ("python", "python3") or not rest:
        raise InputError(f"{program or 'no command'}: only Python scripts and pytest can be traced", known)
    if rest[0] == "-m" and len(rest) > 1:
        return Script("module", rest[1], tuple(rest[2:]), **more)
    if rest[0].startswith("-"):
        raise InputError(f"python {rest[0]}: options of Python are not supported", known)
    if not Path(rest[0]).is_file():
        raise InputError(f"{rest[0]}: no such file", "name the script relative to this folder")
    return Script("file", rest[0], tuple(rest[1:]), **more)


@dataclass
class Side:
    """One version: its interpreter, and its runs of the script."""

    version: str
    python: Path
    script: Script
    out: Path
    threads: int
    pins: Path
    environment: EnvironmentRecord
    count: int = 0
    tracer: subprocess.Popen[str] | None = None

    @property
    def store(self) -> Path:
        return self.out / f"store-{self.version}"

    def plain(self) -> End:
        """Run it without the recorder."""
        return load_end(self.run({"with": "nothing"}))

    def record(self, **request: Any) -> Trace:
        """Run it with the recorder. InputError where the script does what the recorder cannot see."""
        folder = self.run({"with": "record", **request})
        trace = load_trace(folder)
        if trace.end.unsupported:
            raise InputError(trace.end.unsupported, "see docs/trace.md, what cannot be traced")
        for path in folder.glob("*.pt"):
            self.store.mkdir(exist_ok=True)
            path.replace(self.store / path.name)
        (folder / "trace.jsonl").unlink()
        return trace

    def replay(self, programs: Sequence[Path]) -> Path:
        """Run stored programs again; the folder with `result.json`, by their files' stems, and the values."""
        request = {"task": "replay", "programs": {path.stem: str(path) for path in programs}}
        return self._start(request, "result.json")

    def vary(self, programs: Sequence[Path], factors: Sequence[str]) -> list[list[Any]]:
        """Run stored programs again with each factor changed in turn: of every program and factor the outputs' bits,
        as `tracer.factors.vary_all` has them."""
        request = {"task": "vary", "factors": factors, "programs": {path.stem: str(path) for path in programs}}
        found: dict[str, Any] = protocol.read_json(str(self._start(request, "result.json") / "result.json"))
        return [found[path.stem] for path in programs]

    def timed(self) -> tuple[End, list[str], list[int]]:
        """Run it under the timer: how it ended, and names and nanoseconds of its operators, in their order."""
        folder = self.run({"with": "time"})
        found = protocol.read_json(str(folder / "operators.json"))
        names = [name.removeprefix("aten::") for name in found["names"]]
        return load_end(folder), names, found["values"]

    def memory(self) -> tuple[list[str], list[int]]:
        """Names of its operators, in their order, and the most bytes that each call needs, by PyTorch's allocators."""
        found = protocol.read_json(str(self.run({"with": "memory"}) / "operators.json"))
        return [name.removeprefix("aten::") for name in found["names"]], found["values"]

    def problems(self, regions: Sequence[Mapping[str, str]]) -> Path:
        """Write stored regions as problem files; the folder with them and `result.json`, by their names."""
        return self._start({"task": "problems", "regions": regions}, "result.json")

    def run(self, more: Mapping[str, Any]) -> Path:
        """Run it with these keys of the request besides; its folder."""
        script = self.script
        request = {
            "task": "run", "kind": script.kind, "target": script.target, "arguments": script.arguments,
            "eager": script.eager, "only": script.only, "steps": script.steps, **more,
        }  # fmt: skip
        return self._start(request, "end.json")

    def _start(self, request: Mapping[str, Any], makes: str) -> Path:
        folder = self.out / f"run-{self.version}-{self.count}"
        self.count += 1
        folder.mkdir(parents=True)
        written = folder / "request.json"
        protocol.write_json(str(written), {**request, "out": str(folder)})
        code = self._ask(written)
        if not (folder / makes).is_file():
            raise InfrastructureError(
                f"{self.version}: the traced process ended with {code} before it could say how: "
                f"{tail(folder / 'stderr.txt', 800) or tail(self.out / f'tracer-{self.version}.txt', 800)}",
                "run the script by itself in that version; where it works there, the recorder is at fault",
            )
        return folder

    def _ask(self, request: Path) -> int:
        """Its exit code, by the tracer, which is started where it does not run. InputError where it takes too long."""
        if self.tracer is None:
            with (self.out / f"tracer-{self.version}.txt").open("ab") as errors:
                self.tracer = subprocess.Popen(
                    [str(self.python), "-m", "tracer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                    env=self._variables(), text=True, start_new_session=True,
                )  # fmt: skip
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

    def close(self) -> None:
        """End the tracer, and what it started."""
        if self.tracer is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.tracer.pid, signal.SIGKILL)
            self.tracer.wait()
            for pipe in (self.tracer.stdin, self.tracer.stdout):
                with contextlib.suppress(OSError):
                    if pipe is not None:
                        pipe.close()
            self.tracer = None

    def _variables(self) -> dict[str, str]:
        """The user's, but for what would make the versions differ in more than PyTorch."""
        own = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONHOME")}
        paths = [str(stage(cache_folder(), TRACER)), *filter(None, [own.get("PYTHONPATH", "")])]
        threads = str(self.threads)
        return {
            **own,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONHASHSEED": "0",
            "PYTHONNOUSERSITE": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": own.get("OMP_NUM_THREADS", threads),
            "PATH": f"{self.python.parent}{os.pathsep}{own.get('PATH', '')}",
        }


def stored_programs(good: Side, bad: Side, place: int) -> dict[str, Path]:
    """The first origin of a kind, as each side stored it, by side; empty where one of them did not."""
    found = {label: side.store / f"{label}-{place}.pt" for label, side in (("good", good), ("bad", bad))}
    return found if all(path.exists() for path in found.values()) else {}


# -- environments -----------------------------------------------------------------------------------------------


def load_requirements(path: Path) -> list[str]:
    """As `parse_requirements`; InputError where the file cannot be read, too."""
    try:
        return parse_requirements(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", "name the file of the script's packages") from None


def parse_requirements(text: str, path: str) -> list[str]:
    """Exact pins. InputError where a line is none: both versions must have the same of everything."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        try:
            PIN.validate_python(line)
        except ValidationError:
            raise InputError(f"{path}:{number}: {line!r} is no exact version", "write it as NAME==VERSION") from None
        if "torch" not in package_versions([line]):
            found.append(line)
    return found


def make_matrix(path: Path, versions: Sequence[str], requirements: Sequence[str]) -> Matrix:
    """The environments: those of matrix.yaml where it has these versions, else the usual ones."""
    from harness.search.bisect.subject import environment_of

    for version in versions:
        numbers = version.partition(".dev")[0].split(".")
        if tuple(int(each) for each in numbers[:2] if each.isdecimal()) < OLDEST:
            raise InputError(f"PyTorch {version}: the recorder needs 2.1 or newer", "choose a later version")
    matrix = load_matrix(path)[0] if path.exists() else Matrix.model_construct(baseline=ENVIRONMENTS[0].id())
    environments: list[Environment] = [environment_of(matrix, version, versions[0]) for version in versions]
    if environments[0] == environments[1]:
        environments[1] = environments[1].model_copy(update={"replica": 1})
    given = package_versions(requirements)
    kept = [each for each in matrix.packages if given.keys().isdisjoint(package_versions([each]))]
    made = {"environments": environments, "packages": [*kept, *requirements], "kernels": [], "operators": []}
    return matrix.model_copy(update={**made, "baseline": environments[0].id()})


def prepare(
    matrix: Matrix, root: Path, versions: Sequence[str], script: Script, out: Path
) -> tuple[list[Side], list[str]]:
    """The two sides, their environments made and proven; and what differs from what was asked for, in words.

    InfrastructureError where an environment cannot be made, InputError where it lacks what the script starts with.
    """
    indexes, fallbacks = choose_indexes(matrix, strict=False)
    threads = physical_cores()
    executor = VenvExecutor(cache_folder(), threads)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    sides = list[Side]()
    notes = list(dict.fromkeys(f"wheels come from a fallback: {why}" for why in fallbacks.values()))
    for version, spec in zip(versions, matrix.environments, strict=True):
        environment = PlannedEnvironment(spec=spec, index=indexes[spec.id()])
        pins, _ = ensure_pins(root, environment, matrix)
        record = executor.prepare(environment, pins)
        if record.status != protocol.OK:
            raise InfrastructureError(f"{environment.id}: {record.message}", "see: nox -s doctor")
        if script.package == "pytest" and "pytest" not in record.pins:
            remedy = "--requirements FILE, with a line such as pytest==8.3.4"
            raise InputError("pytest: not in the environments", remedy)
        python = executor.folder(record) / "venv" / "bin" / "python"
        label = version if version not in [side.version for side in sides] else f"{version}-again"
        sides.append(Side(label, python, script, out, threads, pins, record))
    return sides, notes
