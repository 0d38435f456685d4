from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli import doctor
from harness.cli.main import main
from harness.config import indexes
from harness.config.environments import PYPI, Environment
from harness.config.indexes import Probes, choose_indexes
from harness.config.interpreters import Interpreter
from harness.config.matrix import load_matrix
from harness.errors import BAD_INPUT, DONE, INFRASTRUCTURE, InfrastructureError
from harness.isolate.choose import Choice


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with nothing."""
    monkeypatch.setenv("KERNEL_MATRIX_CACHE", str(tmp_path))
    monkeypatch.setattr(doctor, "installed", lambda version: ())
    monkeypatch.setattr(doctor, "host_compiler", lambda: None)
    monkeypatch.setattr(doctor, "cuda_compiler", lambda: None)
    monkeypatch.setattr(doctor, "gpus", lambda: ())
    nothing = Choice(executor="venv", reason="no container engine answers", remedy="start one")
    monkeypatch.setattr(doctor, "choose_here", lambda wanted, bases, gpus: nothing)
    monkeypatch.setattr(doctor, "probe_index", lambda index: f"{index} cannot be reached: no route")


def test_every_missing_piece_names_what_to_do(bare: None, root: Path) -> None:
    matrix, _ = load_matrix(root / "matrix.yaml")
    checks = {check.name: check for check in doctor.examine(matrix, root)}
    text = doctor.render(list(checks.values()))
    assert "apt-get install g++" in text and "python3.11-dev" in text
    assert checks["C++ compiler"].needed and not checks["C++ compiler"].ok
    assert checks[f"index {PYPI}"].needed and not checks[f"index {PYPI}"].ok
    assert not checks["GPU"].needed
    assert all(check.remedy for check in checks.values() if not check.ok)


OWN = {"C++ compiler", "nvcc", "disk", "Python 3.11"}


def test_virtual_environments_need_this_machines_compiler_pythons_and_disk(bare: None, root: Path) -> None:
    checks = {check.name: check for check in doctor.examine(load_matrix(root / "matrix.yaml")[0], root)}
    assert checks.keys() >= OWN and checks["disk"].needed and not checks["containers"].ok


def test_containers_need_none_of_them(bare: None, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Choice(executor="docker", reason="containers of an engine")
    monkeypatch.setattr(doctor, "choose_here", lambda wanted, bases, gpus: found)
    matrix, _ = load_matrix(root / "matrix.yaml")
    checks = {check.name: check for check in doctor.examine(matrix, root)}
    assert not checks.keys() & OWN and checks["containers"].ok


def test_another_base_is_the_one_that_is_looked_for(bare: None, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def choose(wanted: str, bases: list[str], gpus: int) -> Choice:
        asked.extend(bases)
        return Choice(executor="docker", reason="containers of an engine")

    monkeypatch.setattr(doctor, "choose_here", choose)
    monkeypatch.setattr(doctor, "probe_index", lambda index: "")
    assert main(["doctor", f"--matrix={root / 'matrix.yaml'}", "--base-image=some/base:1"]) == 0
    assert asked == ["some/base:1"]


@pytest.mark.parametrize("executor", ["docker", "venv", "bundle"])
def test_the_host_s_pytorch_is_looked_for_where_the_matrix_has_it_and_builds_with_this_machines_compiler(
    bare: None, root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, executor: str
) -> None:
    if executor == "bundle":
        monkeypatch.setenv("KERNEL_MATRIX_BUNDLE", str(tmp_path))
    elif executor == "docker":
        found = Choice(executor="docker", reason="containers of an engine")
        monkeypatch.setattr(doctor, "choose_here", lambda wanted, bases, gpus: found)
    matrix, _ = load_matrix(root / "matrix.yaml")
    beside = matrix.model_copy(update={"environments": [*matrix.environments, Environment(torch="host")]})

    def nowhere(inside: Path) -> None:
        raise InfrastructureError("torch: host: /usr/bin/python3 has no torch", "name one")

    monkeypatch.setattr(doctor, "find_host_python", nowhere)
    checks = {check.name: check for check in doctor.examine(beside, root)}
    check = checks["the host's PyTorch"]
    assert check.needed and not check.ok and "has no torch" in check.found and check.remedy == "name one"
    monkeypatch.setattr(doctor, "find_host_python", lambda inside: "/usr/bin/python3 (3.12, PyTorch 2.11.0)")
    every = doctor.examine(beside, root)
    checks = {check.name: check for check in every}
    assert checks["the host's PyTorch"].ok and len(every) == len(checks), "nothing twice"
    assert checks["C++ compiler"].needed and not checks["C++ compiler"].ok
    assert bool(checks.keys() & {"disk", "Python 3.11"}) == (executor == "venv")
    assert "the host's PyTorch" not in {check.name for check in doctor.examine(matrix, root)}


def test_a_bundle_that_is_named_is_looked_at_instead(
    bare: None, root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KERNEL_MATRIX_BUNDLE", str(tmp_path))
    checks = {check.name: check for check in doctor.examine(load_matrix(root / "matrix.yaml")[0], root)}
    check = checks[f"bundle {tmp_path}"]
    assert check.needed and not check.ok and "not an unpacked bundle" in check.found and "unpack.sh" in check.remedy
    assert "C++ compiler" not in checks and f"index {PYPI}" not in checks, "the bundle brings them"
    good = Choice(executor="bundle", reason="a bundle of today for sm_90")
    monkeypatch.setattr(doctor, "choose_bundle", lambda folder: good)
    checks = {check.name: check for check in doctor.examine(load_matrix(root / "matrix.yaml")[0], root)}
    assert checks[f"bundle {tmp_path}"].ok


def test_a_python_without_headers_is_not_enough(bare: None, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Interpreter(path="/usr/bin/python3.11", version="3.11.2", headers=False)
    monkeypatch.setattr(doctor, "installed", lambda version: (found,))
    (check,) = doctor.check_pythons(load_matrix(root / "matrix.yaml")[0])
    assert not check.ok and "without headers" in check.found


def test_a_probe_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(indexes, "probe_index", lambda index: asked.append(index) or "down")
    probes = Probes(tmp_path / "probes.json")
    assert [probes("https://a"), probes("https://a"), Probes(tmp_path / "probes.json")("https://a")] == ["down"] * 3
    assert asked == ["https://a"]
    (tmp_path / "probes.json").write_text("{")
    assert probes("https://a") == "down" and len(asked) == 2, "a damaged memory is no memory"


def test_strict_and_a_missing_fallback_refuse(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes, "probe_index", lambda index: "" if index == PYPI else "down")
    matrix, _ = load_matrix(root / "matrix.yaml")
    chosen, reasons = choose_indexes(matrix, Probes(tmp_path / "a.json"), strict=False)
    assert set(chosen.values()) == {PYPI} and set(reasons.values()) == {"down"}
    with pytest.raises(InfrastructureError, match="--strict refuses"):
        choose_indexes(matrix, Probes(tmp_path / "b.json"), strict=True)
    alone = [e.model_copy(update={"fallback_index": None}) for e in matrix.environments]
    with pytest.raises(InfrastructureError, match="down"):
        choose_indexes(matrix.model_copy(update={"environments": alone}), Probes(tmp_path / "c.json"), strict=False)


def test_an_index_that_refuses_is_told_from_one_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(request: object, timeout: float) -> None:
        raise indexes.urllib.error.HTTPError("u", 403, "no", {}, None)  # type: ignore[arg-type]

    monkeypatch.setattr(indexes.urllib.request, "urlopen", answer)
    assert "answered 403" in indexes.probe_index("https://x/simple")
    assert "cannot be reached" in indexes.probe_index("not a url")


def test_a_newcomer_without_a_matrix_is_told_what_the_usual_environments_need(
    bare: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["doctor"]) in (DONE, INFRASTRUCTURE)
    said = capsys.readouterr().out
    assert said.startswith("no matrix.yaml here") and "Python 3.11" in said and not list(tmp_path.iterdir())
    assert main(["doctor", "--matrix", "other.yaml"]) == BAD_INPUT, "one that was named must be there"
