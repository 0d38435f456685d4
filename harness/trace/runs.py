"""Starts the script inside the environments, with the recorder or without it.

Every run has a folder of its own below `out`: what it printed, how it ended, its trace, and the tensors it stored.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import InfrastructureError, InputError
from harness.isolate.base import stage
from harness.isolate.process import tail
from harness.schema.environment_records import EnvironmentRecord
from harness.tools import cache_folder
from harness.trace.model import End, Trace, load_end, load_trace
from harness.worker import protocol

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
    environment: EnvironmentRecord
    variables: Mapping[str, str] = field(default_factory=dict)
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

    def run(self, more: Mapping[str, Any]) -> Path:
        """Run it with these keys of the request besides; its folder."""
        script = self.script
        request = {
            "task": "run",
            "kind": script.kind,
            "target": script.target,
            "arguments": script.arguments,
            "eager": script.eager,
            "only": script.only,
            "steps": script.steps,
            **more,
        }
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
                    [str(self.python), "-m", "tracer"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env=self._variables(),
                    text=True,
                    start_new_session=True,
                )
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
        given = [path for path in own.get("PYTHONPATH", "").split(os.pathsep) if path]
        paths = os.pathsep.join([str(stage(cache_folder(), TRACER)), *given])
        return {
            **own,
            "PYTHONPATH": paths,
            "PYTHONHASHSEED": "0",
            "PYTHONNOUSERSITE": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": own.get("OMP_NUM_THREADS", str(self.threads)),
            "PATH": f"{self.python.parent}{os.pathsep}{own.get('PATH', '')}",
            **self.variables,
        }


def stored_programs(good: Side, bad: Side, place: int | None) -> dict[str, Path]:
    """The first origin of a kind, as each side stored it, by side; empty where one of them did not."""
    found = {label: side.store / f"{label}-{place}.pt" for label, side in (("good", good), ("bad", bad))}
    return found if all(path.exists() for path in found.values()) else {}
