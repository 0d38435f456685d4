"""YAML that people write, as typed models: what is not accepted is an InputError with place, value and remedy."""

from __future__ import annotations

from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from harness.config.yaml_problems import problem_and_remedy
from harness.errors import InputError

MAX_BYTES = 1 << 20


class Model(BaseModel):
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
            raise InputError(f"line {line}: the tag {event.tag!r} is not accepted", remedy)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [key.value for key, _ in node.value]
        for key_node, _ in node.value:
            if keys.count(key_node.value) > 1:
                line = key_node.start_mark.line + 1
                raise InputError(f"line {line}: the key {key_node.value!r} stands twice", "remove one")
        return super().construct_mapping(node, deep)


Parsed = TypeVar("Parsed", bound=Model)


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
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}, column {mark.column + 1}:" if mark else ""
        raise InputError(f"{path}:{where} {getattr(error, 'problem', None) or error}", "correct the YAML") from None
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
