"""What moved is found, and nothing is blamed for what moved beside it. Evidence that conflicts or is missing gives
`undecided`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.schema.records import Outcome
from harness.schema.storage import Run
from reports.attribute import causes
from reports.attribute.causes import DECISIVE, STRONG, SUGGESTIVE
from tests.unit.attributed import (
    CODE,
    FELL,
    FLAGS,
    Known,
    both,
    by,
    causes_of,
    check,
    first,
    here,
    of_both,
    on_gpu,
    spec,
    swapped,
    tried,
    written_in_python,
)
from tests.unit.experiments import FOLLOWS, KERNEL, STILL, clean, poison, profiles, result
from tests.unit.spec import BASE, NEXT, Case, Spec

DIES = Case(
    status="crashed",
    message="the kernel's process died by SIGABRT",
    log_excerpt="vector.h:1123: reference operator[](size_type): Assertion '__n < this->size()' failed.\nand more",
)
FAULTS = Case(status="crashed", message="the kernel's process died by SIGSEGV")
WORDS = "\"baddbmm\" not implemented for 'Half'"
DRAWS = Case(passed=0, repeats_differ=10, against="model")
OFF = Case(passed=1, units=30.0)
MATH_BECAME_RIGHT = ((BASE, "math", OFF), (NEXT, "math", Case(bits="new")))
OTHER_BUILD, OTHER_CODE = spec(FELL, machine_code=CODE, flags=FLAGS), spec(FELL, machine_code=CODE)
FAR = {agrees: Case(passed=2, units=400.0, agrees=agrees) for agrees in (10, 1)}
ALWAYS_FAR = ((BASE, "kernel", FAR[10]), (NEXT, "kernel", FAR[1]))


def not_built(message: str, **changes: Any) -> Spec:
    return spec(builds={NEXT: Outcome(status="build_failed", message=message)}, **changes)


MOVERS = {
    "other flags, other code, and the result goes with the object": Known(
        OTHER_BUILD, [clean, swapped("AABB")], causes.BUILD_MOVED, DECISIVE
    ),
    "it faults at an address, wherever this object code is taken": Known(
        here(FAULTS, machine_code=CODE, flags=FLAGS), [swapped("AAXX")], causes.BUILD_MOVED, DECISIVE
    ),
    "other flags and other code, and memory is clean": Known(
        OTHER_BUILD, [clean], causes.BUILD_MOVED, STRONG, never=causes.REFERENCES
    ),
    "other flags and other code; nothing was tried": Known(OTHER_BUILD, [], causes.BUILD_MOVED, SUGGESTIVE),
    "its process dies here, wherever the object code is taken": Known(
        here(DIES, machine_code=CODE, flags=FLAGS),
        [swapped("AAXX")],
        causes.BUILD_MOVED,
        DECISIVE,
        says=["dies in PyTorch 2.5.0", "its last assertion: Assertion '__n < this->size()' failed"],
    ),
    "its process dies in that environment, whichever object code it has": Known(
        here(DIES, machine_code=CODE), [swapped("AXAX")], causes.ENVIRONMENT_CONFOUNDER, STRONG
    ),
    "all four die, which tells nothing of the code": Known(
        here(DIES, machine_code=CODE), [swapped("XXXX")], causes.UNDECIDED
    ),
    "an extension of the user's own, of other machine code": Known(
        spec(FELL, machine_code=CODE, own_binding=True), [clean], causes.KERNEL_CODE_MOVED, SUGGESTIVE
    ),
    "it does not build here": Known(
        not_built("fatal error: c10/util/variant.h: No such file"), [], causes.UNSUPPORTED_COMBINATION, DECISIVE
    ),
    "it does not build here, with other flags": Known(
        not_built("error: x", flags={NEXT: ("cxx: -Werror",)}), [], causes.BUILD_MOVED, STRONG
    ),
    "its build ended without an error of the compiler's": Known(
        not_built("ninja was killed"), [], causes.BUILD_MOVED, STRONG
    ),
    "the same flags compile to other code": Known(
        OTHER_CODE, [clean, swapped("AABB")], causes.KERNEL_CODE_MOVED, DECISIVE
    ),
    "the same, without swapped code": Known(OTHER_CODE, [clean], causes.KERNEL_CODE_MOVED, STRONG),
    "the same, and nothing was tried": Known(OTHER_CODE, [], causes.KERNEL_CODE_MOVED, SUGGESTIVE),
    "the result goes with the place, though the code differs": Known(
        OTHER_BUILD, [clean, swapped("ABAB")], causes.ENVIRONMENT_CONFOUNDER, DECISIVE
    ),
    "the code is the same, and memory is clean": Known(spec(FELL), [clean], causes.ENVIRONMENT_CONFOUNDER, STRONG),
    "the same, and the wheels were built for other CUDAs, as those of two versions are": Known(
        spec(FELL, torch_cuda={NEXT: "12.4"}), [clean], causes.ENVIRONMENT_CONFOUNDER, SUGGESTIVE
    ),
    "the environment is not the one that was asked for": Known(
        spec(stacks={NEXT: Outcome(status="broken", message="torch 2.4.0 is there")}),
        [],
        causes.ENVIRONMENT_CONFOUNDER,
        DECISIVE,
    ),
    "other input bytes": Known(spec(FELL, inputs=CODE), [], causes.INPUTS_MOVED, DECISIVE),
    "other input bytes under other code": Known(
        spec(FELL, inputs=CODE, machine_code=CODE, flags=FLAGS), [], causes.INPUTS_MOVED, DECISIVE
    ),
    "other input bytes, and no verdict moved": Known(spec(inputs=CODE), [], causes.INPUTS_MOVED, DECISIVE),
    "a reference became right under it": Known(
        spec(*MATH_BECAME_RIGHT, (BASE, "kernel", Case(agrees=1))), [], causes.REFERENCE_MOVED, DECISIVE
    ),
    "a reference became wrong under it": Known(
        spec((NEXT, "math", Case(passed=1, units=30.0, bits="new")), (NEXT, "kernel", Case(agrees=1))),
        [],
        causes.REFERENCE_MOVED,
        DECISIVE,
    ),
    "it is PyTorch's math by another name": Known(
        spec(
            *MATH_BECAME_RIGHT,
            (BASE, "kernel", Case(passed=1, units=30.0, twin="math")),
            (NEXT, "kernel", Case(twin="math")),
            machine_code=CODE,
        ),
        [],
        causes.REFERENCE_MOVED,
        DECISIVE,
    ),
    "it was math, and is flash": Known(
        spec(
            *MATH_BECAME_RIGHT,
            (BASE, "kernel", Case(passed=1, units=30.0, twin="math")),
            (NEXT, "kernel", Case(twin="flash")),
            machine_code=CODE,
        ),
        [],
        causes.DEFAULT_BACKEND_MOVED,
        DECISIVE,
    ),
    "default runs another operator, and is wrong": Known(
        spec(
            (BASE, "default", Case(operators=("aten::_scaled_dot_product_attention_math",))),
            (
                NEXT,
                "default",
                Case(operators=("aten::_scaled_dot_product_flash_attention",), passed=1, units=30.0, bits="new"),
            ),
            (NEXT, "kernel", Case(agrees=1)),
            references=("flash", "default"),
        ),
        [],
        causes.DEFAULT_BACKEND_MOVED,
        DECISIVE,
    ),
    "refused here": Known(
        here(Case(status="unsupported", message="head_dim 64 is not supported")),
        [],
        causes.UNSUPPORTED_COMBINATION,
        DECISIVE,
    ),
    "refused everywhere": Known(
        of_both(Case(status="unsupported", message="no code for it")), [], causes.UNSUPPORTED_COMBINATION, DECISIVE
    ),
    "it ends with PyTorch's words for a missing type": Known(
        spec((BASE, "kernel", Case(status="crashed", message=WORDS))), [], causes.UNSUPPORTED_COMBINATION, STRONG
    ),
    "a model that gives other outputs in each call": Known(
        spec(*both("kernel", DRAWS), *both("model", Case(repeats_differ=10)), references=("model",), truth=False),
        [],
        causes.INPUTS_MOVED,
    ),
    "a kernel alone that does": Known(of_both(DRAWS, references=("model",), truth=False), [], causes.WRONG_EVERYWHERE),
    "a kernel wrong all along under a reference that moved": Known(
        spec(*ALWAYS_FAR, (NEXT, "math", Case(bits="new", units=3.0))),
        [clean],
        causes.REFERENCE_MOVED,
        DECISIVE,
        also=[causes.WRONG_EVERYWHERE],
    ),
    "memory, where a reference moved under equal bits": Known(
        spec(*ALWAYS_FAR, (NEXT, "math", Case(bits="new", passed=1, units=30.0)), device="cuda"),
        [on_gpu(poison, {"shared": FOLLOWS, "output": STILL})],
        causes.REFERENCE_MOVED,
        also=[causes.UNINITIALISED_SHARED],
    ),
    "the same code, and nothing was tried": Known(spec(FELL), [], causes.UNDECIDED, says=["memory"]),
    "neither the object nor the place": Known(OTHER_CODE, [swapped("ABBA")], causes.UNDECIDED, says=["disagree"]),
    "the entry alone shows nothing": Known(OTHER_BUILD, [swapped("AAAA")], causes.UNDECIDED, says=["disagree"]),
    "the same bits, judged otherwise": Known(
        here(Case(passed=2, units=400.0)), [], causes.UNDECIDED, says=["contradict"]
    ),
}


@pytest.mark.parametrize("name", MOVERS)
def test_what_moved_is_found(name: str, tmp_path: Path) -> None:
    found = check(MOVERS[name], tmp_path)
    if found.cause == causes.UNDECIDED:
        assert found.next_command.startswith("nox -s explain -- --kernel attention_scalar")


@pytest.mark.parametrize(("units", "cause"), [(4000.0, causes.INPUTS_MOVED), (30.0, causes.REFERENCE_MOVED)])
def test_a_kernel_and_its_model_that_move_together(units: float, cause: str, tmp_path: Path) -> None:
    """Far off, they computed from something else; a little off, PyTorch's operators moved under both."""
    moved = Case(passed=0, bits="new", units=units, agrees=10)
    found = first(tmp_path, spec((NEXT, "kernel", moved), (NEXT, "model", moved), references=("model",)))
    assert (found.cause, found.grade) == (cause, STRONG)
    alone = here(Case(passed=0, bits="new", units=units, agrees=0), references=("model",))
    assert first(tmp_path / "alone", alone).cause == causes.UNDECIDED


PUBLIC = {"aten::scaled_dot_product_attention": (1.0, 1.0)}
AS_MATH, AS_FLASH = (
    {f"aten::_scaled_dot_product_{name}": (1.0, 90.0)} for name in ("attention_math", "flash_attention")
)
AS_FLASH_BY_ANOTHER_NAME = {"aten::_scaled_dot_product_flash_attention_for_cpu": (1.0, 90.0)}


@pytest.mark.parametrize(
    ("base", "this", "cause"),
    [
        (AS_MATH | PUBLIC, AS_FLASH | PUBLIC, causes.DEFAULT_BACKEND_MOVED),
        (AS_FLASH | PUBLIC, AS_FLASH_BY_ANOTHER_NAME | PUBLIC, causes.REFERENCE_MOVED),
        (AS_MATH | PUBLIC, AS_MATH | PUBLIC, causes.REFERENCE_MOVED),
        (AS_MATH, AS_FLASH, causes.REFERENCE_MOVED),  # the kernel chose
        (AS_MATH | PUBLIC, PUBLIC, causes.REFERENCE_MOVED),
        (None, None, causes.REFERENCE_MOVED),
    ],
)
def test_a_python_kernel_that_moved_by_the_operators_that_it_runs(
    base: Any, this: Any, cause: str, tmp_path: Path
) -> None:
    profiled = [by(profiles, "kernel", base, this, lines=((1, 2), (1, 2)))] if base is not None else []
    made = here(Case(passed=0, bits="new", units=400.0))
    found = first(tmp_path, made, written_in_python, *profiled)
    assert (found.cause, found.grade) == (cause, STRONG if base is not None else SUGGESTIVE)
    assert any("the lines that ran were not recorded" in seen.text for seen in found.evidence) is (base is None)


def ended_by(this: Any) -> Any:
    """A Python kernel that called attention by its public name, and ended with an exception."""

    def make(run: Run) -> None:
        written_in_python(run)
        profiles(run, "kernel", AS_MATH | PUBLIC, this | PUBLIC, ends=True)

    return make


@pytest.mark.parametrize("this", [AS_FLASH, AS_MATH], ids=["another backend", "the same one"])
def test_a_python_kernel_that_raises_behind_another_backend(this: Any, tmp_path: Path) -> None:
    """What it ran before the exception tells."""
    raised = Case(status="crashed", message="trial 0 raised RuntimeError: view size is not compatible")
    found = first(tmp_path, here(raised), ended_by(this))
    assert (causes.DEFAULT_BACKEND_MOVED in found.causes) == (this is AS_FLASH)
    assert causes.UNSUPPORTED_COMBINATION in found.causes


def test_what_no_backend_has_code_for_is_no_matter_of_the_choice(tmp_path: Path) -> None:
    said = f"raised RuntimeError: {WORDS}"
    refused = Case(status="unsupported", message=said)
    kernel = (NEXT, "kernel", Case(status="crashed", message=f"trial 0 {said}"))
    alone = first(tmp_path / "alone", spec(kernel), ended_by(AS_FLASH))
    assert alone.cause == causes.DEFAULT_BACKEND_MOVED and causes.UNSUPPORTED_COMBINATION in alone.causes
    every = spec(kernel, (NEXT, "flash", refused), (NEXT, "math", refused))
    found = first(tmp_path / "all", every, ended_by(AS_FLASH))
    assert (found.cause, found.grade) == (causes.UNSUPPORTED_COMBINATION, DECISIVE)
    assert causes.DEFAULT_BACKEND_MOVED in found.causes


@pytest.mark.parametrize(
    ("this", "cause"), [(AS_FLASH, causes.DEFAULT_BACKEND_MOVED), (AS_MATH, causes.KERNEL_CODE_MOVED)]
)
def test_an_extension_that_calls_pytorchs_attention(this: Any, cause: str, tmp_path: Path) -> None:
    """Its machine code differs whenever PyTorch's headers do; the backend that it runs is another matter."""
    profiled = by(profiles, "kernel", AS_MATH | PUBLIC, this | PUBLIC)
    assert first(tmp_path, spec(FELL, machine_code=CODE, own_binding=True), clean, profiled).cause == cause
    assert first(tmp_path / "shipped", OTHER_CODE, profiled).cause == causes.KERNEL_CODE_MOVED


def test_another_default_that_stays_right_is_told_and_blames_no_kernel(tmp_path: Path) -> None:
    made = spec(
        (BASE, "default", Case(operators=("aten::_scaled_dot_product_efficient_attention",))),
        (NEXT, "default", Case(operators=("aten::_scaled_dot_product_cudnn_attention",), bits="new")),
        references=("flash", "default"),
    )
    found = causes_of(tmp_path, made)
    expected = [(causes.NOTHING_MOVED, KERNEL), (causes.DEFAULT_BACKEND_MOVED, "")]
    assert [(cause.cause, cause.kernel) for cause in found] == expected
    assert "efficient_attention in PyTorch 2.1.0, cudnn_attention in PyTorch 2.5.0" in found[1].evidence[0].text


def test_the_same_pytorch_cannot_have_moved_a_reference(tmp_path: Path) -> None:
    other = "torch2.1.0-cu121-py311-x"
    made = spec(
        (other, "math", Case(passed=1, units=30.0, bits="new")),
        (other, "kernel", Case(agrees=1)),
        environments=(BASE, other),
        settings={other: {"allow_tf32": "True"}},
    )
    found = causes_of(tmp_path, made)
    assert {cause.cause for cause in found} <= {causes.ENVIRONMENT_CONFOUNDER, causes.NOTHING_MOVED}
    assert any(cause.reference == "math" for cause in found)


def test_a_backend_that_an_exception_names_is_told_beside_it(tmp_path: Path) -> None:
    message = "trial 0 raised NotImplementedError: no forward AD for _scaled_dot_product_flash_attention_for_cpu"
    refused = Case(status="unsupported", message=message)
    found = first(tmp_path, here(refused))
    assert found.cause == causes.UNSUPPORTED_COMBINATION
    assert [(part.cause, part.grade) for part in found.parts] == [(causes.DEFAULT_BACKEND_MOVED, SUGGESTIVE)]
    assert causes.DEFAULT_BACKEND_MOVED not in first(tmp_path / "both", of_both(refused)).causes


@pytest.mark.parametrize(("wider", "cause"), [(1.0, causes.TOLERANCE_TOO_TIGHT), (0.0, causes.WRONG_EVERYWHERE)])
def test_a_limit_that_the_model_misses_by_as_much_fits_neither(wider: float, cause: str, tmp_path: Path) -> None:
    far = Case(passed=0, units=3955.0)
    made = spec(*both("kernel", far), *both("model", far), references=("model",))
    in_float64 = tried("wider", result("AA", 0.0), result("BB", wider, dtype="float64"))
    assert first(tmp_path, made, in_float64).cause == cause
