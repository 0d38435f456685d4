"""Rules for times that changed: with an operator, with what a call costs beside its work, with threads, with
the machine, or with a kernel's own code.
"""

from __future__ import annotations

import math
import statistics

from harness.worker import protocol
from reports import model
from reports.attribute import thresholds
from reports.attribute.cards import Shown, card, card_of_time, excluded
from reports.attribute.cases import CaseFacts
from reports.attribute.causes import About, Cause, Kind, Rival, combined
from reports.attribute.cells import CellFacts, operators_moved
from reports.attribute.evidence import differences_seen, in_words, listed, load_seen, number
from reports.attribute.figures import profile_figure
from reports.attribute.profiles import OperatorChange, Profiles, another_backend, lines_seen, own, profiles
from reports.attribute.times import CALLED, Sides, TimeChange, leans, processors
from reports.attribute.words import Says
from reports.compare.factors import DIFFERS, SAME, operator_names, operators_seen
from reports.model import Latency, Seen
from reports.text import apart, brief_time, function_name

# -- the machine ------------------------------------------------------------------------------------------


def clock_or_load(change: TimeChange) -> Cause | None:
    """The clock moved with the time, or all targets moved together and the machine was not the same."""
    log_time = statistics.median(map(math.log, change.ratios))
    by_clock = change.clock_moved and bool(log_time) and -math.log(change.clock) / log_time >= thresholds.MOST
    everywhere = change.around.everywhere
    own_load = _busier_in_every_launch(change, "own", "while it called nothing, the launch's own process used")
    # Where another target of the same launches stood, others did not slow everything.
    others = [] if change.around.steady else _busier_in_every_launch(change, "busy", "other processes used")
    load = load_seen(change)
    if not (by_clock or everywhere or others or own_load):
        return None
    measured = bool(by_clock or load or others or own_load)
    in_each = "are busy in each of its slower launches, and in none of the others"
    what = "so are most other targets"
    if by_clock:
        what = "the GPU's clock moved with it"
    elif own_load:
        what = f"other threads of its process {in_each}"
    elif others:
        what = f"other processes {in_each}"
    alike = f"{change.around.alike} of {change.around.total} other targets became {change.word} too"
    return card_of_time(
        change,
        Kind.LATENCY_CLOCK_OR_LOAD,
        Shown.FOLLOWED if by_clock and everywhere else Shown.TOGETHER,
        Says.CLOCK_OR_LOAD,
        [*own_load, *others, *load],
        needs={"another reason that all targets share": measured},
        out=[excluded(Rival.ONE_OPERATOR, alike if everywhere else None)],
        group=("machine", what),
        measured=measured,
        what=what,
    )


def _busier_in_every_launch(change: TimeChange, kind: str, who: str) -> list[Seen]:
    """Launches of both environments take turns: what is busy in all of one's and in none of the other's, be it other
    processes or threads that a launch's own process has beside those that were called, came with it."""
    base, this = change.loads(kind)
    slower, faster = change.slower_first(base, this)
    if min(len(slower), len(faster)) < thresholds.FEWEST_LAUNCHES or min(slower) - max(faster) <= thresholds.BUSIER:
        return []
    shares = (
        f"{who} {min(base):.0%} to {max(base):.0%} of the machine in each of {len(base)} launches",
        f"{min(this):.0%} to {max(this):.0%} in each of {len(this)}",
    )
    return [Seen(text=apart(change.case.versions, *shares))]


# -- threads ----------------------------------------------------------------------------------------------


def thread_count(change: TimeChange) -> Cause | None:
    """By PyTorch's threads: fewer compute where it is slower, or more of them than there are processors take turns."""
    case = change.case
    one, two = change.threads
    for cell in change.cells:
        records = [found[0] for name in case.environments if (found := cell.profile(name)) is not None]
        counts = [record.threads for record in records if record.threads]
        if len(counts) == 2 and one == two:
            one, two = counts
    if not one or not two or one == two or change.at_work_alike:
        return None
    most, shared = max(one, two), processors(case) or 0
    fewer = (two < one) == (change.verdict == model.REGRESSED)
    if not fewer and (not shared or most <= shared):
        return None
    explained = max(one / two, two / one) * thresholds.THREADS_EXPLAIN
    within = all(max(ratio, 1 / ratio) <= explained for ratio in change.ratios)
    where = apart(case.versions, number(one, "thread"), two)
    return card_of_time(
        change,
        Kind.LATENCY_THREAD_COUNT,
        Shown.FOLLOWED,
        Says.FEWER_THREADS if fewer else Says.TOO_MANY_THREADS,
        [Seen(text=where if fewer else f"{where}, for {shared} processors"), *differences_seen(case, of_threads=True)],
        needs={"another reason beside the threads": fewer and within and change.around.alike},
        group=("threads", str(one), str(two)),
        here=number(two, "thread"),
        compute="computes" if two == 1 else "compute",
        before=one,
        most=number(most, "thread"),
        where=case.places[two > one],
        processors=number(shared, "processor"),
    )


def lost_threads(change: TimeChange) -> Cause | None:
    """As much processor time as before, by fewer processors at a time: what ran side by side runs one after the other,
    whatever number of threads PyTorch has. Not where the processors were taken by others."""
    if change.busier("busy") or change.busier("steal"):
        return None
    seen = [found for cell in change.cells if (found := _fewer_at_work(change, cell)) is not None]
    if not seen or len(seen) < len(change.cells):
        return None
    return card_of_time(
        change,
        Kind.LATENCY_THREAD_COUNT,
        Shown.TOGETHER,
        Says.LOST_THREADS,
        seen[:3],
        out=[excluded(Rival.MACHINE, "other processes took no more of the machine")],
        group=("threads at work", change.case.subject),
        measured=True,
        fewer="fewer" if change.sign > 0 else "more",
    )


def _fewer_at_work(change: TimeChange, cell: CellFacts) -> Seen | None:
    """What shows it of one cell: in every launch of the slower side fewer than in any of the other's."""
    sides, latency = change.at_work(cell), change.latency(cell)
    base_us, this_us = latency.baseline.median_us, latency.this.median_us
    if sides is None or not base_us or not this_us or base_us == this_us:
        return None
    slower, faster = change.slower_first(*sides)
    one, two = map(statistics.median, sides)
    if not one or not two or max(slower) >= min(faster):
        return None
    ratio = this_us / base_us
    fell = math.log(one / two) / math.log(ratio)
    if not thresholds.MOST <= fell <= 1 / thresholds.MOST or abs(math.log(ratio * two / one)) > thresholds.SAME_WORK:
        return None
    text = (
        f"its calls kept {apart(cell.versions, f'{one:.2f} processors busy', f'{two:.2f}')}; the processor time of a "
        f"call is {ratio * two / one:.2f} times that of {cell.versions[0]}"
    )
    return cell.seen(text, latency.this.record)


def starts_threads(change: TimeChange) -> Cause | None:
    """Each call of the slower side starts threads: whoever else of its launches is slower, this is its own."""
    seen = [_starts(change, cell) for cell in change.cells]
    return _own_threads(change, [[each] for each in seen if each is not None]) if all(seen) else None


def more_threads(change: TimeChange) -> Cause | None:
    """The slower side's calls keep more processors busy than PyTorch has threads, or their threads come and go all the
    time, and the other's do not: threads of the kernel's own, which wait for each other."""
    seen = [[s for rule in (_beyond, _restless) if (s := rule(change, cell)) is not None] for cell in change.cells]
    return _own_threads(change, seen) if change.case.is_kernel and all(seen) else None


def _own_threads(change: TimeChange, seen: list[list[Seen]]) -> Cause:
    return card_of_time(
        change,
        Kind.LATENCY_THREAD_COUNT,
        Shown.TOGETHER,
        Says.OWN_THREADS,
        [each for of_cell in seen[:3] for each in of_cell],
        needs={"it has more work to do, or waits for something else": None},
        group=("threads of its own", change.case.subject),
        where=change.case.places[change.sign > 0],
    )


def _told_apart(change: TimeChange, cell: CellFacts, sides: Sides, text: str, form: str) -> Seen:
    """One median a side, in a sentence that has {sides}."""
    one, two = (format(statistics.median(side), form) for side in sides)
    threads = f"PyTorch reports {number(change.same_threads or 0, 'thread')} in both"
    sided = apart(cell.versions, text.format(one), two)
    return cell.seen(f"{sided}; {threads}" if change.same_threads else sided, change.latency(cell).this.record)


def _beyond(change: TimeChange, cell: CellFacts) -> Seen | None:
    """That one cell's calls keep more processors busy than PyTorch has threads, in every launch of one side only."""
    sides, threads = change.at_work(cell), change.same_threads
    if sides is None or threads is None:
        return None
    slower, faster = change.slower_first(*sides)
    beyond = thresholds.BEYOND_THREADS
    if min(slower) < (1 + beyond) * threads or max(faster) > (1 + beyond / 3) * threads:
        return None
    return _told_apart(change, cell, sides, "its calls kept {} processors busy", ".2f")


def _starts(change: TimeChange, cell: CellFacts) -> Seen | None:
    """That one cell's calls start threads, in every launch of the slower side at least twice as many as in any of the
    other's, and not because the machine does."""
    sides = change.of_calls(cell, lambda _, timing: timing.threads_started)
    if sides is None:
        return None
    slower, faster = change.slower_first(*sides)
    least = max(thresholds.THREADS_STARTED, thresholds.THREADS_MORE * max(faster))
    if min(slower) < least or not _by_itself(change, cell):
        return None
    return _told_apart(change, cell, sides, "each of its calls started {} threads", ",.0f")


def _by_itself(change: TimeChange, cell: CellFacts) -> bool:
    """Whether another target of the slower side's launches starts fewer threads in the same time: those of other
    processes, which are counted too, would meet both alike."""
    rates: dict[tuple[str, str], list[float]] = {}
    for _, timing in change.timings(cell, change.slower_environment):
        if timing.threads_started is not None and timing.samples_us:
            rate = timing.threads_started / statistics.median(timing.samples_us)
            rates.setdefault((timing.workload, timing.target), []).append(rate)
    started = min(rates.get((cell.workload, cell.target), [0.0]))
    others = [max(found) for (_, target), found in rates.items() if _another(target, cell)]
    return not others or thresholds.THREADS_MORE * min(others) <= started


def _another(target: str, cell: CellFacts) -> bool:
    """A target's backward pass by itself is no other target."""
    return target.partition(protocol.BACKWARD)[0] != cell.target


def _restless(change: TimeChange, cell: CellFacts) -> Seen | None:
    """That one cell's threads leave their processors all the time, in every launch of one side, and in none of the
    other's, nor in any other target's calls. What a variable tells threads to do while they wait is another matter."""
    sides, threads = change.of_calls(cell, lambda _, timing: timing.switches_per_ms), change.same_threads
    if sides is None or threads is None or change.case.variables:
        return None
    slower, faster = change.slower_first(*sides)
    others = [
        timing.switches_per_ms
        for _, timing in change.timings(cell, change.slower_environment)
        if _another(timing.target, cell) and timing.switches_per_ms is not None
    ]
    if min(slower) < thresholds.RESTLESS or max((*faster, *others)) > thresholds.CALM:
        return None
    text = "in each millisecond of its calls threads left their processors {} times"
    return _told_apart(change, cell, sides, text, ".3g")


# -- operators --------------------------------------------------------------------------------------------


def operator(change: TimeChange) -> Cause | None:
    case, cells = change.case, change.cells
    found = profiles(case, cells)
    if found is not None:
        return _from_profile(change, found)
    if case.is_kernel:
        return None
    moved = any(operators_moved(*cell.sides) for cell in cells)
    operators = cells[0].sides[1].operators
    return card_of_time(
        change,
        Kind.LATENCY_OPERATOR,
        Shown.TOGETHER,
        Says.ANOTHER_OPERATOR if moved else Says.SAME_OPERATOR,
        [operators_seen(*cells[0].sides, case.versions)] if operators else [],
        needs={Rival.MACHINE: moved or change.around.steady},
        group=("operator", *sorted(operator_names(operators))) if operators else (),
    )


def _from_profile(change: TimeChange, found: Profiles) -> Cause | None:
    """The profile's own change must go the way of the measured one, or it explains nothing."""
    case, cell = change.case, found.cell
    total = sum(each.delta_us for each in found.changes)
    measured = _change_us(change.latency(cell))
    if total * change.sign <= 0:
        return None
    leading: list[OperatorChange] = []
    for each in found.changes:
        if each.delta_us * change.sign > 0 and len(leading) < 3:
            leading.append(each)
        if sum(each.delta_us for each in leading) / total >= thresholds.WHOLE:
            break
    share = sum(each.delta_us for each in leading) / total
    if not leading or share < thresholds.MOST or (case.is_kernel and all(own(case, each) for each in leading)):
        return None
    agrees = measured is not None and 1 / thresholds.AGREES <= total / measured <= thresholds.AGREES
    named = [(function_name(each.name), each.word, brief_time(each.delta_us, "+")) for each in leading]
    medians = f", in the launches {_more(measured)}" if measured is not None else ""
    text = (
        f"under the profiler, whose own cost is included, a call takes {_more(total)} than in "
        f"{case.versions[0]}{medians}; the operators named make {min(share, 1):.0%} of the change under the profiler"
    )
    cause = card_of_time(
        change,
        Kind.LATENCY_OPERATOR,
        Shown.FOLLOWED,
        Says.OPERATORS_OF_PROFILE,
        [Seen(text=text, record=found.path), *lines_seen(case, cell)],
        needs={
            "other operators": share >= thresholds.WHOLE,
            "what the profiler itself costs": agrees,
            Rival.MACHINE: change.around.alike < max(1, change.around.total),
        },
        drawn=[profile_figure(found)],
        group=("profile", *(name for name, _, _ in named)),
        # The same operators, only slower, may be slowed by whatever else moved.
        measured=not all(each.alike for each in leading),
        operators="; ".join(f"{name} {word} ({more} a call)" for name, word, more in named),
    )
    swapped = another_backend(case, cell)
    if swapped is None:
        return cause
    chosen = card_of_time(
        change,
        Kind.DEFAULT_BACKEND_MOVED,
        Shown.TOGETHER,
        Says.BACKEND_CHOSEN,
        [Seen(text=f"by its profiles: {swapped.text}", record=swapped.record)],
        group=("default", swapped.before, swapped.here),
        before=swapped.before,
        here=swapped.here,
    )
    return combined(cause, chosen)


def _more(us: float) -> str:
    return f"{brief_time(abs(us))} {'more' if us > 0 else 'less'}"


def _change_us(latency: Latency) -> float | None:
    base, this = latency.baseline.median_us, latency.this.median_us
    return this - base if base is not None and this is not None else None


def many_small_calls(change: TimeChange) -> Cause | None:
    """The same work cut into many more calls, each of which does less: the time is that of calling."""
    found = profiles(change.case, change.cells)
    if found is None:
        return None
    one, two = (sum(each.calls[side] for each in found.changes) for side in (0, 1))
    before, here = sum(c.before_us or 0.0 for c in found.changes), sum(c.after_us or 0.0 for c in found.changes)
    (many, longer), (few, shorter) = change.slower_first((one, before), (two, here))
    if not few or many < thresholds.MANY_CALLS * few or longer <= shorter:
        return None
    if longer / many > thresholds.SHORTER * shorter / few:
        return None
    text = f"an operator takes {apart(change.case.versions, brief_time(before / one), brief_time(here / two))}"
    how = Seen(text="each call of an operator takes less time than before", record=found.path)
    return card_of_time(
        change,
        Kind.LATENCY_LAUNCH_OVERHEAD,
        Shown.TOGETHER,
        Says.MANY_SMALL_CALLS,
        [found.cell.seen(text, found.path), *lines_seen(change.case, found.cell)],
        out=[excluded(Rival.ONE_OPERATOR, how)],
        drawn=[profile_figure(found)],
        measured=True,
        before=f"{one:.0f}",
        here=f"{two:.0f}",
        graph=_in_replays(change),
    )


def _in_replays(change: TimeChange) -> str:
    """Whether a CUDA graph, whose replays start nothing one by one, would take the time of starting away."""
    hot = [(cell.row.hot, cell.row.latency) for cell in change.cells if cell.row.hot is not None]
    if not hot or change.mode == model.BACKWARD or any(replayed.ratio is None for replayed, _ in hot):
        return "The time goes into starting them."
    if all(_still(replayed, cold) for replayed, cold in hot):
        before = change.case.versions[0]
        return f"The time goes into starting them: replays of a CUDA graph take as long as in {before}."
    return f"Replays of a CUDA graph are {change.word} too: on the device itself so many small ones take longer."


def launch_overhead_on_gpu(change: TimeChange) -> Cause | None:
    """Replays of a graph hold no launches: where they stand still and single calls moved, the call did."""
    cells = change.cells
    hot = [cell.row.hot for cell in cells if cell.row.hot is not None and _still(cell.row.hot, cell.row.latency)]
    if change.case.device != "cuda" or change.mode != model.COLD or not cells or len(hot) < len(cells):
        return None
    evidence, shares = [], []
    for cell in cells:
        latency = cell.row.latency
        one, two = (side.gpu.enqueue_us if side.gpu else None for side in (latency.baseline, latency.this))
        if one is None or two is None:
            continue
        text = f"the host enqueues a call in {apart(cell.versions, brief_time(one), brief_time(two))}"
        evidence.append(cell.seen(text, latency.this.record))
        moved = _change_us(latency)
        if moved:
            shares.append((two - one) / moved)
    # More of it than moved explains nothing.
    enough = bool(shares) and thresholds.MOST <= statistics.median(shares) <= 1 / thresholds.MOST
    ratios = listed(f"{each.ratio:.3f}\N{MULTIPLICATION SIGN}" for each in hot)
    how = f"replays of a CUDA graph, which contain no launches, take {ratios} the time of {change.case.versions[0]}"
    return card_of_time(
        change,
        Kind.LATENCY_LAUNCH_OVERHEAD,
        Shown.FOLLOWED if enough else Shown.HINT,
        Says.OVERHEAD_ON_GPU,
        evidence[:4],
        out=[excluded(Rival.ONE_OPERATOR, Seen(text=how, record=cells[0].row.latency.this.record))],
        group=("overhead", change.case.subject),
        measured=enough,
        part="the host's part of a call" if enough else "what surrounds a launch, or a cold cache",
    )


def _still(hot: Latency, cold: Latency) -> bool:
    if hot.ratio is None or cold.ratio is None or hot.verdict in CALLED:
        return False
    return abs(math.log(hot.ratio)) < thresholds.STILL * abs(math.log(cold.ratio))


def launch_overhead_on_cpu(change: TimeChange) -> Cause | None:
    """About the same microseconds more for small problems and large: a call's own cost. Work would grow with them."""
    if change.case.device == "cuda" or change.mode == model.BACKWARD:
        return None
    sized = []
    for cell in change.case.cells:
        size, moved = cell.row.latency.baseline.median_us, _change_us(cell.row.latency)
        if size is not None and moved is not None:
            sized.append((size, moved, cell))
    sized.sort(key=lambda each: each[0])
    if not sized or sized[0][2] not in change.cells:
        return None
    small_us, more_us, _ = sized[0]
    large = [(size, delta) for size, delta, _ in sized if size >= thresholds.LARGER * small_us]
    constant = all(
        abs(delta - more_us) <= max(thresholds.CONSTANT * abs(more_us), thresholds.NOISE * size)
        for size, delta, _ in sized
    )
    grown = thresholds.GROWS * more_us / small_us
    if not large or not constant or any((delta / size - grown) * change.sign > 0 for size, delta in large):
        return None
    size, delta = large[-1]
    changes = [f"{brief_time(more, '+')} of {brief_time(us)}" for us, more in ((small_us, more_us), (size, delta))]
    return card_of_time(
        change,
        Kind.LATENCY_LAUNCH_OVERHEAD,
        Shown.TOGETHER,
        Says.OVERHEAD_ON_CPU,
        [Seen(text=f"the change is {', and '.join(changes)}", record=change.latency(change.cells[0]).this.record)],
        needs={Rival.MACHINE: change.around.steady},
        group=("overhead", change.case.subject),
        costs="more" if change.sign > 0 else "less",
    )


# -- the kernel's code, and what is left ------------------------------------------------------------------


def code_text(case: CaseFacts) -> str:
    """Return how a kernel's machine code changed."""
    if case.build_differences:
        return f"its build changed ({in_words(case.build_differences)})"
    return f"its source compiles to other machine code in {case.places[1]}"


def code(change: TimeChange) -> Cause | None:
    """A kernel moved by itself, and its machine code with it."""
    case = change.case
    if not case.is_kernel or case.code.state != DIFFERS:
        return None
    found = profiles(case, change.cells)
    return card_of_time(
        change,
        Kind.BUILD_MOVED if case.build_differences else Kind.KERNEL_CODE_MOVED,
        Shown.TOGETHER,
        Says.CODE_OF_TIME,
        [case.code.seen, *case.build_differences, *_wrong_output(change)],
        needs={Rival.MACHINE: change.around.steady},
        drawn=[profile_figure(found)] if found is not None else (),
        how=code_text(case),
    )


def _wrong_output(change: TimeChange) -> list[Seen]:
    for cell in change.cells:
        latency = change.latency(cell)
        if latency.this.wrong_output or latency.baseline.wrong_output:
            why = latency.this.message or latency.baseline.message
            text = "the output that was timed is wrong, so the time is not that of the problem"
            return [Seen(text=text + (f": {why}" if why else ""), record=cell.record)]
    return []


def unexplained(change: TimeChange) -> Cause:
    case = change.case
    known = case.is_kernel and case.code.state == SAME
    why = "its machine code is the same" if known else "no profile of both environments shows which part of it"
    return card_of_time(
        change,
        Kind.UNDECIDED,
        Shown.NOT,
        Says.UNEXPLAINED,
        [*([case.code.seen] if case.is_kernel else []), *_wrong_output(change), *differences_seen(case)[:4]],
        group=("unexplained", case.subject, why),
        why=why,
    )


def leaning(case: CaseFacts) -> Cause | None:
    """Times that lean one way and were not called: no cause is given, and nobody shall believe that they stood."""
    found = [(cell, latency) for cell in case.cells for latency in cell.row.timed if leans(latency)]
    if not case.is_kernel or not found:
        return None
    cells = list(dict.fromkeys(cell for cell, _ in found))
    most = max(len(latency.this.medians_us) for _, latency in found)
    return card(
        case,
        Kind.UNDECIDED,
        Shown.NOT,
        Says.LEANING,
        cells,
        [cell.seen(latency.why, latency.this.record) for cell, latency in found[:4]],
        about=About.LATENCY,
        command=f"{case.command(cells)} --launches {max(20, 2 * most)}",
        group=("leans",),
        workloads=listed(cell.workload for cell in cells),
    )
