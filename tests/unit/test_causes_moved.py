"""What moved is found, and nothing is blamed for what moved beside it. Evidence that conflicts or is missing gives
`undecided`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.schema.records import Outcome
from harness.schema.storage import Run, save_record
from reports.attribute.causes import (
    BUILD_MOVED,
    DECISIVE,
    DEFAULT_BACKEND_MOVED,
    ENVIRONMENT_CONFOUNDER,
    INPUTS_MOVED,
    KERNEL_CODE_MOVED,
    NOTHING_MOVED,
    REFERENCE_MOVED,
    STRONG,
    SUGGESTIVE,
    TOLERANCE_TOO_TIGHT,
    UNDECIDED,
    UNINITIALISED_SHARED,
    UNSUPPORTED_COMBINATION,
    WRONG_EVERYWHERE,
)
from tests.unit.attributed import CODE, FELL, FLAGS, Make, both, causes_of, first, of_kernel, on_gpu, spec
from tests.unit.experiments import FOLLOWS, KERNEL, STILL, clean, conditions, poison, profiles, result, swap
from tests.unit.spec import BASE, NEXT, Case, Spec

DIES = Case(
    status="crashed",
    message="the kernel's process died by SIGABRT",
    log_excerpt="vector.h:1123: reference operator[](size_type): Assertion '__n < this->size()' failed.\nand more",
)

FAULTS = Case(status="crashed", message="the kernel's process died by SIGSEGV")

MOVERS: dict[str, tuple[Spec, tuple[Make, ...], str, str]] = {
    "other flags, other code, and the result goes with the object": (
        spec(FELL, machine_code=CODE, flags=FLAGS), (clean, lambda run: swap(run, "AABB")), BUILD_MOVED, DECISIVE,
    ),
    "it faults at an address, wherever this object code is taken": (
        spec((NEXT, "kernel", FAULTS), machine_code=CODE, flags=FLAGS), (lambda run: swap(run, "AAXX"),), BUILD_MOVED,
        DECISIVE,
    ),
    "other flags and other code, and memory is clean": (
        spec(FELL, machine_code=CODE, flags=FLAGS), (clean,), BUILD_MOVED, STRONG,
    ),
    "other flags and other code; nothing was tried": (
        spec(FELL, machine_code=CODE, flags=FLAGS), (), BUILD_MOVED, SUGGESTIVE,
    ),
    "its process dies here, wherever the object code is taken": (
        spec((NEXT, "kernel", DIES), machine_code=CODE, flags=FLAGS), (lambda run: swap(run, "AAXX"),), BUILD_MOVED,
        DECISIVE,
    ),
    "its process dies in that environment, whichever object code it has": (
        spec((NEXT, "kernel", DIES), machine_code=CODE), (lambda run: swap(run, "AXAX"),), ENVIRONMENT_CONFOUNDER,
        STRONG,
    ),
    "an extension of the user's own, of other machine code": (
        spec(FELL, machine_code=CODE, own_binding=True), (clean,), KERNEL_CODE_MOVED, SUGGESTIVE,
    ),
    "it does not build here": (
        spec(builds={NEXT: Outcome(status="build_failed", message="fatal error: c10/util/variant.h: No such file")}),
        (), UNSUPPORTED_COMBINATION, DECISIVE,
    ),
    "it does not build here, with other flags": (
        spec(builds={NEXT: Outcome(status="build_failed", message="error: x")}, flags={NEXT: ("cxx: -Werror",)}), (),
        BUILD_MOVED, STRONG,
    ),
    "its build ended without an error of the compiler's": (
        spec(builds={NEXT: Outcome(status="build_failed", message="ninja was killed")}), (), BUILD_MOVED, STRONG,
    ),
    "the same flags compile to other code": (
        spec(FELL, machine_code=CODE), (clean, lambda run: swap(run, "AABB")), KERNEL_CODE_MOVED, DECISIVE,
    ),
    "the same, without swapped code": (spec(FELL, machine_code=CODE), (clean,), KERNEL_CODE_MOVED, STRONG),
    "the same, and nothing was tried": (spec(FELL, machine_code=CODE), (), KERNEL_CODE_MOVED, SUGGESTIVE),
    "the result goes with the place, though the code differs": (
        spec(FELL, machine_code=CODE, flags=FLAGS), (clean, lambda run: swap(run, "ABAB")), ENVIRONMENT_CONFOUNDER,
        DECISIVE,
    ),
    "the code is the same, and memory is clean": (spec(FELL), (clean,), ENVIRONMENT_CONFOUNDER, STRONG),
    "the environment is not the one that was asked for": (
        spec(stacks={NEXT: Outcome(status="broken", message="torch 2.4.0 is there")}), (), ENVIRONMENT_CONFOUNDER,
        DECISIVE,
    ),
    "other input bytes": (spec(FELL, inputs=CODE), (), INPUTS_MOVED, DECISIVE),
    "other input bytes under other code": (
        spec(FELL, inputs=CODE, machine_code=CODE, flags=FLAGS), (), INPUTS_MOVED, DECISIVE,
    ),
    "other input bytes, and no verdict moved": (spec(inputs=CODE), (), INPUTS_MOVED, DECISIVE),
    "a reference became right under it": (
        spec(
            (BASE, "math", Case(passed=1, units=30.0)), (NEXT, "math", Case(bits="new")),
            (BASE, "kernel", Case(agrees=1)),
        ),
        (), REFERENCE_MOVED, DECISIVE,
    ),
    "a reference became wrong under it": (
        spec((NEXT, "math", Case(passed=1, units=30.0, bits="new")), (NEXT, "kernel", Case(agrees=1))), (),
        REFERENCE_MOVED, DECISIVE,
    ),
    "it is PyTorch's math by another name": (
        spec(
            (BASE, "math", Case(passed=1, units=30.0)), (NEXT, "math", Case(bits="new")),
            (BASE, "kernel", Case(passed=1, units=30.0, twin="math")), (NEXT, "kernel", Case(twin="math")),
            machine_code=CODE,
        ),
        (), REFERENCE_MOVED, DECISIVE,
    ),
    "it was math, and is flash": (
        spec(
            (BASE, "math", Case(passed=1, units=30.0)), (NEXT, "math", Case(bits="new")),
            (BASE, "kernel", Case(passed=1, units=30.0, twin="math")), (NEXT, "kernel", Case(twin="flash")),
            machine_code=CODE,
        ),
        (), DEFAULT_BACKEND_MOVED, DECISIVE,
    ),
    "default runs another operator, and is wrong": (
        spec(
            (BASE, "default", Case(operators=("aten::_scaled_dot_product_attention_math",))),
            (
                NEXT, "default",
                Case(operators=("aten::_scaled_dot_product_flash_attention",), passed=1, units=30.0, bits="new"),
            ),
            (NEXT, "kernel", Case(agrees=1)), references=("flash", "default"),
        ),
        (), DEFAULT_BACKEND_MOVED, DECISIVE,
    ),
    "refused here": (
        spec((NEXT, "kernel", Case(status="unsupported", message="head_dim 64 is not supported"))), (),
        UNSUPPORTED_COMBINATION, DECISIVE,
    ),
    "refused everywhere": (
        spec(*both("kernel", Case(status="unsupported", message="no code for it"))), (), UNSUPPORTED_COMBINATION,
        DECISIVE,
    ),
    "it ends with PyTorch's words for a missing type": (
        spec((BASE, "kernel", Case(status="crashed", message="\"baddbmm\" not implemented for 'Half'"))), (),
        UNSUPPORTED_COMBINATION, STRONG,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("units", "cause"), [(4000.0, INPUTS_MOVED), (30.0, REFERENCE_MOVED)])
def test_a_kernel_and_its_model_that_move_together(units: float, cause: str, tmp_path: Path) -> None:
    """Far off, they computed from something else; a little off, PyTorch's operators moved under both."""
    made = spec(
        (NEXT, "kernel", Case(passed=0, bits="new", units=units, agrees=10)),
        (NEXT, "model", Case(passed=0, bits="new", units=units)),
        references=("model",),
    )
    found = first(tmp_path, made)
    assert (found.cause, found.grade) == (cause, STRONG)
    alone = spec((NEXT, "kernel", Case(passed=0, bits="new", units=units, agrees=0)), references=("model",))
    assert first(tmp_path / "alone", alone).cause == UNDECIDED


PUBLIC = {"aten::scaled_dot_product_attention": (1.0, 1.0)}
AS_MATH, AS_FLASH = (
    {f"aten::_scaled_dot_product_{name}": (1.0, 90.0)} for name in ("attention_math", "flash_attention")
)
AS_FLASH_BY_ANOTHER_NAME = {"aten::_scaled_dot_product_flash_attention_for_cpu": (1.0, 90.0)}


@pytest.mark.parametrize(
    ("base", "this", "cause"),
    [
        (AS_MATH | PUBLIC, AS_FLASH | PUBLIC, DEFAULT_BACKEND_MOVED),
        (AS_FLASH | PUBLIC, AS_FLASH_BY_ANOTHER_NAME | PUBLIC, REFERENCE_MOVED),
        (AS_MATH | PUBLIC, AS_MATH | PUBLIC, REFERENCE_MOVED),
        (AS_MATH, AS_FLASH, REFERENCE_MOVED),  # the kernel chose
        (AS_MATH | PUBLIC, PUBLIC, REFERENCE_MOVED),
        (None, None, REFERENCE_MOVED),
    ],
)
def test_a_python_kernel_that_moved_by_the_operators_that_it_runs(
    base: Any, this: Any, cause: str, tmp_path: Path
) -> None:
    def in_python(run: Run) -> None:
        written_in_python(run)
        if base is not None:
            profiles(run, "kernel", base, this, lines=((1, 2), (1, 2)))

    found = first(tmp_path, spec((NEXT, "kernel", Case(passed=0, bits="new", units=400.0))), in_python)
    assert (found.cause, found.grade) == (cause, STRONG if base is not None else SUGGESTIVE)
    assert any("the lines that ran were not recorded" in seen.text for seen in found.evidence) is (base is None)


def written_in_python(run: Run) -> None:
    record = run.load()
    kernels = [kernel.model_copy(update={"sources": ["solution.py"]}) for kernel in record.kernels]
    save_record(run.run_path(), record.model_copy(update={"kernels": kernels}))


@pytest.mark.parametrize("this", [AS_FLASH, AS_MATH], ids=["another backend", "the same one"])
def test_a_python_kernel_that_raises_behind_another_backend(this: Any, tmp_path: Path) -> None:
    """What it ran before the exception tells."""
    raised = Case(status="crashed", message="trial 0 raised RuntimeError: view size is not compatible")

    def make(run: Run) -> None:
        written_in_python(run)
        profiles(run, "kernel", AS_MATH | PUBLIC, this | PUBLIC, ends=True)

    found = first(tmp_path, spec((NEXT, "kernel", raised)), make)
    assert (DEFAULT_BACKEND_MOVED in found.causes) == (this is AS_FLASH)
    assert UNSUPPORTED_COMBINATION in found.causes


def test_what_no_backend_has_code_for_is_no_matter_of_the_choice(tmp_path: Path) -> None:
    words = "raised RuntimeError: \"softmax\" not implemented for 'Half'"
    refused = Case(status="unsupported", message=words)

    def make(run: Run) -> None:
        written_in_python(run)
        profiles(run, "kernel", AS_MATH | PUBLIC, AS_FLASH | PUBLIC, ends=True)

    kernel = (NEXT, "kernel", Case(status="crashed", message=f"trial 0 {words}"))
    alone = first(tmp_path / "alone", spec(kernel), make)
    assert alone.cause == DEFAULT_BACKEND_MOVED and UNSUPPORTED_COMBINATION in alone.causes
    found = first(tmp_path / "all", spec(kernel, (NEXT, "flash", refused), (NEXT, "math", refused)), make)
    assert (found.cause, found.grade) == (UNSUPPORTED_COMBINATION, DECISIVE)
    assert DEFAULT_BACKEND_MOVED in found.causes


@pytest.mark.parametrize(("this", "cause"), [(AS_FLASH, DEFAULT_BACKEND_MOVED), (AS_MATH, KERNEL_CODE_MOVED)])
def test_an_extension_that_calls_pytorchs_attention(this: Any, cause: str, tmp_path: Path) -> None:
    """Its machine code differs whenever PyTorch's headers do; the backend that it runs is another matter."""
    made = spec(FELL, machine_code=CODE, own_binding=True)
    found = first(tmp_path, made, clean, lambda run: profiles(run, "kernel", AS_MATH | PUBLIC, this | PUBLIC))
    assert found.cause == cause
    shipped = spec(FELL, machine_code=CODE)
    found = first(tmp_path / "shipped", shipped, lambda run: profiles(run, "kernel", AS_MATH | PUBLIC, this | PUBLIC))
    assert found.cause == KERNEL_CODE_MOVED


def test_the_last_words_of_a_process_are_told(tmp_path: Path) -> None:
    found = first(tmp_path, spec((NEXT, "kernel", DIES), machine_code=CODE), lambda run: swap(run, "AAXX"))
    assert "dies here" in found.statement
    assert found.evidence[0].text.endswith("its last assertion: Assertion '__n < this->size()' failed")


def test_all_four_dying_tells_nothing_of_the_code(tmp_path: Path) -> None:
    found = first(tmp_path, spec((NEXT, "kernel", DIES), machine_code=CODE), lambda run: swap(run, "XXXX"))
    assert found.cause == UNDECIDED


@pytest.mark.parametrize(
    ("model", "kernel", "cause"),
    [
        (Case(repeats_differ=10), Case(passed=0, repeats_differ=10, against="model"), INPUTS_MOVED),
        (Case(), Case(passed=0, repeats_differ=10, against="model"), WRONG_EVERYWHERE),
    ],
)
def test_a_model_that_gives_other_outputs_in_each_call(model: Case, kernel: Case, cause: str, tmp_path: Path) -> None:
    made = spec(*both("kernel", kernel), *both("model", model), references=("model",), truth=False)
    assert first(tmp_path, made).cause == cause


def test_another_default_that_stays_right_is_told_and_blames_no_kernel(tmp_path: Path) -> None:
    made = spec(
        (BASE, "default", Case(operators=("aten::_scaled_dot_product_efficient_attention",))),
        (NEXT, "default", Case(operators=("aten::_scaled_dot_product_cudnn_attention",), bits="new")),
        references=("flash", "default"),
    )
    found = causes_of(tmp_path, made)
    assert [(cause.cause, cause.kernel) for cause in found] == [(DEFAULT_BACKEND_MOVED, ""), (NOTHING_MOVED, KERNEL)]
    assert "efficient_attention in the baseline, cudnn_attention here" in found[0].evidence[0].text


def test_a_kernel_wrong_all_along_is_the_other_part_of_a_reference_that_moved(tmp_path: Path) -> None:
    made = spec(
        (BASE, "kernel", Case(passed=2, units=400.0, agrees=10)),
        (NEXT, "kernel", Case(passed=2, units=400.0, agrees=1)),
        (NEXT, "math", Case(bits="new", units=3.0)),
    )
    found = first(tmp_path, made, clean)
    assert found.cause == REFERENCE_MOVED and found.grade == DECISIVE
    assert [part.cause for part in found.parts] == [WRONG_EVERYWHERE]


def test_memory_is_the_latent_part_where_a_reference_moved_under_equal_bits(tmp_path: Path) -> None:
    made = spec(
        (BASE, "kernel", Case(passed=2, units=400.0, agrees=10)),
        (NEXT, "kernel", Case(passed=2, units=400.0, agrees=1)),
        (NEXT, "math", Case(bits="new", passed=1, units=30.0)),
        device="cuda",
    )
    found = first(tmp_path, made, on_gpu(poison, {"shared": FOLLOWS, "output": STILL}))
    assert (found.cause, [part.cause for part in found.parts]) == (REFERENCE_MOVED, [UNINITIALISED_SHARED])


@pytest.mark.parametrize(
    ("made", "letters", "why"),
    [
        (spec(FELL), "", "memory"),  # the same code, and nothing was tried
        (spec(FELL, machine_code=CODE), "ABBA", "disagree"),  # neither the object nor the place
        (spec(FELL, machine_code=CODE, flags=FLAGS), "AAAA", "disagree"),  # the entry alone shows nothing
        (spec((NEXT, "kernel", Case(passed=2, units=400.0))), "", "contradict"),  # the same bits
    ],
)
def test_conflicts_and_gaps_are_undecided(made: Spec, letters: str, why: str, tmp_path: Path) -> None:
    experiments = [lambda run: swap(run, letters)] if letters else []
    found = first(tmp_path, made, *experiments)
    assert found.cause == UNDECIDED and why in found.statement
    assert found.next_command.startswith("nox -s explain -- --kernel attention_scalar")


def test_a_reference_is_never_blamed_for_a_kernel_that_moved(tmp_path: Path) -> None:
    found = of_kernel(tmp_path, spec(FELL, machine_code=CODE, flags=FLAGS), clean)
    assert all(cause.cause not in (REFERENCE_MOVED, DEFAULT_BACKEND_MOVED) for cause in found)


def test_the_same_pytorch_cannot_have_moved_a_reference(tmp_path: Path) -> None:
    other = "torch2.1.0-cu121-py311-x"
    made = spec(
        (other, "math", Case(passed=1, units=30.0, bits="new")),
        (other, "kernel", Case(agrees=1)),
        environments=(BASE, other),
        settings={other: {"allow_tf32": "True"}},
    )
    found = causes_of(tmp_path, made)
    assert {cause.cause for cause in found} <= {ENVIRONMENT_CONFOUNDER, NOTHING_MOVED}
    assert any(cause.reference == "math" for cause in found)


FLASH = "trial 0 raised NotImplementedError: no forward AD for _scaled_dot_product_flash_attention_for_cpu"


def test_a_backend_that_an_exception_names_is_told_beside_it(tmp_path: Path) -> None:
    found = first(tmp_path, spec((NEXT, "kernel", Case(status="unsupported", message=FLASH))))
    assert found.cause == UNSUPPORTED_COMBINATION
    assert [(part.cause, part.grade) for part in found.parts] == [(DEFAULT_BACKEND_MOVED, SUGGESTIVE)]
    both_refuse = first(tmp_path / "both", spec(*both("kernel", Case(status="unsupported", message=FLASH))))
    assert DEFAULT_BACKEND_MOVED not in both_refuse.causes


@pytest.mark.parametrize(("wider", "cause"), [(1.0, TOLERANCE_TOO_TIGHT), (0.0, WRONG_EVERYWHERE)])
def test_a_limit_that_the_model_misses_by_as_much_fits_neither(wider: float, cause: str, tmp_path: Path) -> None:
    far = Case(passed=0, units=3955.0)
    made = spec(*both("kernel", far), *both("model", far), references=("model",))
    in_float64 = [result("AA", 0.0), result("BB", wider, dtype="float64")]
    assert first(tmp_path, made, lambda run: conditions(run, "wider", in_float64)).cause == cause
