"""GPUs as NVIDIA's management library reports them: what they are, which one a run uses, and readings in a launch.

Where the library or a GPU is missing there are no facts and no readings, and nothing fails. It is called from the
harness's own process, which never runs code under test.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from harness.errors import InfrastructureError
from harness.schema.run_records import GpuFacts

PERIOD_S = 0.01  # between readings
PROCESSES_EVERY = 50  # readings: to list processes takes the driver milliseconds
CLOCK_SM, CLOCK_MEMORY, TEMPERATURE_GPU = 1, 2, 0  # of nvml.h
VISIBLE = "CUDA_VISIBLE_DEVICES"
# Not the user's own folder for temporary files, which differs between users and between a cluster's jobs.
LOCKS = Path("/tmp/kernel-matrix-gpus")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One look at a GPU. None: it does not say. `reasons` is the library's bit mask of why its clock is not higher."""

    at_s: float  # by CLOCK_MONOTONIC, which all processes of a machine share
    sm_mhz: float | None = None
    memory_mhz: float | None = None
    reasons: int = 0
    power_w: float | None = None
    temperature_c: float | None = None


@functools.cache
def library() -> ModuleType | None:
    """The management library, ready; None where there is no driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml  # type: ignore[no-any-return]


def _ask(name: str, *arguments: Any) -> Any:
    """What this function of the library answers; None without a library, where the driver is older than the function,
    or where it has no answer for this GPU or for this user."""
    nvml = library()
    if nvml is None or not hasattr(nvml, name):
        return None
    older = getattr(nvml, "NVMLLibraryMismatchError", nvml.NVMLError)  # which is no NVMLError
    try:
        return getattr(nvml, name)(*arguments)
    except (nvml.NVMLError, older):
        return None


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")


def gpus() -> list[GpuFacts]:
    """This machine's GPUs, in the order of their bus addresses."""
    return [_facts(handle) for handle in _handles()]


def _handles() -> list[Any]:
    handles = [_ask("nvmlDeviceGetHandleByIndex", index) for index in range(_ask("nvmlDeviceGetCount") or 0)]
    return [handle for handle in handles if handle is not None]


def _facts(handle: Any) -> GpuFacts:
    ecc, mig = _ask("nvmlDeviceGetEccMode", handle), _ask("nvmlDeviceGetMigMode", handle)
    memory, limit_mw = _ask("nvmlDeviceGetMemoryInfo", handle), _ask("nvmlDeviceGetEnforcedPowerLimit", handle)
    return GpuFacts(
        uuid=_text(_ask("nvmlDeviceGetUUID", handle)),
        name=_text(_ask("nvmlDeviceGetName", handle)),
        driver=_text(_ask("nvmlSystemGetDriverVersion")),
        memory_bytes=memory.total if memory is not None else 0,
        ecc=None if ecc is None else bool(ecc[0]),  # (now, after the next start)
        mig=None if mig is None else bool(mig[0]),
        power_limit_w=None if limit_mw is None else limit_mw / 1000,
        max_sm_mhz=_ask("nvmlDeviceGetMaxClockInfo", handle, CLOCK_SM),
    )


def described(gpu: GpuFacts) -> str:
    """Name, UUID and driver, for people."""
    return f"{gpu.name}, {gpu.uuid}, {gpu.driver}"


def models() -> list[tuple[str, str, str]]:
    """(name, compute capability without its dot, driver's version) of each GPU that tells its capability."""
    found = [(_facts(handle), _ask("nvmlDeviceGetCudaComputeCapability", handle)) for handle in _handles()]
    return [(gpu.name, "".join(map(str, capability)), gpu.driver) for gpu, capability in found if capability]


def named(found: Sequence[GpuFacts], visible: str | None) -> list[GpuFacts]:
    """Those that CUDA_VISIBLE_DEVICES names, by number or UUID, up to the first that is not there; all where it is not
    set. A number counts in the order of bus addresses, whatever CUDA_DEVICE_ORDER says: the run hands the UUID on.
    """
    if visible is None:
        return list(found)
    chosen = []
    for name in map(str.strip, visible.split(",")):
        if name.isdecimal():
            gpu = found[int(name)] if int(name) < len(found) else None
        else:
            gpu = next((gpu for gpu in found if name and gpu.uuid.startswith(name)), None)
        if gpu is None:
            break
        chosen.append(gpu)
    return chosen


def use(environ: dict[str, str] | os._Environ[str] = os.environ) -> GpuFacts | None:
    """Choose the GPU, the first that may be used, and have every process that this one starts see it alone."""
    gpu = next(iter(named(gpus(), environ.get(VISIBLE))), None)
    if gpu is not None:
        environ[VISIBLE] = gpu.uuid
    return gpu


def take(wanted: str, environ: dict[str, str] | os._Environ[str] = os.environ) -> GpuFacts:
    """Choose the first GPU whose name holds `wanted`, in whatever case, that is whole, idle and not throttled by hand.
    InfrastructureError where there is none, with what is wrong with each."""
    seen = named(gpus(), environ.get(VISIBLE))
    alike = [gpu for gpu in seen if wanted.lower() in gpu.name.lower()]
    problems = [(gpu, _unfit(gpu)) for gpu in alike]
    fit = next((gpu for gpu, problem in problems if not problem), None)
    if fit is not None:
        environ[VISIBLE] = fit.uuid
        return fit
    if problems:
        told = "; ".join(f"{gpu.name} ({gpu.uuid}) {problem}" for gpu, problem in problems)
        raise InfrastructureError(f"no GPU named {wanted} can be measured on: {told}", "wait, or choose another one")
    there = ", ".join(dict.fromkeys(gpu.name for gpu in seen)) or "no GPU"
    raise InfrastructureError(f"--gpu {wanted}: there is {there} here", "nvidia-smi lists what there is")


def _unfit(gpu: GpuFacts) -> str:
    """Why times of a GPU would not be those of its model; '' where nothing is known against it."""
    handle = _ask("nvmlDeviceGetHandleByUUID", gpu.uuid)
    usual_mw, others = _ask("nvmlDeviceGetPowerManagementDefaultLimit", handle), _processes(handle)
    if gpu.mig:
        return "is cut into slices (MIG)"
    if others:
        return f"is used by {len(others)} other {'process' if len(others) == 1 else 'processes'}"
    if usual_mw and gpu.power_limit_w and gpu.power_limit_w * 1000 < usual_mw:
        return f"is limited to {gpu.power_limit_w:.0f} W instead of {usual_mw / 1000:.0f} W"
    return ""


def handed_on(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """For processes that inherit nothing: the variable with the chosen GPU's UUID, which holds everywhere."""
    named = environ.get(VISIBLE, "")
    return {VISIBLE: named} if named.startswith("GPU-") else {}


def find_minors(environ: Mapping[str, str] = os.environ) -> list[int] | None:
    """Return the numbers in /dev/nvidiaN of the GPUs that CUDA_VISIBLE_DEVICES leaves; None: not known."""
    visible = {gpu.uuid for gpu in named(gpus(), environ.get(VISIBLE))}
    chosen = [handle for handle in _handles() if _text(_ask("nvmlDeviceGetUUID", handle)) in visible]
    minors = [_ask("nvmlDeviceGetMinorNumber", handle) for handle in chosen]
    return None if not minors or None in minors else minors


def lock_path(uuid: str) -> Path:
    """The lock file of a GPU, which all users of this machine share."""
    LOCKS.mkdir(mode=0o777, exist_ok=True)
    if LOCKS.stat().st_uid == os.getuid():
        LOCKS.chmod(0o777)  # whatever the umask says
    return LOCKS / f"{uuid}.lock"


class Watch:
    """Readings of a GPU from a thread, for as long as the context lasts. Without a GPU to ask there are none."""

    def __init__(self, uuid: str | None, period_s: float = PERIOD_S, own: int = 1) -> None:
        self.own = own  # processes of what is watched, whose numbers here we may not know
        self.readings: list[Reading] = []
        self.other_processes: int | None = None
        self._period_s = period_s
        self._ended = threading.Event()
        handle = _ask("nvmlDeviceGetHandleByUUID", uuid) if uuid else None
        self._thread = threading.Thread(target=self._run, args=(handle,)) if handle is not None else None
        self._before = _processes(handle) if handle is not None else None

    def __enter__(self) -> Watch:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, handle: Any) -> None:
        while not self._ended.wait(self._period_s):
            self.readings.append(_read(handle))
            if len(self.readings) % PROCESSES_EVERY == 1:
                self._count(_processes(handle))

    def _count(self, now: set[int] | None) -> None:
        """Those that were there before, and new ones but our own."""
        if now is None or self._before is None:
            return
        others = len(now & self._before) + max(0, len(now - self._before) - self.own)
        self.other_processes = max(others, self.other_processes or 0)


def _read(handle: Any) -> Reading:
    reasons = _ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if reasons is None:  # a driver from before CUDA 12.2 knows the older name
        reasons = _ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    power_mw = _ask("nvmlDeviceGetPowerUsage", handle)
    return Reading(
        at_s=time.monotonic(),
        sm_mhz=_ask("nvmlDeviceGetClockInfo", handle, CLOCK_SM),
        memory_mhz=_ask("nvmlDeviceGetClockInfo", handle, CLOCK_MEMORY),
        reasons=reasons or 0,
        power_w=None if power_mw is None else power_mw / 1000,
        temperature_c=_ask("nvmlDeviceGetTemperature", handle, TEMPERATURE_GPU),
    )


def _processes(handle: Any) -> set[int] | None:
    found = _ask("nvmlDeviceGetComputeRunningProcesses", handle)
    return None if found is None else {process.pid for process in found}
