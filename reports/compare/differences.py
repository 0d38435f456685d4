"""What differs between environments, and between builds, besides the version under comparison. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

from harness.schema.environment_records import BuildRecord, EnvironmentRecord, Observation
from reports.compare.gpus import gpu_confounders
from reports.compare.two_runs import statements
from reports.load.evidence import Evidence
from reports.load.groups import grouped
from reports.sentences import sentence
from reports.text import ABSENT, matrix_command

# Above this share of the machine for others, a launch was disturbed.
BUSY = 0.10


@dataclass(frozen=True, kw_only=True)
class Property:
    """One property, and its value in each environment, in the report's order of environments."""

    group: str
    name: str
    values: list[str]

    @property
    def same(self) -> bool:
        return len(set(self.values)) == 1


@dataclass(frozen=True, kw_only=True)
class BuildDifference:
    kernel: str
    device: str
    items: list[Property]
    records: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Confounder:
    """A difference from the baseline besides PyTorch's version, or a deviation from the request."""

    subject: str
    statement: str


def _text(value: object) -> str:
    if value is None or value == "":
        return ABSENT
    return value if isinstance(value, str) else json.dumps(value)


def flatten_environment(record: EnvironmentRecord | None) -> dict[tuple[str, str], str]:
    """(group, property) to value. Wheels show their version, and part of their digest, for a version can be rebuilt."""
    if record is None:
        return {("requested", "record"): "missing"}
    flat: dict[tuple[str, str], str] = {("requested", "status"): record.status}
    for name in ("torch", "cuda", "python", "replica", "index", "executor", "pins_sha256"):
        flat["requested", name] = _text(getattr(record, name))
    if record.image:
        flat["requested", "base_image"] = record.base_image
        flat["observed", "image"] = record.image
    seen = record.observed
    if seen is None:
        return flat | {("observed", "observation"): record.message or "none"}
    for name, value in vars(seen).items():
        if name in ("wheels", "gpus", "settings", "confinement", "damaged"):
            continue
        flat["observed", name] = _text(value)
    if seen.confinement is not None:
        flat |= {("confinement", name): _text(value) for name, value in asdict(seen.confinement).items()}
    for number, gpu in enumerate(seen.gpus):
        flat |= {("GPU", f"{number} {name}"): _text(value) for name, value in asdict(gpu).items()}
    flat |= {("PyTorch setting", name): value for name, value in seen.settings.items()}
    flat |= {("wheel", name): f"{wheel.version} ({wheel.record_sha256[:10]})" for name, wheel in seen.wheels.items()}
    return flat


def _items(columns: list[dict[tuple[str, str], str]]) -> list[Property]:
    keys = dict.fromkeys(key for column in columns for key in column)
    groups = list(dict.fromkeys(group for group, _ in keys))
    return [
        Property(group=group, name=name, values=[column.get((group, name), ABSENT) for column in columns])
        for group, name in sorted(keys, key=lambda key: groups.index(key[0]))
    ]


def environment_items(evidence: Evidence) -> list[Property]:
    return _items([flatten_environment(evidence.environments.get(name)) for name in evidence.run.environments])


def flatten_build(record: BuildRecord | None) -> dict[tuple[str, str], str]:
    if record is None:
        return {("build", "status"): "no record"}
    flat = {("build", "status"): record.status, ("build", "message"): _text(record.message)}
    for name in ("runnable", "compiler", "artifact", "artifact_sha256", "artifact_bytes", "build_s"):
        flat["build", name] = _text(getattr(record, name))
    flat["build", "flags"] = _text(" ".join(record.flags))
    flat |= {("object code", name): value[:16] for name, value in sorted(record.objects.items())}
    for function in record.functions:
        flat["function", f"{function.name} {function.architecture}"] = (
            f"{function.registers} registers, {function.spill_bytes} B spilled, {function.shared_bytes} B shared, "
            f"code {function.disassembly_sha256[:10]}"
        )
    return flat


def build_differences(evidence: Evidence) -> list[BuildDifference]:
    pairs = dict.fromkeys((kernel, device) for _, kernel, device in evidence.builds)
    pairs |= dict.fromkeys((cell.kernel, cell.device) for cell in evidence.run.cells)
    return [_build_difference(evidence, *pair) for pair in pairs]


def _build_difference(evidence: Evidence, kernel: str, device: str) -> BuildDifference:
    records = {name: evidence.builds.get((name, kernel, device)) for name in evidence.run.environments}
    return BuildDifference(
        kernel=kernel,
        device=device,
        items=_items([flatten_build(record) for record in records.values()]),
        records=[evidence.build_pointer(name, kernel, device) for name, record in records.items() if record],
    )


# Facts of an observed environment, and the sentence for a difference in each.
INDEX, EXECUTOR, VARIABLE, PACKAGE = "index", "executor", "variable", "package"
SETTING, GPU = "setting", "gpu"
PACKAGES = (PACKAGE, "numpy")
CONFOUNDING = {
    "torch_cuda": "PyTorch was built for CUDA {0} in {2} and {1} in {3}",
    "python": "Python is {0} in {2} and {1} in {3}",
    "numpy": "numpy is {0} in {2} and {1} in {3}",
    "cxx11_abi": "the C++ ABI flag is {0} in {2} and {1} in {3}",
    "machine": "the machine is {0} in {2} and {1} in {3}",
    "cpu_model": "the processor is {0} in {2} and {1} in {3}",
    "cpu_flags_sha256": "the processor's instruction sets differ between {2} and {3}",
    "cpu_capability": "PyTorch chose {0} instructions in {2} and {1} in {3}",
    "threads": "{0} threads in {2} and {1} in {3}",
    "kernel_release": "the operating system's kernel is {0} in {2} and {1} in {3}",
    "compiler": "the C++ compiler is {0} in {2} and {1} in {3}",
    "nvcc": "nvcc is {0} in {2} and {1} in {3}",
    "libc": "the C library is {0} in {2} and {1} in {3}",
}


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One fact that is not the same in both environments: its kind, which is VARIABLE, PACKAGE, SETTING or a name of
    its own, the name of the variable, package or setting, and the sentence that says so."""

    kind: str
    text: str
    name: str = ""

    @property
    def of_threads(self) -> bool:
        return self.kind == "threads" or "thread" in self.name.lower()


def confounders(evidence: Evidence) -> list[Confounder]:
    """Return an unfinished run first, then differences besides PyTorch's version, then where the same wheels came
    from."""
    return [Confounder(subject=subject, statement=statement) for subject, statement in _confounders(evidence)]


def _confounders(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Yield subjects, each with a statement."""
    run = evidence.run
    launches = [launch for group in evidence.launch_records.values() for launch in group]
    planned = run.launches * len(evidence.launch_records)
    yield from statements(run)
    if run.mode == "eval":
        yield "run", sentence("caveats", "alone", matrix_command(run.command))
    if run.quick:
        yield "run", sentence("caveats", "quick")
    if len(launches) < planned:
        yield "launches", sentence("caveats", "unfinished", len(launches), planned)
    loads = [launch.load for launch in launches]
    if busy := sentence("caveats", "busy", loads, BUSY):
        yield "load", busy
    yield from gpu_confounders(evidence)
    base = evidence.environments.get(run.baseline)
    for name in run.environments:
        this = evidence.environments.get(name)
        if base is not None and this is not None and name != run.baseline:
            for each in differing(base, this, (evidence.names[run.baseline], evidence.names[name])):
                yield name, each.text
    for crossing in evidence.crossings.values():
        if not crossing.inputs_identical:
            yield f"{crossing.kernel}/{crossing.workload}/{crossing.device}", sentence("caveats", "inputs_differ")
    fallbacks = grouped((sentence("caveats", "fallback", item), item.subject) for item in run.fallbacks)
    for text, names in fallbacks.items():
        yield ", ".join(names), text


def _same_gpus(one: Observation, two: Observation) -> bool:
    """PyTorch 2.1 does not report a GPU's UUID, and a container may not see the driver's version."""
    return len(one.gpus) == len(two.gpus) and all(
        (left.name, left.memory_bytes) == (right.name, right.memory_bytes)
        and (left.uuid == right.uuid or not (left.uuid and right.uuid))
        and (left.driver == right.driver or not (left.driver and right.driver))
        for left, right in zip(one.gpus, two.gpus, strict=True)
    )


def differing(base: EnvironmentRecord, this: EnvironmentRecord, versions: tuple[str, str]) -> list[Difference]:
    """What differs besides PyTorch's version. `versions`: the names of both."""
    return [Difference(kind=kind, name=name, text=text) for kind, name, text in _differing(base, this, versions)]


def _differing(
    base: EnvironmentRecord, this: EnvironmentRecord, versions: tuple[str, str]
) -> Iterator[tuple[str, str, str]]:
    def text(what: str, left: object, right: object) -> str:
        return f"{what} {left} in {versions[0]} and {right} in {versions[1]}"

    if base.index != this.index:
        sources = ["the host's installation" if each.executor == "host" else each.index for each in (base, this)]
        yield INDEX, "", text("PyTorch comes from", *sources)
    if base.executor != this.executor:
        yield EXECUTOR, "", text("the executor is", base.executor, this.executor)
    for name in sorted(base.variables.keys() | this.variables.keys()):
        values = [record.variables.get(name, "not set") for record in (base, this)]
        if values[0] != values[1]:
            yield VARIABLE, name, text(f"the variable {name} is", *values)
    one, two = base.observed, this.observed
    if one is None or two is None:
        return
    for name in sorted((base.packages.keys() | this.packages.keys()) - {"numpy"}):  # which is asked itself
        held = [wheel.version if (wheel := seen.wheels.get(name)) else "missing" for seen in (one, two)]
        if held[0] != held[1]:
            yield PACKAGE, name, text(f"{name} is", *held)
    for kind, form in CONFOUNDING.items():
        left, right = _text(getattr(one, kind)), _text(getattr(two, kind))
        if left != right:
            yield kind, "", form.format(left, right, *versions)
    if not _same_gpus(one, two):
        yield GPU, "", f"the GPU or its driver differs between {versions[0]} and {versions[1]}"
    for name in sorted(one.settings.keys() & two.settings.keys()):
        if one.settings[name] != two.settings[name]:
            yield SETTING, name, text(f"PyTorch's setting {name} is", one.settings[name], two.settings[name])
