"""What checkers print, as findings: pure, each once with its count, bounded. The code under test can print too."""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from harness.schema.experiment_records import CheckerFinding

MOST_FINDINGS, TEXT_CHARACTERS = 20, 300
FRAME = re.compile(
    r"^\s*#\d+ (?:0x[0-9a-f]+ in )?(?P<function>.+?) (?P<path>[^\s:]+):(?P<line>\d+)(?::\d+)?(?: \(.*)?$"
)
SANITIZER = re.compile(r"(?:WARNING|ERROR): (?:Address|Thread)Sanitizer: (.+)")
ACCESS = r"^\s*((?:Previous )?(?:atomic )?(?:read|write) of size \d+)"
NOT_THE_KERNELS = ("libsanitizer", "/include/c++/")
OUT_OF_BOUNDS = re.compile(r"overflow|underflow|use-after|SEGV|negative-size|wild|stack-use")
ZERO_PAGE = re.compile(r"address points to the zero page")
BULK_NOTE = "; its code copies in bulk and asynchronously, where racecheck is known to report hazards that are none"


def merged(findings: Iterable[CheckerFinding]) -> list[CheckerFinding]:
    """Equal findings as one, with their count; the first `MOST_FINDINGS`."""
    counts: dict[CheckerFinding, int] = collections.defaultdict(int)
    for finding in findings:
        text = finding.text[:TEXT_CHARACTERS]
        counts[replace(finding, text=text, where=finding.where[:TEXT_CHARACTERS], count=1)] += finding.count
    return [replace(f, count=count) for f, count in list(counts.items())[:MOST_FINDINGS]]


def parse_sanitizer(text: str) -> list[CheckerFinding]:
    """Return the reports of AddressSanitizer and ThreadSanitizer, with the accesses that each names."""
    findings = []
    for title, body in _reports(text, SANITIZER):
        fault = re.sub(r" \(pid=\d+\)|( on)?( unknown)?( address)? 0x[0-9a-f]+.*", "", title).strip()
        kind = "race" if fault.startswith("data race") else "out_of_bounds" if OUT_OF_BOUNDS.search(fault) else "misuse"
        if fault == "SEGV" and ZERO_PAGE.search(body):
            fault += " at a null pointer"
        sides = re.findall(ACCESS, body, re.MULTILINE | re.IGNORECASE)
        findings.append(CheckerFinding(kind=kind, text=", ".join([fault, *sides[:2]]), where=_where(body)))
    return merged(findings)


def parse_undefined(text: str) -> list[CheckerFinding]:
    """UndefinedBehaviorSanitizer's lines. Numbers and addresses in them are left out: they differ from run to run."""
    findings = []
    for path, line, fault in re.findall(r"^(\S+?):(\d+):\d+: runtime error: (.+)$", text, re.MULTILINE):
        outside = "out of bounds" in fault or "insufficient space" in fault
        words = re.sub(r"0x[0-9a-f]+|-?\b\d+(\.\d+)?(e[+-]?\d+)?\b", "N", fault)
        kind = "out_of_bounds" if outside else "undefined_behaviour"
        findings.append(CheckerFinding(kind=kind, text=words, where=f"{_base(path)}:{line}"))
    return merged(findings)


COMPUTE_KINDS = {
    "race": re.compile(r"Race reported|hazard detected", re.IGNORECASE),
    "uninitialised": re.compile(r"uninitialized .*memory", re.IGNORECASE),
    "out_of_bounds": re.compile(r"^Invalid __|out.of.(bounds|range)|^Invalid address", re.IGNORECASE),
    "misuse": re.compile(r"^Barrier error|^Misaligned|^Program hit|^Invalid|^Malloc/Free error"),
    "leak": re.compile(r"^Leaked "),
}


def parse_compute(text: str, *, bulk_copies: bool = False) -> list[CheckerFinding]:
    """compute-sanitizer's reports. Hazards where code copies in bulk prove no race: their kind is `other`."""
    findings = []
    for title, body in _compute_reports(text):
        kind = next((kind for kind, pattern in COMPUTE_KINDS.items() if pattern.search(title)), None)
        if kind is None:
            continue
        hazards = re.search(r"\[(\d+) hazards?\]", title + body)
        fault, _, place = title.partition(" at ")
        at = re.search(r"^\s*at (.+)$", body, re.MULTILINE)
        place = _place(place or (at[1] if at else ""))
        for access, other in re.findall(r"^\s*and (\w+ access) at (.+)$", body, re.MULTILINE)[:1]:
            fault += f" and {access} at {_place(other).rpartition(' in ')[2]}"
        if kind == "race" and bulk_copies:
            kind, fault = "other", fault + BULK_NOTE
        findings.append(CheckerFinding(kind=kind, text=fault, where=place, count=int(hazards[1]) if hazards else 1))
    return merged(findings)


def _place(text: str) -> str:
    """Function and line, without addresses, folders and counts of hazards."""
    text = re.sub(r"\+?0x[0-9a-f]+( in )?", lambda m: " in " if m[0].startswith("+") and m[1] else "", text)
    return re.sub(r"\S*/", "", re.sub(r"\[\d+ hazards?\]", "", text)).strip()


def _reports(text: str, start: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """(title, what follows until the next one or the summary)."""
    title, body = "", []  # type: tuple[str, list[str]]
    for line in text.splitlines():
        match = start.search(line)
        if match or line.startswith("SUMMARY:"):
            if title:
                yield title, "\n".join(body)
            title, body = (match[1] if match else ""), []
        elif title:
            body.append(line)
    if title:
        yield title, "\n".join(body)


def _compute_reports(text: str) -> Iterator[tuple[str, str]]:
    """(first line, indented ones below it)."""
    lines = [line[len("=========") :] for line in text.splitlines() if line.startswith("=========")]
    starts = [index for index, line in enumerate(lines) if re.match(r" \S", line)]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=False):
        yield re.sub(r"^ (Error|Warning): ", " ", lines[start]).strip(), "\n".join(lines[start + 1 : end])


def _where(body: str) -> str:
    """The first function and line that are neither the checker's nor the standard library's."""
    for line in body.splitlines():
        frame = FRAME.match(line)
        if frame and not any(part in frame["path"] for part in NOT_THE_KERNELS):
            return f"{_base(frame['path'])}:{frame['line']} in {frame['function'][:120]}"
    return ""


def _base(path: str) -> str:
    return path.rpartition("/")[2]
