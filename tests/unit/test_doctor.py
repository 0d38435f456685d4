from __future__ import annotations

from pathlib import Path

import pytest

from harness import tools
from harness.cli import doctor
from harness.cli.main import main
from harness.config import indexes
from harness.config.environments import PYPI, Environment
from harness.config.indexes import choose_indexes, remembered_probe
from harness.config.interpreters import Interpreter
from harness.config.matrix import Matrix, load_matrix
from harness.errors import BAD_INPUT, DONE, INFRASTRUCTURE, InfrastructureError
from harness.executors.choose import Choice

CONTAINERS = Choice(executor="docker", reason="containers of an engine")
NO_ENGINE = Choice(executor="venv", reason="no container engine answers", remedy="start one")
OWN = {"C++ compiler", "nvcc", "disk", "Python 3.11"}  # what virtual environments need of this machine


@pytest.fixture
def matrix(root: Path) -> Matrix:
    return load_matrix(root / "matrix.yaml")[0]


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with nothing."""
    monkeypatch.setenv("KERNEL_MATRIX_CACHE", str(tmp_path))
    for name, found in (("installed", ()), ("host_compiler", None), ("gpus", ())):
        monkeypatch.setattr(doctor, name, lambda *_, found=found: found)
    monkeypatch.setattr(tools, "cuda_compiler", lambda: None)
    monkeypatch.setattr(doctor, "grant", lambda: (None, "it permits none"))
    choose(monkeypatch, NO_ENGINE)
    monkeypatch.setattr(doctor, "probe_index", lambda index: f"{index} cannot be reached: no route")


def choose(monkeypatch: pytest.MonkeyPatch, choice: Choice) -> list[str]:
    """Let this executor be chosen. The bases that it is asked for, once it was."""
    asked: list[str] = []
    monkeypatch.setattr(doctor, "choose_here", lambda wanted, bases, gpus: asked.extend(bases) or choice)
    return asked


def examined(matrix: Matrix) -> dict[str, doctor.Check]:
    checks = doctor.examine(matrix)
    found = {check.name: check for check in checks}
    assert len(found) == len(checks), "nothing twice"
    return found


def test_an_nvcc_that_pytorch_refuses_is_not_ok(matrix: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "cuda_compiler", lambda: ("/usr/bin/nvcc", "Build cuda_13.0.r13.0/compiler.1_0"))
    nvcc = examined(matrix)["nvcc"]
    assert not nvcc.ok and "CUDA 13" in nvcc.found and "CUDA 12, which alone" in nvcc.remedy


def test_every_missing_piece_names_what_to_do(matrix: Matrix) -> None:
    checks = examined(matrix)
    text = doctor.render(list(checks.values()))
    assert "apt-get install g++" in text and "python3.11-dev" in text
    assert checks.keys() >= OWN and not checks["containers"].ok and not checks["GPU"].needed
    for needed in ("C++ compiler", f"index {PYPI}"):
        assert checks[needed].needed and not checks[needed].ok
    assert checks["disk"].needed
    assert all(check.remedy for check in checks.values() if not check.ok)


def test_containers_need_none_of_this_machines_compilers_pythons_and_disk(
    matrix: Matrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(monkeypatch, CONTAINERS)
    checks = examined(matrix)
    assert not checks.keys() & OWN and checks["containers"].ok


def test_another_base_is_the_one_that_is_looked_for(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = choose(monkeypatch, CONTAINERS)
    monkeypatch.setattr(doctor, "probe_index", lambda index: "")
    assert main(["doctor", f"--matrix={root / 'matrix.yaml'}", "--base-image=some/base:1"]) == 0
    assert asked == ["some/base:1"]


@pytest.mark.parametrize("executor", ["docker", "venv", "bundle"])
def test_the_host_s_pytorch_is_looked_for_where_the_matrix_has_it_and_builds_with_this_machines_compiler(
    matrix: Matrix, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, executor: str
) -> None:
    if executor == "bundle":
        monkeypatch.setenv("KERNEL_MATRIX_BUNDLE", str(tmp_path))
    elif executor == "docker":
        choose(monkeypatch, CONTAINERS)
    beside = matrix.model_copy(update={"environments": [*matrix.environments, Environment(torch="host")]})

    def nowhere(inside: Path) -> None:
        raise InfrastructureError("torch: host: /usr/bin/python3 has no torch", "name one")

    monkeypatch.setattr(doctor, "find_host_python", nowhere)
    check = examined(beside)["the host's PyTorch"]
    assert check.needed and not check.ok and "has no torch" in check.found and check.remedy == "name one"
    monkeypatch.setattr(doctor, "find_host_python", lambda inside: "/usr/bin/python3 (3.12, PyTorch 2.11.0)")
    checks = examined(beside)
    assert checks["the host's PyTorch"].ok and checks["C++ compiler"].needed and not checks["C++ compiler"].ok
    assert bool(checks.keys() & {"disk", "Python 3.11"}) == (executor == "venv")
    assert "the host's PyTorch" not in examined(matrix)


def test_a_bundle_that_is_named_is_looked_at_instead(
    matrix: Matrix, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KERNEL_MATRIX_BUNDLE", str(tmp_path))
    checks = examined(matrix)
    check = checks[f"bundle {tmp_path}"]
    assert check.needed and not check.ok and "not a bundle" in check.found and "bundle" in check.remedy
    assert "C++ compiler" not in checks and f"index {PYPI}" not in checks, "the bundle brings them"
    good = Choice(executor="bundle", reason="a bundle of today for sm_90")
    monkeypatch.setattr(doctor, "choose_bundle", lambda folder: good)
    assert examined(matrix)[f"bundle {tmp_path}"].ok


def test_a_python_without_headers_is_not_enough(matrix: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Interpreter(path="/usr/bin/python3.11", version="3.11.2", headers=False)
    monkeypatch.setattr(doctor, "installed", lambda version: (found,))
    check = examined(matrix)["Python 3.11"]
    assert not check.ok and "without headers" in check.found


def test_a_probe_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(indexes, "probe_index", lambda index: asked.append(index) or "down")
    assert [remembered_probe("https://a"), remembered_probe("https://a")] == ["down"] * 2 and asked == ["https://a"]
    (tmp_path / "probes.json").write_text("{")
    assert remembered_probe("https://a") == "down" and len(asked) == 2, "a damaged memory is no memory"


def test_strict_and_a_missing_fallback_refuse(matrix: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes, "probe_index", lambda index: "" if index == PYPI else "down")
    chosen, reasons = choose_indexes(matrix, strict=False)
    assert set(chosen.values()) == {PYPI} and set(reasons.values()) == {"down"}
    with pytest.raises(InfrastructureError, match="--strict refuses"):
        choose_indexes(matrix, strict=True)
    alone = [e.model_copy(update={"fallback_index": None}) for e in matrix.environments]
    with pytest.raises(InfrastructureError, match="down"):
        choose_indexes(matrix.model_copy(update={"environments": alone}), strict=False)


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
