"""The table of causes: which rule finds which cause, and of what it can be asked. Pure.

Why a card says "proven": its rule handed over a `Finding`. `finding.grade_of` makes the grade of how the cause was
shown and of what the rule needs excluded: FOLLOWED with nothing missing is proven. `cards.ruled_out` computes what is
ruled out, and `grades.graded` lowers the grade where another factor differs between the two environments that no
experiment held. To add a cause: a row here, a rule, templates/NAME.j2 with its sentence, and its name in `causes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, auto

from reports.attribute import changes, costs, faults, operators, ranges, refusals, verdicts
from reports.attribute.cases import CaseFacts
from reports.attribute.causes import Kind
from reports.attribute.finding import Rule, TimeRule


class Asked(Flag):
    """Of which cases a rule is asked."""

    ANY = 0
    KERNEL = auto()
    PAIR = auto()  # of two environments
    TORCH = auto()  # whose PyTorch is not the same


ANY, KERNEL, PAIR, TORCH = Asked.ANY, Asked.KERNEL, Asked.PAIR, Asked.TORCH


@dataclass(frozen=True)
class Row:
    """`nearer`: rules that make this one void where they give a cause, for they say which operator, or what else."""

    rule: Rule
    kind: Kind
    asked: Asked = ANY
    nearer: tuple[Rule, ...] = ()

    def is_asked(self, case: CaseFacts) -> bool:
        holds = (KERNEL if case.is_kernel else ANY) | (ANY if case.alone else PAIR)
        return self.asked in holds | (ANY if case.one_torch else TORCH)


ROWS = (
    Row(faults.wrong_stream, Kind.WRONG_STREAM, KERNEL),
    Row(changes.inputs_moved, Kind.INPUTS_MOVED, PAIR),
    Row(changes.broken_environment, Kind.ENVIRONMENT_CONFOUNDER),
    Row(refusals.does_not_load, Kind.ABI_BREAK, KERNEL),
    Row(refusals.does_not_build, Kind.DOES_NOT_BUILD, KERNEL),
    Row(refusals.build_failed, Kind.BUILD_MOVED, PAIR),
    Row(changes.code_moved, Kind.KERNEL_CODE_MOVED, KERNEL),
    # A kernel's code is not the same where other code was generated for it.
    Row(
        changes.environment_confounder,
        Kind.ENVIRONMENT_CONFOUNDER,
        KERNEL,
        nearer=(operators.chosen_by_version, changes.compiled_code_moved),
    ),
    Row(changes.component_moved, Kind.COMPONENT_MOVED, PAIR),
    Row(changes.sole_package, Kind.COMPONENT_MOVED, PAIR),
    Row(changes.compiled_code_moved, Kind.COMPILED_CODE_MOVED, PAIR | TORCH),
    Row(faults.out_of_bounds, Kind.OUT_OF_BOUNDS, KERNEL),
    Row(faults.uninitialised_shared, Kind.UNINITIALISED_SHARED),
    Row(faults.uninitialised_global, Kind.UNINITIALISED_GLOBAL),
    Row(faults.uninitialised_host, Kind.UNINITIALISED_HOST),
    Row(faults.race, Kind.RACE),
    Row(faults.not_repeatable, Kind.NOT_REPEATABLE, KERNEL),
    Row(faults.writes_inputs, Kind.INPUTS_MOVED, KERNEL),
    Row(faults.drawn_once, Kind.INPUTS_MOVED, KERNEL),
    Row(faults.predecessor, Kind.PREDECESSOR_SENSITIVITY),
    Row(faults.keeps_state, Kind.PREDECESSOR_SENSITIVITY),
    Row(changes.reference_moved_under, Kind.REFERENCE_MOVED, KERNEL | PAIR),
    Row(changes.default_moved_under, Kind.DEFAULT_BACKEND_MOVED, KERNEL | PAIR),
    Row(changes.reference_moved, Kind.REFERENCE_MOVED, nearer=(changes.compiled_code_moved,)),
    Row(changes.default_moved, Kind.DEFAULT_BACKEND_MOVED, TORCH),
    Row(operators.reference_inside, Kind.REFERENCE_MOVED, KERNEL | PAIR | TORCH),
    Row(operators.backend_named, Kind.DEFAULT_BACKEND_MOVED, KERNEL | PAIR | TORCH),
    Row(operators.moved_with_model, Kind.REFERENCE_MOVED, KERNEL | PAIR),
    Row(operators.model_draws, Kind.INPUTS_MOVED, KERNEL),
    Row(refusals.unsupported, Kind.UNSUPPORTED_COMBINATION),
    Row(refusals.refused_by_itself, Kind.UNSUPPORTED_COMBINATION, KERNEL),
    Row(refusals.refused_by_error, Kind.UNSUPPORTED_COMBINATION, KERNEL),
    Row(refusals.own_error, Kind.OWN_ERROR),
    Row(refusals.raises_on_one_side, Kind.UNSUPPORTED_COMBINATION, KERNEL | PAIR),
    Row(operators.chosen_by_version, Kind.KERNEL_CODE_MOVED, KERNEL),
    Row(
        operators.other_lines_run, Kind.KERNEL_CODE_MOVED, KERNEL | PAIR | TORCH, nearer=(operators.chosen_by_version,)
    ),
    Row(operators.draws_otherwise, Kind.INPUTS_MOVED, KERNEL | PAIR | TORCH),
    Row(
        operators.made_of_operators,
        Kind.REFERENCE_MOVED,
        KERNEL | PAIR,
        nearer=(
            changes.reference_moved_under,
            changes.default_moved_under,
            operators.reference_inside,
            operators.moved_with_model,
            operators.draws_otherwise,
            operators.other_lines_run,
            operators.chosen_by_version,
            changes.compiled_code_moved,
        ),
    ),
    Row(changes.variables_decide, Kind.ENVIRONMENT_CONFOUNDER),
    Row(ranges.range_overflow, Kind.RANGE_OVERFLOW),
    Row(ranges.right_when_smaller, Kind.RANGE_OVERFLOW),
    Row(ranges.masked_by_inputs, Kind.MASKED_BY_INPUTS, KERNEL),
    Row(ranges.right_when_upcast, Kind.RANGE_OVERFLOW, nearer=(ranges.right_when_smaller,)),
    Row(ranges.tolerance_too_tight, Kind.TOLERANCE_TOO_TIGHT),
    Row(ranges.tolerance_too_loose, Kind.TOLERANCE_TOO_LOOSE, KERNEL),
    Row(verdicts.stops_everywhere, Kind.WRONG_EVERYWHERE, PAIR),
    Row(verdicts.wrong_everywhere, Kind.WRONG_EVERYWHERE),
)

# Of a time the first rule that gives a cause counts: a machine that moved moves operators too.
TIME_ROWS: tuple[tuple[TimeRule, Kind], ...] = (
    (changes.component_of_time, Kind.COMPONENT_MOVED),
    (costs.thread_count, Kind.LATENCY_THREAD_COUNT),
    (costs.starts_threads, Kind.LATENCY_THREAD_COUNT),
    (costs.clock_or_load, Kind.LATENCY_CLOCK_OR_LOAD),
    (changes.sole_package_of_time, Kind.COMPONENT_MOVED),
    (costs.lost_threads, Kind.LATENCY_THREAD_COUNT),
    (costs.more_threads, Kind.LATENCY_THREAD_COUNT),
    (costs.many_small_calls, Kind.LATENCY_LAUNCH_OVERHEAD),
    (costs.launch_overhead_on_gpu, Kind.LATENCY_LAUNCH_OVERHEAD),
    (costs.launch_overhead_on_cpu, Kind.LATENCY_LAUNCH_OVERHEAD),
    (costs.operator, Kind.LATENCY_OPERATOR),
    (costs.code, Kind.KERNEL_CODE_MOVED),
    (costs.unexplained, Kind.UNDECIDED),
)
