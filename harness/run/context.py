"""What every step of a run needs, and how a task that ended without a result becomes an outcome."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from harness.config import shipped
from harness.config.kernels import Kernel
from harness.config.keys import JobId, Keys
from harness.config.matrix import Matrix
from harness.config.plan import Plan, PlannedBuild
from harness.errors import START_AGAIN, InfrastructureError
from harness.executors import Answer, Executor, Task, Terms
from harness.gpu import lock_path
from harness.run.folders import held, measure_lock
from harness.schema.environment_records import BuildRecord, EnvironmentRecord
from harness.schema.records import CellRecord, Device, LaunchRecord, Outcome, Status
from harness.schema.run_records import GpuFacts, WorkloadInfo
from harness.schema.storage import AnyRecord, Run, refuse_without_space, save_record, without_paths
from harness.worker import blame, codec, protocol, wire
from harness.worker.protocol import FailureKind, Fault

R = TypeVar("R")
SHIPPED_MODULE = "attention"


class Store(NamedTuple):
    """A problem file's weights and inputs; no folder, and why not, where they could not be made."""

    folder: Path | None
    why: str = ""
    status: Status = "ok"
    content: str = ""  # digest of what is in it
    fault: Fault = Fault.SUBJECT  # who failed where there is none


@dataclass
class Context:
    """What every step needs."""

    root: Path
    cache: Path
    matrix: Matrix
    plan: Plan
    run: Run
    executor: Executor
    sources: dict[str, dict[Device, list[str]]]
    gpu: GpuFacts | None = None  # the one in use, where it can be asked: it is in this machine
    environments: dict[str, EnvironmentRecord] = field(default_factory=dict)
    builds: dict[tuple[str, str, str], BuildRecord] = field(default_factory=dict)
    stores: dict[str, Store] = field(default_factory=dict)
    _keys: Keys | None = None

    def key(self, kind: str, *, given: Mapping[str, Any] | None = None, **job: Any) -> str:
        """The key of a job (`harness.config.keys`) of this run; `job` is a `JobId` but for its kind."""
        environments = {id: record.key for id, record in dict(self.environments).items()}  # a thread may add one
        stores = {workload: store.content for workload, store in self.stores.items()}
        if self._keys is None or (self._keys.environments, self._keys.stores) != (environments, stores):
            self._keys = Keys(self.plan, self.matrix, environments, stores)
        return self._keys.key(JobId(kind=kind, **job), **(given or {}))

    def kernel(self, name: str) -> Kernel:
        return self.matrix.kernel(name)

    def environment_ok(self, environment: str) -> bool:
        return self.environments[environment].status == protocol.OK

    def build_folder(self, build: PlannedBuild | BuildRecord, key: str) -> Path:
        return self.cache / "builds" / f"{build.environment}-{build.kernel}-{build.device}-{key[:12]}"

    def artifact(self, build: PlannedBuild | BuildRecord, key: str) -> Path:
        """The extension that a build leaves, named as the module in it: the shipped binding's has one name for all. Of
        what is built already, its copy."""
        kernel = self.kernel(build.kernel)
        name = f"{SHIPPED_MODULE if kernel.is_bound else build.kernel.replace('.', '_')}.so"
        return self.build_folder(build, key) / "out" / (Path(kernel.prebuilt).name if kernel.prebuilt else name)

    def without_paths(self, record: AnyRecord) -> AnyRecord:
        """The record without this machine's folders in it."""
        environment = getattr(record, "environment", None) or getattr(record, "id", None)
        known = self.environments.get(environment) if environment else None
        folders = {}
        if known is not None and known.key:
            folders[str(self.executor.folder(known))] = "$ENVIRONMENT"
        folders |= {str(self.cache / "builds"): "$BUILDS", str(self.run.folder): "$RUN", str(self.cache): "$CACHE"}
        roots = {str(shipped.ROOT): "$SHIPPED", str(self.root): "$ROOT"}  # one may lie in the other
        folders |= {old: roots[old] for old in sorted(roots, key=len, reverse=True)} | {str(Path.home()): "~"}
        return without_paths(record, {old: new for old, new in folders.items() if old != "/"})

    def save(self, path: Path, record: AnyRecord) -> AnyRecord:
        """Write a record without this machine's folders in it, and return it as written. DiskFull where a full disk
        explains the failure that it describes, InfrastructureError where a build that is not there any more does: those
        stop the run."""
        self._refuse_changed(record)
        if self.executor.name != "docker":  # a container has a disk of its own
            refuse_without_space(record, self.run.folder, self.cache, Path(tempfile.gettempdir()))
        written = self.without_paths(record)
        save_record(path, written)
        return written

    def _refuse_changed(self, record: AnyRecord) -> None:
        if not isinstance(record, CellRecord | LaunchRecord):
            return
        parts = record.timings if isinstance(record, LaunchRecord) else getattr(record, "results", [])
        if protocol.CRASHED not in (record.status, *(part.status for part in parts)):
            return
        built = self.builds.get((record.environment, record.kernel, record.device))
        if built is None or not built.artifact_sha256:
            return
        artifact = self.artifact(built, built.key)
        if not is_whole(artifact, built):
            raise InfrastructureError(f"{artifact}: was removed or damaged while it was in use", START_AGAIN)

    def truth_folder(self, workload: WorkloadInfo, environment: str, use: str = "") -> Path:
        """Return the folder of a workload's float64 results. Each environment computes those of a problem with its own
        PyTorch; those of attention are numpy's, and all environments share them."""
        own = f"-{environment}" if workload.problem else ""
        return self.scratch("truth", f"{workload.id}{own}{use}")

    def scratch(self, environment: str, name: str) -> Path:
        return self.run.folder / "scratch" / environment / name

    def task(
        self,
        name: str,
        request: wire.Request,
        environment: str,
        about: str = "",
        *,
        timeout_s: float,
        scratch: Path | None = None,
        log: str = "",
        reads: tuple[Path, ...] = (),
        writes: tuple[Path, ...] = (),
        **terms: Any,
    ) -> Task:
        """Make a task in an environment of this run.

        `about`, what it is done to, names its scratch folder and its log, unless `scratch` and `log` do. `terms`:
        further ones of `Terms`.
        """
        label = "-".join(filter(None, (name, about)))
        return Task(
            environment=environment,
            name=name,
            request=request,
            scratch=scratch or self.scratch(environment, label),
            log=self.run.folder / "logs" / environment / f"{log or label}.log",
            terms=Terms(timeout_s=timeout_s, **terms),
            reads=reads,
            writes=writes,
        )

    def hold(self, device: Device) -> AbstractContextManager[None]:
        """Hold a device: one measurement at a time on a GPU, and one on this machine's processors, of any run."""
        if device == "cpu" or self.gpu is None:
            return held(measure_lock(self.cache), "another run is measuring on this machine; waiting for it")
        path = lock_path(self.gpu.uuid)
        waiting = f"another run is measuring on {self.gpu.name} ({self.gpu.uuid}); waiting for it"
        return held(path, waiting, mode=0o666, remedy=f"its owner must let others write it: chmod 666 {path}")


def is_whole(artifact: Path, built: BuildRecord) -> bool:
    """Whether what a build left is there, as its record describes it."""
    is_plain = artifact.is_file() and not artifact.is_symlink()
    return is_plain and protocol.sha256_file(str(artifact)) == built.artifact_sha256


def answer_of(context: Context, task: Task) -> Answer:
    """Run a task. What was killed from outside says nothing of the code under test: it is run once more, and who kills
    itself does it again."""
    try:
        answer = context.executor.run(task)
        if answer.ended.from_outside:
            answer = context.executor.run(replace(task, terms=replace(task.terms, gate=None)))
        return answer
    except BaseException:  # an interrupt, or a full disk
        shutil.rmtree(task.scratch, ignore_errors=True)
        raise


def failure(answer: Answer, what: str, *, holds_subject: bool = True) -> Outcome:
    """The outcome of a task that ended without a result. `holds_subject`: whether the code under test ran in it."""
    ended = answer.ended
    status: Status = protocol.CRASHED
    if ended.timed_out:
        status = protocol.TIMED_OUT
    elif ended.killed_by:
        status = protocol.KILLED
    elif ended.at_limit or not holds_subject:
        status = protocol.NOT_RUN
    message, fault = f"{what} {ended.how}", Fault.SUBJECT
    if ended.at_limit or not holds_subject:
        fault = Fault.LIMIT if ended.at_limit else Fault.TOOL
        last = f"; the last line of its log: {ended.last_line}" if ended.last_line else ""
        message = blame.skipped(f"{message}{last}", blame.ROOM if ended.at_limit else blame.REPORT)
    return Outcome(
        status=status,
        message=message,
        log_excerpt=ended.log,
        fault=fault,
        failure=FailureKind.SIGNAL if status == protocol.CRASHED and ended.returncode < 0 else FailureKind.OTHER,
        ended_after_s=round(ended.duration_s, 3),
    )


def checked(kind: type[R], answer: Answer, what: str, *, holds_subject: bool = True) -> R | Outcome:
    """A task's result, or the `Outcome` of one that is missing or not as its type says: the code under test may have
    written it."""
    if answer.result is None:
        return failure(answer, what, holds_subject=holds_subject)
    try:
        result = codec.read(kind, answer.result)
        if isinstance(result, Outcome):  # it did not end without a result, whatever the code under test wrote
            result.ended_after_s = None
        return result
    except codec.WireError as error:
        return Outcome(
            status="crashed",
            message=f"{what} gave a result that cannot be read: {error}"[:500],
            log_excerpt=answer.ended.log,
        )


def fields_of(result: Outcome) -> dict[str, Any]:
    """A result's, or an outcome's, as those of a record."""
    return dict(vars(result))
