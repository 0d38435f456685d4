from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness import gpu
from harness.errors import InfrastructureError
from harness.run.folders import held, measure_lock
from tests.conftest import ROOT
from tests.unit.contexts import FakeContext, gpu_facts


class Error(Exception):
    pass


class FakeLibrary:
    """As pynvml, of two GPUs. What is in `silent` it does not say."""

    NVMLError = Error

    def __init__(self, silent: tuple[str, ...] = ()) -> None:
        self.silent = silent
        self.mig, self.limits_mw = 0, [700_000, 700_000]
        self.processes = [[7], [7, 8], [7, 8, 9], [7, 8]]

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def answer(*arguments: Any) -> Any:
            if name in self.silent:
                raise Error(name)
            return self.say(name, *arguments)

        return answer

    def say(self, name: str, handle: Any = 0, *rest: Any) -> Any:
        if name == "nvmlDeviceGetComputeRunningProcesses":
            now = self.processes.pop(0) if len(self.processes) > 1 else self.processes[0]
            return [SimpleNamespace(pid=pid) for pid in now]
        return {
            "nvmlDeviceGetCount": 2,
            "nvmlDeviceGetHandleByIndex": handle,
            "nvmlDeviceGetHandleByUUID": int(handle == "GPU-1a"),
            "nvmlDeviceGetCudaComputeCapability": (9, 0),
            "nvmlDeviceGetUUID": f"GPU-{handle}a",
            "nvmlDeviceGetName": b"Fake 1",
            "nvmlSystemGetDriverVersion": "1.2",
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=1 << 30),
            "nvmlDeviceGetEccMode": [1, 0],
            "nvmlDeviceGetMigMode": [self.mig, 0],
            "nvmlDeviceGetEnforcedPowerLimit": self.limits_mw[handle == 1],
            "nvmlDeviceGetPowerManagementDefaultLimit": 700_000,
            "nvmlDeviceGetMaxClockInfo": 1980,
            "nvmlDeviceGetClockInfo": 1500 if rest == (1,) else 3201,
            "nvmlDeviceGetPowerUsage": 300_500,
            "nvmlDeviceGetTemperature": 44,
            "nvmlDeviceGetCurrentClocksEventReasons": 0x40,
            "nvmlDeviceGetCurrentClocksThrottleReasons": 0x4,
        }[name]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    fake = FakeLibrary()
    monkeypatch.setattr(gpu, "library", lambda: fake)
    return fake


def test_facts_and_what_a_gpu_does_not_say(library: FakeLibrary) -> None:
    one, two = gpu.gpus()
    assert (one.uuid, two.uuid, one.name, one.driver) == ("GPU-0a", "GPU-1a", "Fake 1", "1.2")
    assert (one.ecc, one.mig, one.power_limit_w, one.max_sm_mhz) == (True, False, 700.0, 1980)
    assert gpu.described(two) == "Fake 1, GPU-1a, 1.2" and gpu.models() == [("Fake 1", "90", "1.2")] * 2
    library.silent = (
        "nvmlDeviceGetEccMode",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetEnforcedPowerLimit",
        "nvmlDeviceGetCudaComputeCapability",
    )
    one = gpu.gpus()[0]
    assert (one.ecc, one.mig, one.power_limit_w) == (None, None, None) and one.uuid and gpu.models() == []


def test_no_driver_is_no_gpu_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    import pynvml

    def fail() -> None:
        raise pynvml.NVMLError_LibraryNotFound()

    monkeypatch.setattr(pynvml, "nvmlInit", fail)
    gpu.library.cache_clear()
    try:
        environ: dict[str, str] = {}
        assert gpu.gpus() == gpu.models() == [] and gpu.use(environ) is None and environ == {}
        with gpu.Watch("GPU-0a") as watch:
            pass
        assert watch.readings == [] and watch.other_processes is None
    finally:
        gpu.library.cache_clear()


@pytest.mark.parametrize(
    ("visible", "chosen"),
    [
        (None, "GPU-0a"),
        ("1", "GPU-1a"),
        ("1,0", "GPU-1a"),
        ("GPU-1", "GPU-1a"),
        ("", None),
        ("-1", None),
        ("2", None),
        ("GPU-7", None),
    ],
)
def test_one_gpu_is_chosen_and_handed_on_by_its_uuid(
    library: FakeLibrary, visible: str | None, chosen: str | None
) -> None:
    environ = {} if visible is None else {gpu.VISIBLE: visible}
    before = dict(environ)
    found = gpu.use(environ)
    assert (found.uuid if found else None) == chosen
    assert environ == ({gpu.VISIBLE: chosen} if chosen else before)
    assert gpu.handed_on(environ) == ({gpu.VISIBLE: chosen} if chosen else {} if visible != "GPU-7" else before)


def test_a_gpu_is_taken_by_its_model_where_it_is_whole_idle_and_at_its_usual_power(library: FakeLibrary) -> None:
    library.processes = [[]]
    environ: dict[str, str] = {}
    assert gpu.take("fake", environ).uuid == environ[gpu.VISIBLE] == "GPU-0a"
    library.limits_mw = [350_000, 700_000]
    library.processes = [[], []]
    assert gpu.take("fake", {}).uuid == "GPU-1a"


@pytest.mark.parametrize(
    ("wanted", "changes", "said"),
    [
        ("h200", {}, "--gpu h200: there is Fake 1 here"),
        ("fake", {"mig": 1}, "is cut into slices"),
        ("fake", {"processes": [[7, 8]]}, "is used by 2 other processes"),
        ("fake", {"processes": [[7]]}, "is used by 1 other process"),
        ("fake", {"limits_mw": [350_000, 300_000], "processes": [[]]}, "limited to 350 W instead of 700 W; .* 300 W"),
    ],
)
def test_a_gpu_that_is_not_what_was_asked_for_is_refused(
    library: FakeLibrary, wanted: str, changes: dict[str, Any], said: str
) -> None:
    vars(library).update(changes)
    with pytest.raises(InfrastructureError, match=said):
        gpu.take(wanted, {})


def test_a_watch_reads_and_counts_the_processes_of_others(
    library: FakeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "PROCESSES_EVERY", 2)
    with gpu.Watch("GPU-0a", period_s=0.001) as watch:
        while len(watch.readings) < 8:
            time.sleep(0.001)
    last = watch.readings[-1]
    assert (last.sm_mhz, last.memory_mhz, last.power_w, last.temperature_c) == (1500, 3201, 300.5, 44)
    assert last.reasons == 0x40 and [r.at_s for r in watch.readings] == sorted(r.at_s for r in watch.readings)
    # 7 was there before; of 8 and 9 one is the launch's own.
    assert watch.other_processes == 2
    count = len(watch.readings)
    time.sleep(0.01)
    assert len(watch.readings) == count


def test_an_older_driver_tells_the_reasons_by_their_older_name(library: FakeLibrary) -> None:
    library.silent = ("nvmlDeviceGetCurrentClocksEventReasons",)
    assert gpu._read(0).reasons == 0x4


def test_a_function_that_the_driver_is_too_old_for_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mismatch(Exception):  # pynvml's own is no NVMLError either
        pass

    def too_old(*arguments: Any) -> Any:
        raise Mismatch("the driver has an older one")

    old = SimpleNamespace(
        NVMLError=Error, NVMLLibraryMismatchError=Mismatch, nvmlDeviceGetComputeRunningProcesses=too_old
    )
    monkeypatch.setattr(gpu, "library", lambda: old)
    assert gpu._processes(0) is None


@pytest.fixture
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(gpu, "LOCKS", tmp_path / "locks")
    yield tmp_path / "locks"


def test_a_gpus_lock_can_be_held_by_every_user(locks: Path) -> None:
    old = os.umask(0o077)
    try:
        path = gpu.lock_path("GPU-0a")
        with held(path, "waiting", mode=0o666):
            assert path.stat().st_mode & 0o777 == 0o666 and locks.stat().st_mode & 0o777 == 0o777
    finally:
        os.umask(old)
    assert gpu.lock_path("GPU-1a") != path


def test_gpu_cells_hold_their_gpus_lock_and_cpu_cells_the_machines(locks: Path, tmp_path: Path) -> None:
    (tmp_path / "cache" / "locks").mkdir(parents=True)
    context: Any = FakeContext(cache=tmp_path / "cache", gpu=gpu_facts("GPU-0a"))
    processors = measure_lock(tmp_path / "cache")
    with context.hold("cuda"):
        assert (locks / "GPU-0a.lock").exists() and not processors.exists()
    elsewhere: Any = FakeContext(cache=tmp_path / "cache", gpu=None)
    with elsewhere.hold("cuda"):
        assert processors.exists()


HOLD = """
import sys, time
from pathlib import Path
from harness import gpu
from harness.errors import InfrastructureError
from harness.run.folders import held
gpu.LOCKS = Path(sys.argv[1])
for _ in range(3):
    with held(gpu.lock_path("GPU-0a"), "waiting", mode=0o666):
        began = time.monotonic()
        time.sleep(0.03)
        print("held", began, time.monotonic(), flush=True)
"""


@pytest.mark.process
def test_two_runs_never_hold_a_gpu_at_once(locks: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(locks)]
    children = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    lines = [line.split() for child in children for line in child.communicate()[0].splitlines()]
    times = sorted((float(line[1]), float(line[2])) for line in lines if line[0] == "held")
    assert len(times) == 6 and all(ended <= began for (_, ended), (began, _) in pairwise(times))
