"""What a trace says of times and memory, in sentences. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.trace.outcome import DECISIVE, SUGGESTIVE, Outcome
from harness.trace.wording import Said, named

MIB = 1 << 20


def of_times(found: Outcome) -> Said:
    """Nothing where no times were measured."""
    if found.times is None:
        return []
    rows = [row for row in found.times["rows"] if row["moved"]]
    said = [("Time", _whole(found))]
    said += [("Slower" if row["seconds"]["difference"] > 0 else "Faster", _row(found, row)) for row in rows]
    return [*said, ("RAM", _memory(found))]


def grade(times: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """Decisive where the script's time, the region's in it and the region's alone moved the same way, each decided."""
    every = [facts for facts in (times["whole"], row["seconds"], row["alone"]) if facts]
    same = len({facts["difference"] > 0 for facts in every}) == 1
    return DECISIVE if len(every) == 3 and same and all(facts["decided"] for facts in every) else SUGGESTIVE


def ratio_text(facts: Mapping[str, Any]) -> str:
    low, high = facts["extremes"]
    return f"{facts['ratio']:.2f} times ({low:.2f} to {high:.2f})"


def _whole(found: Outcome) -> str:
    times = found.times or {}
    whole = times["whole"]
    how = f"{whole['good']:.3g} s and {whole['bad']:.3g} s, {whole['samples']} processes each, in turns"
    if not whole["decided"]:
        return f"Whether the script takes longer is undecided: {ratio_text(whole)}; {how}."
    text = f"{found.bad} takes {ratio_text(whole)} as long as {found.good}: {how}."
    if times["problem"]:
        return f"{text} Which operators that comes from is not known: {times['problem']}."
    where = f"operators of {found.part}" if found.part else "operators"
    rest = 1 - times["all"]
    return f"{text} The {where} add up to {times['all']:.0%} of the difference; {rest:.0%} is not explained by them."


def _row(found: Outcome, row: Mapping[str, Any]) -> str:
    times, seconds = found.times or {}, row["seconds"]
    where = f"the backward of {row['line']}" if row["phase"] == "backward" else row["line"]
    whole = times["whole"]
    share = f", {seconds['difference'] / whole['difference']:.0%} of the difference" if whole["decided"] else ""
    return f"{named(row['kind'])} at {where}: {seconds['difference']:+.3g} s{share}; {_alone(times, row)}."


def _alone(times: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    if not row["alone"]:
        return f"it did not run alone: {row['problem']}"
    text = f"one call of it alone, again and again, takes {ratio_text(row['alone'])} as long"
    graded = grade(times, row)
    shows = row["alone"]["decided"] and (row["alone"]["difference"] > 0) == (row["seconds"]["difference"] > 0)
    open_is = "the script's own time is not decided" if shows else "that does not show it"
    why = "" if graded == DECISIVE else f", and {open_is}"
    return f"{text}{why}: {graded}"


def _memory(found: Outcome) -> str:
    times = found.times or {}
    memory, start = times["memory"], times["start_bytes"]
    text = f"The process holds at most {memory['good'] / MIB:.0f} and {memory['bad'] / MIB:.0f} MiB"
    text += "" if memory["decided"] else ", no difference that is decided"
    return f"{text}; PyTorch alone, before the script, {start[0] / MIB:.0f} and {start[1] / MIB:.0f} MiB."
