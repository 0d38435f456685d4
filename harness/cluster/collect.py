"""The records of finished shards as one run. Each was written once, by its shard; here they are only put together."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.cluster.lost import Lost
from harness.cluster.shards import Shard
from harness.errors import InfrastructureError, InputError
from harness.run.folders import now_utc, runs_folder
from harness.schema.run_records import Fallback, GpuFacts, RunRecord, Selection
from harness.schema.storage import Run, from_json_value, load_any, save_record, to_json
from harness.worker import protocol

RECORDS = ("environments", "builds", "validations", "launches", "crossings", "ceilings", "experiments")
FILES = ("arrays", "logs")  # beside them
PARTS = "shards.json"  # in the collected run's folder: where its shards' runs lie
# What all shards must agree on, or their records are not of one run.
SHARED = (
    "matrix_text",
    "mode",
    "quick",
    "baseline",
    "environments",
    "thresholds",
    "tolerances",
    "launches",
    "most_launches",
    "order_seed",
    "executor",
)


def collect(
    shards: Sequence[Shard],
    into: Run,
    command: Sequence[str],
    selection: Selection,
    digest: str,
    lost: Sequence[Lost] = (),
) -> None:
    """Link the records of finished shards, and write the run's own, unless all are there. What is lost has rows that
    say why. InfrastructureError where shards disagree, RecordError where a record is damaged.

    Of an environment, which every shard observed, the first shard's record stands for all.
    """
    runs = [(shard, run) for shard in shards if (run := shard.run()) is not None]
    records = [(shard, run.load()) for shard, run in runs]
    _refuse_mixed(records)
    for shard, run in runs:
        _sweep_others(shard, run)
    kinds = (*RECORDS, *FILES)
    linked = [link_records(run, into, kinds) for _, run in runs]
    if into.run_path().exists() and not any(linked):
        return
    protocol.write_json(str(into.folder / PARTS), [os.path.relpath(run.folder, into.folder) for _, run in runs])
    rows = [row for each in lost for row in each.rows(records[0][1].environments)]
    for cell, row in rows:
        save_record(into.validation_path(cell), row)
    every = [record for _, record in records]
    parts: list[RunRecord | Lost] = [*every, *lost]
    changed = {
        "kernels": _one_each([kernel for each in parts for kernel in each.kernels], "name"),
        "workloads": _one_each([workload for each in parts for workload in each.workloads], "id"),
        "cells": [*(cell for record in every for cell in record.cells), *(cell for cell, _ in rows)],
        "command": list(command),
        "selection": selection,
        "plan_digest": digest,
    }
    save_record(into.run_path(), _merged(every, into, changed))


def _sweep_others(shard: Shard, finished: Run) -> None:
    """Scratch of runs that its jobs were killed in, and began anew on another machine: none comes back to it. Their
    records stay; where there are none, so does no folder."""
    for folder in runs_folder(shard.project).iterdir():
        if folder != finished.folder:
            Run(folder).sweep()
            with contextlib.suppress(OSError):  # it is not empty
                folder.rmdir()


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
    """The shards' runs that a collected run was made of; none for another run. InputError where one is gone."""
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
    first, base = records[0]
    for shard, record in records[1:]:
        differing = [name for name in SHARED if getattr(record, name) != getattr(base, name)]
        if differing:
            raise InfrastructureError(
                f"the shards {first.name} and {shard.name} disagree on {', '.join(differing)}",
                f"remove {shard.folder}, and type the command again",
            )
    models: dict[str, str] = {}
    for shard, record in records:
        for gpu in record.gpus:
            models.setdefault(gpu.name, shard.name)
            if shard.gpu.lower() not in gpu.name.lower():
                raise InfrastructureError(
                    f"the shard {shard.name} ran on {gpu.name}", f"remove {shard.folder}, and type the command again"
                )
    if len(models) > 1:
        told = ", ".join(f"{name} ({shard})" for name, shard in models.items())
        raise InfrastructureError(
            f"the shards ran on different models of GPU: {told}",
            "ask for one model: --gpu NAME, or --sbatch constraint=NAME",
        )


def _merged(records: Sequence[RunRecord], into: Run, asked: Mapping[str, Any]) -> RunRecord:
    first = records[0]
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
    made = replace(first, **changed)
    return from_json_value(RunRecord, to_json(made))


def _one_each(values: Sequence[Any], name: str) -> list[Any]:
    """Of the same kernel or workload on two devices, or in several parts, one with all of them."""
    found: dict[str, list[Any]] = {}
    for value in values:
        found.setdefault(getattr(value, name), []).append(value)
    return [
        replace(
            same[0],
            **{
                field: list(dict.fromkeys(item for each in same for item in getattr(each, field)))
                for field in ("devices", "workloads", "sources")
                if hasattr(same[0], field)
            },
        )
        for same in found.values()
    ]
