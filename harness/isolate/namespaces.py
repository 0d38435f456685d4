"""What sandboxes are made of that need no container engine: Linux's namespaces, a root of their own, and this machine's
GPU in it.

As root a mount namespace is enough; without root it lies in a user namespace, where this machine allows one. A program
of the standard library alone makes a sandbox (enter.py): a bundle's own Python runs it, or the harness's.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.errors import InfrastructureError
from harness.isolate.process import temporary_folder
from harness.isolate.sandbox import TASK_USER, SandboxLimits
from harness.isolate.seccomp import filter_program
from harness.tools import output_of

ENTER = Path(__file__).with_name("enter.py")
OPTIONAL = ("pid", "net", "ipc", "uts")  # namespaces that a machine may refuse, and the sandbox be made all the same
LACKING = {
    "pid": "the machine's processes are seen",
    "net": "the network is the machine's",
    "ipc": "shared memory is the machine's",
    "uts": "",
}
REFUSED_REMEDY = (
    "start it as root (with CAP_SYS_ADMIN), or allow user namespaces: sysctl user.max_user_namespaces=15000, "
    "kernel.unprivileged_userns_clone=1 (Debian), kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu)"
)
TRACERS = ("check",)  # tasks whose tools look into the processes under test
PROBE_TIMEOUT_S = 30
PROCESSORS = 8  # for as many of a machine, runs beside each other may have one more limit of processes

DRIVER = "/driver"  # where the driver's libraries lie in a sandbox
# What CUDA and NVIDIA's management library load; graphics stay outside.
DRIVER_LIBRARIES = re.compile(
    r"lib(cuda|cudadebugger|nvidia-(ml|ptxjitcompiler|nvvm\d*|gpucomp|fatbinaryloader|compiler))\.so(\.[0-9.]+)?$"
)
DRIVER_FOLDERS = (
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/run/opengl-driver/lib",
    "/usr/lib",
)
DEVICES = ("nvidia[0-9]*", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-caps/*")

Mount = tuple[str, str, str]  # kind, source, target: enter.py says what they are


@dataclass(frozen=True, kw_only=True)
class Maker:
    """What makes sandboxes: the Python that enters them, and the root file system that they see."""

    python: Path
    root: Path
    seen: tuple[str, ...] | None = None  # folders of the root; None: every one


@dataclass(frozen=True, kw_only=True)
class Namespaces:
    """What this machine grants: whether a user namespace is needed, and which of the optional ones there are."""

    rootless: bool
    granted: tuple[str, ...]

    def describe(self) -> str:
        """How sandboxes are confined, in words for the report."""
        how = "in a user namespace" if self.rootless else "as another user"
        lacking = [LACKING[name] for name in OPTIONAL if name not in self.granted and LACKING[name]]
        return ", ".join([f"sandboxes {how}, with a filter of system calls and limits for each process", *lacking])


def write_sandbox(
    path: Path,
    maker: Maker,
    namespaces: Namespaces,
    new: Path,
    mounts: Iterable[Mount],
    variables: Mapping[str, str],
    command: Sequence[str],
    folder: str = "/out",
    limits: Mapping[str, int] = {},
    may_trace: bool = False,
    processors: Sequence[int] = (),
) -> list[str]:
    """Describe a sandbox in the file `path`, and return what enters it and runs `command` there, in `folder`.

    `new` is an empty folder, over which the sandbox's root is mounted. `limits` are those of `restraints`;
    `may_trace`: whether processes may look into each other. `processors`: the only ones that they may use; none: any.
    """
    sandbox = {
        "root": str(maker.root),
        "seen": maker.seen,
        "new": str(new),
        "rootless": namespaces.rootless,
        "namespaces": namespaces.granted,
        "mounts": list(mounts),
        "user": TASK_USER,
        "variables": dict(variables),
        "limits": {"core": 0, **limits},
        "processors": list(processors),
        "filter": filter_program(may_trace=may_trace, is_bound=bool(processors)).hex(),
        "folder": folder,
        "command": list(command),
    }
    path.write_text(json.dumps(sandbox))
    return [str(maker.python), "-sSB", str(ENTER), str(path)]


def restraints(task: str, limits: SandboxLimits | None, *, rootless: bool, sees_gpu: bool) -> dict[str, int]:
    """The resource limits of each process of a task, by `resource`'s names.

    None of memory where that would break what it runs: CUDA maps the memory of every GPU, and sanitizers a shadow of
    all the memory that there could be. None of processes where Linux, before 5.14, would count all of the user's.
    """
    if limits is None:
        return {}
    release = tuple(int(number) for number in re.findall(r"\d+", os.uname().release)[:2])
    chosen = {"fsize": limits.output_bytes}
    if not rootless:  # one user's sandboxes are counted together, those of other runs on this machine, too
        chosen["nproc"] = limits.processes * max(1, (os.cpu_count() or 1) // PROCESSORS)
    elif release >= (5, 14):
        chosen["nproc"] = limits.processes
    if not sees_gpu and task not in TRACERS:
        chosen["data"] = limits.memory_bytes
    return chosen


def _refusal(maker: Maker, namespaces: Namespaces) -> str:
    """'' where a sandbox can be made of these namespaces, else why not."""
    with temporary_folder() as folder:
        new = Path(folder, "root")
        new.mkdir()
        command = write_sandbox(Path(folder, "sandbox.json"), maker, namespaces, new, [], {}, ["/usr/bin/true"])
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, errors="replace", env={}
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    lines = done.stderr.strip().splitlines()
    return "" if done.returncode == 0 else (lines[-1] if lines else f"exit code {done.returncode}")


def probe_namespaces(maker: Maker) -> Namespaces:
    """What this machine grants, tried out. InfrastructureError where no process may have a root of its own."""
    refusals = []
    for rootless in (False, True) if os.geteuid() == 0 else (True,):
        every = Namespaces(rootless=rootless, granted=OPTIONAL)
        if not _refusal(maker, every):
            return every
        refusal = _refusal(maker, replace(every, granted=()))
        if not refusal:
            granted = tuple(name for name in OPTIONAL if not _refusal(maker, replace(every, granted=(name,))))
            return replace(every, granted=granted)
        refusals.append(refusal)
    raise InfrastructureError(
        f"no sandbox can be made here: this machine grants no root of its own to a process: {'; '.join(refusals)}",
        REFUSED_REMEDY,
    )


def _driver_folder() -> Path | None:
    """The folder of the libcuda.so.1 that a program of this machine would load."""
    named = [name for name in os.environ.get("LD_LIBRARY_PATH", "").split(":") if name.startswith("/")]
    cached = re.findall(r"libcuda\.so\.1 \(.*x86-64.*\) => (/\S+)", output_of(["ldconfig", "-p"]) or "")
    folders = [*map(Path, named), *(Path(path).parent for path in cached), *map(Path, DRIVER_FOLDERS)]
    return next((folder for folder in folders if (folder / "libcuda.so.1").exists() and folder.name != "stubs"), None)


def driver_mounts() -> list[Mount]:
    """This machine's driver libraries, for `DRIVER` in a sandbox, as its loader and its linker find them.

    InfrastructureError where there are none.
    """
    folder = _driver_folder()
    if folder is None:
        raise InfrastructureError(
            "this machine has a GPU, and its driver's libcuda.so.1 is in no folder that is searched",
            "name its folder: export LD_LIBRARY_PATH=/folder",
        )
    mounts: dict[str, Mount] = {}
    for path in sorted(path for path in folder.iterdir() if DRIVER_LIBRARIES.fullmatch(path.name)):
        real = path.resolve()
        mounts.setdefault(real.name, ("ro", str(real), f"{DRIVER}/{real.name}"))
        if path.name != real.name:
            mounts.setdefault(path.name, ("link", real.name, f"{DRIVER}/{path.name}"))
    # Triton links its launchers with -lcuda; not every driver's folder has this name.
    mounts.setdefault("libcuda.so", ("link", "libcuda.so.1", f"{DRIVER}/libcuda.so"))
    return [*mounts.values(), ("libraries", "", DRIVER)]


def device_mounts(devices: Path = Path("/dev")) -> list[Mount]:
    """The GPUs' nodes. InfrastructureError where the driver has not made all that CUDA needs."""
    nodes = [path for pattern in DEVICES for path in sorted(devices.glob(pattern)) if not path.is_dir()]
    missing = [name for name in ("nvidiactl", "nvidia-uvm") if devices / name not in nodes]
    if missing:
        raise InfrastructureError(
            f"this machine has a GPU, and no {devices}/{missing[0]}", "make it, as root: nvidia-modprobe -u -c=0"
        )
    return [("device", str(path), f"/dev/{path.relative_to(devices)}") for path in nodes]
