"""Executor `docker`: an environment is an image, and each task runs in a fresh, confined container of it: a sandbox.

A sandbox has no network, no capability and no root; it sees the image, which it cannot write, what the task was given,
which it cannot write either, and one folder of its own, in memory, from which only what was asked for is taken back.
Its first process (docker/keeper.sh) lives as long as its connection to the harness, so that a sandbox never outlives
the process that started it.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.config.plan import PlannedEnvironment
from harness.errors import InfrastructureError, Interrupted, Unrecorded
from harness.gpu import handed_on
from harness.isolate import MOST_RESULT_BYTES, Answer, Task, Variables, read_result
from harness.isolate.base import BaseExecutor, keep_wheels, kept_wheels
from harness.isolate.docker.connection import GONE, NO_ENGINE_REMEDY, EngineGone
from harness.isolate.docker.container import Container, ContainerDied, open_container
from harness.isolate.docker.engine import Engine
from harness.isolate.docker.images import RECIPE, base_identity, build_image, image_key
from harness.isolate.logs import CappedLog
from harness.isolate.process import Ended, is_orphan, owner, tail
from harness.isolate.sandbox import (
    ENVIRONMENT,
    KEEPER_USER,
    PYTHON,
    TASK_USER,
    SandboxLimits,
    bring_back,
    sandbox_paths,
    sandbox_variables,
    signalled,
    unconfined,
)
from harness.isolate.transfer import Refused, pack, relocate, unpack
from harness.schema.environment_records import EnvironmentRecord, Observation
from harness.tools import GIB
from harness.worker import codec, protocol

AWAY_S = 90.0  # how long the engine may be away
TRIES = 3
FULL = "No space left on device"


def sweep(engine: Engine) -> int:
    """Remove the sandboxes that a crash left behind; their number."""
    orphans = [container for container, named in engine.leftovers() if is_orphan(named)]
    for container in orphans:
        engine.remove_container(container)
    for volume, named in list(engine.volumes()):
        if is_orphan(named):
            engine.remove_volume(volume)
    return len(orphans)


class DockerExecutor(BaseExecutor):
    name = "docker"
    holds_back = False  # its standard input is a stream over the engine's socket

    def __init__(
        self,
        engine: Engine,
        root: Path,
        cache: Path,
        threads: int,
        *,
        limits: SandboxLimits,
        gpus: str = "",
        verify: bool = False,
        variables: Variables | None = None,
    ) -> None:
        """`verify`: check every file of every wheel, also of an image that was checked before."""
        super().__init__(cache, threads, variables)
        self.engine, self.root, self.limits, self.gpus, self.verify = engine, root, limits, gpus, verify
        self.keeper = (RECIPE / "keeper.sh").read_text()
        self.owner = owner()
        self._images: dict[str, str] = {}
        left = sweep(engine)
        if left:
            print(f"removed {left} containers that an earlier crash left behind")

    def folder(self, environment: EnvironmentRecord) -> Path:
        return ENVIRONMENT

    def binds(self, environment: str) -> bool:
        return self.engine.facts().local and bool(self.engine.info.get("CPUSet"))

    def key(self, environment: PlannedEnvironment, pins: Path | None) -> str:
        assert pins is not None
        return image_key(environment, pins, base_identity(self.engine, environment.spec.base_image))

    def prepare(self, environment: PlannedEnvironment, pins: Path | None) -> EnvironmentRecord:
        try:
            return super().prepare(environment, pins)
        except EngineGone as error:
            raise self._gone(error) from None

    def _make(self, environment: PlannedEnvironment, pins: Path | None, key: str) -> tuple[Observation, bool, str]:
        assert pins is not None
        base = base_identity(self.engine, environment.spec.base_image)
        image, reused = build_image(self.engine, environment, pins, cache=self.cache, base=base)
        self._refuse_if_stopped()
        self._images[environment.id] = image.id
        proof = self.cache / "images" / f"{image.id.partition(':')[2][:32]}.wheels.json"
        remedy = f"remove it and start again: docker rmi {image.tags[0] if image.tags else image.id}"
        observed = self._observe(environment, verify=self.verify or kept_wheels(proof) is None, remedy=remedy)
        problem = unconfined(observed.confinement, self.limits)
        if problem:
            raise InfrastructureError(f"its container is not confined: {problem}", "check the engine: docker info")
        if self.gpus and not observed.gpus:
            raise InfrastructureError(
                f"the engine was asked to hand over GPUs ({self.gpus}), and PyTorch sees none inside",
                "docker run --rm --gpus all with the same image and nvidia-smi; or --executor venv",
            )
        keep_wheels(proof, observed, remedy)
        return observed, reused, image.id

    @contextlib.contextmanager
    def linking(self, _environment: str) -> Iterator[Path]:
        with contextlib.ExitStack() as stack:
            try:
                volume = stack.enter_context(self.engine.linking(self.owner))
            except EngineGone as error:
                raise self._gone(error) from None
            yield Path("/", volume)

    def run(self, task: Task) -> Answer:
        for attempt in range(1, TRIES + 1):
            self._refuse_if_stopped()
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
                if task.link is not None:  # the task that it worked with has lost it: who started both begins anew
                    lost = Ended(returncode=-signal.SIGKILL, timed_out=False, duration_s=0.0, log=tail(task.log))
                    return Answer(result=None, ended=lost)
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
        places, outputs = sandbox_paths(task, self.root)
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
        with tempfile.TemporaryFile(dir=task.scratch) as archive, CappedLog(task.log) as log:
            size_bytes = pack(archive, contents, shared=shared)
            with open_container(
                self.engine,
                self._images[task.environment],
                self.keeper,
                [str(size_bytes), "result.json", *outputs],
                limits=self.limits,
                input_bytes=size_bytes,
                owner=self.owner,
                users=(KEEPER_USER, TASK_USER),
                compiles=task.compiles,
                gpus=self.gpus,
                link=task.link.name if task.link else "",
                processors=task.processors,
            ) as sandbox:
                try:
                    sandbox.send(archive)
                    task_started = time.monotonic()
                    code, timed_out = sandbox.run(
                        [PYTHON, "-m", "worker", task.name, "/in/request.json", "/out/result.json"],
                        user=TASK_USER,
                        environment=self._variables(task),
                        timeout_s=task.timeout_s,
                        until=task.until,
                        output=log.write,
                    )
                    duration_s = time.monotonic() - task_started
                    if not timed_out:
                        killed_by, result = self._collect(sandbox, task, outputs, code)
                except (ContainerDied, *GONE) as error:
                    killed_by = self._why_it_died(sandbox, error)
                    log.write(f"\n{sandbox.complaints.decode(errors='replace')[-2000:]}{error}\n".encode())
                    duration_s = time.monotonic() - started
        self._refuse_if_stopped()
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
        given = sandbox_variables(self.threads) | (handed_on() if self.gpus else {})
        return {**given, **task.variables_in(self.variables)}

    def _why_it_died(self, sandbox: Container, error: Exception) -> str:
        """The limit that ended a sandbox and its keeper. EngineGone where it was its engine, or the way to it."""
        self._refuse_if_stopped()
        history = self.engine.history(sandbox.container) if self.engine.answers() else {}
        # The kernel may end a whole sandbox before its engine sees why; who else does, asks the engine.
        if "oom" in history or (history.get("die") == "137" and "kill" not in history):
            return self._memory_limit()
        raise EngineGone(f"a sandbox's connection ended: {type(error).__name__}: {error}") from None

    def _memory_limit(self) -> str:
        return f"its memory limit of {self.limits.memory_bytes / GIB:.3g} GiB"

    def _collect(
        self, sandbox: Container, task: Task, outputs: dict[str, Path], code: int | None
    ) -> tuple[str, dict[str, Any] | None]:
        """(the limit that the task ran into, '' for none; its result)."""
        counts, stream = sandbox.collect()
        places = {"result.json": task.scratch / "result.json"}
        places |= {name: task.scratch / "out" / name for name in outputs}
        try:
            most_bytes = self.limits.output_bytes + MOST_RESULT_BYTES
            unpack(stream, places, limit_bytes=most_bytes, limit_files=self.limits.output_files)
        except Refused as error:
            return f"its output limit: it {error}", None
        except tarfile.TarError as error:
            raise ContainerDied(f"what it left has no end: {error}") from None
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
