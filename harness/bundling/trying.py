"""Runs a verb in an unpacked bundle, for the packer's own proof: in mount and process namespaces of its own, no more.

It trusts what it runs, which is the harness's. Cells, which do not, are executor `bundle`'s.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from harness.bundling.manifest import Bundle
from harness.errors import InfrastructureError
from harness.executors import read_result
from harness.inside import protocol

SCRIPT = """\
set -eu
root=$1 environment=$2 inside=$3 out=$4
mount --bind "$environment" "$root/opt/environment"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount --bind "$inside" "$root/in"
mount --bind "$out" "$root/out"
exec chroot "$root" /usr/bin/env -i PATH=/opt/environment/bin:/usr/local/cuda/bin:/usr/bin:/bin HOME=/out TMPDIR=/out \
    LANG=C.UTF-8 PYTHONPATH=/in PYTHONNOUSERSITE=1 PYTHONDONTWRITEBYTECODE=1 \
    /opt/environment/bin/python -m inside "$5" /out/request.json /out/result.json
"""


def run_verb(
    bundle: Bundle, environment: str, verb: str, request: dict[str, Any], *, inside: Path, scratch: Path
) -> dict[str, Any]:
    """What a verb gave. InfrastructureError where this machine allows no namespaces, or the verb failed."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    protocol.write_json(str(scratch / "request.json"), request)
    for name in ("dev", "proc", "in", "out"):
        (bundle.root / name).mkdir(exist_ok=True)
    rootless = ["--user", "--map-root-user"] if os.geteuid() else []
    command = ["unshare", *rootless, "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", SCRIPT, "sh"]
    places = [bundle.root, bundle.environment(environment), inside, scratch]
    done = subprocess.run([*command, *map(str, places), verb], capture_output=True, text=True, errors="replace")
    result = read_result(scratch / "result.json") if done.returncode == 0 else None
    if result is None:
        said = done.stderr[-800:].strip()
        raise InfrastructureError(
            f"{environment}: `{verb}` in the unpacked bundle exited with {done.returncode}: {said}",
            "is util-linux's unshare installed, and are namespaces allowed here? As root they are",
        )
    return result
