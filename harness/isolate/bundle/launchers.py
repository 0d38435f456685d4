"""`run` and `python` of an unpacked bundle, and the packages that the harness itself runs with there."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
from pathlib import Path

from harness.errors import InfrastructureError
from harness.isolate.bundle.tree import resolve
from harness.tools import uv_command

LOADER = "/lib64/ld-linux-x86-64.so.2"
LIBRARY_FOLDERS = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64")
NOT_THERE = ("uv",)  # it makes environments; a bundle brings them
LEFT_OUT = ("*/tests/*", "*.pyi", "bin/*")
PYTHON = """\
#!/bin/sh
# The bundle's Python, with the packages that the harness needs, started through the bundle's own loader: neither this
# machine's Python nor its C library matters.
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
export PYTHONHOME="$here/root{home}" PYTHONPATH="$here/packages" PYTHONNOUSERSITE=1
exec "$here/root{loader}" --library-path "{libraries}" --argv0 "$here/python" "$here/root{program}" "$@"
"""
RUN = """\
#!/bin/sh
# Runs the harness of the checkout in the current folder with this bundle:
#
#   DIR/run VERB [OPTION]...       as `kernel-matrix VERB [OPTION]...`; matrix, eval, sweep and specimens by this bundle
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
if [ ! -f harness/cli/main.py ]; then
    echo "run: no checkout of the project in $(pwd)" >&2
    echo "  remedy: cd to one, and start $0 there" >&2
    exit 64
fi
case ${1-} in
reports) shift && set -- report "$@" ;;
matrix | eval | sweep | specimens)
    case " $* " in
    *" --executor"*) ;;
    *) set -- "$@" --executor bundle --bundle "$here" ;;
    esac
    ;;
esac
exec "$here/python" -m harness "$@"
"""


def inside(root: Path, name: str) -> str:
    """Where a path of the root file system leads, as a path that means the same outside of it."""
    return "/" + str(resolve(root, name).relative_to(root))


def render_python(root: Path, program: str) -> str:
    """The text of `python`; `program` is the environments' interpreter. InfrastructureError where it is not there."""
    real = inside(root, program)
    loader = inside(root, LOADER)
    for path in (real, loader):
        if not (root / path.lstrip("/")).is_file():
            raise InfrastructureError(f"the image has no {path}", "nox -s images -- check")
    home = str(Path(real).parent.parent)
    folders = [inside(root, folder) for folder in (*LIBRARY_FOLDERS, f"{home}/lib")]
    there = dict.fromkeys(folder for folder in folders if (root / folder.lstrip("/")).is_dir())
    libraries = ":".join(f"$here/root{folder}" for folder in there)
    return PYTHON.format(home=home, loader=loader, libraries=libraries, program=real)


def install_packages(project: Path, python: str, target: Path) -> dict[str, str]:
    """The project's own dependencies for Python `python`, but for `NOT_THERE`; package to version."""
    names = [
        "--no-config",
        "--quiet",
        "--target",
        str(target),
        f"--python-version={python}",
        "--python-platform=x86_64-manylinux_2_28",
        "--only-binary=:all:",
        "--link-mode=copy",
        "--requirements",
        str(project / "pyproject.toml"),
    ]
    done = subprocess.run([*uv_command(), "pip", "install", *names], capture_output=True, text=True)
    if done.returncode:
        raise InfrastructureError(
            f"the harness's own packages cannot be installed: {' '.join(done.stderr.split())[-600:]}",
            "check that the index answers: nox -s doctor",
        )
    versions = {}
    for distribution in list(importlib.metadata.distributions(path=[str(target)])):
        name = re.sub(r"[-_.]+", "-", distribution.name).lower()
        if name in NOT_THERE:
            for file in distribution.files or ():
                path = Path(os.path.normpath(target / file))
                if path.is_relative_to(target):
                    path.unlink(missing_ok=True)
            for left in target.glob(f"{name}-*.dist-info"):
                shutil.rmtree(left)
        else:
            versions[name] = distribution.version
    return dict(sorted(versions.items()))
