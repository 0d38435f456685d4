"""Which packages are exchanged, in which environments, and what of it is recorded."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.config.environments import PYPI, Environment
from harness.config.kernels import Kernel
from harness.config.matrix import Matrix, load_matrix
from harness.config.pins import pins_path
from harness.config.plan import PlannedEnvironment
from harness.errors import InputError
from harness.executors import remove
from harness.executors.choose import Choice
from harness.experiments import packages
from harness.experiments.packages import (
    DifferingPackage,
    PackageExchange,
    PackageQuestion,
    exchange,
    find_differing,
)
from harness.run.prepare import RunOptions
from harness.schema.environment_records import Wheel
from harness.schema.packages import only_packages
from harness.schema.run_records import Cell, Selection

OLD = Environment(torch="2.1.0", cuda="12.1", python="3.11", packages=["demo==1.0"])
NEW = Environment(torch="2.5.0", cuda="12.1", python="3.11", packages=["demo==2.0"], variables={"OMP_NUM_THREADS": "1"})
FILE = Kernel(name="file", problem="p.py", model_new="s.py")
PLAIN = Kernel(name="plain", sources={"cuda": ["k.cu"]}, libraries=["cublas"])
CPU, GPU = ("cpu", "cuda")
VERSIONS = {
    "torch": ("2.1.0", "2.5.0"),
    "numpy": ("1.26.4", "2.0.0"),
    "demo": ("1.0", "2.0"),
    "same": ("1.0", "1.0"),
    "sympy": ("1.13.1", "1.14.0"),
    "setuptools": ("69", "70"),
    "triton": ("2.1.0", "3.1.0"),
    "gone": ("1.0", ""),
    "scipy": ("1.11.4", ""),
    "nvidia-cudnn-cu12": ("8.9.2.26", "9.1.0.70"),
    "nvidia-cublas-cu12": ("12.1.3.1", "12.4.5.8"),
    "nvidia-nvtx-cu12": ("12.1.105", "12.4.127"),
    "nvidia-cuda-cupti-cu12": ("12.1.105", "12.4.127"),
    "mkl": ("2023.1", "2024.0"),
}


def stack(side: int) -> Any:
    wheels = {n: Wheel(version=v[side], record_sha256=n) for n, v in VERSIONS.items() if v[side]}
    return SimpleNamespace(id="ab"[side], observed=SimpleNamespace(wheels=wheels))


@pytest.mark.parametrize(
    ("kernel", "device", "expected"),
    [
        (FILE, CPU, ["demo", "gone", "numpy", "mkl", "scipy"]),
        (FILE, GPU, ["demo", "gone", "numpy", "triton", "nvidia-cudnn-cu12", "nvidia-cublas-cu12", "mkl", "scipy"]),
        (PLAIN, GPU, ["nvidia-cublas-cu12"]),  # it calls no PyTorch
        (PLAIN, CPU, []),
    ],
)
def test_what_differs_and_can_matter(kernel: Kernel, device: Any, expected: list[str]) -> None:
    found = find_differing(stack(0), stack(1), kernel, device, {"demo", "same", "setuptools", "gone"})
    assert [each.name for each in found] == expected
    lacking = {each.name: each.why for each in found if each.why}
    assert "b does not hold it" in lacking.pop("scipy", "b does not hold it") and not lacking, "demo, gone: named"


def test_two_environments_that_differ_in_one_package_are_the_exchange() -> None:
    def record(torch: str, demo: str, **variables: str) -> Any:
        wheels = {n: Wheel(version=v, record_sha256=n) for n, v in {"torch": torch, "demo": demo}.items() if v}
        return SimpleNamespace(observed=SimpleNamespace(torch=torch, python="3.11", wheels=wheels), variables=variables)

    old, broken = record("2.1.0", "1.0"), SimpleNamespace(observed=None, variables={})
    assert (
        find_differing(broken, old, FILE, "cpu", {"demo"}) == find_differing(old, broken, FILE, "cpu", {"demo"}) == []
    )  # type: ignore[arg-type]
    assert only_packages(old, record("2.1.0", "2.0")) == {"demo": ("1.0", "2.0")}
    assert only_packages(record("2.1.0", ""), old) == {"demo": ("", "1.0")}
    others = record("2.1.0", "1.0"), record("2.5.0", "2.0"), record("2.1.0", "2.0", OMP_NUM_THREADS="1")
    assert [only_packages(old, other) for other in others] == [{}] * 3


def test_all_but_one_package_is_held() -> None:
    there, back = exchange({"a": OLD, "b": NEW}, [DifferingPackage(name="demo", versions=("1.0", "2.0"))])
    assert (there.home, there.level, back.home, back.level) == ("a", "b", "b", "a")
    assert there.spec == OLD.model_copy(update={"packages": ["demo==2.0"]})
    assert back.spec == NEW.model_copy(update={"packages": ["demo==1.0"]})


def test_what_one_of_them_lacks_is_put_in_and_taken_out() -> None:
    bare = NEW.model_copy(update={"packages": []})
    there, back = exchange({"a": OLD, "b": bare}, [DifferingPackage(name="demo", versions=("1.0", ""))])
    assert there.spec == OLD.model_copy(update={"packages": []}) and back.spec.packages == ["demo==1.0"]


def test_an_environment_with_variables_of_its_own_is_another_one() -> None:
    """The baseline with the other's package has the other's id here, and not its variables."""
    other = OLD.model_copy(update={"packages": ["demo==2.0"], "variables": {"OMP_NUM_THREADS": "1"}})
    there, back = exchange({"a": OLD, "b": other}, [DifferingPackage(name="demo", versions=("1.0", "2.0"))])
    assert there.spec.id() not in (OLD.id(), other.id()) and not there.spec.variables
    assert len({OLD.id(), other.id(), there.spec.id(), back.spec.id()}) == 4
    # Where nothing else differs, the two are exchanged already.
    plain = other.model_copy(update={"variables": {}})
    there, back = exchange({"a": OLD, "b": plain}, [DifferingPackage(name="demo", versions=("1.0", "2.0"))])
    assert (there.spec, back.spec) == (plain, OLD)


def question(*packages: DifferingPackage, old: Environment = OLD) -> PackageQuestion:
    cell = Cell(environment="b", kernel="file", workload="file", device="cpu")
    return PackageQuestion(cells=(cell,), timed=False, specs={"a": old, "b": NEW}, packages=packages)


def asking(asked: PackageQuestion, matrix: Matrix, root: Path) -> Any:
    planned = {id: PlannedEnvironment(spec=spec, index=PYPI) for id, spec in asked.specs.items()}
    plan = SimpleNamespace(environment=planned.__getitem__, baseline="a", launches_each=3)
    prepared = SimpleNamespace(plan=plan, matrix=matrix, choice=None)
    return PackageExchange(SimpleNamespace(root=root), Selection(), prepared, asked, never)  # type: ignore[arg-type]


def never(*_: Any) -> Any:
    raise AssertionError("nothing is measured")


def test_what_cannot_be_exchanged_is_a_row_with_its_reason(root: Path, tmp_path: Path) -> None:
    matrix, _ = load_matrix(root / "matrix.yaml")
    gone = DifferingPackage(name="gone", versions=("1.0", ""), why="b does not hold it")
    ((_, record),) = asking(question(gone), matrix, tmp_path).answer(never)
    assert record.status == "not_run" and {r.message for r in record.results} == {"b does not hold it"}
    assert (record.package, record.versions, record.name) == ("gone", {"a": "1.0", "b": ""}, "package-gone")
    demo, host = DifferingPackage(name="demo", versions=("1.0", "2.0")), Environment(torch="host")
    ((_, record),) = asking(question(demo, old=host), matrix, tmp_path).answer(never)
    assert "the host's PyTorch" in record.message and record.run == ""
    many = [replace(demo, name=f"p{number}") for number in range(8)]
    asked = asking(question(*many), matrix, tmp_path)
    assert [each.why for each in asked._packages()].count("") == packages.MOST_PACKAGES


def test_environments_that_cannot_be_made_are_a_row(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix, _ = load_matrix(root / "matrix.yaml")
    made = asking(question(DifferingPackage(name="demo", versions=("1.0", "2.0"))), matrix, tmp_path)

    def lacks(*_: Any) -> Any:
        raise InputError("the archive has no such environment", "pack it")

    monkeypatch.setattr(type(made), "_measure", lacks)
    ((_, record),) = made.answer(never)
    assert record.status == "not_run" and len(record.results) == 2
    assert all("has no such environment" in row.message for row in record.results)


def made_in(cache: Path, name: str) -> Path:
    folder = cache / "environments" / f"{name}-{'k' * 12}"
    folder.mkdir(parents=True)
    (folder / "complete.json").write_text("{}")
    return folder


def test_the_last_process_removes_what_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choice, since = Choice(executor="venv", reason=""), "2000-01-01T00:00:00+00:00"
    kept, one, two, killed = (made_in(tmp_path, name) for name in ("kept", "one", "two", "killed"))
    (tmp_path / "exchanged").mkdir()
    (tmp_path / "exchanged" / "dead").write_text(json.dumps({"since": since, "made": {"killed": "k" * 12}}))
    monkeypatch.setattr(remove, "is_orphan", lambda name: name == "dead")
    with remove.shared_environments(choice, tmp_path, since) as add:
        add("one", "k" * 12)
        with monkeypatch.context() as patch:
            patch.setattr(remove, "owner", lambda: "another")
            with remove.shared_environments(choice, tmp_path, since) as other:
                other("two", "k" * 12)
        assert one.exists() and two.exists() and killed.exists(), "this process may need them"
    assert kept.exists() and not any(folder.exists() for folder in (one, two, killed))
    assert not list((tmp_path / "exchanged").iterdir())


def test_pin_files_differ_in_the_package_alone_and_are_removed(root: Path, tmp_path: Path) -> None:
    matrix, _ = load_matrix(root / "matrix.yaml")
    asked = question(DifferingPackage(name="demo", versions=("1.0", "2.0")))
    text = (
        "demo=={0} --hash=sha256:{0}\nninja==1.11.1.1 --hash=sha256:a\nnumpy==1.26.4 --hash=sha256:a\n"
        "setuptools==69.5.1 --hash=sha256:a\ntorch=={1} --hash=sha256:{1}\n"
    )
    for spec, version in ((OLD, "1.0"), (NEW, "2.0")):
        path = pins_path(tmp_path, PlannedEnvironment(spec=spec, index=PYPI))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(version, spec.torch))
    before = set(path.parent.iterdir())
    wanted = exchange(asked.specs, asked.packages)
    with asking(asked, matrix, tmp_path)._write_pins(wanted):
        made = {path.read_text() for path in set(path.parent.iterdir()) - before}
    assert made == {text.format("2.0", "2.1.0"), text.format("1.0", "2.5.0")}
    assert set(path.parent.iterdir()) == before


def test_a_pin_file_that_is_there_and_differs_in_more_is_not_taken_for_an_exchange(root: Path, tmp_path: Path) -> None:
    """Without its one package an environment has the name of the plain one, which may hold other versions."""
    matrix, _ = load_matrix(root / "matrix.yaml")
    bare = NEW.model_copy(update={"packages": []})
    asked = replace(question(DifferingPackage(name="demo", versions=("1.0", ""))), specs={"a": OLD, "b": bare})
    text = (
        "ninja==1.11.1.1 --hash=sha256:a\nnumpy=={0} --hash=sha256:{0}\nsetuptools==69.5.1 --hash=sha256:a\n"
        "torch=={1} --hash=sha256:{1}\n"
    )
    demo = "demo==1.0 --hash=sha256:1.0\n"
    plain = OLD.model_copy(update={"packages": []})
    for spec, pins in (
        (OLD, demo + text.format("1.26.4", "2.1.0")),
        (bare, text.format("1.26.4", "2.5.0")),
        (plain, text.format("1.26.3", "2.1.0")),
    ):
        path = pins_path(tmp_path, PlannedEnvironment(spec=spec, index=PYPI))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(pins)
    made = asking(asked, matrix, tmp_path)
    there, back = exchange(asked.specs, asked.packages)
    assert "differs in more than demo" in made._find_clash(there) and not made._find_clash(back)
    path.write_text(text.format("1.26.4", "2.1.0"))
    assert not made._find_clash(there)


def test_what_is_interrupted_has_told_of_its_environments(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while they are made: those of the matrix stay, and of the others their keys are known."""
    matrix, _ = load_matrix(root / "matrix.yaml")
    matrix = matrix.model_copy(update={"environments": [OLD, NEW]})
    asked = question(DifferingPackage(name="demo", versions=("1.0", "2.0")))
    asked = replace(asked, specs={spec.id(PYPI): spec for spec in (OLD, NEW)})
    own = [each.spec for each in exchange(asked.specs, asked.packages)]
    told: list[tuple[str, str]] = []
    executor = SimpleNamespace(key=lambda environment, pins: f"{environment.id} {pins.name}")
    machine: Any = SimpleNamespace(make_executor=lambda *_: executor)
    options = RunOptions(matrix_path=tmp_path / "matrix.yaml", command=(), machine=machine)
    made = replace(asking(asked, matrix, tmp_path), options=options, add=lambda *each: told.append(each))
    environments = [PlannedEnvironment(spec=spec, index=PYPI) for spec in (OLD, NEW, *own)]
    planned = SimpleNamespace(plan=SimpleNamespace(environments=environments), matrix=matrix, choice=None)
    monkeypatch.setattr(packages, "make_plan", lambda *_, **__: planned)
    monkeypatch.setattr(packages, "ensure_pins", lambda _, each, __: (Path(f"{each.id}.txt"), False))
    monkeypatch.setattr(PackageExchange, "_write_pins", lambda *_: nullcontext())

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made.answer(interrupted)
    ids = [spec.id(PYPI) for spec in own]
    assert told == [(id, f"{id} {id}.txt") for id in ids]
