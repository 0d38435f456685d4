from __future__ import annotations

import pytest

from reports.text import eval_command, matrix_command, place_options


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([], []),
        (["--quick", "--fresh"], []),
        (["--executor", "docker", "--quick"], ["--executor", "docker"]),
        (["--base-image=kernel-matrix/base:x", "--kernel", "k"], ["--base-image=kernel-matrix/base:x"]),
        (["--base-image", "a b; rm -rf /"], ["--base-image", "'a b; rm -rf /'"]),
        (["--base-image"], ["--base-image", "''"]),
        (["--problems=p/level1", "--solutions=s", "--quick"], ["--problems=p/level1", "--solutions=s"]),
    ],
)
def test_what_reproduces_a_run_runs_where_it_ran(given: list[str], kept: list[str]) -> None:
    assert place_options(["nox", "-s", "matrix", "--", *given]) == kept


def test_commands_carry_the_place() -> None:
    place = ["--executor", "docker"]
    assert matrix_command(place, kernel="k", workload="seed-fp32", device="cpu") == (
        "nox -s matrix -- --kernel k --workload seed-fp32 --device cpu --executor docker"
    )
    assert matrix_command() == "nox -s matrix"
    assert eval_command(place, "2.5.0", kernel="k") == (
        "nox -s \"eval(torch='2.5.0')\" -- --kernel k --executor docker"
    )
