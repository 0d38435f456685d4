"""Images: one for each environment, named by it and by the digest of all that determines it."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from harness.config import keys, shipped
from harness.config.indexes import choose_indexes
from harness.config.matrix import Matrix
from harness.config.pins import index_options, known_pins, pins_path, wheel_of
from harness.config.plan import PlannedEnvironment
from harness.errors import HarnessError, InfrastructureError, InputError
from harness.executors.engine import FULL_REMEDY, LABEL, MOST_WORDS, NO_BASE_REMEDY, Engine, Image
from harness.executors.transfer import pack
from harness.tools import cache_lock, output_of, uv_command
from harness.worker import protocol

WHEELS = "/opt/installer/wheels"  # in an image: docker/Dockerfile
RECIPE = shipped.ROOT / "docker"
REPOSITORY = "kernel-matrix"
KEY, ENVIRONMENT, BASE = f"{LABEL}.key", f"{LABEL}.environment", f"{LABEL}.base"
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
SITE_CERTIFICATES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
BUILDERS_OWN = re.compile(r"Step \d+/\d+ |--->|Removing intermediate container|The command '/bin/sh -c")
BASE_TAG = "kernel-matrix/base:bookworm-cuda12.4"
BASE_CHANGES = (
    f"LABEL {LABEL}=base",
    "ENV CUDA_HOME=/usr/local/cuda",
    "ENV PATH=/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
)


def base_identity(engine: Engine, base: str) -> str:
    """The digest that a base is pinned by, or the digest of its layers where it is named by a tag of this engine's.

    InfrastructureError where it is a tag that the engine neither has nor can fetch.
    """
    match = re.search(r"@sha256:([0-9a-f]{64})$", base)
    if match:
        return match.group(1)
    image = engine.image(base)
    if image is None:
        engine.pull(base)
        image = engine.image(base)
    assert image is not None
    return protocol.digest(list(image.layers))


def base_problem(engine: Engine, base: str) -> str:
    """Return '' where the engine has the base, or something built on it, or can fetch it; else why not."""
    if engine.image(base) is not None or any(image.labels.get(BASE) == base for image in engine.images()):
        return ""
    return engine.registry_problem(base)


def recipe_digest() -> str:
    """Return the digest of what every image is built by."""
    return protocol.digest(
        [(RECIPE / name).read_text() for name in ("Dockerfile", "install.sh")]
        + [(output_of([*uv_command(), "--version"]) or "").strip()]
    )


def image_key(environment: PlannedEnvironment, pins: Path, base: str) -> str:
    """Return the digest of all that determines an image; `base` is its `base_identity`."""
    return keys.of(
        "image",
        id=environment.id,
        wheels_from=environment.index,
        python=environment.spec.python,
        pins=protocol.sha256_file(str(pins)),
        base=base,
        recipe=recipe_digest(),
    )


def image_tag(environment: PlannedEnvironment, key: str) -> str:
    return f"{REPOSITORY}/{environment.id}:{key[:12]}"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """An environment of matrix.yaml and the image that it needs; `tag` is '' where that cannot be known."""

    environment: PlannedEnvironment
    tag: str
    problem: str = ""


def wanted_images(engine: Engine, matrix: Matrix, root: Path, *, strict: bool) -> list[Wanted]:
    indexes, _ = choose_indexes(matrix, strict=strict)
    found = []
    for spec in matrix.pinned_environments:
        index = indexes[spec.id()]
        environment = PlannedEnvironment(spec=spec, index=index)
        try:
            pins = known_pins(root, environment, matrix)
            if pins is None:
                raise InfrastructureError(f"{pins_path(root, environment).name}: not resolved yet", "nox -s pins")
            key = image_key(environment, pins, base_identity(engine, spec.base_image))
            found.append(Wanted(environment=environment, tag=image_tag(environment, key)))
        except HarnessError as error:
            found.append(Wanted(environment=environment, tag="", problem=error.message))
    return found


def build_context(target: IO[bytes], pins: Path, wheel: Path | None = None) -> None:
    """Write a tar of all that the Dockerfile copies: nothing of the project but the pins, and PyTorch's wheel file."""
    certificates = next((os.environ[name] for name in SITE_CERTIFICATES if os.environ.get(name)), "")
    pack(
        target,
        [
            ("Dockerfile", RECIPE / "Dockerfile"),
            ("install.sh", RECIPE / "install.sh"),
            ("uv", Path(uv_command()[0])),
            ("certificates.pem", Path(certificates) if certificates else b""),
            ("pins.txt", pins),
            ("wheels/none" if wheel is None else f"wheels/{wheel.name}", b"" if wheel is None else wheel),
        ],
        executable=("install.sh", "uv"),
    )
    target.seek(0)


def build_image(
    engine: Engine, environment: PlannedEnvironment, pins: Path, *, cache: Path, base: str
) -> tuple[Image, bool]:
    """Return the environment's image, and whether it was there. InfrastructureError with the builder's last words."""
    key = image_key(environment, pins, base)
    tag = image_tag(environment, key)
    with cache_lock(cache, f"image-{key[:12]}"):
        image = engine.image(tag)
        if image is not None and image.labels.get(KEY) == key:
            return image, True
        wheel = wheel_of(pins, environment)
        arguments = {
            "BASE": environment.spec.base_image,
            "PYTHON": environment.spec.python,
            "INDEXES": " ".join(index_options(environment, WHEELS if wheel else None)),
            **{name: os.environ[name] for name in PROXIES if os.environ.get(name)},
        }
        labels = {KEY: key, ENVIRONMENT: environment.id, BASE: environment.spec.base_image}
        log = cache / "images" / f"{environment.id}-{key[:12]}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile() as context:
            build_context(context, pins, wheel)
            code = run_build(engine.environment, context, tag, arguments, labels, log)
        if code:
            raise explain(tag, arguments["BASE"], log, code)
        image = engine.image(tag)
        if image is None:
            raise InfrastructureError(f"{tag}: built, but the engine does not have it", "nox -s images -- build")
        return image, False


# What a builder printed: a pattern, the error that it means, and what to do.
FAILURES = (
    (
        "pull access denied|manifest unknown|failed to resolve source|lookup registry",
        "the base image {base} is not there",
        NO_BASE_REMEDY,
    ),
    (
        "[Hh]ash(es)? mismatch|mismatch.*hash",
        "a wheel is not the file that was pinned",
        "do not install it; if the pins are wrong, resolve them again: nox -s pins",
    ),
    ("o space left on device", "the container engine's disk is full", FULL_REMEDY),
    (
        "dns error|error sending request|Could not connect|[Ff]ailed to fetch",
        "the package index cannot be reached from the build",
        "check the engine host's network and proxy (HTTPS_PROXY), or name a mirror as `index` in matrix.yaml",
    ),
    ("", "building it failed", "the whole log: {log}"),
)


def explain(tag: str, base: str, log: Path, code: int) -> InfrastructureError:
    """Return the error for what a builder printed, with its last words."""
    lines = [line.strip() for line in COLOURS.sub("", log.read_text(errors="replace")).splitlines() if line.strip()]
    last = [line for line in lines[-12:] if not BUILDERS_OWN.match(line)] or [f"docker build exited with {code}"]
    words = " ".join(" ".join(dict.fromkeys(last)).split())[-MOST_WORDS:]
    text = "\n".join(lines[-40:])
    _, meaning, remedy = next(failure for failure in FAILURES if re.search(failure[0], text))
    return InfrastructureError(f"{tag}: {meaning.format(base=base)}: {words}", remedy.format(log=log))


def run_build(
    environment: Mapping[str, str],
    context: IO[bytes],
    tag: str,
    arguments: Mapping[str, str],
    labels: Mapping[str, str],
    log: Path,
) -> int:
    """Run `docker build`, and return its exit code.

    The build has the network of the engine's host: proxies on its loopback and private resolvers work there too.
    """
    command = ["docker", "build", "--network=host", f"--tag={tag}", "--force-rm"]
    command += [f"--build-arg={name}={value}" for name, value in arguments.items()]
    command += [f"--label={name}={value}" for name, value in labels.items()]
    # The engine's own BuildKit: one in a container of its own would see neither the base nor the host's network.
    builder = "default" if environment.get("DOCKER_HOST") else find_context()
    with log.open("wb") as written:
        done = subprocess.run(
            [*command, "-"],
            stdin=context,
            stdout=written,
            stderr=subprocess.STDOUT,
            env={**environment, "BUILDX_BUILDER": builder, "BUILDKIT_PROGRESS": "plain"},
        )
    return done.returncode


def find_context() -> str:
    return (output_of(["docker", "context", "show"]) or "default").strip()


def make_base(engine: Engine) -> Image:
    """Make the base image that needs no registry, from Debian's packages: docker/base/."""
    if os.geteuid() != 0:
        raise InputError("making a base needs root: mmdebstrap makes a root file system", "sudo nox -s images -- base")
    with tempfile.TemporaryDirectory(prefix="kernel-matrix-base-") as folder:
        tar = Path(folder, "base.tar")
        done = subprocess.run([str(RECIPE / "base" / "make.sh"), str(tar)])
        if done.returncode:
            raise InfrastructureError("docker/base/make.sh failed: see above", "docker/base/README.md")
        engine.import_image(tar, tag=BASE_TAG, changes=BASE_CHANGES)
    image = engine.image(BASE_TAG)
    if image is None:
        raise InfrastructureError(f"{BASE_TAG}: imported, but the engine does not have it", "docker images")
    return image
