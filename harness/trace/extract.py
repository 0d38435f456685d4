"""Stored regions outside of the script: the first origin as a script that stands alone, and regions as problem files,
with a matrix.yaml that compares them in both versions."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.config.matrix import Matrix, matrix_text
from harness.config.operators import Operator
from harness.schema.records import Device
from harness.trace.answer import place
from harness.trace.exchange import write_exchanged
from harness.trace.outcome import Outcome
from harness.trace.runs import Side, stored_programs
from harness.trace.wording import named
from harness.typed import words_of
from harness.worker import protocol

TEMPLATE = Path(__file__).parent / "alone.py.txt"
FOLDER = "alone"
STORED_TRIALS, DRAWN_TRIALS = 1, 3


@dataclass(frozen=True)
class Region:
    """A stored program of each side."""

    kind: str
    what: str  # of it, in a sentence
    where: str
    programs: Mapping[str, Path]  # by side: good, bad

    @property
    def title(self) -> str:
        return f"{self.what}\n\nSeen at {self.where}.".replace("\\", "/").replace('"""', "'''")


@dataclass(frozen=True)
class Written:
    """A matrix.yaml of problem files, None where there is none, and the devices that they run on: `names` of all
    regions, and why some have no file."""

    path: Path | None
    devices: tuple[Device, ...]
    names: list[str]
    errors: dict[str, str]


def extract(found: Outcome, good: Side, bad: Side, matrix: Matrix, out: Path) -> list[str]:
    """Write both; lines that say where they are."""
    stored = {
        cause.kind: (cause, stored_programs(good, bad, cause.program))
        for cause in found.causes
        if cause.program is not None
    }
    what = f"equal inputs, other outputs, in PyTorch {good.version} and {bad.version}."
    regions = [
        Region(kind, f"{named(kind)}: {what}", place(cause), programs)
        for kind, (cause, programs) in stored.items()
        if programs
    ]
    if not regions:
        return ["nothing to extract: no region was stored in both versions"]
    folder = out / FOLDER
    lines = [f"alone: {_write_script(regions[0], good, bad, folder)}"]
    written = write_matrix(regions, good, bad, matrix, folder)
    bundle = good.bundle or bad.bundle
    where = ["--bundle", str(bundle)] if bundle else []
    if written.path is not None:
        command = words_of("matrix", "--matrix", str(written.path), "--quick", *where, nox=False)
        lines.append(f"as problem files: {shlex.join(command)}")
        if swapped := write_exchanged(written.path, good, bad, matrix):
            packages = ", ".join(f"{each.package} {' and '.join(each.versions)}" for each in swapped[1])
            command = words_of("matrix", "--matrix", str(swapped[0]), "--quick", nox=False)
            lines.append(f"with one package of the other version ({packages}): {shlex.join(command)}")
    return [*lines, *(f"no problem file of {name}: {error}" for name, error in written.errors.items())]


def _write_script(region: Region, good: Side, bad: Side, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for name, path in region.programs.items():
        shutil.copy(path, folder / f"{name}.pt")
    text = TEMPLATE.read_text(encoding="utf-8")
    for key, value in (("title", region.title), ("good", good.version), ("bad", bad.version)):
        text = text.replace("{{" + key + "}}", value)
    script = folder / "alone.py"
    script.write_text(text, encoding="utf-8")
    return script


def write_matrix(regions: Sequence[Region], good: Side, bad: Side, matrix: Matrix, folder: Path) -> Written:
    """A matrix.yaml of both versions, and a problem file of each region that can be one, in this folder."""
    names = _names([region.kind for region in regions])
    requests = [
        {"name": name, "title": region.title, "version": good.version, **_texts(region.programs)}
        for name, region in zip(names, regions, strict=True)
    ]
    written = bad.problems(requests)
    results = protocol.read_json(str(written / "result.json"))
    errors = {name: results[name]["error"] for name in names if results[name]["error"]}
    operators = list[Operator]()
    folder.mkdir(exist_ok=True)
    for name in names:
        if name not in errors:
            shutil.copy(written / f"{name}.py", folder)
            trials = DRAWN_TRIALS if results[name]["drawn"] else STORED_TRIALS
            dtypes = [results[name]["dtype"]]
            devices = [results[name]["device"]]
            operators.append(Operator(problem=f"{name}.py", dtypes=dtypes, devices=devices, trials=trials))
    if not operators:
        return Written(None, (), names, errors)
    for side in (good, bad):
        pins = folder / "docker" / "pins"
        pins.mkdir(parents=True, exist_ok=True)
        if side.pins is not None:
            shutil.copy(side.pins, pins)
    threads = int(os.environ.get("OMP_NUM_THREADS", good.threads))
    made = matrix.model_copy(update={"operators": operators, "workloads": [], "slurm": {}, "cpu_threads": threads})
    path = folder / "matrix.yaml"
    path.write_text(matrix_text(made), encoding="utf-8")
    used = tuple(sorted({device for each in operators for device in each.devices}))
    return Written(path, used, names, errors)


def _texts(paths: Mapping[str, Path]) -> dict[str, str]:
    return {side: str(path) for side, path in paths.items()}


def _names(kinds: Sequence[str]) -> list[str]:
    """A name of each, by its first operator; no two are the same."""
    names = list[str]()
    for kind in kinds:
        first = next(name for name in re.split(r"[^A-Za-z0-9_.]+", kind) if name not in ("nothing", ""))
        name = re.sub(r"[^a-z0-9_]", "_", first.lower()).strip("_")[:50]
        names.append(name if name not in names else f"{name}_{len(names)}")
    return names
