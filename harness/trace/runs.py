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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import InfrastructureError, InputError
from harness.executors.base import stage
from harness.executors.process import tail
from harness.tools import cache_folder
from harness.trace.model import End, Trace, load_end, load_trace
from harness.worker import protocol

TRACER = Path(__file__).parent.parent / "tracer"
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
class Side:
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

    def run_plainly(self) -> End:
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


def find_programs(good: Side, bad: Side, number: int) -> dict[str, Path]:
    """Return the files of the first site of a kind, as each side stored it; empty where one of them did not."""
    files = {label: side.store / f"{label}-{number}.pt" for label, side in (("good", good), ("bad", bad))}
    return files if all(path.exists() for path in files.values()) else {}
