"""At which sizes a kernel is wrong, in words, with the number of sizes that each pattern rests on. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

from harness.experiments.condition_list import TILES
from harness.experiments.size_rules import FEWEST, HEAD_DIM, LENGTH, Point, Rule, Tried
from reports.attribute import thresholds
from reports.attribute.facts.experiments import LengthTrials
from reports.text import together

NAMES = {LENGTH: "sequence length", "heads": "number of heads", "batch": "batch size", HEAD_DIM: "head dimension"}
MOST_LISTED = 12
AXES = {"row": (2, LENGTH), "head": (1, "heads")}  # of an output's index


def sizes_text(lengths: LengthTrials) -> str:
    right, wrong = lengths.right, lengths.wrong
    if lengths.rule is not None:
        text = _rule_text(lengths, lengths.rule)
    elif not right:
        text = f"{_how(lengths.points)} at every length tried ({len(wrong)})"
    else:
        left = len(wrong) - MOST_LISTED
        more = f" and {left} more" if left > 0 else ""
        text = f"{_how(lengths.points)} at {', '.join(map(str, wrong[:MOST_LISTED]))}{more}"
        text += f"; right at {len(right)} of {len(right) + len(wrong)} lengths tried"
        text += "; more than one rule fits, so none is told" if lengths.rules else _common(right, wrong)
    return text + _place(lengths)


def reproduced_at(lengths: LengthTrials) -> str:
    """The smallest that is wrong; the length always, of the others what is not the workload's own."""
    sizes = reversed([*(lengths.smallest or {}).items()])
    return ", ".join(f"{NAMES[name]} {n}" for name, n in sizes if name == LENGTH or n != lengths.own[name])


def _how(points: Iterable[Point]) -> str:
    """How it fails where it does."""
    crashed = {point.crashed for point in points if point.right is False}
    return "crashes" if crashed == {True} else "wrong, or crashes," if True in crashed else "wrong"


def _rule_text(lengths: LengthTrials, rule: Rule) -> str:
    name = NAMES[rule.dimension]
    tried, before = (Tried(rule.dimension, each) for each in (lengths.points, lengths.planned))
    is_wrong, is_right = _sides(rule, tried)
    wrong, right = (len(before.wrong), len(before.right))
    how = _how(lengths.points)
    text = f"{how} at every {name} tried that is {is_wrong} ({wrong} of {wrong})"
    text += f", right at every one that is {is_right} ({right} of {right})"
    if after := sorted((tried.wrong | tried.right) - before.wrong - before.right):
        told = [f"{size} ({how.partition(',')[0] if size in tried.wrong else 'right'})" for size in after]
        text += f"; tried afterwards at {together(told)}, as this says"
    else:
        text += "; no further size was tried to refute it"
    if any(point.right and rule.wrong_at(point.sizes[rule.dimension]) for point in lengths.points):
        text += "; at length 1 it is right with any"
    return text


def _sides(rule: Rule, tried: Tried) -> tuple[str, str]:
    """What the sizes are that are wrong, and that are right."""
    if rule.kind in ("on", "off"):
        on, off = f"a multiple of {rule.number}", f"no multiple of {rule.number}"
        if rule.number == 2:
            on, off = "even", "odd"
        if rule.kind == "on":
            return on, off
        return (f"{off} and above 1", f"{on}, or 1") if rule.but_one else (off, on)
    below, above = (tried.right, tried.wrong) if rule.kind == "above" else (tried.wrong, tried.right)
    last, first = max(below), min(above)
    words = f"{last} or less" if last > 1 else "1", f"above {last}" if first == last + 1 else f"{first} or more"
    return words if rule.kind == "up_to" else words[::-1]


def _common(right: list[int], wrong: list[int]) -> str:
    """What no wrong length is, and right ones are."""
    for step in (2, *TILES):
        on = sum(not each % step for each in right)
        if on and len(wrong) >= FEWEST and all(each % step for each in wrong):
            kind = "even" if step == 2 else f"a multiple of {step}"
            return f"; none of the {len(wrong)} wrong ones is {kind}, {on} of the {len(right)} right ones are"
    return ""


def _place(lengths: LengthTrials) -> str:
    """Where the largest errors are, if chance would not put them all there."""
    for name, (axis, dimension) in AXES.items():
        found = [(sizes[dimension], index[axis]) for sizes, index in lengths.worst if sizes[dimension] > 1]
        if len(found) < FEWEST or math.prod(1 / size for size, _ in found) > thresholds.BY_CHANCE:
            continue
        for which in ("last", "first"):
            if all(at == (size - 1 if which == "last" else 0) for size, at in found):
                return f"; the largest error is in the {which} {name} at each of the {len(found)}"
    return ""
