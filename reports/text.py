"""Numbers, names and commands as a reader meets them. Pure.

Every number has its unit, and every estimate its interval, or the words that it has none.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from harness.typed import typed_by_nox, words_of
from harness.worker import protocol
from harness.worker.text import cut, last_line, plain
from reports.model import BACKWARD, COLD, Comparison, CorrectnessSide, Judged, Memory, Rate, Side

ABSENT = "\N{EM DASH}"
MOST_EFFECT = 10.0  # 1000%: launches that only show more show nothing
TIMES = "\N{MULTIPLICATION SIGN}"
BYTES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes"))


def words(status: str) -> str:
    return status.replace("_", " ")


def apart(versions: Sequence[str], one: object, two: object) -> str:
    """What is seen in the baseline, and in the environment that is compared with it."""
    return f"{one} in {versions[0]}, {two} in {versions[1]}"


def count_of(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def together(texts: Iterable[str]) -> str:
    """a, b and c."""
    *most, last = texts
    return f"{', '.join(most)} and {last}" if most else last


def short(text: str, length: int = 120) -> str:
    """The beginning of a message; the whole is with the row's evidence."""
    return text if len(text) <= length else f"{text[: length - 1].rstrip()}\N{HORIZONTAL ELLIPSIS}"


def message_text(ended: CorrectnessSide, length: int = 300) -> str:
    """The message of something that ended, both ends of it, and the last line of its log, which it may not have."""
    message, last = cut(plain(ended.message or words(ended.status)), length), last_line(plain(ended.log_excerpt))
    stopped = ended.status in (protocol.CRASHED, protocol.TIMED_OUT, protocol.KILLED)
    if not stopped or not last or last in ended.message:
        return message
    return f"{message}; the last line of its log: {cut(last, length // 2)}"


def end_text(ended: Iterable[Side]) -> str:
    """Return after how long processes ended without a result, such as " after 3.2 s"; '' where that is not known."""
    seconds = sorted(side.ended_after_s for side in ended if side.ended_after_s is not None)
    after = " to ".join(dict.fromkeys(map(duration_text, seconds[:1] + seconds[-1:])))
    return f" after {after}" if after else ""


def duration_text(seconds: float) -> str:
    """Return how long a process ran, such as "3.21 s" or "1800 s"."""
    return f"{seconds:.0f} s" if seconds >= 100 else brief_time(seconds * 1e6)


# C++ functions that many operators are made of, and what they are given by every one of those.
SHARED_FUNCTIONS = re.compile(r"\w*elementwise_kernel|reduce_kernel|Kernel\d?")
SHARED_PARTS = re.compile(r"gpu_kernel_impl\w*|AUnaryFunctor|BUnaryFunctor|BinaryFunctor|ReduceOp|func_wrapper_t")
PARTS = re.compile(r"\w*(?:_kernel|_cuda|Functor|cutlass_)\w*")
BRACKETS = re.compile(r"<[^<>()]*>|\([^<>()]*\)")  # the innermost


def function_name(name: str) -> str:
    """A device function without its namespaces, types and arguments, short enough for a sentence; of one that many
    operators are made of with what it does: elementwise_kernel<MulFunctor>. Any other name as it is, shortened."""
    whole = plain = re.sub(r"\(anonymous namespace\)::|<unnamed>::", "", name)
    if not (("::" in name or name.startswith("void ")) and re.search("[<(]", whole)):
        return short(whole, 60)
    while (bare := BRACKETS.sub("", plain)) != plain:
        plain = bare
    plain = plain.removesuffix(" const").rpartition(" ")[2].rpartition("::")[2]  # behind a type that it returns
    if plain in ("", "operator"):  # a lambda's
        return short(whole, 60)
    if SHARED_FUNCTIONS.fullmatch(plain):
        known = (SHARED_FUNCTIONS, SHARED_PARTS)
        parts = [part for part in PARTS.findall(whole) if not any(each.fullmatch(part) for each in known)]
        if parts:
            plain = parts[0] if plain.startswith("Kernel") else f"{plain}<{parts[0]}>"
    return short(plain, 60)


def unit_of(microseconds: float) -> tuple[float, str, int | None]:
    """Size of the unit in microseconds, its name, and decimal places; None where it is below them all."""
    for size, unit in ((1e6, "s"), (1e3, "ms"), (1.0, "\N{MICRO SIGN}s")):
        if microseconds >= size:
            return size, unit, max(0, 3 - math.floor(math.log10(microseconds / size)))
    return 1.0, "\N{MICRO SIGN}s", None


def time_text(microseconds: float | None) -> str:
    """Four significant digits, in the unit that keeps them before the thousands."""
    if microseconds is None:
        return ABSENT
    size, unit, places = unit_of(microseconds)
    return f"{microseconds / size:.{places}f} {unit}" if places is not None else f"{microseconds:.3g} {unit}"


def brief_time(microseconds: float, sign: str = "") -> str:
    """Three significant digits; of a difference with its sign, where that is "+"."""
    size, unit, _ = unit_of(float(f"{abs(microseconds):.3g}"))
    return f"{microseconds / size:{sign}.3g} {unit}"


def number(value: float | None, digits: int = 3) -> str:
    return ABSENT if value is None else f"{value:.{digits}g}"


def percent(value: float | None) -> str:
    if value is None:
        return ABSENT
    return f"{value:.0%}" if value >= 0.1 else f"{value:.1%}"


def effect_text(value: float | None) -> str:
    """A slow-down that can be detected; none where only one beyond all bounds could be."""
    return ABSENT if value is None or value > MOST_EFFECT else percent(value)


def span(values: Sequence[float], form: str) -> str:
    """The smallest and the largest of some values, once where they read alike."""
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"


def ratios_text(ratios: Sequence[float]) -> str:
    """2.90 to 4.50x; of ratios within 2% of each other the smallest."""
    low, high = min(ratios), max(ratios)
    return f"{low:.2f} to {high:.2f}{TIMES}" if high / low > 1.02 else f"{low:.2f}{TIMES}"


def rate_text(rate: Rate | None) -> str:
    return f"{rate.passed}/{rate.trials}" if rate else ABSENT


def rate_interval(rate: Rate | None) -> str:
    return f"{rate.low:.0%}\N{EN DASH}{rate.high:.0%}" if rate else ""


def with_interval(text: str, low: float | None, high: float | None, form: str) -> str:
    return f"{text} (no interval)" if low is None or high is None else f"{text} [{low:{form}}, {high:{form}}]"


def ratio_interval(ratio: float, low: float | None, high: float | None, form: str = ".3f") -> str:
    """1.031x [1.022, 1.040]."""
    return with_interval(f"{ratio:{form}}{TIMES}", low, high, form)


def change_text(judged: Judged) -> str:
    """The ratio to the baseline, never without its interval where one exists."""
    return ABSENT if judged.ratio is None else ratio_interval(judged.ratio, judged.low, judged.high)


def mode_text(row: Comparison, mode: str) -> str:
    """Which of a row's times it is; '' where there is one alone."""
    if row.backward is None or mode == BACKWARD:
        return mode if len(row.modes) > 1 else ""
    return "step" if row.hot is None and mode == COLD else f"step, {mode}"


def bytes_text(size_bytes: float | None) -> str:
    """Three significant digits, such as "4.51 MiB"."""
    if size_bytes is None:
        return ABSENT
    size, unit = next((each for each in BYTES if size_bytes >= each[0]), BYTES[-1])
    value = size_bytes / size
    return f"{value:.0f} {unit}" if value >= 999.5 else f"{value:.3g} {unit}"


def memory_change(memory: Memory) -> str:
    """Such as "2.25 MiB to 4.5 MiB"."""
    return f"{bytes_text(memory.baseline.peak_bytes)} to {bytes_text(memory.this.peak_bytes)}"


def tally_text(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {words(verdict)}" for verdict, count in counts.items())


def markdown(text: object) -> str:
    """Text as Markdown shows it, and nothing else: no markup, no mention, no second column."""
    return re.sub(r"([\\`*_{}\[\]<>|#@!~&])", r"\\\1", " ".join(str(text).split()))


# Options of a run's command that say what its kernels are, and where its cells ran.
PLACE = ("--matrix", "--executor", "--base-image", "--bundle", "--problems", "--solutions", "--sample", "--dtype")


def place_options(command: Sequence[str], names: Sequence[str] = PLACE) -> list[str]:
    """Those of a run's options that a command which reproduces it must repeat, quoted for the shell."""
    kept: list[str] = []
    for word, following in zip(command, [*command[1:], ""], strict=True):
        if word in names:
            kept += [word, shlex.quote(following)]
        elif word.startswith(tuple(f"{option}=" for option in names)):
            kept.append(shlex.quote(word))
    return kept


def matrix_command(command: Sequence[str], **selected: str | None) -> str:
    """As a run's own `command` was typed, in the same place. `selected`: the kernel, workload and device. They
    came from records, so each is quoted."""
    return _spelled(command, "matrix", [*_selection(selected), *place_options(command)])


def explain_command(command: Sequence[str], **selected: str | None) -> str:
    """As `matrix_command`: `explain` knows from the run where that ran, but for its bundle."""
    return _spelled(command, "explain", [*_selection(selected), *place_options(command, ("--matrix", "--bundle"))])


def bisect_command(command: Sequence[str], **selected: str | None) -> str:
    """As `matrix_command`, with the options of `bisect`: good, bad, what."""
    return _spelled(command, "bisect", [*_selection(selected), *place_options(command, ("--matrix", "--executor"))])


def eval_command(command: Sequence[str], torch: str, **selected: str | None) -> str:
    options = [*_selection(selected), *place_options(command)]
    if not typed_by_nox(command):
        return _spelled(command, "eval", ["--torch", shlex.quote(torch), *options])
    session = f"eval(torch='{torch}')"
    # Double quotes read better, and are safe for what a version may hold.
    quoted = f'"{session}"' if re.fullmatch(r"[\w.+-]+", torch) else shlex.quote(session)
    return _spelled(command, quoted, options)


def _spelled(command: Sequence[str], verb: str, options: Sequence[str]) -> str:
    return " ".join(words_of(verb, *options, nox=typed_by_nox(command)))


def _selection(selected: Mapping[str, str | None]) -> list[str]:
    given = [(name, value) for name, value in selected.items() if value is not None]
    return [part for name, value in given for part in (f"--{name}", shlex.quote(value))]
