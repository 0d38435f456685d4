"""What a bundle's cells are made of: Linux's namespaces, a root of their own, and this machine's GPU in it.

As root a mount namespace is enough; without root it lies in a user namespace, where this machine allows one. The
programs are the bundle's own (util-linux), run by its own loader, so that they are the same on every machine.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import InfrastructureError
from harness.tools import output_of

ENTER = Path(__file__).with_name("enter_bundle.sh")
LIBRARIES = "usr/lib/x86_64-linux-gnu"
LOADER = f"{LIBRARIES}/ld-linux-x86-64.so.2"
OPTIONAL = ("pid", "net", "ipc", "uts")  # namespaces that a machine may refuse, and the cell be made all the same
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
PROBE_TIMEOUT_S = 30

DRIVER = "/driver"  # where the driver's libraries lie in a cell
# What CUDA and NVIDIA's management library load; graphics stay outside.
DRIVER_LIBRARIES = re.compile(
    r"lib(cuda|cudadebugger|nvidia-(ml|ptxjitcompiler|nvvm\d*|gpucomp|fatbinaryloader|compiler))\.so(\.[0-9.]+)?$"
)
DRIVER_FOLDERS = (
    "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib64",
    "/run/opengl-driver/lib", "/usr/lib",
)  # fmt: skip
DEVICES = ("nvidia[0-9]*", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-caps/*")

Mount = tuple[str, str, str]  # kind, source, target: enter_bundle.sh says what they are


@dataclass(frozen=True, kw_only=True)
class Namespaces:
    """What this machine grants: whether a user namespace is needed, and which of the optional ones there are."""

    rootless: bool
    granted: tuple[str, ...]

    def describe(self) -> str:
        """How cells are confined, in words for the report."""
        how = "in a user namespace" if self.rootless else "as another user"
        lacking = [LACKING[name] for name in OPTIONAL if name not in self.granted and LACKING[name]]
        return ", ".join([f"cells {how}, without seccomp filter and memory limit", *lacking])


def own_program(root: Path, program: str) -> list[str]:
    """The command of one of the bundle's own programs, outside of its root."""
    return [str(root / LOADER), "--library-path", str(root / LIBRARIES), str(root / "usr" / program)]


def unshare_command(root: Path, namespaces: Namespaces) -> list[str]:
    user = ["--user", "--map-root-user"] if namespaces.rootless else []
    granted = [f"--{name}" for name in namespaces.granted]
    return [*own_program(root, "bin/unshare"), "--mount", *user, *granted, "--fork", "--kill-child"]


def enter_command(
    root: Path, namespaces: Namespaces, new: Path, mounts: Iterable[Mount], variables: Mapping[str, str],
    command: Sequence[str],
) -> list[str]:  # fmt: skip
    """What runs `command` in a fresh cell. `new` is an empty folder, over which the cell's root is mounted."""
    how = "namespace" if namespaces.rootless else "user"
    words = [word for mount in mounts for word in mount]
    assignments = [f"{name}={value}" for name, value in variables.items()]
    enter = ["/bin/sh", str(ENTER), str(root), str(new), how, *words, "--", *assignments, *command]
    return [*unshare_command(root, namespaces), *enter]


def _refusal(command: Sequence[str]) -> str:
    """'' where a command succeeds, else its last words."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, errors="replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = done.stderr.strip().splitlines()
    return "" if done.returncode == 0 else (lines[-1] if lines else f"exit code {done.returncode}")


def probe_namespaces(root: Path) -> Namespaces:
    """What this machine grants, tried out. InfrastructureError where it lets nobody have a root of their own."""
    refusals = []
    for rootless in (False, True) if os.geteuid() == 0 else (True,):
        bare = Namespaces(rootless=rootless, granted=())
        refusal = _refusal([*unshare_command(root, bare), "/bin/sh", "-c", ":"])
        if refusal:
            refusals.append(refusal)
            continue
        single = {name: Namespaces(rootless=rootless, granted=(name,)) for name in OPTIONAL}
        granted = tuple(
            name for name, one in single.items() if not _refusal([*unshare_command(root, one), "/bin/sh", "-c", ":"])
        )
        found = Namespaces(rootless=rootless, granted=granted)
        with tempfile.TemporaryDirectory(prefix="kernel-matrix-") as new:
            refusal = _refusal(enter_command(root, found, Path(new), [], {}, ["/usr/bin/true"]))
        if not refusal:
            return found
        refusals.append(refusal)
    raise InfrastructureError(
        f"a bundle cannot run here: this machine grants no root of its own to a process: {'; '.join(refusals)}",
        REFUSED_REMEDY,
    )


def _driver_folder() -> Path | None:
    """The folder of the libcuda.so.1 that a program of this machine would load."""
    named = [name for name in os.environ.get("LD_LIBRARY_PATH", "").split(":") if name.startswith("/")]
    cached = re.findall(r"libcuda\.so\.1 \(.*x86-64.*\) => (/\S+)", output_of(["ldconfig", "-p"]) or "")
    folders = [*map(Path, named), *(Path(path).parent for path in cached), *map(Path, DRIVER_FOLDERS)]
    return next((folder for folder in folders if (folder / "libcuda.so.1").exists() and folder.name != "stubs"), None)


def driver_mounts() -> list[Mount]:
    """This machine's driver libraries, for `DRIVER` in a cell. InfrastructureError where there are none."""
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
    return list(mounts.values())


def device_mounts(devices: Path = Path("/dev")) -> list[Mount]:
    """The GPUs' nodes. InfrastructureError where the driver has not made all that CUDA needs."""
    found = [path for pattern in DEVICES for path in sorted(devices.glob(pattern)) if not path.is_dir()]
    missing = [name for name in ("nvidiactl", "nvidia-uvm") if devices / name not in found]
    if missing:
        raise InfrastructureError(
            f"this machine has a GPU, and no {devices}/{missing[0]}", "make it, as root: nvidia-modprobe -u -c=0"
        )
    return [("device", str(path), f"/dev/{path.relative_to(devices)}") for path in found]
