"""A Python file that is told another PyTorch version than the one that runs it: its own choice, or an operator's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.schema.storage import Run
from reports.attribute import causes
from reports.attribute.causes import DECISIVE, STRONG, SUGGESTIVE
from tests.unit.attributed import FELL, Known, Make, check, spec, written_in_python
from tests.unit.experiments import conditions, profiles, result
from tests.unit.spec import BASE, NEXT

PRODUCT = {"aten::mm": (1.0, 90.0)}
VERSIONS = {BASE: "2.1.0+cu121", NEXT: "2.5.0+cu121"}
PLACES = ((BASE, BASE), (BASE, NEXT), (NEXT, BASE), (NEXT, NEXT))
ASKS = "NEW = torch.__version__ >= '2.3'"
OWN, OPERATORS = causes.KERNEL_CODE_MOVED, causes.REFERENCE_MOVED


def told(letters: str, asks: str = ASKS, lines: tuple[tuple[int, ...], tuple[int, ...]] = ((1, 2), (1, 2))) -> Make:
    """R, W, X, - for right, wrong, raised, not asked: the baseline told its version and the other's, then the other
    told the baseline's and its own."""

    def make(run: Run) -> None:
        written_in_python(run)
        profiles(run, "kernel", PRODUCT, PRODUCT, lines=lines, texts={1: asks})
        for where in (BASE, NEXT):
            results = []
            for (place, whose), letter in zip(PLACES, letters, strict=True):
                ran = result("AA", 1.0 if letter == "R" else 0.0, told=VERSIONS[whose])
                ended = {"status": {"X": "crashed", "-": "not_run"}.get(letter, ran.status)}
                left = {"runs": 0, "passed": 0} if letter in "X-" else {}
                results += [replace(ran, **ended, **left)] if place == where else []
            conditions(run, "version", results, where)

    return make


KNOWN = {
    "the result goes with the version that it is told": Known(
        spec(FELL),
        [told("RWRW")],
        OWN,
        DECISIVE,
        never=[OPERATORS],
        says=["line 1: NEW", "PyTorch 2.5.0, told that it is PyTorch 2.1.0: 6/6", "held, both ways"],
    ),
    "other lines run for it": Known(
        spec(FELL), [told("RWRW", lines=((1, 2), (1, 3)))], OWN, DECISIVE, never=[OPERATORS], says=["line 3"]
    ),
    "what differs besides was held": Known(
        spec(FELL, variables={NEXT: {"FAST": "1"}}),
        [told("RWRW")],
        OWN,
        DECISIVE,
        never=[causes.ENVIRONMENT_CONFOUNDER],
    ),
    "what it chooses is not there in the other": Known(spec(FELL), [told("RXRW")], OWN, STRONG, never=[OPERATORS]),
    "it stays where it is": Known(
        spec(FELL), [told("RRWW")], OPERATORS, STRONG, never=[OWN], silent=["not excluded"], says=["its result stayed"]
    ),
    "it is refused where it is told": Known(
        spec(FELL), [told("RRXW")], OPERATORS, SUGGESTIVE, never=[OWN], says=["not excluded"]
    ),
    "it asks for more than the version": Known(
        spec(FELL), [told("RRWW", f"{ASKS} or hasattr(torch, 'add')")], OPERATORS, SUGGESTIVE, says=["not excluded"]
    ),
    "it takes both": Known(spec(FELL), [told("RRRW")], OPERATORS, SUGGESTIVE, never=[OWN], says=["not excluded"]),
    "it did not ask": Known(spec(FELL), [told("----")], OPERATORS, SUGGESTIVE, never=[OWN]),
    "what moved is not there again": Known(spec(FELL), [told("RWWR")], OPERATORS, SUGGESTIVE, never=[OWN]),
    "all are right then": Known(spec(FELL), [told("RRRR")], OPERATORS, SUGGESTIVE, never=[OWN]),
}


@pytest.mark.parametrize("name", KNOWN)
def test_what_the_result_goes_with(name: str, tmp_path: Path) -> None:
    check(KNOWN[name], tmp_path)
