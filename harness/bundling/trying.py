"""Runs a program in an unpacked bundle, for the packer's own proof: in namespaces for mounts and processes, no more.

It trusts what it runs, which is the harness's. Cells, which do not, are executor `bundle`'s.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.bundling.manifest import Bundle
from harness.errors import InfrastructureError
from harness.executors import read_result
from harness.inside import protocol

PLACES = ("dev", "proc", "in", "out")
ENTER = """\
set -eu
root=$1 environment=$2 inside=$3 out=$4
shift 4
mount --bind "$environment" "$root/opt/environment"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount --bind "$inside" "$root/in"
mount --bind "$out" "$root/out"
path=/opt/environment/bin:/usr/local/cuda/bin:/usr/bin:/bin
exec chroot "$root" /usr/bin/env -i PATH=$path CUDA_HOME=/usr/local/cuda \
    HOME=/out TMPDIR=/out LANG=C.UTF-8 PYTHONPATH=/in PYTHONNOUSERSITE=1 PYTHONDONTWRITEBYTECODE=1 "$@"
"""


def run_in(
    bundle: Bundle, environment: str, command: Sequence[str], *, inside: Path, out: Path
) -> subprocess.CompletedProcess[str]:
    """Run a command with the bundle as its root, the environment in its place, `inside` at /in and `out` at /out."""
    for name in PLACES:
        (bundle.root / name).mkdir(exist_ok=True)
    rootless = ["--user", "--map-root-user"] if os.geteuid() else []
    enter = ["unshare", *rootless, "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", ENTER, "sh"]
    places = map(str, (bundle.root, bundle.environment(environment), inside, out))
    return subprocess.run([*enter, *places, *command], capture_output=True, text=True, errors="replace")


def run_verb(
    bundle: Bundle, environment: str, verb: str, request: dict[str, Any], *, inside: Path, scratch: Path
) -> dict[str, Any]:
    """What a verb gave. InfrastructureError where this machine allows no namespaces, or the verb failed."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    protocol.write_json(str(scratch / "request.json"), request)
    command = ["/opt/environment/bin/python", "-m", "inside", verb, "/out/request.json", "/out/result.json"]
    done = run_in(bundle, environment, command, inside=inside, out=scratch)
    result = read_result(scratch / "result.json") if done.returncode == 0 else None
    if result is None:
        said = done.stderr[-800:].strip()
        raise InfrastructureError(
            f"{environment}: `{verb}` in the unpacked bundle exited with {done.returncode}: {said}",
            "is util-linux's unshare installed, and are namespaces allowed here? As root they are",
        )
    return result
