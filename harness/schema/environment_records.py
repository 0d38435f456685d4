"""Records of environments: what each holds, what was built in it, and what its device reached at most."""

from __future__ import annotations

from pydantic import Field

from harness.schema.records import Device, Outcome, Record

# The shipped binding's object: it holds PyTorch's headers, so it differs between versions whatever the kernel does.
BINDING_OBJECT = "attention_binding.o"


# -- environments ---------------------------------------------------------------------------------------


class Wheel(Record):
    version: str
    record_sha256: str = Field(description="digest of the installed RECORD file, which lists every file's own")


class Gpu(Record):
    name: str
    uuid: str
    compute_capability: str
    memory_bytes: int
    driver: str


class Confinement(Record):
    """What the process could reach, as it found out itself."""

    user_id: int
    no_new_privileges: bool
    seccomp: int = Field(description="0 none, 1 strict, 2 a filter")
    capabilities: str = Field(description="effective set, as in /proc/self/status; all zeros: none")
    networks: list[str] = Field(description="network interfaces; only lo: none")
    root_writable: bool = Field(description="whether the root file system is mounted for writing")
    memory_bytes: int | None = Field(description="limit of its control group; None: none, or unknown")
    processes: int | None


class Observation(Record):
    """What the environment says of itself, from inside."""

    python: str
    torch: str = Field(description="torch.__version__, local part included: 2.5.0+cu124")
    torch_cuda: str | None
    torch_git: str
    cxx11_abi: bool
    numpy: str
    cudnn: str | None
    wheels: dict[str, Wheel]
    machine: str
    cpu_model: str
    cpu_flags_sha256: str
    cpu_capability: str = Field(description="instruction set that PyTorch chose, such as AVX512")
    threads: int
    kernel_release: str
    libc: str
    gpus: list[Gpu]
    loaded: dict[str, str] = Field(
        default={},
        description="package, or the path of a library that no wheel brought, to the version that is loaded",
    )
    settings: dict[str, str] = Field(description="PyTorch's switches that change numbers, such as allow_tf32")
    compiler: str = Field(default="", description="first line of the C++ compiler's --version")
    nvcc: str = Field(default="", description="last line of nvcc's --version; empty where there is none")
    confinement: Confinement | None = None


class EnvironmentRecord(Outcome):
    id: str
    torch: str = Field(description="the version that was asked for")
    cuda: str = Field(description="the CUDA version that was asked for")
    python: str
    replica: int
    index: str = Field(description="package index the wheels really came from")
    executor: str
    image: str = Field(default="", description="digest of the container image's configuration")
    base_image: str = Field(default="", description="what that image was built on")
    key: str = Field(description="digest of all that determines the environment")
    pins: dict[str, str] = Field(description="package to version, from the pin file")
    pins_sha256: str
    prepared_s: float | None
    reused: bool
    packages: dict[str, str] = Field(default={}, description="its own, as asked for: over the file's, and PyTorch's")
    variables: dict[str, str] = Field(default={}, description="of its processes, as asked for; `observed` has them too")
    observed: Observation | None


# -- builds -----------------------------------------------------------------------------------------------


class DeviceFunction(Record):
    """One compiled GPU function for one architecture, from ``cuobjdump``."""

    name: str
    architecture: str
    registers: int
    spill_bytes: int = Field(description="bytes of local memory that hold spilled registers and stack")
    shared_bytes: int
    disassembly_sha256: str = Field(description="of the disassembly with names normalised")
    atomics: int = Field(default=0, description="atomic instructions in it: RED, ATOM, ATOMG, ATOMS")


class LoadFailure(Record):
    """Why a file that was built elsewhere cannot be loaded in an environment."""

    kind: str = Field(
        description="symbol, cxx11_abi, python, library, machine, system, package, interface, file or other"
    )
    symbol: str = Field(default="", description="that the loader misses, as it names it")
    readable: str = Field(default="", description="the same as C++ writes it")
    library: str = Field(default="", description="that is missing")
    instead: str = Field(default="", description="what the environment has in place of what is missing")
    reason: str = ""
    remedy: str = ""


class BuildRecord(Outcome):
    """Of a kernel that is built already nothing is compiled: `artifact` is its file, which was loaded."""

    environment: str
    kernel: str
    device: Device
    key: str
    runnable: bool = Field(description="False where it was compiled only, for want of a device")
    compiler: str = Field(default="", description="first line of the compiler's --version")
    flags: list[str] = []
    build_ninja: str = ""
    build_s: float | None = Field(default=None, description="seconds of compiling the kernel and linking")
    binding_s: float | None = Field(
        default=None, description="seconds of compiling the shipped binding, once for an environment"
    )
    reused: bool = False
    artifact: str = Field(default="", description="the extension's file name")
    artifact_sha256: str = ""
    artifact_bytes: int | None = None
    objects: dict[str, str] = Field(default={}, description="object file to the hash of its normalised disassembly")
    functions: list[DeviceFunction] = []
    refused: LoadFailure | None = None
    provided: dict[str, str] = Field(
        default={}, description="of what is built already: symbol that it needs to the library that defines it"
    )

    @property
    def own_objects(self) -> dict[str, str]:
        """Its object files without the shipped binding's."""
        return {name: code for name, code in self.objects.items() if name != BINDING_OBJECT}

    @property
    def binds_itself(self) -> bool:
        """Whether its sources bring a binding of their own: they hold PyTorch's headers, and may call its operators."""
        return bool(self.objects) and BINDING_OBJECT not in self.objects


# -- the device's ceilings ---------------------------------------------------------------------------------


class CeilingRecord(Outcome):
    """What the device reached in this run at most: what every kernel's own rate is a share of."""

    key: str = ""
    device_uuid: str
    device_name: str
    environment: str = Field(description="whose PyTorch measured it")
    matmul_tflops: dict[str, float] = Field(default={}, description="by dtype: a large product of random matrices")
    matmul_size: int | None = Field(default=None, description="rows, columns and depth of that product")
    copy_gbps: float | None = Field(default=None, description="large device-to-device copy, bytes read plus written")
    copy_bytes: int | None = None
    started_utc: str
