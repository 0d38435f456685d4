"""Probes: small sources of csrc/probes, compiled once for each environment, by its own compiler, and kept."""

from __future__ import annotations

import shutil
from pathlib import Path

from harness.config import shipped
from harness.run.context import Context, answer_of, checked
from harness.schema.records import Device
from harness.tools import cache_lock
from harness.worker import protocol, wire

FOLDER = shipped.CSRC / "probes"
# Site to its probe: what fills it cannot be done from Python.
SOURCES = {"stack": "poison.cpp", "shared": "poison.cu"}


def build_probe(context: Context, environment: str, site: str) -> tuple[Path | None, str]:
    """Return the shared object that fills `site`, and ''; or None, and why there is none."""
    source = FOLDER / SOURCES[site]
    record = context.environments[environment]
    seen = record.observed.gpus if record.observed is not None else []
    if source.suffix == ".cu" and not seen:
        return None, "the environment sees no GPU"
    architecture = f"sm_{seen[0].compute_capability.replace('.', '')}" if source.suffix == ".cu" else ""
    device: Device = "cuda" if architecture else "cpu"
    given = {"source": protocol.sha256_file(str(source)), "architecture": architecture}
    key = context.key("probe", given=given, environment=environment, device=device)
    folder = context.cache / "probes" / f"{environment}-{source.name.replace('.', '-')}-{key[:12]}"
    done, part = folder / f"{source.stem}.so", folder / "part" / f"{source.stem}.so"
    with cache_lock(context.cache, folder.name):
        if done.is_file() and not done.is_symlink():
            return done, ""
        shutil.rmtree(folder, ignore_errors=True)
        part.parent.mkdir(parents=True)
        task = context.task(
            "library",
            wire.LibraryRequest(source=str(source), out=str(part), architecture=architecture),
            environment,
            site,
            timeout_s=context.plan.limits.build_s,
            reads=(source,),
            writes=(part.parent,),
        )
        answer = answer_of(context, task)
        if answer.result is None:
            return None, f"compiling {source.name} {answer.ended.how}"
        result = checked(wire.Outcome, answer, "it")
        if result.status != protocol.OK or not part.is_file() or part.is_symlink():
            return None, f"compiling {source.name}: {result.message}"[:500]
        part.replace(done)  # whole, or not at all
        return done, ""
