"""What executors share: the staged worker, and the proof that an environment is what was asked for."""

from __future__ import annotations

import abc
import contextlib
import hashlib
import shutil
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from harness.config.environments import package_versions, threads_in
from harness.config.pins import load_pins
from harness.config.plan import PlannedEnvironment
from harness.errors import HarnessError, InfrastructureError, Interrupted, Unrecorded
from harness.executors import Answer, Task, Terms, Variables
from harness.executors.bwrap import Bwrap
from harness.executors.process import end_descendants, is_orphan, owner, temporary_folder
from harness.executors.sandbox import SandboxLimits, hand_over, unconfined
from harness.gpu import gpus
from harness.schema.environment_records import EnvironmentRecord, Observation
from harness.schema.records import Status
from harness.tools import cache_lock
from harness.worker import blame, codec, protocol, wire
from harness.worker.wheels import normalise

R = TypeVar("R")

ASK_TIMEOUT_S = 900
WORKER = Path(__file__).parent.parent / "worker"


def worker_digest(package: Path = WORKER) -> str:
    """Return the digest of the code that runs inside environments."""
    state = hashlib.sha256()
    for path in sorted(package.glob("*.py")):
        state.update(f"{path.name}\0{protocol.sha256_file(str(path))}\n".encode())
    return state.hexdigest()


def stage(cache: Path, package: Path = WORKER) -> Path:
    """A copy of `harness/worker`, or of another `package`, and nothing else of ours, for PYTHONPATH; edits here do not
    reach a running run."""
    folder = cache / package.name / worker_digest(package)[:16]
    with cache_lock(cache, package.name):
        if not folder.exists():
            part = folder.with_name(f".{folder.name}.part")
            shutil.rmtree(part, ignore_errors=True)  # of one that was killed
            try:
                shutil.copytree(package, part / package.name, ignore=shutil.ignore_patterns("__pycache__"))
                part.rename(folder)
            finally:
                shutil.rmtree(part, ignore_errors=True)  # of a full disk
    return folder


def remove_asked(cache: Path) -> None:
    """Remove what was asked by harnesses that are gone: one that is killed cannot."""
    for folder in (cache / "asked").glob("*"):
        if is_orphan(folder.name):
            shutil.rmtree(folder, ignore_errors=True)


def environment_record(
    environment: PlannedEnvironment,
    *,
    executor: str,
    key: str,
    status: Status,
    message: str = "",
    pins: Path | None = None,
    observed: Observation | None = None,
    prepared_s: float | None = None,
    reused: bool = False,
    image: str = "",
) -> EnvironmentRecord:
    spec = environment.spec
    torch, cuda, python = spec.torch, spec.cuda, spec.python
    index = environment.index or "none: it was there"
    if spec.wheel is not None:
        cuda = cuda or (observed and observed.torch_cuda) or "none"
        index = f"{Path(spec.wheel).name}, a file; what it needs: {index}"
    if spec.is_host and observed is not None:  # what is there was asked for
        torch, cuda = observed.torch.partition("+")[0], observed.torch_cuda or "none"
        python = ".".join(observed.python.split(".")[:2])
    return EnvironmentRecord(
        id=environment.id,
        torch=torch,
        cuda=cuda,
        python=python,
        replica=spec.replica,
        index=index,
        executor=executor,
        image=image,
        base_image=spec.base_image if image else "",
        key=key,
        pins=load_pins(pins) if pins else {},
        pins_sha256=protocol.sha256_file(str(pins)) if pins else "",
        prepared_s=prepared_s,
        reused=reused,
        packages=package_versions(spec.packages),
        variables=spec.variables,
        observed=observed,
        status=status,
        message=message,
    )


class BaseExecutor(abc.ABC):
    """What every executor does: it stages the worker, proves the environments that it makes, and can be stopped."""

    name: str
    bwrap: Bwrap | None = None  # what makes sandboxes, where they are no containers

    def __init__(self, cache: Path, threads: int, variables: Variables | None = None) -> None:
        self.cache, self.threads, self.variables = cache, threads, variables or {}
        self.worker = stage(cache)
        remove_asked(cache)
        self._stopped = threading.Event()

    @abc.abstractmethod
    def key(self, environment: PlannedEnvironment, pins: Path | None) -> str: ...

    @abc.abstractmethod
    def run(self, task: Task) -> Answer: ...

    @abc.abstractmethod
    def _make(self, environment: PlannedEnvironment, pins: Path | None, key: str) -> tuple[Observation, bool, str]:
        """Return (what was observed inside, whether the environment was found, its image)."""

    def _left_out(self, environment: PlannedEnvironment) -> Collection[str]:
        """Return packages that are pinned and may be missing."""
        return ()

    def prepare(self, environment: PlannedEnvironment, pins: Path | None) -> EnvironmentRecord:
        """Return the record of an environment that `_make` makes, or finds.

        A failure that the user can act on is a `broken` environment: the others go on.
        """
        started, left_out = time.monotonic(), self._left_out(environment)
        key, observed, reused, image = "", None, False, ""
        try:
            key = self.key(environment, pins)
            observed, reused, image = self._make(environment, pins, key)
            problem = mismatch(environment, pins, observed, left_out) if pins else ""
            problem = problem or missing_variable(environment.spec.variables, observed)
        except Unrecorded:
            raise
        except HarnessError as error:
            problem = str(error)
        return environment_record(
            environment,
            executor=self.name,
            key=key,
            status=protocol.BROKEN if problem else protocol.OK,
            message=problem,
            pins=pins,
            observed=observed,
            prepared_s=round(time.monotonic() - started, 3),
            reused=reused,
            image=image,
        )

    def ask(
        self,
        id: str,
        name: str,
        request: wire.Request,
        kind: type[R],
        *,
        doing: str,
        remedy: str,
        reads: Sequence[Path] = (),
    ) -> R:
        """Return the result of a task that runs no code under test. InfrastructureError where there is none that can be
        read: `doing` says of what."""
        folder = self.cache / "asked" / f"{name}-{id}-{owner()}"
        log = folder / "log"
        task = Task(
            environment=id,
            name=name,
            request=request,
            scratch=folder / "scratch",
            log=log,
            terms=Terms(timeout_s=ASK_TIMEOUT_S),
            reads=tuple(reads),
        )
        try:
            answer = self.run(task)
            if answer.ended.from_outside:
                answer = self.run(task)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if answer.result is None:
            raise InfrastructureError(f"{doing} {answer.ended.how}: {answer.ended.log[-600:]}", remedy)
        try:
            return codec.read(kind, answer.result)
        except codec.WireError as error:
            raise InfrastructureError(f"{doing} gave a result that cannot be read: {error}", remedy) from None

    def _observe(self, environment: PlannedEnvironment, *, verify: bool, remedy: str) -> Observation:
        """Return what an environment says of itself. `verify`: every file is compared with what its wheel brought.

        InfrastructureError where no answer came back, or a file is not what its wheel brought.
        """
        variables = self.variables.get(environment.id, {})
        threads = threads_in(variables, self.threads)
        request = wire.ObserveRequest(threads=threads, verify=verify, variables=sorted(variables))
        seen = self.ask(environment.id, "observe", request, wire.Observation, doing="observing it", remedy=remedy)
        if seen.damaged:
            raise InfrastructureError(
                f"{seen.damaged[0]} is not the file that its wheel brought ({len(seen.damaged)} such)", remedy
            )
        return seen

    def _prove(
        self, environment: PlannedEnvironment, marker: Path, remedy: str, limits: SandboxLimits | None = None
    ) -> Observation:
        """Observe an environment whose sandboxes must be confined, and record its wheels in `marker`.

        InfrastructureError where it is not confined, is damaged, or sees no GPU where it should.
        """
        observed = self._observe(environment, verify=kept_wheels(marker) is None, remedy=remedy)
        if problem := unconfined(observed.confinement, limits):
            raise InfrastructureError(f"its sandbox is not confined: {problem}", "see docker info, or bwrap --version")
        if self._needs_gpu() and not observed.gpus:
            raise InfrastructureError(
                f"PyTorch {observed.torch} sees no GPU inside, and this machine has one",
                "check nvidia-smi, here and inside: a driver may be too old; or use --executor venv or --device cpu",
            )
        keep_wheels(marker, observed, remedy)
        return observed

    def _needs_gpu(self) -> bool:
        return bool(gpus())

    @contextlib.contextmanager
    def linking(self, _environment: str) -> Iterator[Path]:
        with temporary_folder() as parent:  # a socket's path must be short
            folder = parent / "link"
            folder.mkdir()
            if self.bwrap is not None and not self.bwrap.rootless:
                hand_over([folder])  # below one that nobody else can pass
            yield folder

    def _refuse_if_stopped(self) -> None:
        """Interrupted where the run was stopped: what was ended did not end, and nothing is recorded of it."""
        if self._stopped.is_set():
            raise Interrupted()

    def stop(self) -> None:
        self._stopped.set()
        end_descendants()


def missing_variable(variables: Mapping[str, str], seen: Observation) -> str:
    """Return '' where a process inside has the variables that were asked for, else which it has not."""
    for name, value in variables.items():
        actual = seen.settings.get(f"env.{name}")
        if actual != value:
            return f"asked for {name}={value}, found {'nothing' if actual is None else actual} inside"
    return ""


def mismatch(environment: PlannedEnvironment, pins: Path, seen: Observation, left_out: Collection[str] = ()) -> str:
    """Return '' where the environment is what was asked for, else the first thing that is not."""
    spec = environment.spec
    if not seen.torch and "torch" in seen.settings:
        return f"PyTorch {spec.torch} {seen.settings['torch']}"
    if "torch.numpy" in seen.settings:
        why = f"numpy {seen.numpy} {seen.settings['torch.numpy']}"
        return f"PyTorch {spec.torch} was built for another numpy: {why}; help: {blame.HELP[blame.NUMPY]}"
    if seen.torch.partition("+")[0] != spec.torch:
        return f"asked for PyTorch {spec.torch}, found {seen.torch} inside"
    if not seen.python.startswith(f"{spec.python}."):
        return f"asked for Python {spec.python}, found {seen.python} inside"
    if spec.cuda and environment.index == spec.wheel_index and seen.torch_cuda != spec.cuda:
        return f"asked for CUDA {spec.cuda}, found a build for {seen.torch_cuda} inside"
    wanted = {name: version.partition("+")[0] for name, version in load_pins(pins).items()}
    installed = {normalise(name): wheel.version.partition("+")[0] for name, wheel in seen.wheels.items()}
    for name in sorted(wanted.keys() | installed.keys()):
        if wanted.get(name) != installed.get(name) and not (name in left_out and name not in installed):
            return f"{name}: pinned {wanted.get(name, 'nothing')}, found {installed.get(name, 'nothing')} inside"
    return loaded_otherwise(wanted, seen.loaded)


def loaded_otherwise(pins: Mapping[str, str], loaded: Mapping[str, str]) -> str:
    """'' where every library that is loaded is the pinned package's, else the first that is not. A library may say less
    of its version than its package's has: 9.1.0 of 9.1.0.70."""
    for name, version in sorted(loaded.items()):
        if name in pins and not f"{pins[name]}.".startswith(f"{version.partition('+')[0]}."):
            return f"{name}: pinned {pins[name]}, and what is loaded inside says {version}"
        stem = name.rpartition("/")[2].partition(".so")[0].removeprefix("lib")
        if "/" in name and (package := next((each for each in pins if f"-{stem}-" in f"{each}-"), "")):
            return f"{package}: pinned {pins[package]}, and {name} is loaded inside"
    return ""


def kept_wheels(marker: Path) -> dict[str, str] | None:
    """Return, by wheel, the digest of its list of files; None where none were recorded, or the record is damaged."""
    try:
        recorded = protocol.read_json(str(marker))["wheels"]
    except (FileNotFoundError, ValueError, LookupError, TypeError):
        return None
    return recorded if isinstance(recorded, dict) else None


def keep_wheels(marker: Path, seen: Observation, remedy: str) -> None:
    """Record each wheel's list of files, when an environment was just proven. InfrastructureError where one was
    recorded before, and is another now."""
    digests = {name: wheel.record_sha256 for name, wheel in seen.wheels.items()}
    recorded = kept_wheels(marker)
    if recorded is None:
        protocol.write_json(str(marker), {"wheels": digests})
        return
    changed = [name for name, sha256 in digests.items() if recorded.get(name) != sha256]
    if changed:
        raise InfrastructureError(f"{changed[0]}: its list of files changed since it was installed", remedy)
