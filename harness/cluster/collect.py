"""The records of finished shards as one run. Each was written once, by its shard; here they are only put together. Of a
shard that gave no result, each cell is a row that says why."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.cluster.shards import Shard
from harness.config.matrix import Tolerances, parse_matrix
from harness.config.planner import chosen
from harness.errors import InfrastructureError, InputError, RecordError
from harness.run.folders import now_utc
from harness.run.prepare import folder_files
from harness.run.validate import row_without_result
from harness.schema.records import ValidationRecord
from harness.schema.run_records import Cell, Fallback, GpuFacts, KernelInfo, RunRecord, Selection, WorkloadInfo
from harness.schema.storage import Run, from_json_value, load_any, save_record, to_json
from harness.worker import protocol

LAST_BYTES = 20_000  # of what a job printed
RECORDS = ("environments", "builds", "validations", "launches", "crossings", "ceilings", "experiments")
FILES = ("arrays", "logs")  # beside them
UNFINISHED = "it had not finished when this was collected"
PARTS = "shards.json"  # in the collected run's folder: where its shards' runs lie


@dataclass(frozen=True, kw_only=True)
class LostShard:
    """A shard without a result, and why. `kernels` and `workloads`: of what it was sealed with."""

    shard: Shard
    why: str
    kernels: Sequence[KernelInfo]
    workloads: Sequence[WorkloadInfo]
    tolerances: Tolerances

    def rows(self, environments: Sequence[str]) -> list[tuple[Cell, ValidationRecord]]:
        """Return a row for each of its cells in these environments."""
        found = []
        for environment, kernel, workload in itertools.product(environments, self.kernels, self.workloads):
            if workload.id in kernel.workloads and self.shard.device in workload.devices:
                cell = Cell(environment=environment, kernel=kernel.name, workload=workload.id, device=self.shard.device)
                found.append((cell, row_without_result(cell, kernel, workload, self.tolerances, self.why)))
        return found


def describe_lost(shard: Shard, selection: Selection, attempts: int | None = None) -> LostShard:
    """Return a shard that has no result after so many attempts of its job, with the last that they said; None: that has
    none yet."""
    why = UNFINISHED
    if attempts is not None:
        said = find_last_line(shard)
        why = f"its job ended without a result, {'once' if attempts == 1 else f'{attempts} times'}"
        why += f": {said}" if said else ""
    own = replace(selection, kernels=(shard.kernel,), devices=(shard.device,), workloads=shard.workloads)
    matrix = parse_matrix((shard.project / "matrix.yaml").read_text())
    kernels, workloads = chosen(matrix, own, folder_files(matrix, shard.project))
    return LostShard(shard=shard, why=why, kernels=kernels, workloads=workloads, tolerances=matrix.tolerances)


def find_last_line(shard: Shard) -> str:
    """Return the last error that a shard's last job printed; what it printed last, where it printed none."""
    logs = [shard.log, *(shard.folder / "slurm").glob("*.out")]
    newest = max((log for log in logs if log.is_file()), key=lambda log: log.stat().st_mtime, default=None)
    if newest is None:
        return ""
    printed = newest.read_bytes()[-LAST_BYTES:].decode("utf-8", "replace")
    lines = [line.strip()[:300] for line in reversed(printed.splitlines()) if line.strip()]
    errors = (line.partition(mark)[2] for line in lines for mark in ("cannot go on: ", "error: ") if mark in line)
    return next(errors, lines[0] if lines else "")


def collect(
    runs: Sequence[tuple[Shard, Run]],
    into: Run,
    command: Sequence[str],
    selection: Selection,
    digest: str,
    lost: Sequence[LostShard] = (),
) -> None:
    """Link the records of finished shards, and write the run's own, unless all are there. What is lost has rows that
    say why. InfrastructureError where shards disagree, or a record is damaged.

    Of an environment, which every shard observed, the first shard's record stands for all.
    """
    records = [(shard, run.load()) for shard, run in runs]
    _refuse_mixed(records)
    linked = 0
    for shard, run in runs:
        try:
            linked += link_records(run, into, (*RECORDS, *FILES))
        except RecordError as error:
            remedy = f"remove {shard.folder}, and type the command again"
            raise InfrastructureError(error.message, remedy) from None
    if into.run_path().exists() and not linked:
        return
    protocol.write_json(str(into.folder / PARTS), [os.path.relpath(run.folder, into.folder) for _, run in runs])
    rows = [row for each in lost for row in each.rows(records[0][1].environments)]
    for cell, row in rows:
        save_record(into.validation_path(cell), row)
    every = [record for _, record in records]
    parts: list[RunRecord | LostShard] = [*every, *lost]
    changed = {
        "kernels": _merge_same([kernel for each in parts for kernel in each.kernels], "name"),
        "workloads": _merge_same([workload for each in parts for workload in each.workloads], "id"),
        "cells": [*(cell for record in every for cell in record.cells), *(cell for cell, _ in rows)],
        "command": list(command),
        "selection": selection,
        "plan_digest": digest,
    }
    save_record(into.run_path(), _merge(every, into, changed))


def link_records(run: Run, into: Run, kinds: Sequence[str]) -> int:
    """Link what a shard's run has, and the other one not yet; return how many files. RecordError where one is damaged,
    or is another one's copy."""
    linked = 0
    for kind in kinds:
        for folder, _, names in os.walk(run.folder / kind):
            place = into.folder / Path(folder).relative_to(run.folder)
            place.mkdir(parents=True, exist_ok=True)
            for name in sorted(set(names) - set(os.listdir(place))):
                path = Path(folder, name)
                if kind in RECORDS:
                    run.check_place(path, load_any(path))  # what is wrong with one stops here, and not on the page
                _link(path, place / name)
                linked += 1
    return linked


def parts_of(run: Run) -> list[Run]:
    """Return the shards' runs that a collected run was made of; none for another run. InputError where one is gone."""
    path = run.folder / PARTS
    found = [(run.folder / each).resolve() for each in protocol.read_json(str(path))] if path.is_file() else []
    for folder in found:
        if not (folder / "run.json").is_file():
            raise InputError(f"{folder}: the shard's run is gone", "type the command again that made the run")
    return [Run(folder) for folder in found]


def _link(source: Path, place: Path) -> None:
    try:
        os.link(source, place)
    except OSError:  # another file system
        shutil.copyfile(source, place)


def _refuse_mixed(records: Sequence[tuple[Shard, RunRecord]]) -> None:
    """Raise InfrastructureError where a shard ran on another GPU than was asked for, or shards on different models."""
    models: dict[str, str] = {}
    for shard, record in records:
        for gpu in record.gpus:
            models.setdefault(gpu.name, shard.name)
            if shard.gpu.lower() not in gpu.name.lower():
                problem = f"the shard {shard.name} ran on {gpu.name}"
                raise InfrastructureError(problem, f"remove {shard.folder}, and type the command again")
    environments = {tuple(record.environments): shard for shard, record in records}
    if len(environments) > 1:
        first, second, *_ = environments.values()
        problem = f"the shards {first.name} and {second.name} disagree on environments"
        raise InfrastructureError(problem, f"remove {second.folder}, and type the command again")
    if len(models) > 1:
        told = ", ".join(f"{name} ({shard})" for name, shard in models.items())
        raise InfrastructureError(
            f"the shards ran on different models of GPU: {told}",
            "ask for one model: --gpu NAME, or --sbatch constraint=NAME",
        )


def _merge(records: Sequence[RunRecord], into: Run, asked: Mapping[str, Any]) -> RunRecord:
    gpus: dict[str, GpuFacts] = {gpu.uuid: gpu for record in records for gpu in record.gpus}
    fallbacks: dict[str, Fallback] = {str(each): each for record in records for each in record.fallbacks}
    changed: dict[str, Any] = {
        "run_id": into.folder.name,
        "created_utc": min(record.created_utc for record in records),
        "finished_utc": now_utc(),
        **asked,
        "gpus": list(gpus.values()),
        "fallbacks": list(fallbacks.values()),
        "sources_sha256": {name: digest for record in records for name, digest in record.sources_sha256.items()},
        "sandboxed": None if any(record.sandboxed is None for record in records) else all(r.sandboxed for r in records),
    }
    return from_json_value(RunRecord, to_json(replace(records[0], **changed)))


def _merge_same(values: Sequence[Any], name: str) -> list[Any]:
    """Merge those of one name: the same kernel or workload on two devices, or in several parts."""
    found: dict[str, list[Any]] = {}
    for value in values:
        found.setdefault(getattr(value, name), []).append(value)
    merged = []
    for same in found.values():
        fields = [each for each in ("devices", "workloads", "sources") if hasattr(same[0], each)]
        changes = {each: list(dict.fromkeys(item for one in same for item in getattr(one, each))) for each in fields}
        merged.append(replace(same[0], **changes))
    return merged
