"""What must hold after a round, and what an undisturbed run on one host says."""

from __future__ import annotations

import hashlib
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from harness.errors import HarnessError
from tests.cluster.campaign.nodes import NODES, Nodes
from tests.cluster.campaign.subjects import ENVIRONMENTS, KERNELS, LAUNCHES, Subject
from tests.faults.random_faults.campaign import difference
from tests.faults.scripted import litter

if TYPE_CHECKING:
    from tests.cluster.campaign.rounds import Round

LOOK_S = 15.0  # after which nothing may run any more
OWN = re.compile(r'File "[^"]*/harness/.*')
KEPT = {"kernel-matrix-gpus"}  # of /tmp: the locks of a node's GPUs


@dataclass(frozen=True)
class Known:
    """Of a run on one host that nothing disturbed."""

    verdicts: Any
    outputs: Any
    launches: set[tuple[str, str, int]]


def undisturbed(subject: Subject) -> Known:
    """Of the run that is there, if one is: of an earlier start with the same folder."""
    if not (subject.root / "reports" / "latest").exists() and subject.make().start(0, None).wait():
        raise RuntimeError(f"the run on one host: {subject.printed(0).read_text()}")
    launches = subject.counted()
    assert len(launches) == subject.launches and set(launches.values()) == {1}
    return Known(subject.verdicts(), subject.outputs(), set(launches))


def check(at: Round, known: Known) -> list[tuple[str, str]]:
    """(shard, or nothing, and what) for everything that is not as it must be."""
    found = _left(at)
    try:
        found += [*_tracebacks(at), *_launches(at, known), *_records(at), *_blocks(at), *_page(at, known)]
    except (HarnessError, OSError) as error:
        found.append(("", f"silently wrong: the command ended well, and {error}"))
    return found


def _tracebacks(at: Round) -> list[tuple[str, str]]:
    """Of the harness itself; submitit prints one wherever a job's command fails."""
    outputs = [(shard.name, path) for shard in at.subject.shards for path in shard.folder.glob("slurm/*.out")]
    lines = [(name, OWN.search(path.read_text(errors="replace"))) for name, path in outputs]
    return [(name, f"traceback: of a job: {line.group()}") for name, line in lines if line]


def _launches(at: Round, known: Known) -> list[tuple[str, str]]:
    counted, device = at.subject.counted(), at.subject.device
    names = [(kernel, f"{environment} {kernel} {index}") for environment, kernel, index in known.launches]
    there = {f"{environment} {kernel} {index}" for environment, kernel, index in counted}
    found = [(f"{kernel}-{device}", f"lost: launch {name}") for kernel, name in sorted(names) if name not in there]
    more = [key for key, count in counted.items() if count > 1 or key not in known.launches]
    found += [(f"{key[1]}-{device}", f"doubled: launch {key}") for key in more]
    run = at.subject.latest
    rows = [*run.environments(), *run.builds(), *run.validations(), *run.launches()]
    found += [
        (f"{getattr(row, 'kernel', '')}-{device}", f"page differs: {row.status}: {row.message[:200]}")
        for row in rows
        if row.status != "ok"
    ]
    wanted = len(KERNELS[at.subject.mode]) * ENVIRONMENTS * (LAUNCHES[at.subject.mode] + 2)
    if len(rows) != wanted + ENVIRONMENTS and not found:
        found.append(("", f"lost: {len(rows)} records, not {wanted + ENVIRONMENTS}"))
    return found


def _records(at: Round) -> list[tuple[str, str]]:
    """Once written, never written again; but what was damaged."""
    found = []
    for path, digest in at.known.items():
        shard = path.relative_to(at.subject.root / "reports" / "shards").parts[1]
        now = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""
        if now != digest and path not in at.damaged:
            found.append(
                (
                    shard,
                    f"made again: {path.name} of {path.parents[1].name}"
                    if now
                    else f"lost: {path.relative_to(at.subject.root)}",
                )
            )
    return found


def _blocks(at: Round) -> list[tuple[str, str]]:
    """Of GPUs, by what each launch saw as it began; of the CPU, by the node that the shard's job had by then."""
    blocks: dict[tuple[str, str], set[str]] = {}
    runs = {run.folder: shard.name for shard in at.subject.shards if (run := shard.run()) is not None}
    for path, node in at.where.items():
        if path.parents[3] in runs:
            blocks.setdefault((runs[path.parents[3]], path.stem), set()).add(node)
    nodes = [
        (shard, f"mixed: block {index} of {shard} ran on {', '.join(sorted(names))}")
        for (shard, index), names in blocks.items()
        if len(names - {""}) > 1
    ]
    return nodes + [
        (shard, f"mixed: block {index} of {shard} ran on {', '.join(sorted(gpus))}")
        for shard, index, gpus in at.subject.gpus_of_blocks()
        if len(gpus) != 1
    ]


def _page(at: Round, known: Known) -> list[tuple[str, str]]:
    found = []
    if (outputs := at.subject.outputs()) != known.outputs:
        found.append(("", f"silently wrong: outputs: {difference(known.outputs, outputs)}"))
    if (verdicts := at.subject.verdicts()) != known.verdicts:
        found.append(("", f"page differs: {difference(known.verdicts, verdicts)}"))
    page = at.subject.latest.folder / "index.html"
    if not page.exists() or "<title>" not in page.read_text():
        found.append(("", "page differs: there is none"))
    return found


def _left(at: Round) -> list[tuple[str, str]]:
    """Processes, jobs, parts of files, and what lies on the nodes."""
    deadline = time.monotonic() + LOOK_S
    while (running := _running(at.subject, at.nodes)) and time.monotonic() < deadline:
        time.sleep(0.3)
    found = [("", f"left running: {name}") for name in running]
    root, cache = at.subject.root, at.subject.cache
    headless = {str(path.parent.relative_to(root)) for path in at.damaged if path.name == "run.json"}
    places = [name for name in litter(root) if name not in headless]  # its records stay, whatever became of its own
    places += [path.name for path in root.glob("reports/shards/*/*/.project.part")]
    marks = ("asked/*", "*.scratch", "builds/.*.part", ".*.part")
    places += [str(path.relative_to(cache)) for pattern in marks for path in cache.glob(pattern)]
    for node in NODES:
        tmp: Path = at.nodes.disk(node) / "tmp"
        places += [f"{node}:/tmp/{path.name}" for path in tmp.iterdir() if path.name not in KEPT]
    return found + [(_shard_of(name), f"left lying: {name}") for name in sorted(set(places))]


def _shard_of(name: str) -> str:
    parts = Path(name).parts
    return parts[3] if parts[:2] == ("reports", "shards") and len(parts) > 3 else ""


def _running(subject: Subject, nodes: Nodes) -> list[str]:
    left = [f"job {job} of {shard} ({state})" for job, (shard, state, _) in nodes.jobs().items()]
    for process in psutil.process_iter(["cmdline", "status"]):
        if process.info["status"] == psutil.STATUS_ZOMBIE:
            continue
        words = " ".join(process.info["cmdline"] or [])
        try:
            of_job = process.environ().get("SLURM_CONF") == str(nodes.conf) and "SLURM_JOB_ID" in process.environ()
        except psutil.Error:
            of_job = False
        if of_job or str(subject.root) in words:
            left.append(words[:200])
    return left
