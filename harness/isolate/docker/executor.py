"""Executor `docker`: an environment is an image, and each task runs in a fresh, confined container of it: a cell.

A cell has no network, no capability and no root; it sees the image, which it cannot write, what the task was given,
which it cannot write either, and one folder of its own, in memory, from which only what was asked for is taken back.
Its first process (docker/keeper.sh) lives as long as its connection to the harness, so that a cell never outlives
the process that wanted it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tarfile
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

from harness.config.plan import PlannedEnvironment
from harness.errors import InfrastructureError, Interrupted, Unrecorded
from harness.gpu import handed_on
from harness.isolate import MOST_RESULT_BYTES, Answer, Task, Variables, read_result
from harness.isolate.docker.connection import GONE, NO_ENGINE_REMEDY, EngineGone
from harness.isolate.docker.container import Cell, CellDied, CellLimits, open_cell
from harness.isolate.docker.engine import Engine
from harness.isolate.docker.images import RECIPE, base_identity, build_image, image_key
from harness.isolate.logs import CappedLog
from harness.isolate.process import Ended, birth, tail
from harness.isolate.prove import (
    OBSERVE_TIMEOUT_S,
    changed_wheel,
    observation,
    observe_request,
    prepared,
    stage_worker,
)
from harness.isolate.sandbox import (
    ENVIRONMENT,
    KEEPER,
    PYTHON,
    VERB,
    bring_back,
    cell_places,
    cell_variables,
    signalled,
)
from harness.isolate.transfer import Refused, pack, relocate, unpack
from harness.schema.records import Confinement, EnvironmentRecord, Observation
from harness.tools import GIB
from harness.worker import codec, protocol

AWAY_S = 90.0  # how long the engine may be away
TRIES = 3
FULL = "No space left on device"


def owner() -> str:
    """This process, so that another one can tell whether it still lives."""
    return f"{_machine()}/{os.getpid()}/{birth(os.getpid())}"


def _machine() -> str:
    """Where a process id means the same."""
    boot, space = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")
    return f"{boot.read_text().strip()}.{space.stat().st_ino}" if boot.exists() and space.exists() else "unknown"


def is_orphan(named: str) -> bool:
    """Whether the process that `owner` named is gone. One of another machine, or before a restart, is not ours."""
    machine, _, process = named.partition("/")
    pid, _, born = process.partition("/")
    if machine != _machine() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False  # it lives, and is another user's, who may hide its birth
    return birth(int(pid)) != born


def sweep(engine: Engine) -> int:
    """Remove the cells that a crash left behind; their number."""
    orphans = [container for container, named in engine.leftovers() if is_orphan(named)]
    for container in orphans:
        engine.remove_container(container)
    return len(orphans)


def unconfined(seen: Confinement | None, limits: CellLimits) -> str:
    """'' where a cell was confined as it must be, else the first thing that it could do."""
    if seen is None:
        return "it does not say how it is confined"
    found = {
        "it runs as root": seen.user_id == 0,
        "it may gain privileges": not seen.no_new_privileges,
        "no seccomp filter is on": seen.seccomp != 2,
        f"it has capabilities {seen.capabilities}": int(seen.capabilities or "1", 16) != 0,
        f"it has a network: {', '.join(seen.networks)}": bool(set(seen.networks) - {"lo"}),
        "it can write to its root file system": seen.root_writable,
        "its memory is not limited": (seen.memory_bytes or limits.memory_bytes + 1) > limits.memory_bytes,
        "its processes are not limited": (seen.processes or limits.processes + 1) > limits.processes,
    }
    return next((what for what, holds in found.items() if holds), "")


class DockerExecutor:
    name = "docker"
    holds_back = False  # its standard input is a stream over the engine's socket

    def __init__(
        self, engine: Engine, root: Path, cache: Path, threads: int, *, limits: CellLimits, gpus: str = "",
        verify: bool = False, variables: Variables | None = None,
    ) -> None:  # fmt: skip
        """`verify`: check every file of every wheel, also of an image that was checked before."""
        self.engine, self.root, self.cache, self.threads = engine, root, cache, threads
        self.limits, self.gpus, self.verify, self.variables = limits, gpus, verify, variables or {}
        self.worker = stage_worker(cache)
        self.keeper = (RECIPE / "keeper.sh").read_text()
        self.owner = owner()
        self._images: dict[str, str] = {}
        self._stopped = threading.Event()
        left = sweep(engine)
        if left:
            print(f"removed {left} containers that an earlier crash left behind")

    def folder(self, environment: EnvironmentRecord) -> Path:
        return ENVIRONMENT

    def key(self, environment: PlannedEnvironment, pins: Path | None) -> str:
        assert pins is not None
        return image_key(environment, pins, base_identity(self.engine, environment.spec.base_image))

    def prepare(self, environment: PlannedEnvironment, pins: Path | None) -> EnvironmentRecord:
        assert pins is not None
        key, make = partial(self.key, environment, pins), partial(self._make, environment, pins)
        try:
            return prepared(environment, pins, self.name, key, make)
        except EngineGone as error:
            raise self._gone(error) from None

    def _make(self, environment: PlannedEnvironment, pins: Path, key: str) -> tuple[Observation, bool, str]:
        base = base_identity(self.engine, environment.spec.base_image)
        image, reused = build_image(self.engine, environment, pins, cache=self.cache, base=base)
        if self._stopped.is_set():
            raise Interrupted()
        self._images[environment.id] = image.id
        proof = self.cache / "images" / f"{image.id.partition(':')[2][:32]}.json"
        proven = proof.exists()
        remedy = f"remove it and start again: docker rmi {image.tags[0] if image.tags else image.id}"
        log = proof.with_suffix(".observe.log")
        log.unlink(missing_ok=True)
        answer = self.run(
            Task(
                environment=environment.id,
                name="observe",
                request=observe_request(
                    self.variables.get(environment.id, {}), self.threads, verify=self.verify or not proven
                ),
                scratch=self.cache / "images" / f"scratch-{environment.id}-{os.getpid()}",
                log=log,
                timeout_s=OBSERVE_TIMEOUT_S,
            )
        )
        observed = observation(answer, remedy)
        problem = unconfined(observed.confinement, self.limits)
        if problem:
            raise InfrastructureError(f"its container is not confined: {problem}", "check the engine: docker info")
        if self.gpus and not observed.gpus:
            raise InfrastructureError(
                f"the engine was asked to hand over GPUs ({self.gpus}), and PyTorch sees none inside",
                "docker run --rm --gpus all with the same image and nvidia-smi; or --executor venv",
            )
        if proven:
            changed = changed_wheel(protocol.read_json(str(proof)), observed)
            if changed:
                raise InfrastructureError(changed, remedy)
        else:
            protocol.write_json(str(proof), {name: wheel.record_sha256 for name, wheel in observed.wheels.items()})
        return observed, reused, image.id

    def run(self, task: Task) -> Answer:
        for attempt in range(1, TRIES + 1):
            if self._stopped.is_set():
                raise Interrupted()
            shutil.rmtree(task.scratch, ignore_errors=True)
            task.scratch.mkdir(parents=True)
            try:
                self.engine.remove_lost()
                return self._attempt(task)
            except EngineGone as error:
                if self._stopped.is_set():
                    raise Interrupted() from None
                if attempt == TRIES or not self._returns():
                    raise self._gone(error) from None
            finally:
                shutil.rmtree(task.scratch, ignore_errors=True)
        raise AssertionError("unreachable")

    def _gone(self, error: EngineGone) -> Unrecorded:
        return Unrecorded(
            f"the container engine at {self.engine.address} went away: {error.problem[:300]}",
            f"{NO_ENGINE_REMEDY}; then start the same command again: it goes on from here",
        )

    def _returns(self) -> bool:
        """Wait for the engine."""
        print(f"the container engine does not answer; waiting up to {AWAY_S:.0f} s for it", flush=True)
        deadline = time.monotonic() + AWAY_S
        while time.monotonic() < deadline and not self._stopped.is_set():
            if self.engine.answers():
                return True
            time.sleep(0.5)
        return False

    def _attempt(self, task: Task) -> Answer:
        places, outputs = cell_places(task, self.root)
        shared = [f"out/{name}" for name, path in outputs.items() if path in task.reads]
        request = relocate(codec.dump(task.request), places)
        contents: list[tuple[str, Path | bytes]] = [
            ("in/worker", self.worker),
            ("in/request.json", json.dumps(request, allow_nan=False).encode()),  # in its order: recipes have one
        ]
        for path in task.reads:
            if path.exists():
                contents.append((relocate(str(path), places).lstrip("/"), path))
        started = time.monotonic()
        code: int | None = None
        timed_out, killed_by, result = False, "", None
        with tempfile.TemporaryFile(dir=task.scratch) as parcel, CappedLog(task.log) as log:
            size_bytes = pack(parcel, contents, shared=shared)
            with open_cell(
                self.engine,
                self._images[task.environment],
                self.keeper,
                [str(size_bytes), "result.json", *outputs],
                limits=self.limits,
                input_bytes=size_bytes,
                owner=self.owner,
                users=(KEEPER, VERB),
                compiles=task.compiles,
                gpus=self.gpus,
            ) as cell:
                try:
                    cell.send(parcel)
                    verb_started = time.monotonic()
                    code, timed_out = cell.run(
                        [PYTHON, "-m", "worker", task.name, "/in/request.json", "/out/result.json"],
                        user=VERB,
                        environment=self._variables(task),
                        timeout_s=task.timeout_s,
                        output=log.write,
                    )
                    duration_s = time.monotonic() - verb_started
                    if not timed_out:
                        killed_by, result = self._collect(cell, task, outputs, code)
                except (CellDied, *GONE) as error:
                    killed_by = self._autopsy(cell, error)
                    log.write(f"\n{cell.complaints.decode(errors='replace')[-2000:]}{error}\n".encode())
                    duration_s = time.monotonic() - started
        if self._stopped.is_set():
            raise Interrupted()
        ended = Ended(
            returncode=signalled(code),
            timed_out=timed_out,
            duration_s=duration_s,
            log=tail(task.log),
            killed_by=killed_by,
            overhead_s=time.monotonic() - started - duration_s,
        )
        return Answer(result=result if not killed_by else None, ended=ended)

    def _variables(self, task: Task) -> dict[str, str]:
        given = cell_variables("/in/worker", self.threads) | (handed_on() if self.gpus else {})
        return {**given, **task.variables_in(self.variables)}

    def _autopsy(self, cell: Cell, error: Exception) -> str:
        """The limit that ended a cell early, with its keeper. EngineGone where it was its engine, or the way to it."""
        if self._stopped.is_set():
            raise Interrupted() from None
        history = self.engine.history(cell.container) if self.engine.answers() else {}
        # The kernel may end a whole cell before its engine sees why; who else does, asks the engine.
        if "oom" in history or (history.get("die") == "137" and "kill" not in history):
            return self._memory_limit()
        raise EngineGone(f"a cell's connection ended: {type(error).__name__}: {error}") from None

    def _memory_limit(self) -> str:
        return f"its memory limit of {self.limits.memory_bytes / GIB:.3g} GiB"

    def _collect(
        self, cell: Cell, task: Task, outputs: dict[str, Path], code: int | None
    ) -> tuple[str, dict[str, Any] | None]:
        """(the limit that the task ran into, '' for none; its result)."""
        counts, stream = cell.collect()
        places = {"result.json": task.scratch / "result.json"}
        places |= {name: task.scratch / "out" / name for name in outputs}
        try:
            most_bytes = self.limits.output_bytes + MOST_RESULT_BYTES
            unpack(stream, places, limit_bytes=most_bytes, limit_files=self.limits.output_files)
        except Refused as error:
            return f"its output limit: it {error}", None
        except tarfile.TarError as error:
            raise CellDied(f"its parcel has no end: {error}") from None
        for name, target in outputs.items():
            bring_back(places[name], target)
        if counts.get("memory"):
            return self._memory_limit(), None
        result = read_result(places["result.json"]) if code == 0 else None
        failed = result is None or result.get("status") in (protocol.CRASHED, protocol.BUILD_FAILED)
        if failed and FULL in str((result or {}).get("message", "")) + tail(task.log):
            return f"its output limit of {self.limits.output_bytes / GIB:.3g} GiB", None
        if counts.get("processes") and (result is None or result.get("status") == protocol.CRASHED):
            return f"its limit of {self.limits.processes} processes", None
        return "", result

    def stop(self) -> None:
        self._stopped.set()
        with contextlib.suppress(EngineGone):
            for container, named in self.engine.leftovers():
                if named == self.owner:
                    self.engine.remove_container(container)
