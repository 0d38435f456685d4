"""docker/pins/<environment>.txt: every wheel of an environment, transitive ones too, with its hashes.

uv resolves them; nobody types them. Installing with ``--require-hashes`` then gives the same bytes everywhere.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

from harness.config import shipped, wheel_files
from harness.config.environments import PYPI, channel
from harness.config.matrix import Matrix
from harness.config.plan import PlannedEnvironment
from harness.config.requirements import preferred_pins, unmet_requirement
from harness.config.resolver_errors import explain
from harness.errors import InputError
from harness.tools import uv_command
from harness.typed import typed
from harness.worker import protocol
from harness.worker.wheels import normalise

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s\\;]+)")


def pins_path(root: Path, environment: PlannedEnvironment) -> Path:
    """The pin file; replicas of an environment share it."""
    return root / "docker" / "pins" / f"{_shared_id(environment)}.txt"


def _shared_id(environment: PlannedEnvironment) -> str:
    if environment.spec.wheel:  # two files of one version differ in their replica alone
        return environment.id
    return re.sub(r"-r[0-9]+$", "", environment.id)


def parse_pins(text: str, path: str) -> dict[str, str]:
    """Package to version. InputError, naming path and line, where a line is no exact pin with a hash."""
    pins: dict[str, str] = {}
    joined = re.sub(r"\\\n", " ", text)
    for number, line in enumerate(joined.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        match = _PIN.match(line)
        if not match or "--hash=sha256:" not in line:
            raise InputError(
                f"{path}: entry {number} is no exact version with a hash: {line[:80]!r}",
                f"write the file with: {typed('pins')}",
            )
        name = normalise(match.group(1))
        if name in pins:
            raise InputError(f"{path}: {name} stands twice", f"write the file with: {typed('pins')}")
        pins[name] = match.group(2)
    if "torch" not in pins:
        raise InputError(f"{path}: pins no torch", f"write the file with: {typed('pins')}")
    return pins


def load_pins(path: Path) -> dict[str, str]:
    try:
        return parse_pins(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", f"write it with: {typed('pins')}") from None


def project_text(environment: PlannedEnvironment, packages: list[str], file: Path | None = None) -> str:
    """A pyproject.toml that makes uv take torch from the environment's index, or from a wheel `file`, and all else from
    PyPI; what a nightly, a candidate or a file needs also from that index, which alone has their Triton.

    PyTorch's index marks a build by its local version (2.5.0+cu121); PyPI's has none.
    """
    spec = environment.spec
    version = spec.torch
    source = ""
    if file is not None:
        if environment.index != PYPI:
            source = f'\n[[tool.uv.index]]\nname = "wheels"\nurl = "{environment.index}"\n'
    elif environment.index != PYPI:
        if "download.pytorch.org" in environment.index or spec.index is None:
            version += f"+{spec.cuda_tag}" if environment.index == spec.wheel_index else ""
        source = (
            f'\n[[tool.uv.index]]\nname = "wheels"\nurl = "{environment.index}"\n'
            f"explicit = {'false' if channel(spec.torch) else 'true'}\n"
            '\n[tool.uv.sources]\ntorch = { index = "wheels" }\n'
        )
    torch = f"torch=={version}" if file is None else f"torch @ {file.resolve().as_uri()}"
    wanted = ", ".join(f'"{package}"' for package in [torch, *packages])
    return (
        f'[project]\nname = "environment"\nversion = "0"\nrequires-python = "=={spec.python}.*"\n'
        f"dependencies = [{wanted}]\n{source}"
    )


def resolve_pins(environment: PlannedEnvironment, packages: list[str], file: Path | None = None, like: str = "") -> str:
    """The text of a pin file, resolved now; with a wheel `file`, torch is pinned to its very bytes. The environment's
    own packages override what PyTorch asks for. `like`: a pin file whose versions stay wherever they may, else those
    that every environment has.

    InputError or InfrastructureError where uv cannot.
    """
    with tempfile.TemporaryDirectory() as folder:
        project, own = Path(folder, "pyproject.toml"), Path(folder, "own.txt")
        project.write_text(project_text(environment, packages, file))
        own.write_text("".join(f"{package}\n" for package in environment.spec.packages))
        made = Path(folder, "pins.txt")
        made.write_text(like or preferred_pins(environment.spec.python))
        options = ["--quiet", "--no-config", "--no-header", "--no-annotate", "--generate-hashes", "--only-binary=:all:"]
        options += ["--python-version", environment.spec.python, "--default-index", PYPI, "--override", own.name]
        options += ["--index-strategy", "unsafe-best-match"] if file or channel(environment.spec.torch) else []
        done = subprocess.run(
            [*uv_command(), "pip", "compile", *options, "--output-file", made.name, project.name],
            cwd=folder,
            capture_output=True,
            text=True,
            env={k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"},
        )
        printed = made.read_text() if done.returncode == 0 else ""
    if done.returncode:
        raise explain(environment, done.stderr)
    header = (
        f"# environment: {_shared_id(environment)}\n# torch from: {environment.index}\n"
        "# resolved by: kernel-matrix pins\n"
    )
    if file is not None:
        version = wheel_files.named(file.name).version
        entry = f"torch=={version} \\\n    --hash=sha256:{wheel_files.sha256(file)}\n"
        printed = re.sub(r"^torch @ .*\n(?:    --hash=.*\n)*", lambda _: entry, printed, flags=re.MULTILINE)
    return header + printed


def wheel_of(pins: Path, environment: PlannedEnvironment) -> Path | None:
    """The wheel file, if any, of the project that a pin file belongs to. InputError as of `wheel_file`, and where it is
    not the one that was pinned."""
    file = wheel_file(pins.parents[2], environment)
    if file is not None and _changed(pins, file):
        raise InputError(
            f"{file}: changed since it was pinned in {pins}",
            f"put the pinned file back, or pin this one: {typed('pins')}",
        )
    return file


def wheel_file(root: Path, environment: PlannedEnvironment) -> Path | None:
    """The file that torch is installed from, where it is one. InputError where it is not there, or for another machine
    or Python."""
    if environment.spec.wheel is None:
        return None
    file = wheel_files.located(root, environment.spec.wheel)
    if problem := wheel_files.unfit(file, environment.spec.python):
        raise InputError(f"{file}: {problem}", wheel_files.REMEDY)
    return file


def _changed(path: Path, file: Path) -> bool:
    """Whether a wheel file is another than was pinned."""
    pinned = re.search(r"^torch==\S+ (?:\\\n)? *--hash=sha256:(\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    return pinned is None or pinned[1] != wheel_files.sha256(file)


def _unpinned(path: Path, environment: PlannedEnvironment, matrix: Matrix) -> str:
    """The first requirement of the matrix that the file does not meet, or ''."""
    asked = [f"torch=={environment.spec.torch}", *matrix.requirements_in(environment.spec)]
    return unmet_requirement(asked, load_pins(path))


def known_pins(root: Path, environment: PlannedEnvironment, matrix: Matrix) -> Path | None:
    """The project's pin file, else the shipped one if it pins what the matrix asks for; None without either."""
    path, usual = pins_path(root, environment), pins_path(shipped.ROOT, environment)
    if path.exists():
        return path
    return usual if usual.exists() and not _unpinned(usual, environment, matrix) else None


def ensure_pins(
    root: Path, environment: PlannedEnvironment, matrix: Matrix, *, again: bool = False
) -> tuple[Path, bool]:
    """The environment's pin file, and whether it was resolved now: only where it is missing, or `again`.

    Where the project has none, the shipped one is taken if it pins what the matrix asks for. One with packages of its
    own is pinned like the one without, so that nothing else differs between the two that may stay.
    """
    known = None if again else usable_pins(root, environment, matrix)
    if known is not None:
        return known, False
    path, text = pins_path(root, environment), resolve_as_planned(root, environment, matrix)
    protocol.write_atomically(str(path), text.encode())
    return path, True


def usable_pins(root: Path, environment: PlannedEnvironment, matrix: Matrix) -> Path | None:
    """`known_pins`. InputError where the project's file does not pin what the matrix asks for, or its wheel changed."""
    path, known = pins_path(root, environment), known_pins(root, environment, matrix)
    if known == path and (package := _unpinned(path, environment, matrix)):
        asker = "matrix.yaml" if "==" in package else f"PyTorch {environment.spec.torch}"
        raise InputError(
            f"{path}: does not pin {package}, which {asker} asks for",
            f"resolve it again with: {typed('pins')}",
        )
    if known is not None:
        wheel_of(known, environment)
    return known


def resolve_as_planned(root: Path, environment: PlannedEnvironment, matrix: Matrix) -> str:
    """Return the text of an environment's pin file, resolved now; InputError and InfrastructureError as of
    `resolve_pins`."""
    plain = replace(environment, spec=environment.spec.model_copy(update={"packages": []}))
    near = known_pins(root, plain, matrix) if environment.spec.packages else None
    like = near.read_text(encoding="utf-8") if near else ""
    text = resolve_pins(environment, matrix.requirements_in(environment.spec), wheel_file(root, environment), like)
    parse_pins(text, str(pins_path(root, environment)))
    return text


def swapped_pins(text: str, other: str, package: str) -> str:
    """A pin file with one package, with its hashes, as another pin file has it, which may be: without it. Nothing else
    in it is resolved again, so that nothing else can be what differs. InputError where neither holds it."""
    ours, theirs = (_entries(each).get(package) for each in (text, other))
    if ours is None and theirs is None:
        raise InputError(f"{package}: neither of the environments holds it", "name one that they hold")
    if ours is None:
        return f"{text.rstrip()}\n{theirs}\n"
    return text.replace(ours, theirs) if theirs else text.replace(f"{ours}\n", "")


def pins_alike(text: str, other: str) -> bool:
    """Whether two pin files pin the same packages, by hash."""
    return _entries(text) == _entries(other)


def _entries(text: str) -> dict[str, str]:
    """By package, the lines that pin it."""
    entries = re.findall(r"^[A-Za-z0-9._-]+==(?:.*\\\n)*.*$", text, flags=re.MULTILINE)
    return {normalise(entry.partition("==")[0]): entry for entry in entries}


def index_options(environment: PlannedEnvironment, folder: Path | str | None) -> list[str]:
    """uv's options for where an environment's wheels come from: PyPI, and its own index first where it has one; and the
    `folder` of the wheel file that torch is installed from, where it is one."""
    files = ["--find-links", str(folder)] if folder else []
    if environment.index == PYPI:
        return ["--default-index", PYPI, *files]
    # Hashes fix the bytes, so it does not matter which index a version is found on.
    return ["--default-index", PYPI, "--index", environment.index, "--index-strategy", "unsafe-best-match", *files]
