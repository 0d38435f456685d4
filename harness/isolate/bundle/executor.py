"""Executor `bundle`: environments of an unpacked bundle, for a machine with neither a container engine nor a registry.

Each task is a fresh process in namespaces of its own: it sees the bundle's root file system and its environment,
which it cannot write, what it was given, and one folder, from which only what was asked for is taken back. Unlike in a
container each process is limited, and not all of a sandbox together.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from dataclasses import asdict, replace
from pathlib import Path

from harness.config import keys
from harness.config.plan import PlannedEnvironment
from harness.errors import InfrastructureError, InputError
from harness.gpu import gpus
from harness.isolate import Answer, Task, Variables, read_result
from harness.isolate.base import BaseExecutor, keep_wheels, kept_wheels
from harness.isolate.bundle.manifest import COMPLETE, Bundle, BundledEnvironment, version_numbers
from harness.isolate.namespaces import (
    DRIVER,
    TRACERS,
    Mount,
    Namespaces,
    device_mounts,
    driver_mounts,
    restraints,
    write_sandbox,
)
from harness.isolate.process import run_child
from harness.isolate.sandbox import (
    ENVIRONMENT,
    LINK,
    PYTHON,
    SandboxLimits,
    bring_back,
    hand_over,
    refuse_closed,
    sandbox_paths,
    sandbox_variables,
    signalled,
    take_back,
    unconfined,
)
from harness.isolate.transfer import relocate
from harness.schema.environment_records import EnvironmentRecord, Observation
from harness.tools import cache_lock
from harness.worker import codec, protocol, wire

MIB = 1 << 20
UNPACK_AGAIN = "unpack the bundle again, into an empty folder; if it stays so, pack it again: nox -s bundle"
PATH = "/opt/environment/bin:/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def plain_id(id: str) -> str:
    """The environment that a bundle holds for a planned one: replicas share it."""
    name, _, replica = id.rpartition("-r")
    return name if replica.isdecimal() else id


def unsuitable(bundle: Bundle, models: list[tuple[str, str, str]]) -> tuple[str, str]:
    """(why this machine's GPUs, as `models` of `harness.gpu` gives them, cannot run the bundle, what to do); '' where
    they can.

    A machine without a GPU runs what needs none.
    """
    manifest = bundle.manifest
    if not models:
        return "", ""
    if all(capability != manifest.architecture for _, capability, _ in models):
        name, capability, _ = models[0]
        return (
            f"the bundle holds GPU code for sm_{manifest.architecture} alone, and this machine's {name} is "
            f"sm_{capability}",
            f"pack one for it: nox -s bundle -- --arch {capability}",
        )
    driver = models[0][2]
    if version_numbers(driver) < version_numbers(manifest.least_driver):
        return (
            f"this machine's driver is {driver}; the bundle's CUDA needs {manifest.least_driver} or newer",
            "update the driver, or measure on another machine",
        )
    return "", ""


def choose_bundled_index(bundle: Bundle, own: str, fallback: str) -> tuple[str, bool]:
    """(the index that the bundle's wheels of an environment came from, whether it is the fallback).

    `own` and `fallback` are the environment's ids for either index. InputError where the bundle has neither.
    """
    there = bundle.manifest.environments
    name = next((id for id in (own, fallback) if plain_id(id) in there), own)
    return bundle.entry(plain_id(name)).index, name != own


def describe(bundle: Bundle, namespaces: Namespaces) -> str:
    manifest = bundle.manifest
    return f"a bundle of {manifest.created_utc[:10]} for sm_{manifest.architecture}; {namespaces.describe()}"


def bundle_facts(bundle: Bundle) -> dict[str, str]:
    """What the run's record says of it."""
    manifest = bundle.manifest

    def left_out(removed: dict[str, int]) -> str:
        return ", ".join(f"{name} ({size / MIB:.0f} MiB)" for name, size in removed.items()) or "nothing"

    def blanked(entry: BundledEnvironment) -> str:
        return f"; {sum(entry.blanked.values()) / MIB:.0f} MiB of other GPUs' code" if entry.blanked else ""

    return {
        "manifest": bundle.manifest_sha256,
        "created": manifest.created_utc,
        "architecture": f"sm_{manifest.architecture}",
        "least driver": manifest.least_driver,
        "left out of the root": left_out(manifest.removed),
        **{
            f"left out of {id}": left_out(manifest.environments[id].removed) + blanked(manifest.environments[id])
            for id in bundle.environments
        },
    }


class BundleExecutor(BaseExecutor):
    name = "bundle"
    holds_back = True

    def __init__(
        self,
        bundle: Bundle,
        namespaces: Namespaces,
        root: Path,
        cache: Path,
        threads: int,
        variables: Variables | None = None,
        *,
        hands_over_gpus: bool = True,
        limits: SandboxLimits | None = None,
    ) -> None:
        super().__init__(cache, threads, variables)
        self.bundle, self.root, self.limits = bundle, root, limits
        self.namespaces: Namespaces = namespaces
        self.devices: list[Mount] = [*device_mounts(), *driver_mounts()] if hands_over_gpus and gpus() else []

    def folder(self, environment: EnvironmentRecord) -> Path:
        return ENVIRONMENT

    def binds(self, environment: str) -> bool:
        return True

    def key(self, environment: PlannedEnvironment, pins: Path | None) -> str:
        return keys.of("bundled", manifest=self.bundle.manifest_sha256, id=environment.id)

    def _left_out(self, environment: PlannedEnvironment) -> Collection[str]:
        return self.bundle.entry(plain_id(environment.id)).removed

    def prepare(self, environment: PlannedEnvironment, pins: Path | None) -> EnvironmentRecord:
        record, entry = super().prepare(environment, pins), self.bundle.entry(plain_id(environment.id))
        return replace(record, image=entry.image, base_image=entry.base_image)

    def _make(self, environment: PlannedEnvironment, pins: Path | None, key: str) -> tuple[Observation, bool, str]:
        assert pins is not None
        id = plain_id(environment.id)
        entry = self.bundle.entry(id)
        if protocol.sha256_file(str(pins)) != entry.pins_sha256:
            raise InputError(
                f"{pins.name}: not the pins that the bundle's {id} was made from",
                "take the pin file of the commit that packed it, or pack it again: nox -s bundle",
            )
        observed = self._observe(environment, verify=False, remedy="")
        problem = unconfined(observed.confinement, network="net" not in self.namespaces.granted)
        if problem:
            raise InfrastructureError(
                f"its sandbox is not confined: {problem}", "report it: this is a fault of the harness"
            )
        if self.devices and not observed.gpus:
            raise InfrastructureError(
                f"PyTorch {observed.torch} in the bundle sees no GPU, and this machine has one",
                "check the driver: nvidia-smi; or measure on the CPU: --device cpu",
            )
        if observed.gpus and observed.gpus[0].compute_capability.replace(".", "") != self.bundle.manifest.architecture:
            raise InfrastructureError(
                f"PyTorch would run on {observed.gpus[0].name}, which the bundle holds no code for",
                "choose another GPU: export CUDA_VISIBLE_DEVICES=N",
            )
        return observed, self._prove(environment.id, observed), ""

    def _prove(self, id: str, observed: Observation) -> bool:
        """Compare what the environment computes with what its image did; whether that was done before, here.

        InfrastructureError with the name of what differs.
        """
        unpacked = (self.bundle.folder / COMPLETE).stat()
        known = keys.of(
            "proof",
            manifest=self.bundle.manifest_sha256,
            id=plain_id(id),
            folder=str(self.bundle.folder),
            inode=unpacked.st_ino,
            unpacked_ns=unpacked.st_mtime_ns,
            cpu=observed.cpu_model,
            cpu_flags=observed.cpu_flags_sha256,
            gpus=[asdict(gpu) for gpu in observed.gpus],
            protocol=protocol.sha256_file(str(self.worker / "worker" / "protocol.py")),
        )
        marker = self.cache / "bundles" / f"{plain_id(id)}-{known[:12]}.json"
        with cache_lock(self.cache, marker.stem):
            before = kept_wheels(marker) is not None
            problem = "" if before else self.unproven(id)
            if problem:
                raise InfrastructureError(f"the bundle does not prove itself: {problem}", UNPACK_AGAIN)
            keep_wheels(marker, observed, UNPACK_AGAIN)
        return before

    def unproven(self, id: str) -> str:
        """'' where an environment computes and loads what its image did, else the first thing that it does not.

        InfrastructureError where it cannot be asked.
        """
        seen = self.ask(id, "prove", wire.EmptyRequest(), wire.ProveResult, doing="proving it", remedy=UNPACK_AGAIN)
        return self.bundle.entry(plain_id(id)).proof.problem_with(seen)

    def run(self, task: Task) -> Answer:
        self._refuse_if_stopped()  # it waited, for a lock, while what held that was ended
        shutil.rmtree(task.scratch, ignore_errors=True)
        out, new = task.scratch / "out", task.scratch / "root"
        for folder in (out, new):
            folder.mkdir(parents=True)
        places, outputs = sandbox_paths(task, self.root)
        asked = task.scratch / "request.json"
        protocol.write_json(str(asked), relocate(codec.dump(task.request), places))
        seen = [path for path in task.reads if path.exists() and path not in task.writes]
        mounts: list[Mount] = [
            *self.devices,
            ("ro", str(self.bundle.environment(plain_id(task.environment))), str(ENVIRONMENT)),
            ("ro", str(self.worker), "/in/worker"),
            ("ro", str(asked), "/in/request.json"),
            *(("ro", str(path), relocate(str(path), places)) for path in seen),
            ("run" if task.compiles else "rw", str(out), "/out"),
            *([("rw", str(task.link), LINK)] if task.link else []),
        ]
        for name, path in outputs.items():
            if path in task.reads and path.exists():  # what earlier tasks left there, and this one adds to
                shutil.move(path, out / name)
        if not self.namespaces.rootless:
            hand_over([out])
            refuse_closed([self.worker, *seen])
        command = [PYTHON, "-m", "worker", task.name, "/in/request.json", "/out/result.json"]
        variables = self._variables(task)
        described, maker = task.scratch / "sandbox.json", self.bundle.maker
        ended = run_child(
            write_sandbox(
                described,
                maker,
                self.namespaces,
                new,
                mounts,
                variables,
                command,
                may_trace=task.name in TRACERS,
                processors=task.processors,
                limits=restraints(
                    task.name, self.limits, rootless=self.namespaces.rootless, sees_gpu=bool(self.devices)
                ),
            ),
            cwd=task.scratch,
            log=task.log,
            timeout_s=task.timeout_s,
            environment={},
            gate=task.gate,
            until=task.until,
        )
        self._refuse_if_stopped()
        take_back([out])
        for name, path in outputs.items():
            bring_back(out / name, path)
        result = task.scratch / "result.json"
        bring_back(out / "result.json", result)
        answer = Answer(
            result=read_result(result) if ended.returncode == 0 and not ended.timed_out else None,
            ended=replace(ended, returncode=signalled(ended.returncode)),
        )
        shutil.rmtree(task.scratch, ignore_errors=True)
        return answer

    def _variables(self, task: Task) -> dict[str, str]:
        folder = self.bundle.environment(plain_id(task.environment))
        # PyTorch's own libraries find these by themselves; cuDNN asks for NVRTC by its name alone.
        wheels = sorted(folder.glob("lib/python3*/site-packages/nvidia/*/lib"))
        libraries = [DRIVER, *(str(ENVIRONMENT / path.relative_to(folder)) for path in wheels)]
        chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
        return {
            **sandbox_variables(self.threads),
            "PATH": PATH,
            "CUDA_HOME": "/usr/local/cuda",
            "VIRTUAL_ENV": str(ENVIRONMENT),
            "LD_LIBRARY_PATH": ":".join(libraries),
            **({"CUDA_VISIBLE_DEVICES": chosen} if chosen is not None else {}),
            **task.variables_in(self.variables),
        }
