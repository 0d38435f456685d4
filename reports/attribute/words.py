"""Every sentence that a card's statement can be. Pure; nothing decides by what stands here."""

from __future__ import annotations

from enum import Enum


class Says(Enum):
    """By what a rule found. {kernel}, {subject} and the versions {base} and {this} are always given, all other names
    by the rule."""

    INPUTS_MOVED = "The two environments computed from different input bytes, so their results cannot be compared."
    MEANING_CHANGED = "{values}. Nothing in this run shows which version is right."
    MEANING_DECIDED = "{values}: {shown}."
    DRAWS_CHANGED = (
        "{subject} draws other numbers from the same seed in {this} than in {base}, so their outputs cannot be "
        "compared."
    )
    BROKEN_ENVIRONMENT = "{environment} is not the requested environment, so nothing was measured in it: {why}"
    DOES_NOT_BUILD = "{kernel} does not build {where}: {message} Correct that, then run again."
    BUILD_FAILED = "{kernel} does not build {where}, and builds in the other environment."
    BUILD_REFUSED = (
        "{kernel} does not build {where}, and builds in the other environment: its sources use something that the"
        " PyTorch of the failed build does not have."
    )
    ABI_BREAK = "{file} does not load {where}: {reason}.{before}"
    LOADING_RAISES = "{kernel} does not load {where}, and loads in the other environment: {reason}."
    BUILD_MOVED = (
        "{kernel} {what} because its build changed ({differences}): its machine code differs, and the result "
        "changed with it."
    )
    LOADED_CODE_MOVED = (
        "{kernel} {what} because its code changed: its Python file compiles or loads other machine code in "
        "{this}, and the result changed with it."
    )
    SOURCE_COMPILES_OTHERWISE = (
        "{kernel} {what} because its code changed: the same compiler with the same flags makes other machine code"
        " in {this}, and the result changed with it."
    )
    ENVIRONMENT_CONFOUNDER = (
        "{kernel}'s result depends on the environment that runs it, not on its code. Differences: {differences}."
    )
    COMPONENT_MOVED = (
        "{subject} {what} because {package} changed: {held}, its result follows the package ({one} in {base}, "
        "{two} in {this})."
    )
    COMPONENT_TOGETHER = (
        "{subject} {what} only if {with_two} and the rest of the environment of {this} come together: with "
        "{with_one} there, or with {with_two} in that of {base}, it stays as it was."
    )
    COMPONENT_OF_TIME = (
        "{subject} is {extent}, because {package} changed: {held}, its time follows the package ({one} in {base},"
        " {two} in {this})."
    )
    SOLE_PACKAGE = (
        "{subject} {what} because {package} changed ({one} in {base}, {two} in {this}): the PyTorch of both "
        "environments is the same, and so is all else that it is known to compute with."
    )
    SOLE_PACKAGE_OF_TIME = (
        "{subject} is {extent}, because {package} changed ({one} in {base}, {two} in {this}): the PyTorch of both"
        " environments is the same, and so is all else that it is known to compute with."
    )
    VARIABLES_DECIDE = "{kernel}'s result depends on environment variables {where}: {variables}."
    UNINITIALISED = "{kernel} reads {memory} that it has not written{where}{follows}.{so_far}"
    UNWRITTEN = "{kernel} leaves part of its output unwritten: those elements keep what {memory} held before."
    OUT_OF_BOUNDS = "{kernel} {how} {what}{which}."
    RACE = "{kernel} has a race: {shown}."
    WRONG_STREAM = (
        "{kernel} works on another stream than the one it is given: it does not wait for earlier work on that "
        "stream, and later work does not wait for it."
    )
    WRITES_INPUTS = "{kernel} writes to its inputs, so whatever uses them next computes from other numbers."
    KEEPS_STATE = "{kernel}'s output depends on earlier calls: the same inputs give another output after other calls."
    DRAWN_ONCE = (
        "{kernel} gives another output in each process on the same inputs: it computes from something that each "
        "process makes once, such as random numbers or a value from its surroundings."
    )
    PREDECESSOR = "{kernel}'s output depends on what ran just before it: the same inputs give another output."
    NOT_REPEATABLE = (
        "{kernel} is right in every run, but its bits differ from run to run. `deterministic: true` asks for "
        "equal bits, so this counts as wrong."
    )
    REFERENCE_MOVED_UNDER = "{kernel} {how}. PyTorch's own {references} changed{agreed}."
    ANOTHER_OPERATOR_UNDER = (
        "{kernel} {how}. Under the name {references} PyTorch runs another operator in {this}{agreed}."
    )
    REFERENCE_MOVED = "{subject} {how}{by}: {dtypes}, on the same input bytes."
    COMPILED_CODE_MOVED = (
        "{subject}, compiled at run time, {what}, and other code is generated for it in {this} than in {base}."
    )
    OPERATOR_NOT_THERE = "{message}{running}."
    OPERATOR_REFUSED = "{subject} does not run in {refusing}: {message}{running}."
    DEFAULT_MOVED = (
        "PyTorch's default for attention changed: it runs another operator in {this}{right}. If your test "
        "compares with default SDPA, or your kernel runs after it, that operator is now a different one."
    )
    SAME_REFERENCE_INSIDE = (
        "{kernel} {what} with PyTorch: its outputs equal those of PyTorch's own {both}, bit for bit, and those changed."
    )
    OTHER_REFERENCE_INSIDE = (
        "{kernel} {what} with PyTorch: bit for bit, its outputs equal those of PyTorch's own {before} in {base}, "
        "and of {here} in {this}."
    )
    BACKEND_NAMED = (
        "{kernel} stops in {environment} with an error that names PyTorch's {backends}, and runs in the other "
        "environment. If PyTorch chooses the backend, it chose another one in {environment}."
    )
    MOVED_WITH_MODEL = (
        "{kernel} and the model that it replaces agree in both environments, and both changed: PyTorch's "
        "operators, which both call, changed."
    )
    OTHER_INPUTS_WITH_MODEL = (
        "{kernel} and the model that it replaces agree in both environments, and both changed: they compute from "
        "something that differs between the environments, although the stored inputs are the same."
    )
    MODEL_DRAWS = (
        "{kernel} is compared with a model that gives another output in each call on the same tensors. Both "
        "compute from more than their inputs, such as random numbers drawn in a call, so no two calls compute "
        "from the same."
    )
    CHOSEN_BY_VERSION = (
        "{kernel} {what} by its own choice: its result follows the PyTorch version that its file is told, "
        "whichever PyTorch runs it."
    )
    OTHER_LINES_RUN = "{kernel} {what} by its own choice: other lines of its file run in {this} than in {base}."
    DRAWS_OTHERWISE = (
        "{kernel} {what} because of random numbers that are drawn when it is constructed: in {where} they are not"
        " the ones drawn for the model."
    )
    ANOTHER_BACKEND_INSIDE = (
        "{kernel} calls PyTorch's operators from {file} the same in both environments, and PyTorch runs another "
        "attention backend for it in {this}."
    )
    OPERATOR_INSIDE_MOVED = (
        "{kernel} calls PyTorch's operators from {file} the same in both environments: one of these operators changed."
    )
    OPERATOR_OR_CHOICE_MOVED = (
        "{kernel} calls PyTorch's operators from {file} the same in both environments: one of these operators "
        "changed, or what the file chooses or draws by itself."
    )
    REFUSED_BY_ITSELF = "{kernel} does not support this shape or type{where}, by its own error code: {message}"
    REFUSED_BY_ERROR = "{kernel} uses something that PyTorch has no code for {where}: {message}"
    OWN_ERROR = "{kernel} does not run {where}, by an error of its own: {message} Correct that, then run again."
    RAISES_ON_ONE_SIDE = "{kernel} raises an exception {where}, and runs in the other environment: {message}"
    UNSUPPORTED = "{kernel} {how}: {what} on {device}."
    REFERENCE_UNSUPPORTED = "{refusing} refuses {reference} attention for {what} on {device}; {running}."
    RANGE_OVERFLOW = (
        "{subject} fails where logits are large, and only then: a number that it computes exceeds the range or "
        "the precision of its arithmetic."
    )
    LIMITED_RANGE = (
        "{subject} fails where logits are large, and only then, and nothing becomes infinite: a limit that it "
        "sets itself (a clamp, a table, a narrow integer) is possible, and so is arithmetic with too few digits."
    )
    RIGHT_WHEN_SMALLER = (
        "{subject} is wrong on inputs of their usual size and right on smaller ones ({smaller}): a number that it"
        " computes overflows (or underflows) its type{logits}."
    )
    RIGHT_WHEN_UPCAST = (
        "{subject} gives NaN or infinity in its type, and is right in a wider one: a number that it computes "
        "overflows (or underflows) its type."
    )
    MASKED = "{kernel} is wrong, and some test inputs hide it: {which}."
    TOO_TIGHT = (
        "{subject} is as exact {exact}, but the rule {rule} refuses it: the tolerance is too tight for {dtypes}."
    )
    TOO_LOOSE = "{kernel} is wrong, but the rule {rule} passes it: the tolerance is too loose for {dtypes}."
    STOPS_EVERYWHERE = "{subject} does not run in {base} either: {message}"
    WRONG_EVERYWHERE = "{subject} is wrong{where} on {workloads}, compared with the float64 truth{also}."
    UNDECIDED = "The records do not show why {subject} {outcome}: {why}."
    NOTHING_MOVED = "{kernel} is right in both environments, and {bits}.{also}"
    CLOCK_OR_LOAD = "{subject} is {extent}, and {what}: look at the machine, not at one target."
    ANOTHER_OPERATOR = "{subject} is {extent}: PyTorch runs another operator under that name."
    SAME_OPERATOR = (
        "{subject} is {extent}, with the same operator: its implementation changed. A profile would show which "
        "part of it."
    )
    OPERATORS_OF_PROFILE = "{subject} is {extent}: {operators}."
    BACKEND_CHOSEN = "{subject} lets PyTorch choose the attention backend: {before} in {base}, {here} in {this}."
    MANY_SMALL_CALLS = (
        "{subject} is {extent}: a call runs {here} operators in {this} and {before} in {base}, each of them "
        "shorter. {graph}"
    )
    OVERHEAD_ON_GPU = "{subject} is {extent}, but the device's own work did not change: the time went into {part}."
    OVERHEAD_ON_CPU = (
        "{subject} is {extent} on small problems. On large ones it changed by about the same time, which hardly "
        "counts there: each call costs {costs}, its work does not."
    )
    FEWER_THREADS = "{subject} is {extent}, because {here} {compute} in {this}, and {before} in {base}."
    TOO_MANY_THREADS = "{subject} is {extent}: {most} in {where} share {processors}, and take turns."
    LOST_THREADS = (
        "{subject} is {extent}, and keeps {fewer} processors busy at a time: it computes with another number of "
        "threads, whatever PyTorch reports."
    )
    OWN_THREADS = "{subject} is {extent}, and in {where} it computes with more threads than PyTorch has."
    CODE_OF_TIME = "{subject} is {extent}, and {how}."
    UNEXPLAINED = "The records do not show why {subject} is {extent}: {why}."
    LEANING = (
        "The time of {kernel} may have changed on {workloads}: the whole interval of the ratio lies beyond the "
        "smallest effect that counts, but so few launches cannot make it certain."
    )
    MEMORY_OPERATOR = "{subject} {uses}: PyTorch runs another operator under that name."
    MEMORY_OF_IMPLEMENTATION = "{subject} {uses}, by the same operator: its implementation changed."
    MEMORY_OF_CODE = "{subject} {uses}, and {how}."
    MEMORY_OF_LINES = "{subject} {uses}: other lines of its file run in {this} than in {base}."
    MEMORY_OF_OPERATORS = (
        "{subject} {uses}. The same lines of its file run: it comes from an operator of PyTorch that they call."
    )
    MEMORY_OF_PACKAGE = (
        "{subject} {uses}, because {package} changed: {held}, its memory follows the package ({one} in {base}, "
        "{two} in {this})."
    )
    MEMORY_OF_SOLE_PACKAGE = (
        "{subject} {uses}, because {package} changed ({one} in {base}, {two} in {this}): the PyTorch of both "
        "environments is the same, and so is all else that it is known to compute with."
    )
    MEMORY_CURED = "{subject} {uses}, with {with_one}. With {with_two} in its place it uses as much as in {base}."
    MEMORY_UNEXPLAINED = "{subject} {uses}. The records do not show why."
    RIVAL = '{rival}. It may be why, or not: it changed together with "{name}". To tell them apart: {separated_by}.'


# After these, experiments on the same cells decide or show more; after the others, another run of them does.
EXPLAINED = frozenset(
    {
        Says.BUILD_MOVED,
        Says.LOADED_CODE_MOVED,
        Says.SOURCE_COMPILES_OTHERWISE,
        Says.ENVIRONMENT_CONFOUNDER,
        Says.COMPONENT_MOVED,
        Says.COMPONENT_TOGETHER,
        Says.COMPONENT_OF_TIME,
        Says.VARIABLES_DECIDE,
        Says.UNINITIALISED,
        Says.UNWRITTEN,
        Says.OUT_OF_BOUNDS,
        Says.RACE,
        Says.WRONG_STREAM,
        Says.WRITES_INPUTS,
        Says.KEEPS_STATE,
        Says.DRAWN_ONCE,
        Says.PREDECESSOR,
        Says.NOT_REPEATABLE,
        Says.MODEL_DRAWS,
        Says.CHOSEN_BY_VERSION,
        Says.OTHER_LINES_RUN,
        Says.DRAWS_OTHERWISE,
        Says.ANOTHER_BACKEND_INSIDE,
        Says.OPERATOR_INSIDE_MOVED,
        Says.OPERATOR_OR_CHOICE_MOVED,
        Says.RAISES_ON_ONE_SIDE,
        Says.ANOTHER_OPERATOR,
        Says.SAME_OPERATOR,
        Says.OPERATORS_OF_PROFILE,
        Says.MANY_SMALL_CALLS,
        Says.OWN_THREADS,
        Says.CODE_OF_TIME,
        Says.UNEXPLAINED,
    }
)
