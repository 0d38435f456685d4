"""Every input is changed, one at a time: just the records that depend on it are to be made again.

What depends on what is written down here once more, by hand. Inputs are enumerated from the models that hold them: a
new field that nobody has said anything about fails here, and so does a new input without a place in
`harness.config.keys`.
"""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from harness import tools
from harness.config import keys
from harness.config.key_inputs import INPUTS
from harness.config.matrix import Matrix
from harness.config.plan import Facts
from harness.schema.run_records import GpuFacts
from harness.worker import protocol
from tests.unit.worlds import DEVICES, FACTS, FILES, READS, A, B, all_keys, changed, made_plan, matrix_value, with_facts

Where = tuple[str, str, str, str]  # kind, environment, kernel, device
EVERYWHERE = set(all_keys(*made_plan(matrix_value())))
ENVIRONMENTS, KERNELS = (A, B), tuple(READS)
ON_A_KERNEL = ("validation", "conditions", "checkers", "counters", "profile")
NOTHING: set[Where] = set()
RUN: Where = ("run", "", "", "")


def places(kinds: Iterable[str], environments: Iterable[str] = ENVIRONMENTS, kernels: Iterable[str] = KERNELS,
           devices: Iterable[str] = DEVICES) -> set[Where]:  # fmt: skip
    """Of these kinds; what belongs to no environment, kernel or device is of all."""
    wanted = {*environments, ""}, {*kernels, ""}, {*devices, ""}
    return {(kind, e, k, d) for kind, e, k, d in EVERYWHERE
            if kind in kinds and e in wanted[0] and k in wanted[1] and d in wanted[2]} | {RUN}  # fmt: skip


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

# -- fields of harness.config.plan.Facts: what was observed of this machine and of the project -------------------------

OF_FACTS: dict[str, list[tuple[Any, set[Where]]]] = {
    "executor": [("bundle", RUNS)],
    "executor_reason": [("another", NOTHING)],
    "indexes": [],  # an index is part of an environment's id: it is another environment
    "index_reasons": [({A: "it answered 403"}, NOTHING)],
    "interpreters": [({"3.11": "/opt/python3.11"}, environment("planned", "store"))],
    "pins_sha256": [
        ({**FACTS.pins_sha256, B: "others"}, environment("planned", environments=[B])),
        ({**FACTS.pins_sha256, A: "others"}, environment("planned", "store", environments=[A]) | on_kernels(**PYTHON)
         | places(["profile_of_reference"], **PYTHON)),
    ],
    "sources_sha256": [],  # below, file by file
    "files": [
        ({**READS, "own": {"cuda": ["own/own.cu", "csrc/plain.cpp"]}}, built(kernels=["own"], devices=["cuda"])),
    ],
    "binding_files": [(["csrc/attention.h"], places(["binding"]) - {RUN})],  # each is one of a build's files, too
    "code": [],  # below, kind by kind
    "host": [],  # below, name by name
    "cpu_flags": [("avx512", RUNS | built(kernels=["plain"]) | places(["binding"]))],
    "inherited": [({"LD_LIBRARY_PATH": "2"}, RUNS | built("binding", "probe", **COMPILED) | built(**PYTHON))],
    "threads": [(8, RUNS | places(["store"]))],
    "gpus": [(1, NOTHING)],
    "gpu": [({**FACTS.gpu, name: value}, on_kernels("ceiling", "profile_of_reference", devices=["cuda"]))
            for name, value in [
                ("uuid", "GPU-2"), ("name", "H100"), ("driver", "560"), ("mig", True), ("ecc", False),
                ("power_limit_w", 350.0), ("memory_bytes", 1), ("max_sm_mhz", 1980),
            ]],
    "bases": [],  # below
    "engine": [({"version": "27"}, RUNS | built(kernels=["plain"]) | places(["binding"]))],
    "bundle": [({"manifest": "1"}, environment("planned", "store"))],
}  # fmt: skip


def test_every_fact_is_said_something_about() -> None:
    assert set(OF_FACTS) == {field.name for field in dataclasses.fields(Facts)}
    assert {name for value, _ in OF_FACTS["gpu"] for name in value if value[name] != FACTS.gpu.get(name)} == set(
        GpuFacts.model_fields
    )


@pytest.mark.parametrize(
    ("name", "value", "expected"), [(name, *case) for name, cases in OF_FACTS.items() for case in cases]
)
def test_a_fact(name: str, value: Any, expected: set[Where]) -> None:
    same(changed(matrix_value(), with_facts(**{name: value})), expected)


def test_how_the_gpu_is_named_is_no_fact_and_which_it_is_is() -> None:
    """CUDA_VISIBLE_DEVICES=0 and =1 are two GPUs; =0 and =GPU-1 are one."""
    other = made_plan(matrix_value(), with_facts(gpu={**FACTS.gpu, "uuid": "GPU-2"}))[0]
    assert other.digest != made_plan(matrix_value())[0].digest
    one, two = (made_plan(matrix_value(), with_facts(gpu=gpu), devices=("cpu",))[0] for gpu in (FACTS.gpu, {}))
    assert one.digest == two.digest, "where nothing runs on it, it is none of the run's inputs"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((name, RUNS) for name in ("cores", "memory_gib", "kernel")),
        ("machine", RUNS),
        ("cpu", RUNS | built(kernels=["plain"]) | places(["binding"])),  # the others' flags lack -march=native
        *((name, RUNS | built("binding", "probe")) for name in ("architecture", "system")),
        ("compiler", built("binding", "probe")),
        ("nvcc", built("binding", "probe", devices=["cuda"])),
        ("gpus", NOTHING),  # the one in use is a fact of its own
    ],
)
def test_a_fact_of_the_machine(name: str, expected: set[Where]) -> None:
    same(changed(matrix_value(), with_facts(host={**FACTS.host, name: "another"})), expected)


def test_every_fact_of_the_machine_is_said_something_about(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, nothing in (("host_compiler", None), ("cuda_compiler", None), ("gpus", [])):
        monkeypatch.setattr(tools, name, lambda nothing=nothing: nothing)
    assert set(FACTS.host) == set(tools.host_facts())


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
    "build": built(), "binding": places(["binding"]), "probe": places(["probe"]), "ceiling": places(["ceiling"]),
    "store": on_kernels("store", "profile_of_reference", **PYTHON), "in_block": places(["launch"]),
    **{kind: places([kind]) for kind in (*ON_A_KERNEL, "profile_of_reference", "swap")},
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(keys.CODE))
def test_the_harnesss_own_code(kind: str) -> None:
    same(changed(matrix_value(), with_facts(code={**FACTS.code, kind: "edited"})), OF_CODE[kind])


def test_a_base_image_is_an_input_of_what_is_built_on_it() -> None:
    base = Matrix.model_validate(matrix_value()).environments[0].base_image
    same(changed(matrix_value(), with_facts(bases={base: "1"})), environment("planned", "store"))


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


Edit = Callable[[dict[str, Any]], None]


def put(path: str, value: Any) -> Edit:
    """Set a field; a number in the path is a place in a list."""

    def edit(matrix: dict[str, Any]) -> None:
        *parts, last = path.split(".")
        place: Any = matrix
        for part in parts:
            place = place[int(part)] if part.isdecimal() else place.setdefault(part, {})
        place[last] = value

    return edit


def drop(path: str) -> Edit:
    def edit(matrix: dict[str, Any]) -> None:
        *parts, last = path.split(".")
        place: Any = matrix
        for part in parts:
            place = place[int(part)] if part.isdecimal() else place[part]
        place.pop(int(last) if last.isdecimal() else last)

    return edit


SECOND, PLAIN, OWN = {"environments": [B]}, {"kernels": ["plain"]}, {"kernels": ["own"]}
ANOTHER = environment("planned", **SECOND)  # another environment stands in its place
ONLY_RUN = {RUN}
JUDGED = places(["validation", "conditions", "swap", "launch"])
STORED = on_kernels("store", "profile_of_reference", **PYTHON)
DECLARED = places(["validation", "conditions", "swap"], **PLAIN) | places(["launch"])
NOT_PYTHON = on_kernels("profile_of_reference", **COMPILED)

OF_MATRIX: dict[str, list[tuple[Edit, set[Where]]]] = {
    "schema_version": [],
    "baseline": [(put("baseline", "2.5.0"), STORED | ONLY_RUN | {("store", A, "python", "cpu")})],
    "environments.torch": [(put("environments.1.torch", "2.5.1"), ANOTHER)],
    "environments.cuda": [(put("environments.1.cuda", "12.4"), ANOTHER)],
    "environments.python": [(put("environments.1.python", "3.12"), ANOTHER)],
    "environments.index": [(put("environments.1.index", "https://example.org/whl"), ANOTHER)],
    "environments.fallback_index": [(put("environments.1.fallback_index", "https://example.org/whl"), NOTHING)],
    "environments.base_image": [(put("environments.1.base_image", "debian@sha256:" + "0" * 64), NOTHING)],  # of venv
    "environments.replica": [(put("environments.1.replica", 1), ANOTHER)],
    "environments.flags.cxx": [
        (put("environments.1.flags.cxx", ["-O1"]), built("binding", **SECOND, **COMPILED)),
    ],
    "environments.flags.nvcc": [
        (put("environments.1.flags.nvcc", ["-O1"]), built(**SECOND, **COMPILED, devices=["cuda"])),
    ],
    "environments.variables": [(put("environments.1.variables", {"OMP_WAIT_POLICY": "active"}), environment(**SECOND))],
    # What is installed, pin files say; that they say what is asked for is checked.
    "packages": [(put("packages", ["numpy==2.0.0", "ninja==1.11.1.1", "setuptools==69.5.1"]), NOTHING)],
    "kernels.name": [
        (put("kernels.0.name", "other"), built(**PLAIN) | places(["binding", "profile_of_reference"], **PLAIN)),
    ],
    "kernels.folder": [],  # which files it is made of is a fact
    "kernels.sources.cpu": [(put("kernels.0.sources.cpu", ["csrc/other.cpp"]), ONLY_RUN)],  # likewise
    "kernels.sources.cuda": [(put("kernels.0.sources.cuda", ["csrc/other.cu"]), ONLY_RUN)],
    "kernels.binding": [(put("kernels.1.binding", "shipped"), built(**OWN) | places(["launch"]))],
    "kernels.tunables": [(put("kernels.0.tunables.BLOCK_M", 64), built(**PLAIN))],
    "kernels.search": [(put("kernels.0.search", {"BLOCK_M": [32, 64]}), NOTHING)],
    "kernels.architectures": [(put("kernels.0.architectures", ["sm_90"]), built(**PLAIN, devices=["cuda"]))],
    "kernels.libraries": [(put("kernels.0.libraries", ["cublas"]), built(**PLAIN, devices=["cuda"]))],
    "kernels.flags.cxx": [
        (put("kernels.0.flags", {"cxx": ["-O1"]}), built(**PLAIN) | places(["binding"])),
        (put("kernels.1.flags", {"cxx": ["-O1"], "nvcc": ["-O2"]}), built(**OWN, devices=["cuda"])),
    ],
    "kernels.flags.nvcc": [(put("kernels.0.flags", {"nvcc": ["-O1"]}), built(**PLAIN, devices=["cuda"]))],
    "kernels.problem": [(put("kernels.2.problem", "p/another.py"), STORED)],
    "kernels.model_new": [(put("kernels.2.model_new", "p/other.py"), ONLY_RUN)],  # a file: see READS
    "kernels.devices": [
        (put("kernels.2.devices", ["cuda"]), EVERYWHERE & (built(**PYTHON, devices=["cpu"])
                                                    | places(["profile_of_reference"], **PYTHON, devices=["cpu"])
                                                    | places(["launch"]))),
    ],
    "kernels.dtype": [(put("kernels.2.dtype", "bfloat16"), STORED)],
    "kernels.trials": [(put("kernels.2.trials", 7), STORED)],
    "kernels.workloads": [(put("kernels.0.workloads", ["first"]), NOTHING)],
    "kernels.deterministic": [
        (put("kernels.0.deterministic", True), places(["validation"], **PLAIN) | places(["launch"])),
    ],
    "kernels.precision.products": [(put("kernels.0.precision", {"products": "tf32"}), DECLARED)],
    "kernels.precision.sums": [(put("kernels.0.precision", {"sums": "float16"}), DECLARED)],
    "kernels.control_of": [(put("kernels.1.control_of", "plain"), ONLY_RUN)],
    "workloads.name": [(put("workloads.0.name", "other"), NOT_PYTHON)],
    **{
        f"workloads.shape.{name}": [(put(f"workloads.0.shape.{name}", 5), NOT_PYTHON)]
        for name in ("batch", "heads", "seq_len", "head_dim")
    },
    "workloads.dtypes.cpu": [
        (put("workloads.0.dtypes.cpu", ["float32", "float16"]), places(["launch"], devices=["cpu"])),
    ],
    "workloads.dtypes.cuda": [
        (put("workloads.0.dtypes.cuda", ["float16"]), on_kernels("profile_of_reference", **COMPILED, devices=["cuda"])),
    ],
    "workloads.causal": [(put("workloads.0.causal", True), NOT_PYTHON)],
    "workloads.scale": [(put("workloads.0.scale", 0.5), NOT_PYTHON)],
    "workloads.trials": [(put("workloads.0.trials", 7), NOT_PYTHON - places(["conditions", "swap"]) | ONLY_RUN)],
    "workloads.extra_trials": [
        (put("workloads.0.extra_trials", 2), NOT_PYTHON - places(["conditions", "swap"]) | ONLY_RUN),
    ],
    "references": [
        (put("references", ["math"]), places(["validation"], **COMPILED, devices=["cpu"])
         | places(["launch"], devices=["cpu"])),
    ],
    "references_cuda": [
        (put("references_cuda", ["flash"]), places(["validation"], **COMPILED, devices=["cuda"])
         | places(["launch"], devices=["cuda"])),
    ],
    "tolerances.decides": [(put("tolerances.decides", "strict"), JUDGED)],
    **{
        f"tolerances.{name}": [(put(f"tolerances.{name}", 0.5), JUDGED)]
        for name in ("rounding_units", "strict", "kernelbench_half", "kernelbench_float32")
    },
    **{
        f"thresholds.{name}": [(put(f"thresholds.{name}", 0.75), NOTHING)]
        for name in ("min_effect_cpu", "min_effect_cuda", "false_discovery_rate", "confidence")
    },
    **{
        f"timing.{name}": [(put(f"timing.{name}", value), places(["launch"]))]
        for name, value in (
            ("warmup_s", 0.5), ("warmup_calls", 5), ("target_s", 0.5), ("min_samples", 5), ("max_samples", 50),
        )
    },
    "timing.relative_error": [(put("timing.relative_error", 0.5), places(["launch"], devices=["cpu"]))],
    "timing.relative_error_cuda": [(put("timing.relative_error_cuda", 0.5), places(["launch"], devices=["cuda"]))],
    **{
        f"limits.{name}": [(put(f"limits.{name}", 77), NOTHING)]
        for name in ("build_s", "validation_s", "launch_s", "memory_gib", "processes")
    },
    "limits.output_gib": [(put("limits.output_gib", 77), places(["store"]) - {RUN})],  # what is in it may be the same
    "most_launches": [(put("most_launches", 6), ONLY_RUN)],
    "launches": [(put("launches", 3), ONLY_RUN), (put("launches", 1), places(["launch"]))],
    "seed": [(put("seed", 1), on_kernels("store", "profile_of_reference"))],
    "cpu_threads": [(put("cpu_threads", 2), RUNS | places(["store"]))],
}  # fmt: skip


def test_every_field_of_matrix_yaml_is_said_something_about() -> None:
    """A new one belongs into OF_MATRIX, with what is to be made again where it was edited."""
    assert set(OF_MATRIX) == set(leaves(Matrix))


@pytest.mark.parametrize(
    ("edit", "expected"),
    [pytest.param(*case, id=name) for name, cases in OF_MATRIX.items() for case in cases],
)
def test_a_field_of_matrix_yaml(edit: Edit, expected: set[Where]) -> None:
    value = copy.deepcopy(matrix_value())
    edit(value)
    same(changed(value), expected)


def test_a_block_more_is_made_beside_those_that_are_there() -> None:
    value = {**matrix_value(), "launches": 3}
    before, after = all_keys(*made_plan(matrix_value())), all_keys(*made_plan(value))
    launches = ("launch", A, "plain", "cpu")
    assert set(after[launches]) == {"0", "1", "2"}
    assert before[launches].items() <= after[launches].items()


def test_launches_are_another_where_the_kernel_is_called_on_other_workloads() -> None:
    from harness.config.key_inputs import Place, World, key

    plan, matrix = made_plan(matrix_value())
    world = World(plan=plan, matrix=matrix)
    place = Place(kind="launch", environment=A, kernel="plain", device="cpu")
    assert len({key(world, dataclasses.replace(place, asked=called)) for called in ([], ["first-fp32"])}) == 2


# -- the one place itself ------------------------------------------------------------------------------------------

EXECUTORS_OWN = {"venv", "image", "bundled", "host", "host_python", "proof", "crossing", "bisection", "sweep"}


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
        ("config/keys.py", 1), ("config/code_digests.py", 1), ("config/key_inputs.py", 1), ("workflow/matrix.py", 1),
        ("run/folders.py", 1), ("schema/storage.py", 2), ("search/sweep/space.py", 1), ("run/stores.py", 2),
        ("isolate/docker/images.py", 2),
    }  # fmt: skip
    found = set()
    for path in (root / "harness").rglob("*.py"):
        name = path.relative_to(root / "harness").as_posix()
        count = len(re.findall(r"protocol\.digest\(", path.read_text()))
        if count and not name.startswith("worker/"):
            found.add((name, count))
    assert found == elsewhere


def test_every_record_with_a_key_says_what_determines_it() -> None:
    from harness.schema.storage import KINDS

    keyed = {kind for kind, model in KINDS.items() if "key" in model.model_fields}
    assert keyed - {"environment"} <= set(keys.DETERMINES) and protocol.TIMED_OUT in keys.ENDED_AT["launch"]
