from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from harness.config.environments import PYPI, Environment
from harness.config.interpreters import Interpreter
from harness.config.plan import PlannedEnvironment
from harness.errors import InfrastructureError, Interrupted
from harness.executors import Task, Terms, sandbox, venv
from harness.executors.base import loaded_otherwise
from harness.executors.process import Ended
from harness.executors.venv import VenvExecutor
from harness.schema.environment_records import Observation, Wheel
from harness.worker import protocol
from tests.messages import made
from tests.unit.contexts import FakeExecutor, ended

HASH = "--hash=sha256:" + "0" * 64
PINS = f"torch==2.5.0 {HASH}\nnumpy==1.26.4 {HASH}\n"
PYTHON = Interpreter(path="/usr/bin/python3.11", version="3.11.2", headers=True)


def observation(**changes: Any) -> Observation:
    values: dict[str, Any] = {
        "python": "3.11.2",
        "torch": "2.5.0+cu121",
        "torch_cuda": "12.1",
        "torch_git": "",
        "cxx11_abi": False,
        "numpy": "1.26.4",
        "cudnn": None,
        "machine": "x86_64",
        "cpu_model": "",
        "cpu_flags_sha256": "",
        "cpu_capability": "AVX2",
        "threads": 2,
        "kernel_release": "",
        "libc": "",
        "gpus": [],
        "settings": {},
        "wheels": {
            "torch": Wheel(version="2.5.0+cu121", record_sha256="a"),
            "numpy": Wheel(version="1.26.4", record_sha256="b"),
        },
    }
    return Observation(**{**values, **changes})


def planned(index: str | None = None, **changes: Any) -> PlannedEnvironment:
    spec = Environment(**{"torch": "2.5.0", "cuda": "12.1", "python": "3.11", **changes})
    index = index or spec.wheel_index
    return PlannedEnvironment(spec=spec, index=index)


@pytest.fixture
def pins(tmp_path: Path) -> Path:
    path = tmp_path / "pins.txt"
    path.write_text(PINS)
    return path


@pytest.fixture
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VenvExecutor:
    monkeypatch.setattr(venv, "need_interpreter", lambda version: PYTHON)
    return VenvExecutor(tmp_path / "cache", threads=2)


def prepare(
    executor: VenvExecutor,
    pins: Path,
    seen: Observation | dict[str, Any],
    environment: PlannedEnvironment | None = None,
) -> Any:
    """`prepare`, with an installation that does nothing and an inside that answers `seen`."""

    executor._install = lambda *arguments: arguments[-1].mkdir(parents=True, exist_ok=True)  # type: ignore[method-assign]
    result = asdict(seen) if isinstance(seen, Observation) else dict(seen)
    executor.run = FakeExecutor(result).run  # type: ignore[method-assign]
    return executor.prepare(environment or planned(), pins)


def test_an_environment_that_is_what_was_asked_for_is_ok_and_reused(executor: VenvExecutor, pins: Path) -> None:
    first = prepare(executor, pins, observation())
    assert first.status == "ok" and not first.reused and first.observed.torch == "2.5.0+cu121"
    assert executor.folder(first).joinpath("complete.json").exists()
    assert prepare(executor, pins, observation()).reused


def test_an_environment_whose_proof_is_damaged_is_made_again(executor: VenvExecutor, pins: Path) -> None:
    marker = executor.folder(prepare(executor, pins, observation())).joinpath("complete.json")
    marker.write_bytes(marker.read_bytes()[:-20])
    again = prepare(executor, pins, observation())
    assert again.status == "ok" and not again.reused
    assert prepare(executor, pins, observation()).reused


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"torch": "2.4.1+cu121"}, "asked for PyTorch 2.5.0, found 2.4.1+cu121"),
        ({"python": "3.10.4"}, "asked for Python 3.11, found 3.10.4"),
        ({"torch_cuda": "12.4"}, "asked for CUDA 12.1, found a build for 12.4"),
        ({"torch_cuda": None}, "asked for CUDA 12.1, found a build for None"),
        ({"wheels": {"torch": Wheel(version="2.5.0", record_sha256="a")}}, "numpy: pinned 1.26.4, found nothing"),
        (
            {"wheels": observation().wheels | {"extra": Wheel(version="1", record_sha256="c")}},
            "extra: pinned nothing, found 1",
        ),
        # What is loaded is not what is installed.
        ({"loaded": {"numpy": "1.2"}}, "numpy: pinned 1.26.4, and what is loaded inside says 1.2"),
        ({"loaded": {"numpy": "2.0.0"}}, "numpy: pinned 1.26.4, and what is loaded inside says 2.0.0"),
        ({"torch": "", "settings": {"torch": "cannot be imported: libcudnn.so.8"}}, "PyTorch 2.5.0 cannot be imported"),
    ],
)
def test_one_that_is_not_is_broken_and_not_kept(
    executor: VenvExecutor, pins: Path, changes: dict[str, Any], said: str
) -> None:
    record = prepare(executor, pins, observation(**changes))
    assert record.status == "broken" and said in record.message
    assert not executor.folder(record).joinpath("complete.json").exists()


@pytest.mark.parametrize("loaded", [{"numpy": "1.26"}, {"/usr/lib/libcudnn.so.9": "9.1.0"}])
def test_what_is_loaded_may_say_less_than_its_pin(executor: VenvExecutor, pins: Path, loaded: dict[str, str]) -> None:
    record = prepare(executor, pins, observation(loaded=loaded))
    assert record.status == "ok" and executor.folder(record).joinpath("complete.json").exists()


def test_a_library_from_elsewhere_than_its_pinned_package_is_broken() -> None:
    seen = {"/usr/lib/libcudnn.so.8": "8.9.2", "/usr/lib/libcudart.so.12": "12.1"}
    said = loaded_otherwise({"nvidia-cudnn-cu12": "8.9.2.26"}, seen)
    assert said == "nvidia-cudnn-cu12: pinned 8.9.2.26, and /usr/lib/libcudnn.so.8 is loaded inside"


def test_a_fallback_may_have_another_cuda_build(executor: VenvExecutor, pins: Path) -> None:
    seen = observation(torch="2.5.0+cu124", torch_cuda="12.4")
    assert prepare(executor, pins, seen, planned(PYPI)).status == "ok"


def test_a_file_that_is_not_its_wheels_is_broken(executor: VenvExecutor, pins: Path) -> None:
    record = prepare(executor, pins, {**asdict(observation()), "damaged": ["torch/lib/libtorch.so"]})
    assert record.status == "broken" and "torch/lib/libtorch.so" in record.message and "remedy" in record.message


def test_an_environment_changed_after_its_installation_is_broken(executor: VenvExecutor, pins: Path) -> None:
    assert prepare(executor, pins, observation()).status == "ok"
    wheels = observation().wheels | {"torch": Wheel(version="2.5.0+cu121", record_sha256="edited")}
    record = prepare(executor, pins, observation(wheels=wheels))
    assert record.status == "broken" and "torch: its list of files changed" in record.message


def test_the_key_knows_pins_index_replica_and_interpreter(
    executor: VenvExecutor, pins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = pins.with_name("other.txt")
    other.write_text(PINS + "# changed\n")
    newer = Interpreter(path="/usr/bin/python3.11", version="3.11.9", headers=True)
    keys = {
        executor.key(planned(), pins),
        executor.key(planned(), other),
        executor.key(planned(PYPI), pins),
        executor.key(planned(replica=1), pins),
    }
    monkeypatch.setattr(venv, "need_interpreter", lambda version: newer)
    keys.add(executor.key(planned(), pins))
    assert len(keys) == 5


def test_what_waited_while_the_rest_was_ended_does_not_begin(executor: VenvExecutor, tmp_path: Path) -> None:
    executor._pythons["e"] = tmp_path / "no" / "python"
    executor.stop()
    asked = Task(
        environment="e",
        name="build",
        request=made(),
        scratch=tmp_path / "s",
        log=tmp_path / "l",
        terms=Terms(timeout_s=1),
    )
    with pytest.raises(Interrupted):
        executor.run(asked)


def test_only_inside_is_staged(executor: VenvExecutor) -> None:
    staged = {path.name for path in executor.worker.rglob("*.py")}
    assert {"protocol.py", "judge.py"} <= staged and "matrix.py" not in staged
    assert [path.name for path in executor.worker.iterdir()] == ["worker"]
    assert protocol.SCHEMA_VERSION == 1


def test_an_environment_s_variables_reach_its_processes_and_are_proven_inside(
    tmp_path: Path, pins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(venv, "need_interpreter", lambda version: PYTHON)
    variables = {"OMP_NUM_THREADS": "1", "MKL_CBWR": "AVX2"}
    environment = planned(variables=variables)
    executor = VenvExecutor(tmp_path / "cache", 2, {environment.id: variables})
    given: list[Any] = []

    def run_child(command: list[str], **options: Any) -> Ended:
        given.append((protocol.read_json(command[-2]), options["environment"]))
        return ended(1)

    monkeypatch.setattr(sandbox, "run_child", run_child)
    other = planned(replica=1)
    executor._pythons[environment.id] = executor._pythons[other.id] = Path("/usr/bin/python3")
    for each in (environment, other):
        with pytest.raises(InfrastructureError, match="exited with 1"):
            executor._observe(each, verify=False, remedy="")
    (asked, seen), (asked_other, seen_other) = given
    assert asked == {"version": 1, "threads": 1, "verify": False, "variables": ["MKL_CBWR", "OMP_NUM_THREADS"]}
    assert (seen["OMP_NUM_THREADS"], seen["MKL_CBWR"]) == ("1", "AVX2")
    assert asked_other == {"version": 1, "threads": 2, "verify": False, "variables": []}
    assert seen_other["OMP_NUM_THREADS"] == "2" and "MKL_CBWR" not in seen_other

    lent = Task(
        environment=environment.id,
        name="conditions",
        request=made(),
        scratch=tmp_path / "scratch",
        log=tmp_path / "log",
        terms=Terms(timeout_s=1, variables={"MKL_CBWR": "SSE"}),
    )
    executor.run(lent)
    assert given[-1][1]["MKL_CBWR"] == "SSE" and given[-1][1]["OMP_NUM_THREADS"] == "2", "another environment's"

    told = {f"env.{name}": value for name, value in variables.items()}
    record = prepare(executor, pins, observation(settings=told), environment)
    assert record.status == "ok" and record.variables == variables
    for wrong, said in (({}, "found nothing"), (told | {"env.MKL_CBWR": "SSE"}, "found SSE")):
        record = prepare(executor, pins, observation(settings=wrong), environment)
        assert record.status == "broken" and said in record.message
