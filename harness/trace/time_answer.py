"""What a trace says of times and memory, in sentences. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.stats.decide import SAME
from harness.trace.outcome import DECISIVE, SUGGESTIVE, Outcome
from harness.trace.times import MOVED
from harness.trace.wording import Said, named

MIB = 1 << 20


def of_times(found: Outcome) -> Said:
    """Nothing where no times were measured."""
    if found.times is None:
        return []
    rows = [row for row in found.times["rows"] if row["moved"]]
    said = [("Time", _whole(found))]
    said += [(_way(row["seconds"]).capitalize(), _row(found, row)) for row in rows]
    command = found.times["command"]
    again = f"{command} shows and explains these calls alone." if command else ""
    return [*said, ("Again", again), ("RAM", _memory(found))]


def grade(times: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """Decisive where the script's time, the region's in it and the region's alone moved the same way, each decided."""
    ways = {_way(facts) for facts in (times["whole"], row["seconds"], row["alone"])}
    return DECISIVE if len(ways) == 1 and ways != {""} else SUGGESTIVE


def _way(facts: Mapping[str, Any] | None) -> str:
    """Slower or faster; empty where it is neither, or was not measured."""
    return facts["verdict"].removeprefix("slightly ") if facts and facts["verdict"] in MOVED else ""


def ratio_text(facts: Mapping[str, Any]) -> str:
    """With its interval, where it was tested."""
    if facts["ratio"] is None:
        return "\N{EN DASH}"
    interval = f" ({facts['low']:.2f} to {facts['high']:.2f})" if facts["low"] is not None else ""
    return f"{facts['ratio']:.2f} times{interval}"


def _whole(found: Outcome) -> str:
    times = found.times or {}
    whole = times["whole"]
    how = f"{whole['good']:.3g} s and {whole['bad']:.3g} s, {whole['samples']} processes each, in turns"
    if whole["verdict"] not in MOVED:
        what = (
            "The script takes as long in both"
            if whole["verdict"] == SAME
            else ("Whether the script takes longer is undecided")
        )
        return f"{what}: {ratio_text(whole)}; {how}."
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
    is_decided = whole["verdict"] in MOVED
    share = f", {seconds['difference'] / whole['difference']:.0%} of the difference" if is_decided else ""
    return f"{named(row['kind'])} at {where}: {seconds['difference']:+.3g} s{share}; {_alone(times, row)}."


def _alone(times: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    alone = row["alone"]
    if not alone:
        return f"it was not timed alone: {row['problem']}"
    text = f"one call of it alone takes {ratio_text(alone)} as long"
    graded = grade(times, row)
    shows = _way(alone) == _way(row["seconds"])
    open_is = "the script's own time did not move so" if shows else "that does not show it"
    return f"{text}{'' if graded == DECISIVE else f', and {open_is}'}: {graded}"


def _memory(found: Outcome) -> str:
    times = found.times or {}
    memory, start = times["memory"], times["start_bytes"]
    text = f"The process holds at most {memory['good'] / MIB:.0f} and {memory['bad'] / MIB:.0f} MiB"
    text += "" if memory["verdict"] in MOVED else ", no difference that is decided"
    text += f"; PyTorch alone, before the script, {start[0] / MIB:.0f} and {start[1] / MIB:.0f} MiB."
    row = times["memory_row"]
    if not row:
        return text
    needs = " and ".join(f"{each / MIB:.3g}" for each in row["peak_bytes"])
    return f"{text} A call of {named(row['kind'])} at {row['line']} needs up to {needs} MiB of its own."
