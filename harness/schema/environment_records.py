"""Records of environments: what each holds, what was built in it, and what its device reached at most."""

from __future__ import annotations

from dataclasses import field

from harness.schema.records import Device, Outcome
from harness.worker import wire
from harness.worker.wire import Confinement, DeviceFunction, Gpu, LoadFailure, Observation, Wheel

__all__ = [
    "BINDING_OBJECT",
    "BuildRecord",
    "CeilingRecord",
    "Confinement",
    "DeviceFunction",
    "EnvironmentRecord",
    "Gpu",
    "LoadFailure",
    "Observation",
    "Wheel",
]

# The shipped binding's object: it holds PyTorch's headers, so it differs between versions whatever the kernel does.
BINDING_OBJECT = "attention_binding.o"


# -- environments ---------------------------------------------------------------------------------------


class EnvironmentRecord(Outcome, kw_only=True):
    id: str
    torch: str  # the version that was asked for
    cuda: str  # the CUDA version that was asked for
    python: str
    replica: int
    index: str  # package index the wheels really came from
    executor: str
    image: str = ""  # digest of the container image's configuration
    base_image: str = ""  # what that image was built on
    key: str  # digest of all that determines the environment
    pins: dict[str, str]  # package to version, from the pin file
    pins_sha256: str
    prepared_s: float | None
    reused: bool
    packages: dict[str, str] = field(default_factory=dict)  # its own, as asked for: over the file's, and PyTorch's
    variables: dict[str, str] = field(default_factory=dict)  # of its processes, as asked for; `observed` has them too
    observed: Observation | None


# -- builds -----------------------------------------------------------------------------------------------


class BuildRecord(wire.BuildResult, kw_only=True):
    """Of a kernel that is built already nothing is compiled: `artifact` is its file, which was loaded."""

    environment: str
    kernel: str
    device: Device
    key: str
    runnable: bool  # False where it was compiled only, for want of a device
    binding_s: float | None = None  # seconds of compiling the shipped binding, once for an environment
    reused: bool = False

    @property
    def own_objects(self) -> dict[str, str]:
        """Its object files without the shipped binding's."""
        return {name: code for name, code in self.objects.items() if name != BINDING_OBJECT}

    @property
    def binds_itself(self) -> bool:
        """Whether its sources bring a binding of their own: they hold PyTorch's headers, and may call its operators."""
        return bool(self.objects) and BINDING_OBJECT not in self.objects


# -- the device's ceilings ---------------------------------------------------------------------------------


class CeilingRecord(wire.CeilingsResult, kw_only=True):
    """What the device reached in this run at most: what every kernel's own rate is a share of."""

    key: str = ""
    device_uuid: str
    device_name: str
    environment: str  # whose PyTorch measured it
    started_utc: str
