"""What planning, sealing and merging 1,000 shards with 100,000 launches takes: seconds and peak memory.

    python -m benchmarks.shards [--shards N] [--launches N] [--whole] [--folder DIR]

The records are those of reports/records/cpu-2.1.0-2.5.0.tar.xz under other kernels' names, cut to one workload of one
kernel and two references, or with --whole as they are. Each step runs in a process of its own. DIR keeps the shards.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.cluster.campaign import CampaignRequest, gather
from harness.cluster.shards import Shard, digest_of, plan_shards, seal
from harness.config.matrix import load_matrix
from harness.schema.run_records import Selection
from harness.worker import protocol
from tests.unit.committed import committed

SOURCE, WORKLOAD, TARGETS = "cpu-2.1.0-2.5.0", "seed-fp32", ("kernel", "flash", "math")
SHARDS = Path("reports", "shards", "x")
STEPS = ("plan", "seal", "merge")


def names(count: int) -> list[str]:
    return [f"kernel{number:04d}" for number in range(count)]


def write_project(root: Path, shards: int) -> None:
    """Kernels in folders of their own, each with a header, as people keep them."""
    lines = [f"  - {{name: {name}, folder: kernels/{name}}}" for name in names(shards)]
    environments = ", ".join(f'{{torch: "{version}", cuda: "12.1", python: "3.11"}}' for version in ("2.1.0", "2.5.0"))
    workload = "{name: seed, shape: {batch: 1, heads: 8, seq_len: 512, head_dim: 64}, dtypes: {cpu: [float32]}}"
    text = "\n".join([f"environments: [{environments}]", "kernels:", *lines, "workloads:", f"  - {workload}", ""])
    (root / "matrix.yaml").write_text(text)
    for name in names(shards):
        folder = root / "kernels" / name
        folder.mkdir(parents=True)
        (folder / f"{name}.cpp").write_text(f'#include "{name}.h"\n')
        (folder / f"{name}.h").write_text("// included\n")


def write_record(path: Path, kind: str, body: dict[str, Any]) -> None:
    """Without waiting for the disk, as `save_record` does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    value = {"schema_version": protocol.SCHEMA_VERSION, "kind": kind, "digest": protocol.digest(body), "body": body}
    path.write_text(json.dumps(value, indent=1) + "\n")


def bodies(whole: bool) -> Iterator[tuple[Path, str, dict[str, Any]]]:
    """Path in the run, kind and body of the records that a shard's are made from."""
    with tempfile.TemporaryDirectory() as name:
        [run] = committed(Path(name), SOURCE)
        for path in sorted(run.rglob("*.json")):
            value, relative = json.loads(path.read_bytes()), path.relative_to(run)
            kind, body = value["kind"], value["body"]
            other = body.get("workload", WORKLOAD) != WORKLOAD or body.get("device", "cpu") != "cpu"
            if other or body.get("kernel", "attention_scalar") != "attention_scalar" or "experiments" in relative.parts:
                continue
            if kind == "launch" and not whole:
                wanted = [each for each in body["timings"] if each["workload"] == WORKLOAD]
                body["timings"] = [each for each in wanted if each["target"] in TARGETS]
            yield relative, kind, body


def write_shards(root: Path, shards: int, launches: int, whole: bool) -> int:
    """The finished run of every shard; bytes of a launch."""
    made = list(bodies(whole))
    text, size = (root / "matrix.yaml").read_text(), 0
    for name in names(shards):
        folder = root / SHARDS / f"{name}-cpu" / "project" / "reports" / "runs" / "20260101-000000-x"
        for relative, kind, body in made:
            place = folder / str(relative).replace("attention_scalar", name)
            if kind == "run":
                kernel = next(each for each in body["kernels"] if each["name"] == "attention_scalar")
                workloads = [each for each in body["workloads"] if each["id"] == WORKLOAD]
                cells = [each for each in body["cells"] if (each["workload"], each["device"]) == (WORKLOAD, "cpu")]
                body = {
                    **body,
                    "matrix_text": text,
                    "launches": launches,
                    "finished_utc": body["created_utc"],
                    "kernels": [{**kernel, "name": name, "devices": ["cpu"], "workloads": [WORKLOAD]}],
                    "workloads": workloads,
                    "cells": [{**each, "kernel": name} for each in cells if each["kernel"] == "attention_scalar"],
                    "sources_sha256": {f"kernels/{name}/{name}.cpp": protocol.digest(name)},
                }
            elif "kernel" in body:
                body = {**body, "kernel": name}
            if kind != "launch":
                write_record(place, kind, body)
            elif body["index"] == 0:
                for index in range(launches):
                    write_record(place.with_name(f"{index:03d}.json"), kind, {**body, "index": index})
                size = place.stat().st_size
    return size


def plan(root: Path, folder: Path = SHARDS) -> list[Shard]:
    matrix, text = load_matrix(root / "matrix.yaml")
    digest_of(matrix, text, root, [])
    return plan_shards(matrix, root, root / folder, [], ["cpu"], [])


def take(step: str, root: Path) -> None:
    """Do one step, and print what it took. Planning stands before the others, and is not counted there."""
    (matrix, text), unsealed = load_matrix(root / "matrix.yaml"), SHARDS.with_name("unsealed")
    shards = [] if step == "plan" else plan(root, unsealed if step == "seal" else SHARDS)
    started, used = time.perf_counter(), time.process_time()
    if step == "plan":
        plan(root)
    elif step == "seal":
        for shard in shards:
            seal(shard, matrix, text, root)
    else:
        asked = CampaignRequest(
            command=("kernel-matrix", "matrix"), selection=Selection(), digest="d", shards=tuple(shards)
        )
        gather(root, asked, shards)
    wall_s, processor_s = time.perf_counter() - started, time.process_time() - used
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(f"{step:6} {wall_s:6.1f} s ({processor_s:.1f} s of processor), {int(peak.split()[1]) / 2**20:.2f} GiB")
    shutil.rmtree(root / unsealed, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=1000)
    parser.add_argument("--launches", type=int, default=50, help="of each shard's two environments")
    parser.add_argument("--whole", action="store_true", help="launches of eight workloads and three references")
    parser.add_argument("--folder", type=Path, help="keeps the shards, or has them already")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        return take(options.step, options.folder)
    with tempfile.TemporaryDirectory() as name:
        root = options.folder or Path(name)
        if not (root / "matrix.yaml").exists():
            root.mkdir(parents=True, exist_ok=True)
            write_project(root, options.shards)
            size = write_shards(root, options.shards, options.launches, options.whole)
            print(f"{options.shards} shards, {2 * options.shards * options.launches} launches of {size} bytes")
        for each in STEPS:
            subprocess.run([sys.executable, "-m", "benchmarks.shards", "--step", each, "--folder", root], check=True)


if __name__ == "__main__":
    main()
