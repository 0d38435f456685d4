"""The manifest: what is no bundle, and when two proofs agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.errors import InfrastructureError, InputError
from harness.isolate.bundle.manifest import BundleManifest, Proof, load_bundle, parse_manifest, render_contents
from harness.worker import codec, wire
from tests.messages import answered
from tests.unit.bundles import ENVIRONMENTS, ID, PROOF, entry, make_unpacked, manifest, save_unpacked


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    return make_unpacked(tmp_path, environments=dict.fromkeys(ENVIRONMENTS, entry()))


def problem(folder: Path, kind: type[Exception] = InputError) -> str:
    with pytest.raises(kind) as caught:
        load_bundle(folder)
    assert getattr(caught.value, "remedy", "")
    return str(caught.value)


def test_an_unpacked_bundle_is_read(unpacked: Path) -> None:
    bundle = load_bundle(unpacked)
    assert bundle.environments == ENVIRONMENTS and bundle.manifest.architecture == "90"
    assert bundle.environment(ID) == unpacked.resolve() / "environments" / ID
    assert bundle.entry(ID).image.startswith("sha256:")
    with pytest.raises(InputError, match=r"the bundle has no torch9; it has torch2\.1\.0"):
        bundle.entry("torch9")


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        (("complete.json", "manifest.json"), "not an unpacked bundle"),
        (("manifest.json",), "damaged"),
        (("root",), "root: missing"),
        (("python",), "python: missing"),
        ((f"environments/{ID}",), f"environments/{ID}: missing"),
    ],
)
def test_what_is_no_whole_bundle_is_said(unpacked: Path, missing: tuple[str, ...], said: str) -> None:
    for name in missing:
        (unpacked / name).rename(unpacked / "elsewhere")
    assert said in problem(unpacked)


def test_what_is_not_complete_is_said(unpacked: Path) -> None:
    (unpacked / "complete.json").unlink()
    assert "not unpacked to the end" in problem(unpacked, InfrastructureError)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        *(
            ("complete.json", text, "damaged")
            for text in ("", "[]", "{}", '{"manifest_sha256": "x"}', '{"manifest_sha256": 1, "environments": 2}')
        ),
        ("manifest.json", json.dumps(manifest(architecture="80")), "not the manifest that was unpacked"),
    ],
)
def test_a_changed_file_is_said(unpacked: Path, name: str, text: str, said: str) -> None:
    (unpacked / name).write_text(text)
    assert said in problem(unpacked)


def test_another_schema_version_is_said_before_anything_else(unpacked: Path) -> None:
    save_unpacked(unpacked, {"schema_version": 2, "unheard": "of"})
    assert "schema version 2; this harness reads 1" in problem(unpacked)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"architecture": "9.0"}, "architecture"),
        ({"machine": "aarch64"}, "machine"),
        ({"unheard": "of"}, "unheard"),
        ({"parts": [{"name": "../../x", "sha256": "0" * 64, "bytes": 1, "archive": "shared"}]}, "parts.0.name"),
        ({"environments": {"../x": {}}}, "environments"),
        ({"schema_version": None}, "schema_version"),
    ],
)
def test_a_wrong_manifest_is_named_by_place(unpacked: Path, change: dict[str, Any], place: str) -> None:
    save_unpacked(unpacked, manifest(**change))
    said = problem(unpacked)
    assert "the manifest is damaged" in said and place in said


def test_a_manifest_that_is_no_json_is_said() -> None:
    with pytest.raises(InputError, match="Invalid JSON"):
        parse_manifest(b"\xff{", "manifest.json")


def test_the_contents_for_the_shell_say_what_the_manifest_says() -> None:
    archive = {"packed_bytes": 2, "unpacked_bytes": 9, "files": 3, "tree_sha256": "5" * 64}
    part = {"name": "shared.tar.zst.000", "sha256": "4" * 64, "bytes": 2, "archive": "shared"}
    model = BundleManifest.model_validate(manifest(archives={"shared": archive}, parts=[part]))
    assert render_contents(model, "6" * 64).splitlines() == [
        "format 1",
        "manifest " + "6" * 64,
        "machine x86_64",
        "architecture 90",
        "driver 525.60.13",
        "archive shared 9 3",
        "part shared shared.tar.zst.000 2 " + "4" * 64,
        "end 7",
    ]


def seen(**changes: Any) -> wire.ProveResult:
    return codec.read(wire.ProveResult, answered(**{**PROOF, **changes}))


def on(**changes: Any) -> dict[str, Any]:
    return {**PROOF["machine"], **changes}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (seen(), ""),
        (seen(digests={"cpu/matmul/fp32": "c" * 64}), "cpu/matmul/fp32: not the bits of before packing"),
        (seen(digests={}), "computed before packing, and not here"),
        (seen(digests={"cpu/matmul/fp32": "c" * 64}, machine=on(fma=False)), ""),
        (seen(digests={"cpu/matmul/fp32": "a" * 64, "cuda/matmul/fp16": "d" * 64}, machine=on(gpu="H200")), ""),
        (seen(libraries=[]), "torch/lib/libtorch.so: loaded before packing, and not here: it is not there"),
        (seen(libraries=[], unloadable={"torch/lib/libtorch.so": "bad"}), "and not here: bad"),
        (seen(failures={"cuda/flash/fp16": "no kernel image", "x": "y"}), "cuda/flash/fp16: no kernel image (2 such)"),
    ],
)
def test_when_two_proofs_agree(result: wire.ProveResult, said: str) -> None:
    found = Proof.model_validate(PROOF).problem_with(result)
    assert (said in found) if said else found == ""


def test_results_of_a_gpu_are_compared_between_equal_gpus_with_equal_drivers() -> None:
    machine = on(gpu="H200", driver="550.1")
    proof = Proof.model_validate({**PROOF, "machine": machine})
    digests = {"cpu/matmul/fp32": "a" * 64, "cuda/matmul/fp16": "d" * 64}
    assert "cuda/matmul/fp16" in proof.problem_with(seen(digests=digests, machine=machine))
    assert proof.problem_with(seen(digests=digests, machine=on(gpu="H200", driver="570.1"))) == ""
    assert proof.problem_with(seen(digests={"cpu/matmul/fp32": "a" * 64})) == "", "and not where there is none"
