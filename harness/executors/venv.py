"""Executor `venv`: an environment is a virtual environment, made by uv from its pin file.

It needs neither a container engine nor root. It is no sandbox: a candidate can reach whatever the user can, and the
page says so.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import filelock

from harness.errors import HarnessError, InfrastructureError
from harness.executors import Answer
from harness.inside import protocol
from harness.interpreters import Interpreter, need_interpreter
from harness.matrix import PYPI
from harness.pins import load_pins, normalise
from harness.plan import PlannedEnvironment
from harness.process import run_child
from harness.records import EnvironmentRecord, Observation, Status
from harness.tools import uv_command

OBSERVE_TIMEOUT_S = 600
# Without stored bytecode importing torch takes three times as long; what runs candidates stores none.
STORES_BYTECODE = ("observe", "build", "judge")
INSIDE = Path(__file__).parent.parent / "inside"


def inside_digest() -> str:
    """Digest of the code that runs inside environments."""
    state = hashlib.sha256()
    for path in sorted(INSIDE.glob("*.py")):
        state.update(f"{path.name}\0{protocol.sha256_file(str(path))}\n".encode())
    return state.hexdigest()


def stage_inside(cache: Path) -> Path:
    """A copy of `harness/inside`, and nothing else of ours, for PYTHONPATH; edits here do not reach a running run."""
    folder = cache / "inside" / inside_digest()[:16]
    if not folder.exists():
        part = folder.with_name(f".{folder.name}.{os.getpid()}.part")
        shutil.copytree(INSIDE, part / "inside", ignore=shutil.ignore_patterns("__pycache__"))
        try:
            part.rename(folder)
        except OSError:  # another run was first
            shutil.rmtree(part)
    return folder


def environment_key(environment: PlannedEnvironment, pins: Path, interpreter: Interpreter | None) -> str:
    """Digest of all that determines an environment."""
    return protocol.digest(
        [
            environment.id,
            environment.index,
            environment.spec.replica,
            protocol.sha256_file(str(pins)),
            str(interpreter),
        ]
    )


class VenvExecutor:
    name = "venv"

    def __init__(self, cache: Path, threads: int) -> None:
        self.cache, self.threads = cache, threads
        self.inside = stage_inside(cache)
        self._pythons: dict[str, Path] = {}

    def folder(self, environment: EnvironmentRecord) -> Path:
        return self.cache / "environments" / f"{environment.id}-{environment.key[:12]}"

    def prepare(self, environment: PlannedEnvironment, pins: Path) -> EnvironmentRecord:
        started = time.monotonic()
        key, folder, reused, observed = "", None, False, None
        status: Status = protocol.OK
        message = ""
        try:
            interpreter = need_interpreter(environment.spec.python)
            key = environment_key(environment, pins, interpreter)
            folder = self.cache / "environments" / f"{environment.id}-{key[:12]}"
            lock = self.cache / "locks" / f"{folder.name}.lock"
            lock.parent.mkdir(parents=True, exist_ok=True)
            with filelock.FileLock(lock):
                reused = (folder / "complete.json").exists()
                if not reused:
                    self._install(environment, pins, interpreter.path, folder)
                observed = self._observe(environment, folder, verify=not reused)
                problem = self._mismatch(environment, pins, folder, observed)
                if problem:
                    status, message = protocol.BROKEN, problem
                elif not reused:
                    protocol.write_json(
                        str(folder / "complete.json"),
                        {
                            "key": key,
                            "wheels": {name: w.record_sha256 for name, w in observed.wheels.items()},
                        },
                    )
            self._pythons[environment.id] = folder / "venv" / "bin" / "python"
        except HarnessError as error:
            status, message = protocol.BROKEN, str(error)
        return EnvironmentRecord(
            id=environment.id,
            torch=environment.spec.torch,
            cuda=environment.spec.cuda,
            python=environment.spec.python,
            replica=environment.spec.replica,
            index=environment.index,
            executor=self.name,
            key=key,
            pins=load_pins(pins),
            pins_sha256=protocol.sha256_file(str(pins)),
            prepared_s=round(time.monotonic() - started, 3),
            reused=reused,
            observed=observed,
            status=status,
            message=message,
        )

    def _install(self, environment: PlannedEnvironment, pins: Path, interpreter: str, folder: Path) -> None:
        if folder.exists():  # an interrupted installation
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        venv = folder / "venv"
        _uv("venv", "--no-config", "--python", interpreter, str(venv))
        indexes = ["--default-index", PYPI]
        if environment.index != PYPI:
            # Hashes fix the bytes, so it does not matter which index a version is found on.
            indexes += ["--index", environment.index, "--index-strategy", "unsafe-best-match"]
        _uv(
            "pip",
            "install",
            "--no-config",
            "--python",
            str(venv / "bin" / "python"),
            "--require-hashes",
            "--no-deps",
            "--only-binary",
            ":all:",
            *indexes,
            "--requirements",
            str(pins),
        )

    def _observe(self, environment: PlannedEnvironment, folder: Path, *, verify: bool) -> Observation:
        self._pythons[environment.id] = folder / "venv" / "bin" / "python"
        scratch = folder / "scratch"
        log = folder / "observe.log"
        log.unlink(missing_ok=True)
        answer = self.run(
            environment.id,
            "observe",
            {"threads": self.threads, "verify": verify},
            scratch=scratch,
            log=log,
            timeout_s=OBSERVE_TIMEOUT_S,
        )
        if answer.result is None:
            raise InfrastructureError(
                f"{environment.id}: observing it {answer.ended.how}: {answer.ended.log[-600:]}",
                f"remove {folder} and start again",
            )
        damaged = answer.result.pop("damaged", [])
        if damaged:
            raise InfrastructureError(
                f"{environment.id}: {damaged[0]} is not the file that its wheel brought ({len(damaged)} such)",
                f"remove {folder} and start again",
            )
        return Observation.model_validate(answer.result)

    def _mismatch(self, environment: PlannedEnvironment, pins: Path, folder: Path, seen: Observation) -> str:
        """'' where the environment is what was asked for, else the first thing that is not."""
        spec = environment.spec
        if seen.torch.partition("+")[0] != spec.torch:
            return f"asked for PyTorch {spec.torch}, found {seen.torch} inside"
        if not seen.python.startswith(f"{spec.python}."):
            return f"asked for Python {spec.python}, found {seen.python} inside"
        if environment.index == spec.wheel_index and seen.torch_cuda != spec.cuda:
            return f"asked for CUDA {spec.cuda}, found a build for {seen.torch_cuda} inside"
        wanted = {name: version.partition("+")[0] for name, version in load_pins(pins).items()}
        found = {normalise(name): wheel.version.partition("+")[0] for name, wheel in seen.wheels.items()}
        for name in sorted(wanted.keys() | found.keys()):
            if wanted.get(name) != found.get(name):
                return f"{name}: pinned {wanted.get(name, 'nothing')}, found {found.get(name, 'nothing')} inside"
        marker = folder / "complete.json"
        if marker.exists():
            recorded = protocol.read_json(str(marker))["wheels"]
            changed = [name for name, wheel in seen.wheels.items() if recorded.get(name) != wheel.record_sha256]
            if changed:
                return f"{changed[0]}: its list of files changed since it was installed; remove {folder}"
        return ""

    def run(
        self, environment: str, verb: str, request: dict[str, Any], *, scratch: Path, log: Path, timeout_s: float
    ) -> Answer:
        python = self._pythons[environment]
        if scratch.exists():
            shutil.rmtree(scratch)
        scratch.mkdir(parents=True)
        asked, result = log.with_suffix(".request.json"), log.with_suffix(".result.json")
        result.unlink(missing_ok=True)
        protocol.write_json(str(asked), request)
        home = scratch / "home"
        home.mkdir()
        ended = run_child(
            [str(python), "-m", "inside", verb, str(asked), str(result)],
            cwd=scratch,
            log=log,
            timeout_s=timeout_s,
            environment={
                "PYTHONPATH": str(self.inside),
                "VIRTUAL_ENV": str(python.parent.parent),
                "HOME": str(home),
                "PATH": f"{python.parent}{os.pathsep}{os.environ.get('PATH', '')}",
                **({} if verb in STORES_BYTECODE else {"PYTHONDONTWRITEBYTECODE": "1"}),
                "OMP_NUM_THREADS": str(self.threads),
                "MKL_NUM_THREADS": str(self.threads),
                "OPENBLAS_NUM_THREADS": "1",  # numpy computes the truth, a trial a thread
            },
        )
        value = None
        if ended.returncode == 0 and not ended.timed_out and result.exists():
            value = protocol.read_json(str(result))
        for path in (asked, result):
            path.unlink(missing_ok=True)
        shutil.rmtree(scratch, ignore_errors=True)
        return Answer(result=value, ended=ended)


def _uv(*arguments: str) -> None:
    done = subprocess.run(
        [*uv_command(), *arguments],
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"},
    )
    if done.returncode:
        raise InfrastructureError(
            f"uv {arguments[0]} failed: {' '.join(done.stderr.split())[-800:]}",
            "check disk and network with: nox -s doctor",
        )
