"""What follows, in sentences: which line, which operator, who is right, what it does, what to do. Pure."""

from __future__ import annotations

import math

from harness.trace import outcome as o
from harness.trace.judge import WITHIN
from harness.trace.localise import ARGUMENTS, DRAWS, LAYOUT
from harness.trace.outcome import Cause, Outcome, RaisedThere
from harness.trace.wording import Said, named

MOST_LINES = 12


def place(cause: Cause) -> str:
    where = f"{cause.line}" + (f" ({cause.module})" if cause.module else "")
    return f"the backward of {where}" if cause.phase == "backward" else where


def called(cause: Cause) -> str:
    """The function that the line calls, and the operator, which may be only a part of it."""
    operators = named(cause.kind)
    if not cause.function or cause.function.strip("_") == cause.kind.partition(".")[0].strip("_"):
        return operators
    return f"{cause.function}, by its operator {operators}"


def amount(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "an amount that cannot be measured"
    return f"up to {value:.2g} relative"


def write(found: Outcome) -> None:
    """Fill in `answer` and `rest`."""
    found.answer, said, do = {
        o.NOTHING_MOVED: _nothing,
        o.DOES_NOT_REPEAT: _not_repeatable,
        o.NO_EFFECT: _harmless,
        o.NOT_EXPLAINED: _unexplained,
        o.PROVEN: _caused,
        o.NOT_PROVEN: _caused,
        o.RAISED: _raises,
    }[found.verdict](found)
    every = [*(("Line", line) for line in _lines(found)), *said, *_of_part(found), ("Do", do)]
    found.rest = [[label, text] for label, text in every if text]


def _lines(found: Outcome) -> list[str]:
    """Of what raised, and of what is needed: the first line of each, and then the others."""
    needed = [cause for cause in found.causes if cause.needed and found.verdict != o.RAISED]
    raised = [(found.raised.line, found.raised.source)] if found.raised else []
    pairs = [*raised, *((cause.line, cause.source) for cause in needed)]
    pairs += [(line, source) for cause in needed for line, source in cause.others]
    lines = list(dict.fromkeys(f"{line}: {source}" for line, source in pairs if source))
    return lines if len(lines) <= MOST_LINES else [*lines[:MOST_LINES], f"and {len(lines) - MOST_LINES} more"]


def _of_part(found: Outcome) -> Said:
    """What the verdict is about, where only a part was recorded."""
    if not found.part:
        return []
    told = [f"Only {found.part} was recorded: what goes in there counts as given, and of the rest nothing is said."]
    if found.entry[1] and found.verdict != o.NOT_EXPLAINED:
        told.append(f"Some of what goes in differs already, first at {found.entry[1]}.")
    if found.elsewhere:
        back = (
            ""
            if found.elsewhere_left is None
            else (
                f"; with the outputs put back, by {amount(found.elsewhere_left)}"
                if found.elsewhere_left
                else "; with the outputs put back, they are equal"
            )
        )
        told.append(f"Numbers that leave PyTorch elsewhere differ by {amount(found.elsewhere)}{back}.")
    return [("Part", " ".join(told))]


def _end(found: Outcome) -> str:
    return f"end result of {found.part}" if found.part else "end result"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _effect(found: Outcome) -> str:
    if found.ended.get("good") != found.ended.get("bad"):
        one, other = (found.ended[side] or "ends well" for side in ("good", "bad"))
        return f"the script ends in other ways: {found.good}: {one}; {found.bad}: {other}"
    parts = (("numbers", found.numbers), ("tensors", found.tensors))
    told = [f"the {what} by {amount(far)}" for what, far in parts if far]
    return f"the {_end(found)} differs: {', '.join(told)}" if told else f"the {_end(found)} is the same"


def _nothing(found: Outcome) -> tuple[str, Said, str]:
    also = "Some operators have other names or were decomposed in another way; their values are equal."
    return (
        f"Of {found.counts['matched']} matched operators{f' of {found.part}' * bool(found.part)} none has other "
        "outputs for equal inputs",
        [("Result", f"The {_end(found)} is the same bit for bit."), ("Also", also if found.changes else "")],
        "Trace another part: the numbers that leave PyTorch elsewhere differ."
        if found.elsewhere
        else "Nothing. What the two versions print apart from numbers is not compared."
        if not found.printed
        else "Compare what they print; the numbers and tensors behind it are equal.",
    )


def _not_repeatable(found: Outcome) -> tuple[str, Said, str]:
    return (
        "No cause is named: the end result does not repeat",
        [("Why", f"{text}.") for text in found.not_repeatable],
        "Make the script deterministic first (seeds, torch.use_deterministic_algorithms(True), no time of day), then "
        "trace it again.",
    )


def _harmless(found: Outcome) -> tuple[str, Said, str]:
    first = found.causes[0]
    return (
        f"The {_end(found)} is the same bit for bit",
        [
            (
                "Also",
                f"{called(first)} gives other bits for equal inputs at {place(first)}; nothing of it is left at "
                "the end.",
            )
        ],
        "Nothing, while the result stays the same.",
    )


def _unexplained(found: Outcome) -> tuple[str, Said, str]:
    if found.raised is not None:
        return (
            _exception(found.raised),
            [("Why", "The script raises it, not PyTorch. Up to there no operator has other outputs for equal inputs.")],
            "Read that line: what it asks for, such as a version, differs.",
        )
    if found.ended.get("good") != found.ended.get("bad"):
        return (
            _capital(_effect(found)),
            [("Why", "Up to there no operator has other outputs for equal inputs.")],
            "Read the exception: what the script calls has changed, not what an operator computes.",
        )
    what, line = found.entry
    if found.part and line:
        return (
            f"What goes into {found.part} differs already, first at {line}",
            [
                ("Result", _capital(f"{_effect(found)}.")),
                ("Why", "No operator there has other outputs for equal inputs: the difference comes from before it."),
            ],
            "Trace what comes before it: the whole script, an earlier step or another module.",
        )
    return (
        "No operator was seen with equal inputs and other outputs",
        [
            ("Result", _capital(f"{_effect(found)}.")),
            (
                "Why",
                f"{_capital(what)} differs, and comes in first at {line}."
                if what
                else "The difference came in outside of PyTorch's operators, or through what could not be matched (see "
                "the table).",
            ),
        ],
        "Look at what the script does between operators: numpy, files, environment variables, Python's own random "
        "numbers.",
    )


def _exception(raised: RaisedThere) -> str:
    by = raised.function or raised.operator
    name, line = f", in {by}" * bool(by), f" at {raised.line}" * bool(raised.line)
    return f"{raised.version} raises an exception{line}{name}: {raised.text}"


def _raises(found: Outcome) -> tuple[str, Said, str]:
    raised = found.raised
    assert raised is not None
    other = found.bad if raised.version == found.good else found.good
    why = f"{other} goes on from there."
    if raised.returned:
        by = f", {raised.operator}," * (raised.function != raised.operator)
        why = f"In {other} the same operator{by} is given the same bits, and returns."
    kept = ", ".join(named(cause.kind) for cause in found.causes)
    also = f"Other bits of {kept} are not why: with them put back the exception stays." * bool(kept)
    return (
        _exception(raised),
        [("Why", why), ("Also", also)],
        f"Call it in another way there, as the exception asks for, or stay on {other}; then trace what comes after it."
        if raised.version == found.bad
        else f"Nothing, while you use {other}: it runs what {raised.version} refuses.",
    )


def _caused(found: Outcome) -> tuple[str, Said, str]:
    first = found.causes[0]
    needed = [cause for cause in found.causes if cause.needed]
    earliest = min(needed or [first], key=lambda cause: cause.bad_index or 0)
    if earliest is first:
        headline, also = f"The versions part at {place(first)}: {called(first)}", ""
    else:
        headline = f"Most of the difference comes in at {place(first)}: {called(first)}"
        also = f"The versions part before it, at {place(earliest)}: {called(earliest)}."
    said = [("Also", also), ("Right", first.judged.text)]
    said += [("Result", _capital(f"{_effect(found)}.")), ("Proof", _proof(found, needed))]
    return headline, said, _do(found, first)


def _reverse(found: Outcome) -> str:
    if found.reverse_with:
        others = ", ".join(map(named, found.reverse_with))
        return f"the reverse holds only with outputs of {others} put in, too"
    return "and the reverse holds" if found.reverse else "the reverse did not give the other result"


def _proof(found: Outcome, needed: list[Cause]) -> str:
    several = f"outputs of {len(needed)} kinds of operators ({', '.join(named(each.kind) for each in needed)})"
    what = several if len(needed) > 1 else "its outputs"
    if found.verdict == o.PROVEN:
        back = f"With {what} of {found.good} put into {found.bad}, the {_end(found)} is {found.good}'s bit for bit"
        return f"{back}; {_reverse(found)}."
    if found.comes_back is None:
        return "It could not be put back, so this is not proven."
    return f"With {what} put back a difference is left ({amount(found.left)}): this is not all of it."


def _do(found: Outcome, first: Cause) -> str:
    judged = first.judged
    if first.why == ARGUMENTS:
        return "Pass the argument explicitly, with the value that you mean."
    if first.why == DRAWS:
        return "Do not compare by seeds: draw the random numbers once, store them, and read them in both versions."
    if judged.exact_difference is not None and judged.good_units is None:
        return "Decide which of the two you mean, and call that one by name."
    if first.why == LAYOUT:
        return "Its inputs have other strides in the two versions: call contiguous() before it, and trace again."
    if judged.good_units is None or judged.bad_units is None:
        return "Run the extracted script (--extract) in both versions, and look at the operator alone."
    if max(judged.good_units, judged.bad_units) <= WITHIN:
        return "Accept it: both are right. Compare with a tolerance, or with a float64 run, not with stored bits."
    if judged.bad_units <= WITHIN:
        return f"Keep {found.bad}: the earlier result was the less exact one."
    if judged.good_units <= WITHIN:
        until = f"until then compute this in float64, or stay on {found.good}"
        return f"Report it to PyTorch with the extracted script (--extract); {until}."
    return "Both are inexact here: compute this part in a wider type if the result matters."
