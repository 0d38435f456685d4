"""The messages of processes, compilers and PyTorch, read once: the only place where attribution reads text. Pure.

Records keep an ended call's last words as they were raised or printed. Each function here makes one fact of them; rules
ask for the fact. Nothing here reads what this package itself writes for people.
"""

from __future__ import annotations

import re

from harness.schema.environment_records import BuildRecord
from harness.schema.experiment_records import CheckerFinding
from harness.schema.records import Outcome
from harness.worker import protocol
from reports.model import CorrectnessSide

SIGNAL = re.compile(r"\bdied by SIG")
ASSERTION = re.compile(r"\bassert(?:ion)?\b.*\bfailed\b", re.IGNORECASE)
CORRUPT = re.compile(
    r"illegal memory access|illegal instruction address|SIGSEGV|SIGBUS|segmentation fault|heap corruption"
    r"|corrupted|invalid (next )?size|invalid pointer|double free|munmap_chunk",
    re.IGNORECASE,
)
LIFETIME = re.compile(r"use-after")
NULL = re.compile(r"null pointer", re.IGNORECASE)
# What PyTorch says where it has no code for a type, a shape or a device, and raises a plain error for it.
REFUSAL = (
    r"not implemented for|not supported|unsupported|no available kernel|is not available|only supports?"
    r"|does not support"
)
# Python's own words where a version lacks a function, an argument or a module; or where no version has it.
LACKING = r"raised (TypeError: .*unexpected keyword|AttributeError: .*has no attribute|ImportError|ModuleNotFoundError)"
NO_CODE = re.compile(f"{REFUSAL}|{LACKING}", re.IGNORECASE)
# What PyTorch refuses, in whichever words: a kernel that asks for it has not failed by itself.
REFUSED = re.compile(
    rf"{REFUSAL}|raised NotImplementedError: (?!.*is missing the required)"
    r"|raised TypeError: (?!ModelNew|forward\b|__init__\b).*unexpected keyword",
    re.IGNORECASE,
)
# What no version of PyTorch has a part in.
MISTAKE = re.compile(
    r"raised (NameError|UnboundLocalError|SyntaxError|IndentationError|TabError): "
    r"|raised ModuleNotFoundError: No module named '(?!torch\b)|defines no ModelNew"
)
# What the kernels' C interface says where one refuses a width, a type or a size: csrc/attention.h has the codes.
REFUSES = re.compile(r"attention_forward: .*\(code -(3|4|6), shape ")
# What an exception says where the machine failed, or what is called, and not the kernel in what it asks for.
SURROUNDINGS = re.compile(
    r"raised (\w*(OSError|IOError|MemoryError|RecursionError|File|Directory|Permission|Connection|Timeout|Pipe)\w*"
    r"|SystemExit|KeyboardInterrupt)\b|out of memory|can't allocate|No space left|CUDA|cuDNN|CUBLAS|NCCL"
)
RAISED = re.compile(r"raised (\w+): ")
BACKEND = re.compile(r"_scaled_dot_product_(?:\w+)")
VERSION_ASKED = re.compile(r"__version__|\bversion\b|\bversion_info\b|\bhasattr\(|\bgetattr\(")
OF_PYTORCH = re.compile(
    r"\btorch(\.\w+)?\.__version__|\bversion\.(parse|Version)\b|\bfrom (torch|packaging)(\.version)? import.*"
)
# Flags of a build that PyTorch's helper injects and that change no instruction.
HARMLESS = re.compile(r"-(generate-dependencies|-generate-dependencies|MMD|MF|MD|isystem|I|L|l|Wl,)")
FLAG = re.compile(r"(?<![\w$/.-])-[A-Za-z][^\s]*")

# The user's line that an exception came through, behind its message: the words there are the user's.
PLACE = re.compile(r" \([^()\s]+\.py:\d+(: .*)?\)$", re.DOTALL)

Ended = Outcome | CorrectnessSide


def _words(ended: Ended) -> str:
    """The message, without the user's line."""
    return PLACE.sub("", ended.message)


def died(ended: Ended) -> bool:
    """By a signal: what raised, or could not be loaded, says nothing of the code."""
    return ended.status == protocol.CRASHED and SIGNAL.search(ended.message) is not None


def faulted(side: CorrectnessSide) -> bool:
    """Ended by an access to memory that is not its own, or by what such an access had left."""
    return side.status == protocol.CRASHED and bool(CORRUPT.search(f"{side.message}\n{side.log_excerpt}"))


def asserted(side: CorrectnessSide) -> str:
    """The last assertion that failed before the process ended; empty where none did."""
    found = ASSERTION.findall(side.log_excerpt) if side.status == protocol.CRASHED else []
    return found[-1] if found else ""


def lacks_code(side: CorrectnessSide) -> bool:
    """Ended with PyTorch's words for a combination that it has no code for."""
    return side.status == protocol.CRASHED and bool(NO_CODE.search(_words(side)))


def own_error(side: CorrectnessSide) -> bool:
    """Ended with an exception that is no refusal by PyTorch or by the kernel's interface, and not the machine's."""
    return bool(raised(side)) and not REFUSED.search(_words(side)) and not refused(side)


def mistaken(side: CorrectnessSide) -> bool:
    """Ended with an exception that no version of PyTorch has a part in: a name or a module that is not there, a file
    that Python cannot read."""
    return bool(raised(side)) and MISTAKE.search(_words(side)) is not None


def at_null(finding: CheckerFinding) -> bool:
    """Whether an access that a checker names went through a null pointer."""
    return NULL.search(finding.text) is not None


def refused(side: CorrectnessSide) -> bool:
    """The kernel itself gave its interface's code for what it has no code for."""
    return side.status == protocol.CRASHED and REFUSES.search(_words(side)) is not None


def raised(ended: Ended) -> str:
    """The class of the exception that ended it; empty where it ended otherwise, or the machine failed."""
    found = RAISED.search(ended.message) if ended.status == protocol.CRASHED else None
    return found[1] if found is not None and not SURROUNDINGS.search(_words(ended)) else ""


def raises(message: str, what: str) -> bool:
    """Whether these words are of an exception of this class."""
    return f"raised {what}: " in message


def in_first_trial(message: str) -> bool:
    return message.startswith("trial 0 ")


def backends_named(side: CorrectnessSide) -> list[str]:
    """PyTorch's attention backends that its last words name."""
    return BACKEND.findall(_words(side))


def outlived(finding: CheckerFinding) -> bool:
    """Whether the memory that a checker names was there, and is no longer."""
    return LIFETIME.search(finding.text) is not None


def asks_version(line: str, *, told: bool = False) -> bool:
    """Whether a line of source asks what it runs on. `told`: for something else than PyTorch's version."""
    return VERSION_ASKED.search(OF_PYTORCH.sub("", line) if told else line) is not None


def compiler_refuses(build: BuildRecord) -> bool:
    """Whether a compiler names an error in the sources, not a tool or a file that is missing."""
    return "error:" in build.message


def build_flags(record: BuildRecord | None) -> set[str]:
    """Flags of the whole build that can change instructions: those of PyTorch's helper too."""
    words = FLAG.findall(record.build_ninja) if record else []
    return {word for word in words if not HARMLESS.match(word)}
