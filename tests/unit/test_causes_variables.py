"""Environments that differ in a variable: it is a rival of whatever else differs, until it was varied alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reports.attribute import causes
from reports.attribute.causes import DECISIVE, STRONG, SUGGESTIVE
from tests.unit.attributed import CODE, FELL, TIMED, Known, Make, by, check, filled, here, of_both, spec, swapped
from tests.unit.experiments import FOLLOWS, STILL, clean, poison, variables
from tests.unit.spec import BASE, NEXT, Case

ALONE: dict[str, Any] = {"variables": {NEXT: {"ATEN_CPU_CAPABILITY": "default"}}}
SET: dict[str, Any] = {**ALONE, "machine_code": CODE}
MEDIUM = {"settings": {NEXT: {"float32_matmul_precision": "medium"}}}
PLACES = ((BASE, BASE), (BASE, NEXT), (NEXT, BASE), (NEXT, NEXT))
GARBAGE = here(Case(passed=0, bits="new", units=400.0, repeats_differ=3, unwritten=8), **ALONE)
DIES = here(Case(status="crashed", message="the kernel's process died by SIGSEGV"), **ALONE)
COARSE = (NEXT, "kernel", Case(units=3.9, bits="new"))
REFUSED = Case(status="unsupported", message="no such head size")
OF_ENVIRONMENT, OF_CODE = causes.ENVIRONMENT_CONFOUNDER, causes.KERNEL_CODE_MOVED


def with_variables(letters: str, bits: str = "AAAA") -> Make:
    """R, W, X for right, wrong, dead: the baseline with its variables and the other's, then the other with these.
    `bits`: a letter for the output of each."""
    told = {"R": True, "W": False, "X": None}
    right = dict(zip(PLACES, (told[letter] for letter in letters), strict=True))
    return by(variables, right, [letter * 2 for letter in bits])


def in_baseline(output: tuple[str, ...]) -> Make:
    return by(poison, {"output": output, "heap": STILL, "stack": STILL}, environment=BASE)


FAULTY = filled(output=FOLLOWS, heap=FOLLOWS, stack=STILL)
KNOWN = {
    "code moved beside a variable": Known(spec(FELL, **SET), [clean], OF_CODE, SUGGESTIVE, also=[OF_ENVIRONMENT]),
    "object code that decides needs no other experiment": Known(
        spec(FELL, **SET), [clean, swapped("AABB")], OF_CODE, DECISIVE
    ),
    "the result goes with the variable, in both": Known(
        spec(FELL, **SET),
        [clean, with_variables("RWRW")],
        OF_ENVIRONMENT,
        DECISIVE,
        never=[OF_CODE],
        says=["ATEN_CPU_CAPABILITY"],
    ),
    "it takes both": Known(spec(FELL, **SET), [clean, with_variables("RRRW")], OF_ENVIRONMENT, STRONG),
    "with the place, whichever variable": Known(spec(FELL, **SET), [clean, with_variables("RRWW")], OF_CODE, STRONG),
    "a variable that is excluded is not named beside the place": Known(
        spec(FELL, **SET, **MEDIUM),
        [clean, swapped("ABAB"), with_variables("RRWW")],
        OF_ENVIRONMENT,
        says=["float32_matmul_precision"],
        silent=["ATEN_CPU_CAPABILITY"],
    ),
    "a variable that brings out a fault in memory is its part": Known(
        spec(FELL, **SET),
        [filled(output=FOLLOWS, heap=STILL, stack=STILL), with_variables("RWRW")],
        causes.UNINITIALISED_HOST,
        also=[OF_ENVIRONMENT],
    ),
    # Where it is right, it notices no filling of its memory: then what made it wrong leads.
    "a fault in memory that the variables bring": Known(
        GARBAGE,
        [FAULTY, in_baseline(STILL), with_variables("RWRW")],
        OF_ENVIRONMENT,
        STRONG,
        also=[causes.UNINITIALISED_HOST],
    ),
    "it reads there too, and is right by luck": Known(
        GARBAGE, [FAULTY, in_baseline(FOLLOWS), with_variables("RWRW")], causes.UNINITIALISED_HOST
    ),
    "whether it does was not tried": Known(GARBAGE, [FAULTY, with_variables("RWRW")], causes.UNINITIALISED_HOST),
    "the variable is not all": Known(
        GARBAGE, [FAULTY, in_baseline(STILL), with_variables("RWWW")], causes.UNINITIALISED_HOST
    ),
    # One death is the end of all runs under them.
    "a process dies by the variables": Known(
        DIES, [in_baseline(STILL), with_variables("RXRX")], OF_ENVIRONMENT, also=[causes.OUT_OF_BOUNDS]
    ),
    "it dies under either's at times": Known(DIES, [in_baseline(STILL), with_variables("RXXX")], causes.OUT_OF_BOUNDS),
    "what is refused in both is no matter of a variable": Known(
        of_both(REFUSED, **SET), [], causes.UNSUPPORTED_COMBINATION, DECISIVE
    ),
    "only its exactness moved, and its bits go with the variable": Known(
        spec(COARSE, **ALONE),
        [clean, with_variables("RRRR", "ABAB")],
        OF_ENVIRONMENT,
        DECISIVE,
        says=["the same bits in both environments where they have the same variables"],
    ),
    "its bits go with the place": Known(spec(COARSE, **SET), [clean, with_variables("RRRR", "AABB")], OF_CODE, STRONG),
    "they go with neither alone": Known(
        spec(COARSE, **SET), [clean, with_variables("RRRR", "ABCD")], OF_CODE, SUGGESTIVE, also=[OF_ENVIRONMENT]
    ),
    "bits say nothing of a result that became wrong": Known(
        spec(FELL, **SET), [clean, with_variables("RRRR", "ABAB")], OF_CODE, also=[OF_ENVIRONMENT]
    ),
    "a variable that changes nothing": Known(
        spec(**SET, **TIMED), [clean, with_variables("RRRR")], causes.NOTHING_MOVED
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_what_the_result_goes_with(name: str, tmp_path: Path) -> None:
    found = check(KNOWN[name], tmp_path)
    if name == "code moved beside a variable":
        (part,) = found.parts
        assert "ATEN_CPU_CAPABILITY" in part.statement and "To tell them apart" in part.statement
