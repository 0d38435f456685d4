"""What a bundle brings to run with: `run` and `python`, this tool and its packages, and the tools that unpack it."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
from pathlib import Path

from harness.config import shipped
from harness.errors import InfrastructureError
from harness.isolate.bundle.archive import find_program, resolve
from harness.isolate.transfer import pack
from harness.tools import output_of, uv_command
from harness.worker.wheels import normalise

LAUNCHERS = ("python", "run", "lib")
PROGRAMS = ("zstd", "sha256sum")  # this machine's, started through the loader that is packed with them
LOADER = "/lib64/ld-linux-x86-64.so.2"
LIBRARY = re.compile(r"^\s*(\S+) => (/\S+) \(0x", re.MULTILINE)


def libraries(program: Path) -> dict[str, Path]:
    """What a program loads: name to file. InfrastructureError where the loader cannot tell."""
    printed = output_of([LOADER, "--list", str(program)])
    if printed is None or "not found" in printed:
        raise InfrastructureError(
            f"{program}: its libraries cannot be listed: {(printed or '').strip()}", f"{LOADER} --list {program}"
        )
    return {name: Path(path) for name, path in LIBRARY.findall(printed)}


def pack_tools(target: Path) -> None:
    """Write tools.tar: `loader`, bin/ and lib/."""
    programs = {name: find_program(name) for name in PROGRAMS}
    needed: dict[str, Path] = {}
    for program in programs.values():
        needed |= libraries(program)
    contents: list[tuple[str, Path | bytes]] = [("loader", Path(LOADER).resolve())]
    contents += [(f"bin/{name}", path.resolve()) for name, path in programs.items()]
    contents += [(f"lib/{name}", path.resolve()) for name, path in sorted(needed.items())]
    with target.open("wb") as file:
        pack(file, contents, executable=[name for name, _ in contents])


LIBRARY_FOLDERS = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64")
NOT_THERE = "uv"  # it makes environments; a bundle brings them
LEFT_OUT = ("*/tests/*", "*.pyi", "bin/*", f"{NOT_THERE}/*", f"{NOT_THERE}-*.dist-info/*")
DISTRIBUTION = "torch-kernel-matrix"
REPORTS = ("load", "compare", "attribute", "render")
TOOL = ("harness", "csrc", "docker", *(f"reports/{name}" for name in REPORTS))
PYTHON = """\
#!/bin/sh
# The bundle's Python, with the packages that the harness needs, started through the bundle's own loader: neither this
# machine's Python nor its C library matters. It finds its standard library in lib/ beside this file, so that -I, which
# ignores all variables, finds it too; those are then of what it starts, and left alone. BUNDLE_PACKAGES and
# BUNDLE_LIBRARIES name other packages, those of an environment, and what they load.
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
case ${{1-}} in
-I*) ;;
*) unset PYTHONHOME && export PYTHONPATH="${{BUNDLE_PACKAGES-$here/packages}}" PYTHONNOUSERSITE=1 ;;
esac
exec "$here/root{loader}" --library-path "{libraries}${{BUNDLE_LIBRARIES:+:$BUNDLE_LIBRARIES}}" \\
    --argv0 "$here/python" "$here/root{program}" "$@"
"""
RUN = """\
#!/bin/sh
# Runs kernel-matrix with this bundle on the project in the current folder:
#
#   DIR/run VERB [OPTION]...         as `kernel-matrix VERB [OPTION]...`; matrix, eval and sweep by this bundle
#   DIR/run fault_cases [OPTION]...  in a checkout of kernel-matrix: its fault cases, by this bundle
#
# A checkout of kernel-matrix runs its own code, any other project the copy in this bundle.
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
case ${1-} in
reports) shift && set -- report "$@" ;;
matrix | eval | sweep | fault_cases)
    case " $* " in
    *" --executor"*) ;;
    *) set -- "$@" --executor bundle --bundle "$here" ;;
    esac
    ;;
esac
if [ ! -f harness/isolate/bundle/launchers.py ]; then
    exec "$here/python" -c "import sys; from kernel_matrix import main; sys.exit(main())" "$@"
fi
case ${1-} in
fault_cases) shift && exec "$here/python" -m tests.fault_cases "$@" ;;
esac
exec "$here/python" -m harness "$@"
"""


def inside(root: Path, name: str) -> str:
    """Where a path of the root file system leads, as a path that means the same outside of it."""
    return "/" + str(resolve(root, name).relative_to(root))


def write_launchers(folder: Path, root: Path, program: str) -> None:
    """`python`, `run`, and `lib`, which leads to Python's standard library in `root`; `program` is the environments'
    interpreter. InfrastructureError where it is not there."""
    real, loader = inside(root, program), inside(root, LOADER)
    for path in (real, loader):
        if not (root / path.lstrip("/")).is_file():
            raise InfrastructureError(f"the image has no {path}", "nox -s images -- check")
    home = str(Path(real).parent.parent)
    folders = [inside(root, folder) for folder in (*LIBRARY_FOLDERS, f"{home}/lib")]
    there = dict.fromkeys(folder for folder in folders if (root / folder.lstrip("/")).is_dir())
    libraries = ":".join(f"$here/root{folder}" for folder in there)
    python = PYTHON.format(loader=loader, libraries=libraries, program=real)
    for name, text in {"python": python, "run": RUN}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "lib").symlink_to(f"root{home}/lib")


def copy_tool(target: Path) -> None:
    """This tool as the wheel installs it, `kernel_matrix`, into a folder of packages."""
    package = target / "kernel_matrix"
    for name in TOOL:
        shutil.copytree(shipped.ROOT / name, package / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (shipped.ROOT / "reports").glob("*.py"):
        shutil.copy(path, package / "reports")
    checkout, installed = shipped.ROOT / "harness" / "installed.py", shipped.ROOT / "__init__.py"
    shutil.copy(checkout if checkout.is_file() else installed, package / "__init__.py")


def install_packages(python: str, target: Path) -> dict[str, str]:
    """This tool's dependencies for Python `python`; package to version, but for `NOT_THERE`, which is left out."""
    checkout = shipped.ROOT / "pyproject.toml"
    named = ["--requirements", str(checkout)] if checkout.is_file() else importlib.metadata.requires(DISTRIBUTION) or []
    options = [
        "--no-config",
        "--quiet",
        "--target",
        str(target),
        f"--python-version={python}",
        "--python-platform=x86_64-manylinux_2_28",
        "--only-binary=:all:",
        "--link-mode=copy",
    ]
    done = subprocess.run([*uv_command(), "pip", "install", *options, *named], capture_output=True, text=True)
    if done.returncode:
        raise InfrastructureError(
            f"the harness's own packages cannot be installed: {' '.join(done.stderr.split())[-600:]}",
            "check that the index answers: nox -s doctor",
        )
    there = {normalise(each.name): each.version for each in importlib.metadata.distributions(path=[str(target)])}
    return {name: there[name] for name in sorted(there) if name != NOT_THERE}
