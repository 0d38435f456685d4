"""YAML that people write, as typed models: what is not accepted is an InputError with place, value and remedy."""

from __future__ import annotations

from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from harness.config.yaml_problems import malformed, problem_and_remedy
from harness.errors import InputError

MAX_BYTES = 1 << 20


class YamlModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Loader(yaml.SafeLoader):
    """Safe, and refuses what YAML allows and a configuration never needs: duplicate keys, anchors, tags."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise InputError(f"line {line}: anchors and aliases are not accepted", "write the value out")
        if getattr(event, "tag", None):
            remedy = "remove it; quote text that needs it"
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            raise InputError(f"line {line}: the tag {tag} is not accepted", remedy)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        lines: dict[Any, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if isinstance(key, yaml.ScalarNode) and key.value in lines:
                before = f", first in line {lines[key.value]}" if lines[key.value] != line else ""
                raise InputError(f"line {line}: the key {key.value!r} stands twice{before}", "remove one")
            if isinstance(key, yaml.ScalarNode):
                lines[key.value] = line
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: Any) -> Any:
        """1:30:00 is a time as it is written, and not 5,400, which YAML 1.1 makes of it."""
        return node.value if ":" in node.value else super().construct_yaml_int(node)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
Parsed = TypeVar("Parsed", bound=YamlModel)


def parse_yaml(text: str, path: str, model: type[Parsed], *, like: str) -> Parsed:
    """A model from YAML. InputError names `path`, the place in it, the value and the remedy; `like`: where to find a
    right one."""
    if len(text.encode()) > MAX_BYTES:
        raise InputError(f"{path}: larger than {MAX_BYTES} bytes", "a page of text is enough")
    try:
        value = yaml.load(text, Loader=_Loader)  # a SafeLoader
    except InputError as error:
        raise InputError(f"{path}: {error.message}", error.remedy) from None
    except yaml.YAMLError as error:
        problem, remedy = malformed(error)
        raise InputError(f"{path}: {problem}", remedy) from None
    except RecursionError:
        raise InputError(f"{path}: nested too deeply", "four levels are enough") from None
    except ValueError as error:
        raise InputError(f"{path}: {error}", "quote the value") from None
    if not isinstance(value, dict):
        got = "the file is empty" if value is None else f"got {'a list' if isinstance(value, list) else repr(value)}"
        raise InputError(f"{path}: expected keys with values; {got}", like)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        problem, remedy = problem_and_remedy(error, model)
        raise InputError(f"{path}: {problem}", remedy) from None


def line_of(text: str, *place: int | str) -> int:
    """The line of YAML that parsed where this key or entry stands; of what holds it, where it is not written out."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    line = 1
    for part in place:
        if isinstance(node, yaml.MappingNode):
            key, node = next(((key, value) for key, value in node.value if key.value == part), (None, None))
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            key = node = node.value[part]
        else:
            key = node = None
        if key is None:
            break
        line = key.start_mark.line + 1
    return line
