"""Every input is changed, one at a time: just the records that depend on it are to be made again.

What depends on what is written down here once more, by hand. Inputs are enumerated from the models that hold them: a
new field that nobody has said anything about fails here, and so does a new input without a place in
`harness.config.keys`.
"""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from harness import tools
from harness.config import keys
from harness.config.environments import CUDA_BASE
from harness.config.key_inputs import INPUTS, Place, World, key
from harness.config.matrix import Matrix
from harness.config.operators import Operator
from harness.config.plan import Facts
from harness.schema.run_records import GpuFacts
from harness.worker import protocol
from tests.unit.worlds import DEVICES, FACTS, FILES, READS, A, B, all_keys, changed, made_plan, matrix_value, with_facts

Where = tuple[str, str, str, str]  # kind, environment, kernel, device
EVERYWHERE = set(all_keys(*made_plan(matrix_value())))
ENVIRONMENTS, KERNELS = (A, B), tuple(READS)
ON_A_KERNEL = ("validation", "conditions", "checkers", "compiled", "profile")
NOTHING: set[Where] = set()
RUN: Where = ("run", "", "", "")


def places(
    kinds: Iterable[str],
    environments: Iterable[str] = ENVIRONMENTS,
    kernels: Iterable[str] = KERNELS,
    devices: Iterable[str] = DEVICES,
) -> set[Where]:
    """Of these kinds; what belongs to no environment, kernel or device is of all."""
    wanted = {*environments, ""}, {*kernels, ""}, {*devices, ""}
    return {
        (kind, e, k, d)
        for kind, e, k, d in EVERYWHERE
        if kind in kinds and e in wanted[0] and k in wanted[1] and d in wanted[2]
    } | {RUN}


def on_kernels(*kinds: str, **which: Any) -> set[Where]:
    """What is done with a kernel, and, for their whole block, the launches of its device."""
    return places((*ON_A_KERNEL, "swap", *kinds), **which) | places(["launch"], devices=which.get("devices", DEVICES))


def built(*kinds: str, **which: Any) -> set[Where]:
    return on_kernels("build", *kinds, **which)


def environment(*kinds: str, **which: Any) -> set[Where]:
    """All that is done in an environment."""
    return built("binding", "probe", "ceiling", "profile_of_reference", *kinds, **which)


def same(found: set[Where], expected: set[Where]) -> None:
    for_nothing, stale = sorted(found - expected), sorted(expected - found)
    assert (for_nothing, stale) == ([], [])


RUNS = on_kernels("ceiling", "profile_of_reference")  # every process of a cell
PYTHON = {"kernels": ["python"]}
COMPILED = {"kernels": ["plain", "own"]}

NATIVE = built(kernels=["plain"]) | places(["binding"])  # the others' flags lack -march=native
ON_A_GPU = on_kernels("ceiling", "profile_of_reference", devices=["cuda"])
GPU = {
    "uuid": "GPU-2",
    "name": "H100",
    "driver": "560",
    "mig": True,
    "ecc": False,
    "power_limit_w": 350.0,
    "memory_bytes": 1,
    "max_sm_mhz": 1980,
}

# What was observed of this machine and of the project (harness.config.plan.Facts): what is made again, where one of
# these is another.
OF_FACTS: list[tuple[set[Where], dict[str, Any]]] = [
    (NOTHING, {"executor_reason": "another", "sandboxed": False, "index_reasons": {A: "it answered 403"}, "gpus": 1}),
    (RUNS, {"executor": "bundle"}),
    (RUNS | places(["store"]), {"threads": 8}),
    (RUNS | NATIVE, {"cpu_flags": "avx512", "engine": {"version": "27"}}),
    (RUNS | built("binding", "probe", **COMPILED) | built(**PYTHON), {"inherited": {"LD_LIBRARY_PATH": "2"}}),
    (
        environment("planned", "store"),
        {"interpreters": {"3.11": "/opt/python3.11"}, "bundle": {"manifest": "1"}, "bases": {CUDA_BASE: "1"}},
    ),
    (environment("planned", environments=[B]), {"pins_sha256": {**FACTS.pins_sha256, B: "others"}}),
    (
        environment("planned", "store", environments=[A])
        | on_kernels(**PYTHON)
        | places(["profile_of_reference"], **PYTHON),
        {"pins_sha256": {**FACTS.pins_sha256, A: "others"}},
    ),
    (built(kernels=["own"], devices=["cuda"]), {"files": {**READS, "own": {"cuda": ["own/own.cu", "csrc/plain.cpp"]}}}),
    (places(["binding"]) - {RUN}, {"binding_files": ["csrc/attention.h"]}),  # each is one of a build's files, too
    *((ON_A_GPU, {"gpu": {**FACTS.gpu, name: value}}) for name, value in GPU.items()),
]
# An index is part of an environment's id: it is another environment. The others have tests of their own, below.
NOT_OF_FACTS = {"indexes", "sources_sha256", "code", "host"}


def test_every_fact_is_said_something_about() -> None:
    names = {field.name for field in dataclasses.fields(Facts)}
    assert {name for _, changes in OF_FACTS for name in changes} | NOT_OF_FACTS == names
    assert set(GPU) == {each.name for each in dataclasses.fields(GpuFacts)} and not GPU.items() & FACTS.gpu.items()


@pytest.mark.parametrize(
    ("expected", "name", "value"), [(expected, *change) for expected, changes in OF_FACTS for change in changes.items()]
)
def test_a_fact(expected: set[Where], name: str, value: Any) -> None:
    same(changed(matrix_value(), with_facts(**{name: value})), expected)


def test_how_the_gpu_is_named_is_no_fact_and_which_it_is_is() -> None:
    """CUDA_VISIBLE_DEVICES=0 and =1 are two GPUs; =0 and =GPU-1 are one."""
    other = made_plan(matrix_value(), with_facts(gpu={**FACTS.gpu, "uuid": "GPU-2"}))[0]
    assert other.digest != made_plan(matrix_value())[0].digest
    one, two = (made_plan(matrix_value(), with_facts(gpu=gpu), devices=("cpu",))[0] for gpu in (FACTS.gpu, {}))
    assert one.digest == two.digest, "where nothing runs on it, it is none of the run's inputs"


OF_THE_MACHINE: dict[str, set[Where]] = {
    **dict.fromkeys(("machine", "cores", "memory_gib", "kernel"), RUNS),
    "cpu": RUNS | NATIVE,
    **dict.fromkeys(("architecture", "system"), RUNS | built("binding", "probe")),
    "compiler": built("binding", "probe"),
    "nvcc": built("binding", "probe", devices=["cuda"]),
    "gpus": NOTHING,  # the one in use is a fact of its own
}


@pytest.mark.parametrize("name", OF_THE_MACHINE)
def test_a_fact_of_the_machine(name: str) -> None:
    same(changed(matrix_value(), with_facts(host={**FACTS.host, name: "another"})), OF_THE_MACHINE[name])


def test_every_fact_of_the_machine_is_said_something_about(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, nothing in (("host_compiler", None), ("cuda_compiler", None), ("gpus", [])):
        monkeypatch.setattr(tools, name, lambda nothing=nothing: nothing)
    assert set(FACTS.host) == set(tools.host_facts()) == set(OF_THE_MACHINE)


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_file(name: str) -> None:
    """A source, a header beside it or on the include path, the shipped binding, a problem, a solution."""
    expected = {RUN}
    for kernel, devices in READS.items():
        for device, files in devices.items():
            if name in files:
                expected |= built(kernels=[kernel], devices=[device])
    if name in READS["plain"]["cpu"][1:3]:
        expected |= places(["binding"])
    if name == "p/softmax.py":
        expected |= places(["store", "profile_of_reference"], **PYTHON)
    same(changed(matrix_value(), with_facts(sources_sha256={**FACTS.sources_sha256, name: "edited"})), expected)


OF_CODE = {
    "build": built(),
    "binding": places(["binding"]),
    "probe": places(["probe"]),
    "ceiling": places(["ceiling"]),
    "store": on_kernels("store", "profile_of_reference", **PYTHON),
    "in_block": places(["launch"]),
    **{kind: places([kind]) for kind in (*ON_A_KERNEL, "profile_of_reference", "swap")},
}


@pytest.mark.parametrize("kind", sorted(keys.CODE))
def test_the_harnesss_own_code(kind: str) -> None:
    same(changed(matrix_value(), with_facts(code={**FACTS.code, kind: "edited"})), OF_CODE[kind])


# -- fields of matrix.yaml ----------------------------------------------------------------------------------------


def leaves(model: type[BaseModel], before: str = "") -> Iterator[str]:
    """The path of every field that holds no model itself."""
    for name, field in model.model_fields.items():
        inner = list(models_in(field.annotation))
        if not inner:
            yield before + name
        for each in inner:
            yield from leaves(each, f"{before}{name}.")


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from models_in(argument)


def edited(path: str, to: Any) -> dict[str, Any]:
    """The standard matrix with another value of a field; a number in its path is a place in a list."""
    matrix = copy.deepcopy(matrix_value())
    *parts, last = path.split(".")
    place: Any = matrix
    for part in parts:
        place = place[int(part)] if part.isdecimal() else place.setdefault(part, {})
    place[last] = to
    return matrix


SECOND, PLAIN, OWN = {"environments": [B]}, {"kernels": ["plain"]}, {"kernels": ["own"]}
STORED = on_kernels("store", "profile_of_reference", **PYTHON)
NOT_PYTHON = on_kernels("profile_of_reference", **COMPILED)
FEWER_TRIALS = NOT_PYTHON - places(["conditions", "swap"]) | {RUN}

# What is made again, where one of these fields is another.
OF_MATRIX: list[tuple[set[Where], dict[str, Any]]] = [
    (
        NOTHING,
        {
            "environments.1.fallback_index": "https://example.org/whl",
            "environments.1.base_image": "debian@sha256:" + "0" * 64,  # of venv
            # What is installed, pin files say; that they say what is asked for is checked.
            "packages": ["numpy==2.0.0", "ninja==1.11.1.1", "setuptools==69.5.1"],
            "kernels.0.search": {"BLOCK_M": [32, 64]},
            "kernels.0.workloads": ["first"],
            "thresholds.min_effect_cpu": 0.75,
            "thresholds.min_effect_cuda": 0.75,
            "thresholds.memory": 0.75,
            "thresholds.false_discovery_rate": 0.75,
            "thresholds.confidence": 0.75,
            "limits.build_s": 77,
            "limits.validation_s": 77,
            "limits.launch_s": 77,
            "limits.memory_gib": 77,
            "limits.processes": 77,
            "slurm": {"partition": "gpu"},
        },
    ),
    (
        {RUN},
        {
            "kernels.0.sources.cpu": ["csrc/other.cpp"],
            "kernels.0.sources.cuda": ["csrc/other.cu"],  # files: a fact
            "kernels.2.model_new": "p/other.py",
            "most_launches": 6,
            "launches": 3,
        },
    ),
    # Another environment stands in its place.
    (
        environment("planned", **SECOND),
        {
            "environments.1.torch": "2.5.1",
            "environments.1.cuda": "12.4",
            "environments.1.python": "3.12",
            "environments.1.index": "https://example.org/whl",
            "environments.1.replica": 1,
            "environments.1.wheel": "torch-2.5.0+git1-cp311-cp311-linux_x86_64.whl",
            "environments.1.packages": ["demo==2.0"],
        },
    ),
    (environment(**SECOND), {"environments.1.variables": {"OMP_WAIT_POLICY": "active"}}),
    (built("binding", **SECOND, **COMPILED), {"environments.1.flags.cxx": ["-O1"]}),
    (built(**SECOND, **COMPILED, devices=["cuda"]), {"environments.1.flags.nvcc": ["-O1"]}),
    (STORED | {("store", A, "python", "cpu")}, {"baseline": "2.5.0"}),
    (STORED, {"kernels.2.problem": "p/another.py", "kernels.2.dtype": "bfloat16", "kernels.2.trials": 7}),
    (
        EVERYWHERE
        & (
            built(**PYTHON, devices=["cpu"])
            | places(["launch"])
            | places(["profile_of_reference"], **PYTHON, devices=["cpu"])
        ),
        {"kernels.2.devices": ["cuda"]},
    ),
    (built(**PLAIN) | places(["binding", "profile_of_reference"], **PLAIN), {"kernels.0.name": "other"}),
    (built(**PLAIN) | places(["binding"]), {"kernels.0.flags.cxx": ["-O1"]}),
    (built(**PLAIN), {"kernels.0.tunables.BLOCK_M": 64}),
    (
        built(**PLAIN, devices=["cuda"]),
        {
            "kernels.0.architectures": ["sm_90"],
            "kernels.0.libraries": ["cublas"],
            "kernels.0.flags.nvcc": ["-O1"],
        },
    ),
    (built(**OWN) | places(["launch"]), {"kernels.1.binding": "shipped"}),
    (built(**OWN, devices=["cuda"]), {"kernels.1.flags.cxx": ["-O1"]}),
    (places(["validation"], **PLAIN) | places(["launch"]), {"kernels.0.deterministic": True}),
    (
        places(["validation", "conditions", "swap"], **PLAIN) | places(["launch"]),
        {"kernels.0.precision.products": "tf32", "kernels.0.precision.sums": "float16"},
    ),
    (
        NOT_PYTHON,
        {
            "workloads.0.name": "other",
            "workloads.0.shape.batch": 5,
            "workloads.0.shape.heads": 5,
            "workloads.0.shape.seq_len": 5,
            "workloads.0.shape.head_dim": 5,
            "workloads.0.causal": True,
            "workloads.0.scale": 0.5,
            "workloads.0.shape.kv_heads": 1,
            "workloads.0.shape.kv_len": 5,
            "workloads.0.mask": "padding",
            "workloads.0.dropout": 0.5,
        },
    ),
    (places(["launch"]), {"workloads.0.backward": True}),  # which adds a workload
    (FEWER_TRIALS, {"workloads.0.trials": 7, "workloads.0.extra_trials": 2}),
    (places(["launch"], devices=["cpu"]), {"workloads.0.dtypes.cpu": ["float32", "float16"]}),
    (on_kernels("profile_of_reference", **COMPILED, devices=["cuda"]), {"workloads.0.dtypes.cuda": ["float16"]}),
    (
        places(["validation"], **COMPILED, devices=["cpu"]) | places(["launch"], devices=["cpu"]),
        {"references": ["math"]},
    ),
    (
        places(["validation"], **COMPILED, devices=["cuda"]) | places(["launch"], devices=["cuda"]),
        {"references_cuda": ["flash"]},
    ),
    (
        places(["validation", "conditions", "swap", "launch"]),
        {
            "tolerances.decides": "strict",
            "tolerances.rounding_units": 0.5,
            "tolerances.strict": 0.5,
            "tolerances.kernelbench_half": 0.5,
            "tolerances.kernelbench_float32": 0.5,
        },
    ),
    (
        places(["launch"]),
        {
            "timing.warmup_s": 0.5,
            "timing.warmup_calls": 5,
            "timing.target_s": 0.5,
            "timing.min_samples": 5,
            "timing.max_samples": 50,
        },
    ),
    (places(["launch"]), {"launches": 1}),
    (places(["launch"], devices=["cpu"]), {"timing.relative_error": 0.5}),
    (places(["launch"], devices=["cuda"]), {"timing.relative_error_cuda": 0.5}),
    (places(["store"]) - {RUN}, {"limits.output_gib": 77}),  # what is in it may be the same
    (on_kernels("store", "profile_of_reference"), {"seed": 1}),
    (RUNS | places(["store"]), {"cpu_threads": 2}),
]
CHANGES = [(path, value, expected) for expected, changes in OF_MATRIX for path, value in changes.items()]
# Which files a folder holds is a fact; what is built already has a test of its own, below.
NOT_OF_MATRIX = {"schema_version", "kernels.folder", "kernels.library", "kernels.wheel", "kernels.entry"}
NOT_OF_MATRIX |= {f"operators.{name}" for name in Operator.model_fields}  # tests/unit/test_operators.py


def test_every_field_of_matrix_yaml_is_said_something_about() -> None:
    """A new one belongs into OF_MATRIX, with what is to be made again where it was edited."""
    named = {re.sub(r"\.\d+|(?<=tunables)\..*", "", path) for path, *_ in CHANGES} | NOT_OF_MATRIX
    assert named == set(leaves(Matrix))


@pytest.mark.parametrize(("path", "value", "expected"), CHANGES, ids=[path for path, *_ in CHANGES])
def test_a_field_of_matrix_yaml(path: str, value: Any, expected: set[Where]) -> None:
    same(changed(edited(path, value)), expected)


def test_what_is_built_already_is_known_by_its_bytes_and_by_how_it_is_called() -> None:
    def keys_of(kernel: dict[str, Any], digest: str, file: str) -> dict[str, str]:
        value = {**matrix_value(), "kernels": [{"name": "mine", "devices": ["cpu"], **kernel}]}
        facts = with_facts(files={"mine": {"cpu": [file]}}, sources_sha256={file: digest})
        plan, matrix = made_plan(value, facts, devices=("cpu",))
        place = Place(kind="build", environment=A, kernel="mine")
        return {kind: key(World(plan=plan, matrix=matrix), place.like(kind)) for kind in ("build", "run")}

    library, wheel = {"library": "mine.so"}, {"wheel": "m-1-py3-none-any.whl", "entry": "m:f"}
    found = [
        keys_of(library, "1", "mine.so"),
        keys_of(library, "2", "mine.so"),
        keys_of(wheel, "1", "m-1-py3-none-any.whl"),
        keys_of({**wheel, "entry": "m:g"}, "1", "m-1-py3-none-any.whl"),
    ]
    assert len({each["build"] for each in found}) == len({each["run"] for each in found}) == 4


def test_a_block_more_is_made_beside_those_that_are_there() -> None:
    value = {**matrix_value(), "launches": 3}
    before, after = all_keys(*made_plan(matrix_value())), all_keys(*made_plan(value))
    launches = ("launch", A, "plain", "cpu")
    assert set(after[launches]) == {"0", "1", "2"}
    assert before[launches].items() <= after[launches].items()


def test_launches_are_another_where_the_kernel_is_called_on_other_workloads() -> None:
    plan, matrix = made_plan(matrix_value())
    world = World(plan=plan, matrix=matrix)
    place = Place(kind="launch", environment=A, kernel="plain", device="cpu")
    assert len({key(world, dataclasses.replace(place, asked=called)) for called in ([], ["first-fp32"])}) == 2


# -- the one place itself ------------------------------------------------------------------------------------------

EXECUTORS_OWN = {
    "venv",
    "image",
    "bundled",
    "host",
    "host_python",
    "proof",
    "crossing",
    "components",
}


def test_every_input_is_known_and_used() -> None:
    named = {name for kind, names in keys.DETERMINES.items() if kind not in EXECUTORS_OWN for name in names}
    assert named - {"source", "architecture"} == set(INPUTS)
    assert {kind for kind, names in keys.DETERMINES.items() if "code" in names} == set(keys.CODE)


@pytest.mark.parametrize("kind", sorted(keys.DETERMINES))
def test_each_input_of_a_kind_makes_another_key(kind: str) -> None:
    names = keys.DETERMINES[kind]
    inputs = dict.fromkeys(names, "one")
    made = {keys.of(kind, **inputs), *(keys.of(kind, **{**inputs, name: "other"}) for name in names)}
    assert len(made) == 1 + len(names)
    for wrong in ({**inputs, "surprise": 1}, {name: 1 for name in names[1:]}):
        with pytest.raises(TypeError, match="its inputs are"):
            keys.of(kind, **wrong)


def test_keys_are_made_there_alone(root: Path) -> None:
    """A digest of a list of things that is made elsewhere is a name or a proof of bytes, and stands here."""
    elsewhere = {
        ("config/keys.py", 2),
        ("config/key_inputs.py", 1),
        ("workflow/matrix.py", 1),
        ("run/folders.py", 1),
        ("schema/storage.py", 2),
        ("search/sweep.py", 2),
        ("search/bisect/run.py", 2),
        ("run/stores.py", 2),
        ("experiments/compiled.py", 1),
        ("executors/archive.py", 2),
        ("executors/images.py", 2),
        ("cluster/shards.py", 1),
        ("workflow/shards.py", 1),
    }
    found = set()
    for path in (root / "harness").rglob("*.py"):
        name = path.relative_to(root / "harness").as_posix()
        count = len(re.findall(r"protocol\.digest\(", path.read_text()))
        if count and not name.startswith("worker/"):
            found.add((name, count))
    assert found == elsewhere


def test_every_record_with_a_key_says_what_determines_it() -> None:
    from harness.schema.storage import KINDS

    keyed = {kind for kind, model in KINDS.items() if any(each.name == "key" for each in dataclasses.fields(model))}
    assert keyed - {"environment"} <= set(keys.DETERMINES) and protocol.TIMED_OUT in keys.ENDED_AT["launch"]
