"""What it means that uv refuses to resolve an environment: a wrong version, Python or pin, or no network."""

from __future__ import annotations

import contextlib
import re

from packaging.requirements import InvalidRequirement, Requirement

from harness.config.environments import PYPI, channel, package_versions
from harness.config.listing import fetch_listing, kept_there, supported_pythons
from harness.config.plan import PlannedEnvironment
from harness.config.requirements import NEEDED
from harness.errors import HarnessError, InfrastructureError, InputError, meant
from harness.typed import typed
from harness.worker.wheels import normalise

_UNUSABLE = re.compile(r"(\S+)==(\S+) has no (?:usable )?wheels?(?: are available)?( with a matching Python)?")
_ASKS = re.compile(r"(\S+) depends on ([A-Za-z0-9._-]+)([<>=!~][^\s]*)")


def explain(environment: PlannedEnvironment, pinned: list[str], stderr: str) -> Exception:
    """Return the error for uv's complaint about an environment with these exact pins besides torch."""
    spec, flat = environment.spec, " ".join(stderr.split())
    if re.search(r"torch==\S+ has no wheels? with a matching platform", flat):
        found = re.search(r"on the following platforms?: (.+)$", flat)
        return InputError(
            f"PyTorch {spec.torch} has no wheel for this machine on {environment.index}"
            + (f", only for {found[1]}" if found else ""),
            "choose another `torch`, or run it on such a machine",
        )
    if unusable := _UNUSABLE.search(flat):
        return _without_wheel(environment, unusable[1], unusable[2])
    if conflict := _conflict(pinned, flat):
        return _refused_pin(environment, *conflict)
    missing = re.search(r"no version of (\S+?==\S+)|(\S+) was not found in the package", flat)
    package = (missing[1] or missing[2]) if missing else "torch"
    if missing and package.partition("==")[0] != "torch":
        return InputError(
            f"packages: {package} does not exist" + (f" on {PYPI}" if "==" not in package else ""),
            f"{meant(package, NEEDED) if '==' not in package else ''}correct `packages` in matrix.yaml",
        )
    if missing or re.search(r"no version of torch|torch was not found", flat):
        return InputError(f"PyTorch {spec.torch} does not exist on {environment.index}", _offered(environment))
    if "No solution found" in flat:
        return InputError(
            f"{environment.id}: the pins cannot be resolved: {flat[-600:]}",
            "correct `torch`, `python` or `packages` in matrix.yaml",
        )
    return InfrastructureError(
        f"{environment.id}: uv could not resolve the pins: {flat[-600:]}",
        f"check that the index answers: {typed('doctor')}",
    )


def _offered(environment: PlannedEnvironment) -> str:
    """Return what to name instead of a version that the index lacks."""
    torch, kept = environment.spec.torch, ""
    with contextlib.suppress(HarnessError):
        kept = kept_there(fetch_listing(environment.index), torch) if channel(torch) else ""
    if kept:
        return f"{kept}, or name a wheel that you have (`wheel:` in matrix.yaml)"
    return "correct `torch` in matrix.yaml; pypi.org/project/torch/#history lists the releases"


def _without_wheel(environment: PlannedEnvironment, package: str, version: str) -> InputError:
    """Return the error for a package, torch or another, that has no wheel for the environment's Python."""
    python = environment.spec.python
    if package != "torch":
        return InputError(
            f"{environment.id}: packages: {package}=={version} has no wheel for Python {python} on this machine",
            f"pin another version of {package}, or choose another `python`, in matrix.yaml",
        )
    remedy = "choose another `python` for it in matrix.yaml"
    with contextlib.suppress(HarnessError):
        if known := supported_pythons(fetch_listing(environment.index), version):
            remedy = f"{remedy}: {' or '.join(known)}"
    return InputError(f"PyTorch {version} has no wheel for Python {python} on {environment.index}", remedy)


def _conflict(pinned: list[str], flat: str) -> tuple[str, str, str] | None:
    """Return the pin that another package refuses, that package, and its requirement; None where uv names none."""
    pins = package_versions(pinned)
    for asker, name, allowed in _ASKS.findall(flat):
        version = pins.get(normalise(name))
        if asker == "environment" or version is None:
            continue
        with contextlib.suppress(InvalidRequirement):
            requirement = Requirement(f"{name}{allowed.rstrip('.,')}")
            if not requirement.specifier.contains(version, prereleases=True):
                return f"{name}=={version}", asker, str(requirement)
    return None


def _refused_pin(environment: PlannedEnvironment, pin: str, asker: str, requirement: str) -> InputError:
    name = pin.partition("==")[0]
    asker = f"PyTorch {environment.spec.torch}" if re.split("[<>=!~]", asker)[0] == "torch" else asker
    usual = f"remove {name} from `packages` in matrix.yaml, so that each version gets one that it takes; or "
    return InputError(
        f"{environment.id}: packages: {pin} is pinned, and {asker} needs {requirement}",
        f"{usual if normalise(name) in NEEDED else ''}give this environment `packages` of its own, which come before "
        f"what {asker} asks for: packages: [{name}==...]",
    )
