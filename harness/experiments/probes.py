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
SITES: dict[Device, tuple[str, ...]] = {"cpu": ("stack",), "cuda": ("shared",)}


def build_probe(context: Context, environment: str, site: str) -> tuple[Path | None, str]:
    """(the shared object that fills `site`, ''), or (None, why there is none)."""
    source = FOLDER / SOURCES[site]
    record = context.environments[environment]
    seen = record.observed.gpus if record.observed is not None else []
    capability = seen[0].compute_capability if seen else ""
    if source.suffix == ".cu" and not capability:
        return None, "the environment sees no GPU"
    architecture = f"sm_{capability.replace('.', '')}" if source.suffix == ".cu" else ""
    device: Device = "cuda" if architecture else "cpu"
    given = {"source": protocol.sha256_file(str(source)), "architecture": architecture}
    key = context.key("probe", given=given, environment=environment, device=device)
    folder = context.cache / "probes" / f"{environment}-{source.stem}{source.suffix.replace('.', '-')}-{key[:12]}"
    out, done = folder / "out" / f"{source.stem}.so", folder / "complete.json"
    with cache_lock(context.cache, folder.name):
        if out.is_file() and not out.is_symlink() and _recorded(done) == protocol.sha256_file(str(out)):
            return out, ""
        shutil.rmtree(folder, ignore_errors=True)
        out.parent.mkdir(parents=True)
        request = wire.LibraryRequest(source=str(source), out=str(out), architecture=architecture)
        answer = answer_of(
            context,
            context.task(
                "library",
                request,
                environment,
                timeout_s=context.plan.limits.build_s,
                scratch=folder.with_name(folder.name + ".scratch"),
                log=f"probe-{site}",
                reads=(source,),
                writes=(out.parent,),
            ),
        )
        if answer.result is None:
            return None, f"compiling {source.name} {answer.ended.how}"
        result = checked(wire.Outcome, answer, "it")
        if result.status != protocol.OK or not out.is_file():
            return None, f"compiling {source.name}: {result.message}"[:500]
        protocol.write_json(str(done), {"sha256": protocol.sha256_file(str(out))})
        return out, ""


def _recorded(done: Path) -> str:
    """The digest of a probe that was made; '' where none was, or what says so is damaged."""
    try:
        return str(protocol.read_json(str(done))["sha256"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""
