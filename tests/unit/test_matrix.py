from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from harness.config.environments import PYPI, threads_in
from harness.config.matrix import json_schema, load_matrix, parse_matrix
from harness.errors import BAD_INPUT, InputError

SMALL = """\
schema_version: 1
baseline: "2.1.0"
environments:
  - {torch: "2.1.0", cuda: "12.1", python: "3.11"}
  - {torch: "2.5.0", cuda: "12.1", python: "3.11"}
packages: [numpy==1.26.4, ninja==1.11.1.1, setuptools==69.5.1]
kernels:
  - {name: mine, sources: {cpu: [mine.cpp]}}
workloads:
  - {name: small, shape: {batch: 1, heads: 1, seq_len: 8, head_dim: 64}, dtypes: {cpu: [float32]}}
"""


def with_replica(text: str) -> str:
    """The last environment as a replica."""
    return text.replace('python: "3.11"}\npackages', 'python: "3.11", replica: 1}\npackages')


def refusal(text: str) -> str:
    with pytest.raises(InputError) as caught:
        parse_matrix(text)
    assert caught.value.code == BAD_INPUT
    assert caught.value.remedy, "an error without a way out"
    return str(caught.value)


def test_the_shipped_matrix_is_accepted_and_has_what_it_promises(root: Path) -> None:
    matrix, _ = load_matrix(root / "matrix.yaml")
    assert [e.torch for e in matrix.environments] == ["2.1.0", "2.5.0"]
    assert {e.cuda for e in matrix.environments} == {"12.1"}
    assert matrix.baseline_environment.torch == "2.1.0"
    seed = next(w for w in matrix.workloads if w.name == "seed")
    assert (seed.shape.batch, seed.shape.heads, seed.shape.seq_len, seed.shape.head_dim) == (1, 8, 512, 64)
    assert {w.shape.seq_len for w in matrix.workloads} >= {239, 1023}


def test_three_more_lines_add_an_environment_a_kernel_or_a_workload(root: Path) -> None:
    added = {
        "environments": '  - torch: "2.4.1"\n    cuda: "12.1"\n    python: "3.11"\n',
        "kernels": "  - name: mine\n    sources:\n      cpu: [csrc/mine.cpp]\n",
        "workloads": "  - name: wide\n    shape: {batch: 1, heads: 2, seq_len: 64, head_dim: 128}\n"
        "    dtypes: {cpu: [float32]}\n",
    }
    text = (root / "matrix.yaml").read_text()
    for section, lines in added.items():
        assert lines.count("\n") == 3
        text = text.replace(f"\n{section}:\n", f"\n{section}:\n{lines}")
    matrix = parse_matrix(text)
    assert matrix.environments[0].id() == "torch2.4.1-cu121-py311"
    assert (matrix.kernels[0].name, matrix.workloads[0].name) == ("mine", "wide")


def test_ids_are_derived() -> None:
    matrix = parse_matrix(with_replica(SMALL))
    assert [e.id() for e in matrix.environments] == ["torch2.1.0-cu121-py311", "torch2.5.0-cu121-py311-r1"]
    assert matrix.environments[0].id(PYPI) == "torch2.1.0-pypi-py311"
    assert matrix.environments[0].wheel_index == "https://download.pytorch.org/whl/cu121"


@pytest.mark.parametrize("name", ["2.5.0", "torch2.5.0-cu121-py311", "torch2.5.0-pypi-py311"])
def test_the_baseline_is_named_by_version_or_by_either_id(name: str) -> None:
    assert parse_matrix(SMALL.replace('baseline: "2.1.0"', f'baseline: "{name}"')).baseline_environment.torch == "2.5.0"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("baseline", "baselin", ["baselin"]),
        ('baseline: "2.1.0"', 'baseline: "3.0.0"', ["baseline", "3.0.0", "2.1.0, 2.5.0"]),
        ("[mine.cpp]", "[../../etc/passwd]", ["kernels[0].sources.cpu[0]", "inside the folder"]),
        ("[mine.cpp]", "[/etc/passwd]", ["inside the folder"]),
        ("name: mine", "name: '<script>'", ["kernels[0].name", "<script>"]),
        ("seq_len: 8", "seq_len: true", ["workloads[0].shape.seq_len", "True (bool)"]),
        ('"2.1.0", cuda', '"2.1.0", variables: {LD_PRELOAD: x.so}, cuda', ["environments[0].variables", "loads code"]),
        ('"2.1.0", cuda', '"2.1.0", variables: {PYTHONPATH: x}, cuda', ["PYTHONPATH", "remove it"]),
        ('"2.1.0", cuda', '"2.1.0", variables: {NVCC_APPEND_FLAGS: -G}, cuda', ["NVCC_APPEND_FLAGS", "under flags"]),
        ('"2.1.0", cuda', '"2.1.0", variables: {OMP_NUM_THREADS: "0"}, cuda', ["OMP_NUM_THREADS", "'0'"]),
        ('"2.1.0", cuda', '"2.1.0", variables: {MKL_CBWR: "a\\nb"}, cuda', ["MKL_CBWR", "one line"]),
        ('"2.1.0", cuda', '"2.1.0", flags: {ld: [-lm]}, cuda', ["environments[0].flags.ld", "unknown key"]),
    ],
)
def test_a_wrong_value_is_named_with_its_path(old: str, new: str, said: list[str]) -> None:
    assert old in SMALL
    message = refusal(SMALL.replace(old, new))
    for part in ["matrix.yaml", *said]:
        assert part in message


@pytest.mark.parametrize(
    ("old", "new", "problems", "remedies"),
    [
        ("seq_len: 8", "seqlen: 8", ["workloads[0].shape.seqlen: unknown key"], ["did you mean 'seq_len'?"]),
        (
            "seq_len: 8, head_dim: 64",
            "seqlen: 8, headdim: 0",
            ["workloads[0].shape.seqlen: unknown key", "workloads[0].shape.headdim: unknown key"],
            ["shape.seqlen: did you mean 'seq_len'?", "shape.headdim: did you mean 'head_dim'?"],
        ),
        (
            "seq_len: 8",
            "tile: 8",
            ["workloads[0].shape.tile: unknown key", "workloads[0].shape.seq_len: missing"],
            ["remove it; the keys here are batch, heads, seq_len, head_dim", "shape.seq_len: add it"],
        ),
        (
            "{batch: 1, heads: 1, seq_len: 8, head_dim: 64}",
            "512",
            ["workloads[0].shape: expected keys with values, got 512 (int)"],
            ["such as shape: {batch: 1, heads: 8, seq_len: 512, head_dim: 64}"],
        ),
        ("[float32]", "[float8]", ["must be 'float16', 'bfloat16' or 'float32', got 'float8'"], ["did you mean float"]),
        (
            ', cuda: "12.1", python: "3.11"}\npackages',
            "}\npackages",
            ["environments[1]: needs cuda and python beside torch 2.5.0"],
            ['add cuda: "12.1" and python: "3.11"'],
        ),
        (
            "schema_version: 1\n",
            "schema_version: 1\nlaunchs: 3\nlaunches: 0\ntolerances: {problem_rounding_units: 3}\n",
            ["tolerances.problem_rounding_units: unknown key", "launchs: unknown key", "launches: must be at least 1"],
            ["did you mean 'launches'?", "remove it: rounding_units holds for problem files too"],
        ),
        (
            "[numpy==1.26.4, ninja==1.11.1.1, setuptools==69.5.1]",
            "",
            ["packages: expected a list, got nothing"],
            ["such as packages: [numpy=="],
        ),
    ],
)
def test_all_that_is_wrong_is_told_with_unknown_keys_first_and_right_values(
    old: str, new: str, problems: list[str], remedies: list[str]
) -> None:
    assert old in SMALL
    said, _, remedy = refusal(SMALL.replace(old, new)).partition("remedy: ")
    places = [said.index(problem) for problem in problems]
    assert places == sorted(places) and said.count("\n") == len(problems), said
    assert all(each in remedy for each in remedies), remedy
    assert not any(word in said + remedy for word in ("valid ", "instance", "Field", "NoneType", "schema.json"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("7", "got 7"),
        ("a: [1", "line 1, column 6"),
        ("a: !custom 1", "tag"),
        ("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]", "anchors and aliases"),
        ("[" * 20_000, "nested too deeply"),
        ("? [a, b]\n: 1", ""),
        ("a: 2026-99-99", "month must be"),
        ("x" * (1 << 21), "larger than"),
        (SMALL.partition("environments:")[0] + "environments: []\n", "environments"),
    ],
)
def test_hostile_or_broken_yaml_is_refused(text: str, said: str) -> None:
    assert said in refusal(text)


def test_an_environment_may_have_flags_and_variables_of_its_own() -> None:
    own = 'flags: {cxx: [-ffast-math], nvcc: [-use_fast_math]}, variables: {OMP_NUM_THREADS: "1", MKL_CBWR: AVX2}'
    first, second = parse_matrix(SMALL.replace('{torch: "2.5.0"', f'{{{own}, torch: "2.5.0"')).environments
    assert (first.flags.cxx, first.flags.nvcc, first.variables) == ([], [], {})
    assert (second.flags.cxx, second.flags.nvcc) == (["-ffast-math"], ["-use_fast_math"])
    assert second.variables == {"OMP_NUM_THREADS": "1", "MKL_CBWR": "AVX2"}
    assert second.id() == "torch2.5.0-cu121-py311", "what it is called is what is installed"
    assert (threads_in(first.variables, 4), threads_in(second.variables, 4)) == (4, 1)


def test_the_committed_json_schema_is_current_and_accepts_the_shipped_matrix(root: Path) -> None:
    committed = json.loads((root / "harness/config/matrix.schema.json").read_text())
    assert committed == json_schema(), "python -m harness schema --write harness/config/matrix.schema.json"
    shipped = yaml.safe_load((root / "matrix.yaml").read_text())
    jsonschema.Draft202012Validator(committed).validate(shipped)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(committed).validate({**shipped, "launchs": 3})


def test_a_key_of_an_earlier_version_is_refused_with_what_to_do() -> None:
    text = SMALL.replace(
        "workloads:\n", "  - {name: slowed, sources: {cpu: [mine.cpp]}, control_of: mine}\nworkloads:\n"
    )
    assert "a kernel like any other" in refusal(text)
