"""Times with their unit, and commands that reproduce a run where it ran."""

from __future__ import annotations

import pytest

from reports.text import brief_time, eval_command, matrix_command, place_options, time_text


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


@pytest.mark.parametrize(
    ("value", "text"),
    [(800.04, "800.0 µs"), (1234.5, "1.234 ms"), (2.5e6, "2.500 s"), (0.5, "0.5 µs"), (None, "—")],
)
def test_times_carry_their_unit(value: float | None, text: str) -> None:
    assert time_text(value) == text


def test_a_brief_time_never_shows_a_power_of_ten() -> None:
    assert brief_time(3530.0, "+") == "+3.53 ms" and brief_time(-386.4, "+") == "-386 \N{MICRO SIGN}s"
    assert brief_time(999.9) == "1 ms" and brief_time(0.0) == "0 \N{MICRO SIGN}s"
