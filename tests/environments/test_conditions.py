"""The verbs of the experiments, by the interpreters of real pinned environments, on kernels with one fault each."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.experiments.condition_list import HEAD_DIMS, PATTERNS, conditions_of, size_conditions
from harness.experiments.probes import FOLDER
from harness.schema.experiment_records import Condition, ConditionResult
from harness.stats.shrink import points_of, shrink, smallest
from tests.candidates.faulty import SOURCE, STRIDES
from tests.conftest import ROOT
from tests.environments.verbs import REFERENCES, Environment, jobs_of, kernel_of, stage, weighed, workload
from tests.messages import left
from tests.unit import hand_made

pytestmark = [pytest.mark.environments, pytest.mark.timeout(600)]

CASE = workload(head_dim=64)


def faulty_library(folder: Path) -> Path:
    """The faulty kernel by its C interface, as one of another environment comes: its OpenMP is PyTorch's own."""
    (source := folder / "faulty.cpp").write_text(SOURCE)
    compiled, library = source.with_suffix(".o"), source.with_suffix(".so")
    flags = ["-O1", "-std=c++17", "-fPIC", "-fopenmp", f"-I{ROOT / 'csrc'}"]
    subprocess.run(["c++", "-c", *flags, source, "-o", compiled], check=True)
    subprocess.run(["c++", "-shared", "-pthread", compiled, "-o", library], check=True)
    return library


class Bench:
    """One environment, the faulty kernel and its probe."""

    def __init__(self, environment: Environment, faulty: Path) -> None:
        self.environment = environment
        self.out = environment.folder / "conditions"
        self.probe = environment.folder / "poison.so"
        self.faulty = {"name": "faulty", "device": "cpu", "library": str(faulty)}

    def library(self, source: Path, out: Path, architecture: str = "") -> dict[str, Any]:
        request = {"source": str(source), "out": str(out), "architecture": architecture}
        return self.environment.result("library", request)

    def run(
        self, conditions: list[Condition], fault: str, *, artifact: str = "", **asked: Any
    ) -> tuple[list[ConditionResult], int]:
        """(results of all conditions whose job ended, the process's exit code) of the kernel with a fault."""
        return self.environment.conditions(
            kernel_of(artifact) if artifact else self.faulty,
            CASE,
            conditions,
            self.out,
            libraries={"stack": str(self.probe)},
            FAULTY_KERNEL=fault,
            **asked,
        )


@pytest.fixture(scope="module")
def benches(pinned_pythons: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Bench]]:
    faulty = faulty_library(tmp_path_factory.mktemp("faulty"))
    staged = [stage(python, tmp_path_factory.mktemp(f"bench{i}")) for i, python in enumerate(pinned_pythons)]
    made = [Bench(environment, faulty) for environment in staged]
    for bench in made:
        compiled = bench.library(FOLDER / "poison.cpp", bench.probe)
        assert compiled["status"] == "ok", compiled
    yield made


@pytest.fixture(params=[0, 1], ids=["first", "second"])
def bench(benches: list[Bench], request: pytest.FixtureRequest) -> Bench:
    if request.param >= len(benches):
        pytest.skip("one environment alone was named")
    return benches[request.param]


def on(site: Any) -> list[Condition]:
    return [Condition(label=pattern, site=site, pattern=pattern) for pattern in PATTERNS]


def everything() -> list[Condition]:
    names = ("inputs", "predecessor", "poison")
    listed = [c for e in names for c in conditions_of(e, "cpu", REFERENCES, problem=False)]  # type: ignore[arg-type]
    return [c for c in listed if c.before != "fresh"]


def bits(result: ConditionResult) -> str:
    return json.dumps(result.output_sha256)


def test_a_right_kernel_is_right_under_every_condition(bench: Bench) -> None:
    results, code = bench.run(everything(), "none")
    assert code == 0 and len(results) == len(everything())
    for result in results:
        refused = result.condition.layout == "strided"
        assert result.status == ("unsupported" if refused else "ok"), (result.condition, result.message)
        assert refused or (result.passed == result.runs == 4 and 0 < (result.max_units or 0) < 4)
    same = [r for r in results if r.condition.recipe == "independent" and r.status == "ok"]
    assert len({bits(r) for r in same}) == 1 and len({str(r.input_sha256) for r in results if r.runs}) == 11
    assert [r.scales for r in results if r.condition.recipe in ("halved_4", "halved_8")] == [True, True]
    assert all(within == [[True] * 2] * 2 for r in results if r.runs for within in [r.within])


@pytest.mark.parametrize(
    ("fault", "site", "innocent"),
    [
        ("heap", "heap", ["stack"]),
        ("stack", "stack", ["output"]),
        ("thread", "stack", ["output"]),
        ("pool", "stack", ["output"]),
        ("unwritten", "output", ["stack", "heap", "around"]),
        ("beyond", "around", ["output"]),
    ],
)
def test_who_reads_what_nobody_wrote_depends_on_the_pattern(
    bench: Bench, fault: str, site: str, innocent: list[str]
) -> None:
    sites = ("output", "around", "stack", "heap")
    results, _ = bench.run([condition for name in sites for condition in on(name)], fault)
    by_site = {name: {bits(r) for r in results if r.condition.site == name} for name in sites}
    assert len(by_site[site]) == 4, [r.message for r in results if r.condition.site == site]
    if site not in ("output", "around"):  # whose zeros are no right answer
        zero = next(r for r in results if (r.condition.site, r.condition.pattern) == (site, "zero"))
        assert zero.passed == zero.runs
    assert next(r for r in results if (r.condition.site, r.condition.pattern) == (site, "nan")).nonfinite == 4
    if fault == "unwritten":
        assert all(len(by_site[name]) == 1 for name in innocent)


CLEARED = """
import torch
from harness.worker import poisoning
ones = torch.ones(7, 5)
for pattern in ("nan", "max"):
    wanted = poisoning.PrefillRequest("cpu", pattern, poisoning.tile(pattern, "float32"), 0, None)
    site = poisoning.SITES["around"](wanted)
    placed = site.place(ones)
    assert torch.equal(placed, ones) and placed.data_ptr() % 512 == 0
    whole = torch.empty(0).set_(placed.untyped_storage())
    assert (whole == 1).sum() == 35 and not (whole == 0).any()
    site.after()
    assert not whole.any()
"""


def test_what_was_filled_around_an_input_is_cleared_before_it_is_freed(pinned_pythons: list[Path]) -> None:
    """Else a kernel that reads its scratch uninitialised would follow it."""
    for python in pinned_pythons:
        subprocess.run([str(python), "-c", CLEARED], cwd=ROOT, check=True)


def test_what_one_call_leaves_for_the_next_shows_in_a_fresh_process(bench: Bench) -> None:
    fresh, _ = bench.run([Condition(label="first", before="fresh")], "remembers", trials=1, repeats=1)
    after, _ = bench.run([Condition(label="after itself"), Condition(label="after", before="flash")], "remembers")
    assert (fresh[0].status, fresh[0].passed) == ("ok", 1)
    assert [(r.status, r.passed) for r in after] == [("wrong", 0), ("wrong", 0)]
    assert (
        fresh[0].input_sha256[0] == after[0].input_sha256[0] and fresh[0].output_sha256[0] != after[0].output_sha256[0]
    )


def test_a_reference_that_cannot_run_says_so(bench: Bench) -> None:
    results, _ = bench.run([Condition(label="x", before="cudnn"), Condition(label="y")], "none")
    assert results[0].status == "not_run" and "cudnn cannot run: " in results[0].message
    assert results[1].status == "ok"


def test_inputs_that_show_what_others_mask(bench: Bench) -> None:
    recipes = conditions_of("inputs", "cpu", REFERENCES, problem=False)
    tail, _ = bench.run(recipes, "tail")
    units = {r.condition.recipe: r for r in tail if r.condition.layout == "contiguous"}
    assert units["constant_v"].status == "ok", "every weighting of equal rows is that row"
    assert units["dominant_tail"].status == "wrong" and units["dominant_tail"].passed == 0
    steep, _ = bench.run(recipes, "nomax")
    wrong = {r.condition.recipe for r in steep if r.status == "wrong"}
    assert {"steep_logits", "offset_logits"} <= wrong and not wrong & {"independent", "large_logits", "constant_v"}
    assert all(r.nonfinite for r in steep if r.condition.recipe == "offset_logits")


def test_other_sizes_show_where_a_tile_ends(bench: Bench) -> None:
    own = {"batch": 1, "heads": 2, "seq_len": 37, "head_dim": 64}
    listed = size_conditions(hand_made.workload(**own))
    tail, code = bench.run(listed, "tail", trials=1, repeats=1)
    points = points_of(tail, own)
    assert code == 0 and all(each.right == (each.sizes["seq_len"] % 16 == 0) for each in points)
    assert {each.sizes["heads"] for each in points} == {1, 2, 3, 4}
    assert {each.sizes["head_dim"] for each in points} == {64, *HEAD_DIMS}
    assert smallest(points, own) == {**own, "heads": 1, "seq_len": 1} and not shrink(points, own)
    right, _ = bench.run(listed, "none", trials=1, repeats=1)
    assert all(r.status == "ok" and r.runs == 1 and (r.max_units or 0) < 4 for r in right)


def test_smaller_inputs_tell_a_range_from_an_algorithm(bench: Bench) -> None:
    listed = [Condition(label=r, recipe=r) for r in ("independent", "halved_4", "halved_8")]
    narrow, _ = bench.run(listed, "narrow")
    assert [r.status for r in narrow] == ["wrong", "ok", "ok"] and narrow[0].within == [[False] * 2] * 2
    scale, _ = bench.run(listed, "scale")
    assert [r.status for r in scale] == ["wrong"] * 3, "the weights are the same at any size"


def test_ignored_strides_are_wrong(benches: list[Bench]) -> None:
    """Of an extension, which is compiled against PyTorch's headers: in one version."""
    listed = [c for c in conditions_of("inputs", "cpu", REFERENCES, problem=False) if c.recipe == "independent"]
    built = benches[0].environment.build("strides", STRIDES)
    assert built["status"] == "ok", built["log_excerpt"]
    ignoring, _ = benches[0].run(listed, "none", artifact=built["artifact"])
    assert {r.condition.layout: r.status for r in ignoring} == {
        "contiguous": "ok",
        "offset": "ok",
        "misaligned": "ok",
        "strided": "wrong",
    }


def test_a_race_gives_other_bits(bench: Bench) -> None:
    listed = [Condition(label="alone"), Condition(label="beside", load="beside")]
    for _ in range(10):  # on a busy machine the two threads may take turns
        results, _ = bench.run(listed, "race", trials=1, repeats=50)
        if any(len(set(r.output_sha256[0])) > 1 for r in results):
            break
    assert any(len(set(r.output_sha256[0])) > 1 and r.passed < r.runs == 50 for r in results)
    steady, _ = bench.run(listed, "none", trials=1, repeats=50)
    assert [len(set(r.output_sha256[0])) for r in steady] == [1, 1]


def test_a_slow_kernel_runs_on_fewer_trials(bench: Bench) -> None:
    several, _ = bench.run([Condition(label="a")], "none", trials=5, patience_s=0)
    assert several[0].runs == 4 and [len(d) for d in several[0].output_sha256] == [2, 2]
    same, _ = bench.run([Condition(label="a")], "none", trials=1, repeats=50, patience_s=0)
    assert same[0].runs == same[0].passed == 4


def test_a_crash_leaves_what_was_done_before(bench: Bench) -> None:
    listed = [Condition(label="a"), Condition(label="b", recipe="steep_logits"), Condition(label="c")]
    results, code = bench.run(listed, "abort")
    assert code == -6 and [(r.condition.label, r.status) for r in results] == [("a", "ok")]
    assert (bench.out / "1").is_dir() and not (bench.out / "2").exists()


def test_what_a_process_says_of_itself_is_not_believed(bench: Bench) -> None:
    bench.run([Condition(label="a")], "none")
    said = left(bench.out / "0" / "done.json")
    cases: list[tuple[Any, str, str]] = [
        (said, "ok", ""),
        ({**said, "shape": [1, 2, 3]}, "wrong", "expected (1, 2, 37, 64) float32"),
        ({**said, "status": "timed_out"}, "crashed", "cannot be read"),
        ({**said, "ran": [2, 3]}, "crashed", "cannot be read"),
        ({**said, "ran": []}, "crashed", "cannot be read"),
        ({**said, "ran": [0, 2]}, "crashed", "cannot be read"),
        (said, "wrong", "5 bytes; expected"),
        (said, "wrong", "links are not followed"),
    ]
    for number in range(1, len(cases)):
        shutil.copytree(bench.out / "0", bench.out / str(number))
    (bench.out / "6" / "1-1.bin").write_bytes(b"short")
    (bench.out / "7" / "1-1.bin").unlink()
    (bench.out / "7" / "1-1.bin").symlink_to("1-0.bin")
    listed = [Condition(label=str(number)) for number in range(len(cases))]
    jobs = [weighed(job, done) for job, (done, _, _) in zip(jobs_of(listed, 2, 2), cases, strict=True)]
    results = bench.environment.weigh(jobs, listed, CASE, bench.out)
    for result, (_, status, words) in zip(results, cases, strict=True):
        assert result.status == status and words in result.message


def test_a_site_whose_probe_is_missing_is_not_run(bench: Bench) -> None:
    bench.probe.rename(bench.probe.with_suffix(".away"))
    try:
        results, _ = bench.run([*on("stack"), *on("output")], "none")
    finally:
        bench.probe.with_suffix(".away").rename(bench.probe)
    assert [r.status for r in results] == ["not_run"] * 4 + ["ok"] * 4
    assert "cannot be loaded" in results[0].message


def test_a_probe_that_does_not_compile_says_why(benches: list[Bench]) -> None:
    broken = benches[0].environment.folder / "broken.cpp"
    broken.write_text("int f() { return undeclared; }\n")
    result = benches[0].library(broken, broken.with_suffix(".so"))
    assert result["status"] == "build_failed" and "undeclared" in result["message"]


def test_a_cuda_probe_without_a_compiler_is_not_run_or_compiles(benches: list[Bench]) -> None:
    out = benches[0].environment.folder / "shared.so"
    result = benches[0].library(FOLDER / "poison.cu", out, "sm_90")
    if result["status"] == "not_run":
        assert "nvcc" in result["message"]
    else:
        assert result["status"] == "ok", result["log_excerpt"]
        symbols = subprocess.run(["nm", "-D", str(out)], capture_output=True, text=True).stdout
        assert "poison_shared" in symbols
