"""What every executor says of an environment that it made: what was asked for, and whether that is what is there."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TypeVar

from harness.config.environments import threads_in
from harness.config.pins import load_pins, normalise
from harness.config.plan import PlannedEnvironment
from harness.errors import HarnessError, InfrastructureError, Unrecorded
from harness.isolate import Answer
from harness.schema.records import EnvironmentRecord, Observation, Status
from harness.tools import cache_lock
from harness.worker import codec, protocol, wire

R = TypeVar("R")
OBSERVE_TIMEOUT_S = 600
WORKER = Path(__file__).parent.parent / "worker"


def worker_digest() -> str:
    """Digest of the code that runs inside environments."""
    state = hashlib.sha256()
    for path in sorted(WORKER.glob("*.py")):
        state.update(f"{path.name}\0{protocol.sha256_file(str(path))}\n".encode())
    return state.hexdigest()


def stage_worker(cache: Path) -> Path:
    """A copy of `harness/worker`, and nothing else of ours, for PYTHONPATH; edits here do not reach a running run."""
    folder = cache / "worker" / worker_digest()[:16]
    with cache_lock(cache, "worker"):
        if not folder.exists():
            part = folder.with_name(f".{folder.name}.part")
            shutil.rmtree(part, ignore_errors=True)  # of one that was killed
            shutil.copytree(WORKER, part / "worker", ignore=shutil.ignore_patterns("__pycache__"))
            part.rename(folder)
    return folder


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
    if spec.is_host and observed is not None:  # what is there was asked for
        torch, cuda = observed.torch.partition("+")[0], observed.torch_cuda or "none"
        python = ".".join(observed.python.split(".")[:2])
    return EnvironmentRecord(
        id=environment.id,
        torch=torch,
        cuda=cuda,
        python=python,
        replica=spec.replica,
        index=environment.index or "none: it was there",
        executor=executor,
        image=image,
        base_image=spec.base_image if image else "",
        key=key,
        pins=load_pins(pins) if pins else {},
        pins_sha256=protocol.sha256_file(str(pins)) if pins else "",
        prepared_s=prepared_s,
        reused=reused,
        variables=spec.variables,
        observed=observed,
        status=status,
        message=message,
    )


def prepared(
    environment: PlannedEnvironment,
    pins: Path | None,
    executor: str,
    key: Callable[[], str],
    make: Callable[[str], tuple[Observation, bool, str]],
    *,
    removed: Collection[str] = (),
) -> EnvironmentRecord:
    """The record of an environment that `make` makes, or finds: (what was observed inside, whether found, its image).

    `key` gives the environment's key, and `make` takes it. `removed` are packages that are pinned and may be missing.
    A failure that the user can act on is a `broken` environment: the others go on.
    """
    started = time.monotonic()
    digest, observed, reused, image = "", None, False, ""
    try:
        digest = key()
        observed, reused, image = make(digest)
        problem = mismatch(environment, pins, observed, removed) if pins else ""
        problem = problem or missing_variable(environment.spec.variables, observed)
    except Unrecorded:
        raise
    except HarnessError as error:
        problem = str(error)
    return environment_record(
        environment,
        executor=executor,
        key=digest,
        status=protocol.BROKEN if problem else protocol.OK,
        message=problem,
        pins=pins,
        observed=observed,
        prepared_s=round(time.monotonic() - started, 3),
        reused=reused,
        image=image,
    )


def observe_request(variables: Mapping[str, str], threads: int, *, verify: bool) -> wire.ObserveRequest:
    """What `observe` is asked, of an environment whose processes have these variables."""
    return wire.ObserveRequest(threads=threads_in(variables, threads), verify=verify, variables=sorted(variables))


def missing_variable(variables: Mapping[str, str], seen: Observation) -> str:
    """'' where a process inside has the variables that were asked for, else which it has not."""
    for name, value in variables.items():
        found = seen.settings.get(f"env.{name}")
        if found != value:
            return f"asked for {name}={value}, found {'nothing' if found is None else found} inside"
    return ""


def result_of(kind: type[R], answer: Answer, doing: str, remedy: str) -> R:
    """The result of a task that runs no code under test. InfrastructureError where there is none that can be read."""
    if answer.result is None:
        raise InfrastructureError(f"{doing} {answer.ended.how}: {answer.ended.log[-600:]}", remedy)
    try:
        return codec.read(kind, answer.result)
    except codec.WireError as error:
        raise InfrastructureError(f"{doing} gave a result that cannot be read: {error}", remedy) from None


def observation(answer: Answer, remedy: str) -> Observation:
    """What `observe` saw. InfrastructureError where it did not come back, or a file is not what its wheel brought."""
    fields = dataclasses.asdict(result_of(wire.ObserveResult, answer, "observing it", remedy))
    damaged = fields.pop("damaged")
    if damaged:
        raise InfrastructureError(f"{damaged[0]} is not the file that its wheel brought ({len(damaged)} such)", remedy)
    return Observation(**fields)


def mismatch(environment: PlannedEnvironment, pins: Path, seen: Observation, removed: Collection[str] = ()) -> str:
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
        if wanted.get(name) != found.get(name) and not (name in removed and name not in found):
            return f"{name}: pinned {wanted.get(name, 'nothing')}, found {found.get(name, 'nothing')} inside"
    return ""


def changed_wheel(recorded: Mapping[str, str], seen: Observation) -> str:
    """'' where every wheel's list of files is the one that was recorded when it was installed, else which is not."""
    changed = [name for name, wheel in seen.wheels.items() if recorded.get(name) != wheel.record_sha256]
    return f"{changed[0]}: its list of files changed since it was installed" if changed else ""
