"""Which bundle is used, and whether it suits this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.config.environments import PYPI
from harness.errors import InfrastructureError, InputError
from harness.isolate import choose
from harness.isolate.bundle.executor import choose_bundled_index, plain_id, unsuitable
from harness.isolate.bundle.manifest import load_bundle
from harness.isolate.bundle.namespaces import Namespaces
from harness.isolate.choose import choose_bundle, wanted_bundle
from harness.run.prepare import bundled_indexes
from tests.unit.bundles import ALL, ID, make_unpacked
from tests.unit.test_host import WITH_HOST
from tests.unit.test_matrix import parse_matrix

H200 = ("NVIDIA H200", "90", "580.159.04")


@pytest.fixture
def unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(choose, "models", list)
    monkeypatch.setattr(choose, "probe_namespaces", lambda bundle: ALL)
    return make_unpacked(tmp_path / "bundle")


def test_a_folder_that_is_named_asks_for_its_executor(tmp_path: Path) -> None:
    there = {choose.BUNDLE_VARIABLE: str(tmp_path / "b")}
    assert wanted_bundle("auto", tmp_path, {}) == tmp_path
    assert wanted_bundle("bundle", tmp_path, there) == tmp_path
    assert wanted_bundle("bundle", None, there) == wanted_bundle("auto", None, there) == tmp_path / "b"
    assert wanted_bundle("auto", None, {}) is None
    assert wanted_bundle("venv", None, there) is None, "what is asked for on the command line wins"


def test_contradictions_are_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--executor venv uses none"):
        wanted_bundle("venv", tmp_path, {})
    with pytest.raises(InputError, match="which one") as caught:
        wanted_bundle("bundle", None, {})
    assert choose.BUNDLE_VARIABLE in caught.value.remedy


def test_the_reason_tells_date_architecture_and_confinement(unpacked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choice = choose_bundle(unpacked)
    assert choice.executor == "bundle" and choice.reason.startswith("a bundle of 2026-01-02 for sm_90; sandboxes")
    assert "without seccomp filter and memory limit" in choice.reason and "network" not in choice.reason
    few = Namespaces(rootless=True, granted=("pid",))
    monkeypatch.setattr(choose, "probe_namespaces", lambda bundle: few)
    said = choose_bundle(unpacked).reason
    assert "in a user namespace" in said and "the network is the machine's" in said and "processes are seen" not in said


def test_a_machine_of_another_kind_and_a_path_with_a_colon(unpacked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked.rename(unpacked.with_name("a:b"))
    with pytest.raises(InputError, match="colon"):
        choose_bundle(unpacked.with_name("a:b"))
    unpacked.with_name("a:b").rename(unpacked)
    monkeypatch.setattr(choose.platform, "machine", lambda: "aarch64")
    with pytest.raises(InputError, match="this machine is aarch64"):
        choose_bundle(unpacked)


@pytest.mark.parametrize(
    ("gpus", "said"),
    [
        ([], ""),
        ([H200], ""),
        ([("T400", "75", "580.1"), H200], ""),
        ([("NVIDIA A100", "80", "580.1")], "sm_90 alone, and this machine's NVIDIA A100 is sm_80"),
        ([("NVIDIA H200", "90", "525.9.1")], "driver is 525.9.1; the bundle's CUDA needs 525.60.13"),
        ([("NVIDIA H200", "90", "1000.1")], ""),
    ],
)
def test_the_gpu_and_its_driver_are_asked_first(
    unpacked: Path, monkeypatch: pytest.MonkeyPatch, gpus: list[tuple[str, str, str]], said: str
) -> None:
    problem, remedy = unsuitable(load_bundle(unpacked), gpus)
    assert (said in problem and bool(problem) == bool(said)) and bool(remedy) == bool(said)
    monkeypatch.setattr(choose, "models", lambda: gpus)
    if said:
        with pytest.raises(InfrastructureError):
            choose_bundle(unpacked)


def test_indexes_are_those_it_was_packed_from(unpacked: Path) -> None:
    there = load_bundle(unpacked)
    assert choose_bundled_index(there, "torch2.5.0-cu121-py311", ID) == (PYPI, True)
    assert choose_bundled_index(there, ID, "other") == (PYPI, False)
    assert choose_bundled_index(there, f"{ID}-r3", "other") == (PYPI, False), "replicas share one"
    with pytest.raises(InputError, match=r"has no torch2.1.0-cu121-py311; it has torch2.5.0"):
        bundled_indexes(parse_matrix(WITH_HOST), there, strict=False)
    text = WITH_HOST.replace('  - {torch: "2.1.0", cuda: "12.1", python: "3.11"}\n', "").replace(
        'baseline: "2.1.0"', "baseline: host"
    )
    with pytest.raises(InfrastructureError, match="--strict refuses"):
        bundled_indexes(parse_matrix(text), there, strict=True)
    indexes, reasons = bundled_indexes(parse_matrix(text), there, strict=False)
    assert indexes == {"torch2.5.0-cu121-py311": PYPI} and "packed" in reasons["torch2.5.0-cu121-py311"]


def test_ids_of_replicas() -> None:
    assert [plain_id(id) for id in (ID, f"{ID}-r12", "host-r1")] == [ID, ID, "host"]
