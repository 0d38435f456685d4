"""A run's records as JSON files in one folder.

    reports/runs/<run id>/
        run.json                                              what was asked, where, and in what order
        environments/<environment>.json                       requested and observed stack
        builds/<environment>/<kernel>-<device>.json
        validations/<environment>/<kernel>-<device>/<workload>.json
        launches/<environment>/<kernel>-<device>/<index>.json the statistical replicates; of a kernel whose workloads
                                                              were cut into parts, in a folder of each part there
        crossings/<kernel>-<device>/<workload>.json           outputs of all environments against each other
        ceilings/<GPU's UUID>.json                            what each GPU reached in this run at most
        experiments/...                                       see harness/schema/experiment_records.py
        arrays/...                                            outputs of the first trials, beside the records
        logs/...                                              complete output of every process

A record file is ``{"schema_version", "kind", "digest", "body"}``; ``digest`` is the SHA-256 of the canonical
body, so that a truncated or edited file is refused (`RecordError`, with its path) instead of reported.
Records are written once, atomically. Types are checked when one is read; keys that earlier versions wrote, and this one
does not know, are left out.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import psutil
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from harness.errors import DiskFull, RecordError
from harness.schema.bisection_records import BisectionRecord
from harness.schema.compiled_records import CompiledRecord
from harness.schema.environment_records import BuildRecord, CeilingRecord, EnvironmentRecord
from harness.schema.experiment_records import (
    CheckersRecord,
    ConditionsRecord,
    FactorRecord,
    ProfileRecord,
)
from harness.schema.records import CrossingRecord, LaunchRecord, ValidationRecord
from harness.schema.run_records import Cell, RunRecord
from harness.schema.sweep_records import SweepRecord
from harness.worker import protocol
from harness.worker.wire import Message

KINDS: dict[str, type[Message]] = {
    "run": RunRecord,
    "environment": EnvironmentRecord,
    "build": BuildRecord,
    "validation": ValidationRecord,
    "launch": LaunchRecord,
    "crossing": CrossingRecord,
    "ceiling": CeilingRecord,
    "conditions": ConditionsRecord,
    "checkers": CheckersRecord,
    "profile": ProfileRecord,
    "factor": FactorRecord,
    "compiled": CompiledRecord,
    "bisection": BisectionRecord,
    "sweep": SweepRecord,
}
KIND_OF = {model: kind for kind, model in KINDS.items()}
AnyRecord = TypeVar("AnyRecord", bound=Message)
PLACES: dict[type[Message], str] = {  # in a run's folder
    EnvironmentRecord: "environments/{id}.json",
    BuildRecord: "builds/{environment}/{kernel}-{device}.json",
    ValidationRecord: "validations/{environment}/{kernel}-{device}/{workload}.json",
    LaunchRecord: "launches/{environment}/{kernel}-{device}/{index:03d}.json",
    CrossingRecord: "crossings/{kernel}-{device}/{workload}.json",
    CeilingRecord: "ceilings/{device_uuid}.json",
}


_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}


def _adapter(kind: Any) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def from_json_value(kind: type[AnyRecord], value: Any) -> AnyRecord:
    """Return the record, or the part of one, that a JSON value is. ValidationError."""
    record: AnyRecord = _adapter(kind).validate_python(value)
    return record


def to_json(record: Message) -> Any:
    """Return a record, or a part of one, as a JSON value."""
    return _adapter(type(record)).dump_python(record, mode="json")


def render_record(record: Message) -> dict[str, Any]:
    """A record as the JSON value of its file, sealed with its digest."""
    body = to_json(record)
    return {
        "schema_version": protocol.SCHEMA_VERSION,
        "kind": KIND_OF[type(record)],
        "digest": protocol.digest(body),
        "body": body,
    }


def parse_record(value: Any, model: type[AnyRecord], path: str) -> AnyRecord:
    """A record from the JSON value of its file. RecordError, naming `path`, where it cannot be trusted."""
    if not isinstance(value, dict) or "schema_version" not in value:
        raise RecordError(path, "is not a record: it has no schema_version")
    version = value["schema_version"]
    if version != protocol.SCHEMA_VERSION:
        problem = f"has schema version {version!r}; this version reads {protocol.SCHEMA_VERSION}"
        newer = isinstance(version, int) and version > protocol.SCHEMA_VERSION
        raise RecordError(path, problem, "install the newer kernel-matrix that wrote it" if newer else "")
    if value.get("kind") != KIND_OF[model]:
        raise RecordError(path, f"is a {value.get('kind')!r} record; a {KIND_OF[model]} record belongs there")
    if set(value) != {"schema_version", "kind", "digest", "body"}:
        raise RecordError(path, f"has unexpected keys: {', '.join(sorted(map(str, value)))}")
    if protocol.digest(value["body"]) != value["digest"]:
        raise RecordError(path, "was edited or damaged: its digest does not match its contents")
    try:
        return from_json_value(model, value["body"])
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise RecordError(path, f"{where}: {first['msg']}") from None


def map_strings(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with every string in it changed; keys stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [map_strings(item, change) for item in value]
    if isinstance(value, dict):
        return {key: map_strings(item, change) for key, item in value.items()}
    return value


def without_paths(record: AnyRecord, replacements: Mapping[str, str]) -> AnyRecord:
    """The record with folders of this machine replaced, in order, by their names: records and pages are sent on."""

    def change(text: str) -> str:
        for old, new in replacements.items():
            text = text.replace(old, new)
        return text

    return from_json_value(type(record), map_strings(to_json(record), change))


def save_record(path: Path, record: Message) -> None:
    protocol.write_json(str(path), render_record(record))


def load_record(path: Path, model: type[AnyRecord]) -> AnyRecord:
    """RecordError where the file is truncated, edited, of another version or kind."""
    return parse_record(_load_json(path), model, str(path))


def load_any(path: Path) -> Message:
    """A record of whatever kind its file says it is; RecordError as `load_record` raises it."""
    value = _load_json(path)
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind not in KINDS:
        raise RecordError(str(path), f"is no record of this version: its kind is {kind!r}")
    return parse_record(value, KINDS[kind], str(path))


def _load_json(path: Path) -> Any:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecordError(str(path), f"cannot be read: {error.strerror}") from None
    with contextlib.suppress(ValueError):
        return from_json(data)  # three times as fast as `json`, which alone reads half of a surrogate pair
    try:
        return json.loads(data)
    except ValueError:
        raise RecordError(str(path), "is truncated or not JSON") from None


EXPERIMENTS = "experiments"
GONE = ("counters.json", "places.json")  # experiments of earlier versions, which nobody reads any more
NO_SPACE = ("No space left on device", "Disk quota exceeded")
LOW_SPACE_BYTES, LOW_SPACE_SHARE = 1 << 30, 0.02  # what failed has freed what it had written


def fullest(*places: Path) -> Path:
    """Of these folders the one on the disk with the least space left; what does not exist yet counts as its parent."""
    return min(map(existing, places), key=lambda place: shutil.disk_usage(place).free)


def existing(place: Path) -> Path:
    """A folder, or the nearest above it that exists."""
    return next(path for path in (place, *place.parents) if path.exists())


def refuse_without_space(record: Message, *places: Path) -> None:
    """DiskFull where a record says that a process found no space left, and a disk it writes to has little indeed.

    The first alone could be a kernel's lie; what was killed at a limit of its own had that much space and no more.
    """
    if getattr(record, "status", "") == protocol.KILLED:
        return
    text = json.dumps(to_json(record))
    reason = next((words for words in NO_SPACE if words in text), None)
    if reason is None:
        return
    for place in map(existing, places):
        usage = shutil.disk_usage(place)
        if usage.free < max(LOW_SPACE_BYTES, LOW_SPACE_SHARE * usage.total):
            raise DiskFull(place, reason)


def is_abandoned(part: Path) -> bool:
    """Whether the process that began this part of a file (`protocol.write_atomically`) is gone."""
    pid = part.name[1:].partition("-")[0]
    return pid.isdecimal() and not psutil.pid_exists(int(pid))


class Run:
    """A run's folder. The paths of records are decided here and nowhere else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run_path(self) -> Path:
        return self.folder / "run.json"

    def _place(self, model: type[Message], **names: Any) -> Path:
        return self.folder / PLACES[model].format(**names)

    def environment_path(self, environment: str) -> Path:
        return self._place(EnvironmentRecord, id=environment)

    def build_path(self, environment: str, kernel: str, device: str) -> Path:
        return self._place(BuildRecord, environment=environment, kernel=kernel, device=device)

    def validation_path(self, cell: Cell) -> Path:
        return self._place(ValidationRecord, **vars(cell))

    def launch_path(self, environment: str, kernel: str, device: str, index: int, part: str = "") -> Path:
        place = self._place(LaunchRecord, environment=environment, kernel=kernel, device=device, index=index)
        return place.parent / part / place.name

    def crossing_path(self, kernel: str, device: str, workload: str) -> Path:
        return self._place(CrossingRecord, kernel=kernel, device=device, workload=workload)

    def ceiling_path(self, device_uuid: str) -> Path:
        return self._place(CeilingRecord, device_uuid=device_uuid)

    def experiment_path(self, environment: str, kernel: str, device: str, workload: str, experiment: str) -> Path:
        """`experiment`: a name, or profile-<target>."""
        return self.folder / EXPERIMENTS / environment / f"{kernel}-{device}" / workload / f"{experiment}.json"

    def check_place(self, path: Path, record: Message) -> None:
        """RecordError where a record stands under another one's name: it may be there twice."""
        if type(record) not in PLACES:
            return
        place = self._place(type(record), **vars(record))
        of_a_part = place.parent / path.parent.name / place.name
        if path != place and not (isinstance(record, LaunchRecord) and path == of_a_part):
            raise RecordError(str(path), "stands under another record's name")

    def has_launches(self, environment: str) -> bool:
        """Whether launches of an environment went well."""
        paths = (self.folder / "launches" / environment).rglob("*.json")
        return any(load_record(path, LaunchRecord).status == protocol.OK for path in paths)

    def sweep(self) -> None:
        """Remove what tasks, and attempts that were killed, left beside the records. The run's lock is held."""
        shutil.rmtree(self.folder / "scratch", ignore_errors=True)
        for part in self.folder.glob("**/.*.part"):
            if part.parent != self.folder or is_abandoned(part):  # a report may be written there now
                part.unlink(missing_ok=True)
        for name in ("*.request.json", "*.result.json"):
            for passed in (self.folder / "logs").rglob(name):
                passed.unlink(missing_ok=True)

    def load(self) -> RunRecord:
        return load_record(self.run_path(), RunRecord)

    def _all(self, folder: str, model: type[AnyRecord]) -> list[AnyRecord]:
        """RecordError of one that cannot be trusted, or stands under another one's name."""
        found = []
        for path in sorted((self.folder / folder).rglob("*.json")):
            found.append(load_record(path, model))
            self.check_place(path, found[-1])
        return found

    def environments(self) -> list[EnvironmentRecord]:
        return self._all("environments", EnvironmentRecord)

    def builds(self) -> list[BuildRecord]:
        return self._all("builds", BuildRecord)

    def validations(self) -> list[ValidationRecord]:
        return self._all("validations", ValidationRecord)

    def launches(self) -> list[LaunchRecord]:
        return self._all("launches", LaunchRecord)

    def crossings(self) -> list[CrossingRecord]:
        return self._all("crossings", CrossingRecord)

    def ceilings(self) -> list[CeilingRecord]:
        return self._all("ceilings", CeilingRecord)

    def experiments(self, model: type[AnyRecord]) -> list[AnyRecord]:
        """Those of a kind; all kinds share one folder."""
        return [record for path in self.experiment_paths() if isinstance(record := load_any(path), model)]

    def experiment_paths(self) -> list[Path]:
        """Return the files of all experiments that this version knows."""
        return [path for path in sorted((self.folder / EXPERIMENTS).rglob("*.json")) if path.name not in GONE]
