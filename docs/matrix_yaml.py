"""Write docs/matrix-yaml.md from the JSON Schema of matrix.yaml: ``python docs/matrix_yaml.py``."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SCHEMA = Path(__file__).parents[1] / "harness" / "config" / "matrix.schema.json"
PAGE = Path(__file__).with_name("matrix-yaml.md")
LONGEST_DEFAULT = 100  # characters; a longer one is in its key's description

HEAD = """\
# matrix.yaml

<!-- Written by `python docs/matrix_yaml.py` from harness/config/matrix.schema.json. Change the descriptions there:
     harness/config/matrix.py, harness/config/environments.py. -->

This file says which environments are compared, with which kernels, on which workloads. Only `kernels`, or
`operators`, is required, so the shortest file has three lines:

```yaml
kernels:
  - name: mine
    sources: {cuda: [mine/attention.cu]}
```

Paths are relative to the file and must stay inside its folder. Quote versions, because YAML reads `2.10` as a number.
An unknown key, a value of the wrong type and a name that refers to nothing are errors, with their place in the file.

Editors complete and check the file if its first line is `# yaml-language-server: $schema=PATH`, with the path of
`matrix.schema.json`. It is in `harness/config/`, in the repository and in the installed package.

## The file
"""


def render(schema: Mapping[str, Any]) -> str:
    """The page: a table for the file, then one for each kind of entry in it, in the order in which they are met."""
    parts = [HEAD, _table(schema)]
    for name in _in_order(schema):
        entry = schema["$defs"][name]
        parts += [f"## {_heading(name)}\n", f"{_sentence(entry['description'])}\n", _table(entry)]
    return "\n".join(parts)


def _heading(name: str) -> str:
    """Return an entry's name as people write it, such as "Timing rules" for TimingRules."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).capitalize()


def _in_order(schema: Mapping[str, Any]) -> list[str]:
    """The names of all entries below a schema, each where it is first met, its own entries after it."""
    found: list[str] = []
    queue = _references(schema)
    while queue:
        name = queue.pop(0)
        if name not in found:
            found.append(name)
            queue = _references(schema["$defs"][name]) + queue
    return found


def _references(schema: Mapping[str, Any]) -> list[str]:
    return [name for value in schema["properties"].values() if (name := _reference(value))]


def _reference(value: Mapping[str, Any]) -> str:
    """The entry that a value, its elements or one of its forms is; '' where it is none."""
    if "$ref" in value:
        return str(value["$ref"]).rpartition("/")[2]
    forms = [*value.get("anyOf", []), *([value["items"]] if "items" in value else [])]
    return next(filter(None, map(_reference, forms)), "")


def _table(schema: Mapping[str, Any]) -> str:
    required = schema.get("required", [])
    lines = ["| key | what it is | type | default |", "|---|---|---|---|"]
    for name, value in schema["properties"].items():
        default = "required" if name in required else _default(value)
        lines.append(f"| `{name}` | {_escaped(value['description'])} | {_type(value)} | {default} |")
    return "\n".join(lines) + "\n"


def _default(value: Mapping[str, Any]) -> str:
    default = value.get("default")
    if default is None or default == "" or (isinstance(default, dict) and _reference(value)):
        return ""  # nothing, or the defaults of that entry's own keys
    text = json.dumps(default)
    return _code(text) if len(text) <= LONGEST_DEFAULT else ""


def _type(value: Mapping[str, Any]) -> str:
    if name := _reference({key: value[key] for key in ("$ref",) if key in value}):
        heading = _heading(name)
        return f"[{heading}](#{heading.lower().replace(' ', '-')})"
    if "anyOf" in value:
        return " or ".join(_type(form) for form in value["anyOf"] if form.get("type") != "null")
    if "enum" in value:
        return " or ".join(_code(str(choice)) for choice in value["enum"])
    if "const" in value:
        return _code(str(value["const"]))
    if "type" not in value:
        return "anything"
    if value["type"] == "array":
        return f"list of: {_type(value['items'])}"
    if value["type"] == "object":
        (pattern, of), *_ = value.get("patternProperties", {"": value.get("additionalProperties")}).items()
        if of is True:
            return "mapping of names to anything"
        return f"mapping of names like {_code(pattern)} to: {_type(of)}"
    return ", ".join(
        [NAMES[value["type"]], *(f"{words} {value[key]}" for key, words in BOUNDS.items() if key in value)]
    ) + (f" like {_code(value['pattern'])}" if "pattern" in value else "")


NAMES = {"string": "text", "integer": "integer", "number": "number", "boolean": "`true` or `false`"}
BOUNDS = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}


def _sentence(text: str) -> str:
    return _escaped(" ".join(text.replace("``", "`").split()))


def _escaped(text: str) -> str:
    return text.replace("|", "&#124;").replace("<", "&lt;")


def _code(text: str) -> str:
    """Code in a table's cell, where a vertical bar would end the cell."""
    return f"<code>{html.escape(text, quote=False).replace('|', '&#124;')}</code>"


def main() -> None:
    PAGE.write_text(render(json.loads(SCHEMA.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
