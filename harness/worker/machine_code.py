"""Hashes of machine code that stay the same when only paths and addresses change, and what GPU functions use."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from typing import Sequence

from . import protocol, tools, wire

# An instruction, perhaps behind a predicate: `@P0 RED.E.ADD.F32.FTZ.RN.STRONG.GPU [R2.64], R5 ;`
ATOMIC = re.compile(r"^(@!?U?P\w+\s+)?(RED|ATOM|ATOMG|ATOMS)\b")


def hash_objects(folder: str, sources: Sequence[str], programs: str = "") -> dict[str, str]:
    """Object file name to `hash_object`. `programs`: folder of the CUDA toolkit's programs."""
    found = {}
    for source in sources:
        stem = os.path.splitext(os.path.basename(source))[0]
        for name in (stem + ".o", stem + ".cuda.o"):
            path = os.path.join(folder, name)
            if os.path.exists(path):
                found[name] = hash_object(path, programs)
    return found


def hash_object(path: str, programs: str = "") -> str:
    """Hash of an object's disassembly; of its bytes, marked "raw:", where objdump or cuobjdump is missing."""
    text = tools.run(["objdump", "-d", "-r", "--no-show-raw-insn", path]) if shutil.which("objdump") else None
    device = ""
    if path.endswith(".cuda.o"):  # objdump sees GPU code as data, and shows none of it
        tool = cuobjdump(programs)
        code = tools.run([tool, "-sass", path]) if tool else None
        hashes = parse_sass(code or "")
        device = "\n".join(f"{' '.join(key)} {value}" for key, (value, _) in sorted(hashes.items()))
        text = text if hashes else None
    if text is None:
        return "raw:" + protocol.sha256_file(path)
    return hashlib.sha256((normalise_disassembly(text) + device).encode()).hexdigest()


def cuobjdump(programs: str) -> str | None:
    """Path of the tool, or None."""
    path = os.path.join(programs, "cuobjdump")
    return path if os.path.exists(path) else shutil.which("cuobjdump")


def normalise_disassembly(text: str) -> str:
    """A disassembly without file name, addresses, and names that depend on the source's path."""
    lines = []
    for line in text.splitlines():
        if "file format" in line or not line.strip():
            continue
        line = re.sub(r"^\s*[0-9a-f]+( <|:)", r"\1", line)  # the address of the line
        line = re.sub(r"\b[0-9a-f]+ <", "<", line)  # the address of a jump's target
        lines.append(normalise_names(line).strip())
    return "\n".join(lines)


def normalise_names(text: str) -> str:
    """nvcc and gcc put hashes of the source's path into names of anonymous namespaces."""
    text = re.sub(r"_GLOBAL__N__[0-9A-Za-z_]*?_(?=\d+[A-Za-z_])", "_GLOBAL__N_", text)
    text = re.sub(r"_GLOBAL__N__[0-9a-f]{8}_[0-9A-Za-z_]*", "_GLOBAL__N_", text)
    text = re.sub(r"_INTERNAL_[0-9a-f]{8}_[0-9A-Za-z_]*", "_INTERNAL", text)
    return re.sub(r"_GLOBAL__sub_I_\S+", "_GLOBAL__sub_I", text)


def device_functions(artifact: str, programs: str) -> tuple[list[wire.DeviceFunction], str]:
    """(`DeviceFunction`s of an extension, a note on what could not be read)."""
    tool = cuobjdump(programs)
    if not tool:
        return [], "cuobjdump is missing: registers and disassembly are not recorded"
    usage, code = (tools.run([tool, option, artifact]) for option in ("-res-usage", "-sass"))
    if usage is None or code is None:
        return [], "cuobjdump failed: registers and disassembly are not recorded"
    hashes = parse_sass(code)
    functions = parse_usage(usage)
    for entry in functions:
        entry.disassembly_sha256, entry.atomics = hashes.get((entry.architecture, entry.name), ("", 0))
        entry.name = normalise_names(entry.name)
    return sorted(functions, key=lambda entry: (entry.architecture, entry.name)), ""


def runtime_note(artifact: str) -> str:
    """Return what to know of a C++ extension's runtime; empty where it is shared with PyTorch, or cannot be told.

    Two copies of libstdc++ in a process share symbols and not what lies behind them: a number in an exception's message
    is written through the wrong one, and the process dies instead of saying what was refused.
    """
    needed = tools.run(["objdump", "-p", artifact])
    if needed is None or re.search(r"NEEDED\s+lib(std)?c\+\+", needed):
        return ""
    return "libstdc++ is linked into it, beside PyTorch's: a refusal may crash; install the shared one for the compiler"


def parse_usage(text: str) -> list[wire.DeviceFunction]:
    """Registers, stack and shared memory of every function, from ``cuobjdump -res-usage``."""
    entries, architecture, name = [], "", ""
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("arch ="):
            architecture = line.split("=")[1].strip()
        elif line.startswith("Function "):
            name = line[len("Function ") :].rstrip(":")
        elif line.startswith("REG:"):
            fields = dict(part.split(":", 1) for part in line.split() if ":" in part)
            entries.append(
                wire.DeviceFunction(
                    name=name,
                    architecture=architecture,
                    registers=int(fields.get("REG", 0)),
                    # LOCAL counts what the STACK does not hold; spilled registers live in either.
                    spill_bytes=int(fields.get("STACK", 0)) + int(fields.get("LOCAL", 0)),
                    shared_bytes=int(fields.get("SHARED", 0)),
                )
            )
    return entries


def parse_sass(text: str) -> dict[tuple[str, str], tuple[str, int]]:
    """(architecture, function) to (hash of its normalised instructions, atomic ones), from ``cuobjdump -sass``."""
    functions: dict[tuple[str, str], list[str]] = {}
    architecture = ""
    lines: list[str] = []  # before a function's name, they are nobody's
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("arch ="):
            architecture, lines = line.split("=")[1].strip(), []
        elif line.startswith("Function :"):
            lines = functions[architecture, line.split(":", 1)[1].strip()] = []
        elif line.startswith("/*"):
            lines.append(normalise_names(re.sub(r"^/\*[0-9a-f]+\*/\s*", "", line)))
    return {
        key: (hashlib.sha256("\n".join(lines).encode()).hexdigest(), sum(map(bool, map(ATOMIC.search, lines))))
        for key, lines in functions.items()
    }
