"""Every input is changed, one at a time: just the jobs that depend on it are to be done again.

Inputs are enumerated from the models that hold them: a new field that nobody has said anything about fails here.
"""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from harness import tools
from harness.config.environments import CUDA_BASE
from harness.config.keys import JobId, Keys
from harness.config.matrix import Matrix
from harness.config.operators import OperatorEntry
from harness.config.plan import Facts
from harness.schema.run_records import GpuFacts
from tests.unit.worlds import FACTS, READS, A, B, all_keys, changed, made_plan, matrix_value, with_facts

ON_A_KERNEL = {"validation", "conditions", "checkers", "compiled", "profile", "launch"}
CASES = {*ON_A_KERNEL, "profile_of_reference"}
RUNS = {*CASES, "ceiling"}  # whatever runs beside a machine's other processes
COMPILES = {"build", "binding", "probe"}
BUILT = {"build", *ON_A_KERNEL}  # what follows from a build
EVERYTHING = {*RUNS, *COMPILES, "store"}
STORED = {*CASES, "store"}
NOTHING: set[str] = set()

PLAIN, OWN, PYTHON = ({"kernel": name} for name in READS)
SECOND = {"environment": B}
GPU = {"device": "cuda"}


def check(found: set[JobId], kinds: set[str], where: dict[str, str], *, same_run: bool = False) -> None:
    """The jobs are of these kinds, and all of them at that place, but for launches, whose whole round is another."""
    assert {job.kind for job in found} - {"run"} == kinds
    assert (JobId(kind="run") in found) is not same_run
    outside = [job for job in found if job.kind not in ("run", "launch", "store")]
    assert all(getattr(job, name) == value for job in outside for name, value in where.items())


# What was observed of this machine and of the project: what is done again, and where, where one of these is another.
OF_FACTS: dict[str, tuple[Any, set[str], dict[str, str]]] = {
    "sandboxed": (False, NOTHING, {}),  # the run says it
    "executor": ("bundle", RUNS, {}),
    "cpu_flags": ("avx512", {*RUNS, "build", "binding"}, {}),  # -march=native
    "engine": ({"version": "27"}, {*RUNS, "build", "binding"}, {}),
    "inherited": ({"LD_LIBRARY_PATH": "2"}, EVERYTHING, {}),
    "interpreters": ({"3.11": "/opt/python3.11"}, EVERYTHING, {}),
    "bundle": ({"manifest": "1"}, EVERYTHING, {}),
    "bases": ({CUDA_BASE: "1"}, EVERYTHING, {}),
    "pins_sha256": ({**FACTS.pins_sha256, B: "others"}, EVERYTHING - {"store"}, SECOND),
    "files": ({**READS, "own": {"cuda": ["own/own.cu", "csrc/plain.cpp"]}}, BUILT, OWN | GPU),
    "binding_files": (["csrc/attention.h"], {"binding"}, {}),
    "gpu": ({**FACTS.gpu, "uuid": "GPU-2"}, RUNS, GPU),
    "threads": (8, {*RUNS, "store"}, {}),
}
SAME_RUN = {"executor_reason": "another", "index_reasons": {A: "it answered 403"}, "gpus": 1}
# An index is part of an environment's id: it is another environment. The others have tests of their own, below.
OTHER_FACTS = {"indexes", "sources_sha256", "code", "host"}


@pytest.mark.parametrize("name", OF_FACTS)
def test_a_fact(name: str) -> None:
    value, kinds, where = OF_FACTS[name]
    check(changed(matrix_value(), with_facts(**{name: value})), kinds, where)


@pytest.mark.parametrize("name", SAME_RUN)
def test_a_fact_that_changes_nothing(name: str) -> None:
    assert changed(matrix_value(), with_facts(**{name: SAME_RUN[name]})) == set()


def test_every_fact_is_said_something_about() -> None:
    assert {*OF_FACTS, *SAME_RUN, *OTHER_FACTS} == {field.name for field in dataclasses.fields(Facts)}


def test_how_the_gpu_is_named_is_no_fact_and_which_it_is_is() -> None:
    """Where nothing runs on it, it is none of the run's inputs."""
    assert {each.name for each in dataclasses.fields(GpuFacts)} >= set(FACTS.gpu)
    one, two = (made_plan(matrix_value(), with_facts(gpu=gpu), devices=("cpu",))[0] for gpu in (FACTS.gpu, {}))
    assert one.digest == two.digest


OF_THE_MACHINE: dict[str, set[str]] = {
    **dict.fromkeys(("machine", "cores", "memory_gib", "kernel"), RUNS),
    "cpu": {*RUNS, "build", "binding"},
    **dict.fromkeys(("architecture", "system"), RUNS | COMPILES),
    **dict.fromkeys(("compiler", "nvcc"), BUILT | COMPILES),
}


@pytest.mark.parametrize("name", OF_THE_MACHINE)
def test_a_fact_of_the_machine(name: str) -> None:
    found = changed(matrix_value(), with_facts(host={**FACTS.host, name: "another"}))
    check(found, OF_THE_MACHINE[name], GPU if name == "nvcc" else {})


def test_every_fact_of_the_machine_is_said_something_about(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, nothing in (("host_compiler", None), ("cuda_compiler", None), ("gpus", [])):
        monkeypatch.setattr(tools, name, lambda nothing=nothing: nothing)
    assert set(FACTS.host) == set(tools.host_facts()) == {*OF_THE_MACHINE, "gpus"}
    assert changed(matrix_value(), with_facts(host={**FACTS.host, "gpus": "others"})) == set()


OF_FILES: dict[str, tuple[set[str], dict[str, str]]] = {
    "csrc/attention.h": ({*BUILT, "binding"}, {}),
    "csrc/attention_binding.cpp": ({*BUILT, "binding"}, PLAIN),
    "csrc/plain.cpp": (BUILT, PLAIN | {"device": "cpu"}),
    "csrc/plain.cu": (BUILT, PLAIN | GPU),
    "csrc/ptx.cuh": (BUILT, {}),
    "own/own.h": (BUILT, OWN | GPU),
    "p/fast.py": (BUILT, PYTHON),
    "p/softmax.py": ({*BUILT, *STORED}, PYTHON),
}


@pytest.mark.parametrize("name", OF_FILES)
def test_a_file(name: str) -> None:
    """A source, a header beside it or on the include path, the shipped binding, a problem, a solution."""
    found = changed(matrix_value(), with_facts(sources_sha256={**FACTS.sources_sha256, name: "edited"}))
    check(found, *OF_FILES[name])


@pytest.mark.parametrize("kind", sorted(FACTS.code))
def test_the_harnesss_own_code(kind: str) -> None:
    follows = {"build": BUILT, "store": STORED, "factor": NOTHING}.get(
        kind, {kind}
    )  # the standard run varies no factor
    check(changed(matrix_value(), with_facts(code={**FACTS.code, kind: "edited"})), follows, {})


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


# What is done again, and where, where one of these fields is another.
OF_MATRIX: list[tuple[set[str], dict[str, str], dict[str, Any]]] = [
    (
        NOTHING,  # but another run: its records say it, or its files or limits may be others
        {},
        {
            "kernels.0.sources.cpu": ["csrc/other.cpp"],
            "kernels.0.sources.cuda": ["csrc/other.cu"],
            "kernels.2.model_new": "p/other.py",
            "most_launches": 6,
            "launches": 3,
            "limits.build_s": 77,
            "limits.validation_s": 77,
            "limits.launch_s": 77,
            "limits.memory_gib": 77,
            "limits.processes": 77,
        },
    ),
    (
        EVERYTHING - {"store"},  # another environment stands in its place
        SECOND,
        {
            "environments.1.torch": "2.5.1",
            "environments.1.cuda": "12.4",
            "environments.1.python": "3.12",
            "environments.1.index": "https://example.org/whl",
            "environments.1.replica": 1,
            "environments.1.wheel": "torch-2.5.0+git1-cp311-cp311-linux_x86_64.whl",
            "environments.1.packages": ["demo==2.0"],
            "environments.1.variables": {"OMP_WAIT_POLICY": "active"},
        },
    ),
    ({*BUILT, "binding"}, SECOND, {"environments.1.flags.cxx": ["-O1"]}),
    (BUILT, SECOND | GPU, {"environments.1.flags.nvcc": ["-O1"]}),
    (STORED, PYTHON, {"baseline": "2.5.0", "limits.output_gib": 77}),
    (STORED, PYTHON, {"kernels.2.problem": "p/another.py", "kernels.2.dtype": "bfloat16", "kernels.2.trials": 7}),
    ({*CASES, "build"}, PYTHON | {"device": "cpu"}, {"kernels.2.devices": ["cuda"]}),
    ({*CASES, "build", "binding"}, PLAIN, {"kernels.0.name": "other"}),
    ({*BUILT, "binding"}, PLAIN, {"kernels.0.flags.cxx": ["-O1"]}),
    (
        BUILT,
        PLAIN,
        {"kernels.0.tunables.BLOCK_M": 64, "kernels.0.architectures": ["sm_90"], "kernels.0.libraries": ["cublas"]},
    ),
    (BUILT, PLAIN | GPU, {"kernels.0.flags.nvcc": ["-O1"]}),
    (BUILT, OWN, {"kernels.1.binding": "shipped", "kernels.1.flags.cxx": ["-O1"]}),
    (
        CASES,
        PLAIN,
        {
            "kernels.0.deterministic": True,
            "kernels.0.precision.products": "tf32",
            "kernels.0.precision.sums": "float16",
        },
    ),
    (
        CASES,
        {},
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
            "workloads.0.trials": 7,
            "workloads.0.extra_trials": 2,
            "tolerances.decides": "strict",
            "tolerances.rounding_units": 0.5,
            "tolerances.strict": 0.5,
            "tolerances.kernelbench_half": 0.5,
            "tolerances.kernelbench_float32": 0.5,
        },
    ),
    (CASES, GPU, {"workloads.0.dtypes.cuda": ["float16"], "references_cuda": ["flash"]}),
    (CASES, {"device": "cpu"}, {"references": ["math"]}),
    (
        {"launch"},
        {},
        {
            "workloads.0.backward": True,  # which adds a workload
            "workloads.0.dtypes.cpu": ["float32", "float16"],
            "timing.warmup_s": 0.5,
            "timing.warmup_calls": 5,
            "timing.target_s": 0.5,
            "timing.min_samples": 5,
            "timing.max_samples": 50,
            "timing.relative_error": 0.5,
            "timing.relative_error_cuda": 0.5,
        },
    ),
    ({*CASES, "store"}, {}, {"seed": 1}),
    ({*RUNS, "store"}, {}, {"cpu_threads": 2}),
]
CHANGES = [(path, value, kinds, where) for kinds, where, edits in OF_MATRIX for path, value in edits.items()]
NOT_ANOTHER_RUN: dict[str, Any] = {
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
    "slurm": {"partition": "gpu"},
}
# Which files a folder holds is a fact; what is built already has a test of its own, below.
NOT_OF_MATRIX = {"schema_version", "kernels.folder", "kernels.library", "kernels.wheel", "kernels.entry"}
NOT_OF_MATRIX |= {f"operators.{name}" for name in OperatorEntry.model_fields}  # tests/unit/test_operators.py


def test_every_field_of_matrix_yaml_is_said_something_about() -> None:
    """A new one belongs into OF_MATRIX, with what is to be done again where it was edited."""
    paths = [*(path for path, *_ in CHANGES), *NOT_ANOTHER_RUN]
    named = {re.sub(r"\.\d+|(?<=tunables)\..*", "", path) for path in paths} | NOT_OF_MATRIX
    assert named == set(leaves(Matrix))


@pytest.mark.parametrize(("path", "value", "kinds", "where"), CHANGES, ids=[path for path, *_ in CHANGES])
def test_a_field_of_matrix_yaml(path: str, value: Any, kinds: set[str], where: dict[str, str]) -> None:
    check(changed(edited(path, value)), kinds, where)


@pytest.mark.parametrize("path", NOT_ANOTHER_RUN)
def test_a_field_of_matrix_yaml_that_changes_no_run(path: str) -> None:
    assert changed(edited(path, NOT_ANOTHER_RUN[path])) == set()


def test_what_is_built_already_is_known_by_its_bytes_and_by_how_it_is_called() -> None:
    def keys_of(kernel: dict[str, Any], digest: str, file: str) -> tuple[str, str]:
        value = {**matrix_value(), "kernels": [{"name": "mine", "devices": ["cpu"], **kernel}]}
        facts = with_facts(files={"mine": {"cpu": [file]}}, sources_sha256={file: digest})
        plan, matrix = made_plan(value, facts, devices=("cpu",))
        return Keys(plan, matrix, {}, {}).key(JobId(kind="build", environment=A, kernel="mine")), plan.digest

    library, wheel = {"library": "mine.so"}, {"wheel": "m-1-py3-none-any.whl", "entry": "m:f"}
    found = [
        keys_of(library, "1", "mine.so"),
        keys_of(library, "2", "mine.so"),
        keys_of(wheel, "1", "m-1-py3-none-any.whl"),
        keys_of({**wheel, "entry": "m:g"}, "1", "m-1-py3-none-any.whl"),
    ]
    assert [len(set(each)) for each in zip(*found, strict=True)] == [4, 4]


def test_a_round_more_is_made_beside_those_that_are_there() -> None:
    before, after = all_keys(*made_plan(matrix_value())), all_keys(*made_plan({**matrix_value(), "launches": 3}))
    launches = {job: key for job, key in before.items() if job.kind == "launch"}
    assert {job.index for job in launches} == {0, 1} and launches.items() <= after.items()


def test_what_is_asked_makes_another_key() -> None:
    keys = Keys(*made_plan(matrix_value()), {}, {})
    for kind in ("launch", "conditions"):
        job = JobId(kind=kind, environment=A, kernel="plain", workload="first-fp32" if kind == "conditions" else "")
        assert len({keys.key(dataclasses.replace(job, asked=asked)) for asked in ([], ["first-fp32"])}) == 2


def test_a_swap_depends_on_both_builds() -> None:
    asked = {"environments": [A, B]}
    job = JobId(kind="factor", kernel="plain", device="cpu", workload="first-fp32", asked=asked)
    other = with_facts(pins_sha256={**FACTS.pins_sha256, B: "others"})
    plans = made_plan(matrix_value()), made_plan(matrix_value(), other)
    assert len({Keys(plan, matrix, {}, {}).key(job) for plan, matrix in plans}) == 2
