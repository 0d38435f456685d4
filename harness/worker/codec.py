"""Messages between the harness and the pinned environments: dataclasses as JSON, with `version`, checked when read.

Whatever is not as its type says is a `WireError` that names the field: another version, a missing or unknown field, a
wrong type. Nothing is converted, but that a float field takes an integer.

Standard library and Python 3.8 only; annotations are evaluated, so `wire` spells them as 3.8 can.
"""

import dataclasses
import enum
import json
from typing import Any, Dict, Literal, Type, TypeVar, Union, get_args, get_origin, get_type_hints

VERSION = 1


class WireError(ValueError):
    """A message is not what its type says."""


T = TypeVar("T")


def dump(message: Any) -> Dict[str, Any]:
    """The JSON object of a message."""
    return {"version": VERSION, **dataclasses.asdict(message)}


def to_bytes(message: Any) -> bytes:
    """Return a message as JSON's text."""
    return json.dumps(dump(message)).encode()


def from_bytes(kind: Type[T], data: bytes) -> T:
    """The message that JSON's text is. ValueError; RecursionError where it is nested too deep."""
    return read(kind, json.loads(data))


def read(kind: Type[T], value: Any) -> T:
    """The message that a JSON object is. WireError."""
    if not isinstance(value, dict):
        raise WireError(f"{kind.__name__}: expected an object, got {type(value).__name__}")
    found = value.get("version")
    if type(found) is not int or found != VERSION:
        raise WireError(f"{kind.__name__}.version: expected {VERSION}, got {found!r}")
    message: T = checked(kind, {key: item for key, item in value.items() if key != "version"}, kind.__name__)
    return message


def checked(kind: Any, value: Any, path: str) -> Any:
    """`value` as the type `kind`, with dataclasses made of its objects; `path` is its name in an error."""
    if kind is Any:
        return value
    arguments, origin = get_args(kind), get_origin(kind)
    if origin is Union:  # of None and one type
        return None if value is None else checked(arguments[0], value, path)
    if origin is Literal:
        if type(value) is not str or value not in arguments:
            raise WireError(f"{path}: expected one of {', '.join(arguments)}, got {str(value)[:40]!r}")
        return value
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        try:
            return kind(value)
        except ValueError:
            raise WireError(f"{path}: expected one of {', '.join(kind)}, got {str(value)[:40]!r}") from None
    if dataclasses.is_dataclass(kind):
        return _object(kind, value, path)
    if kind is float and type(value) is int:
        return float(value)
    wanted = origin or kind
    if type(value) is not wanted:
        raise WireError(f"{path}: expected {wanted.__name__}, got {type(value).__name__}")
    if wanted is list:
        return [checked(arguments[0], item, f"{path}[{index}]") for index, item in enumerate(value)]
    if wanted is dict:
        return {key: checked(arguments[1], item, f"{path}.{key}") for key, item in value.items()}
    return value


def _object(kind: Any, value: Any, path: str) -> Any:
    if type(value) is not dict:
        raise WireError(f"{path}: expected an object, got {type(value).__name__}")
    hints, fields = get_type_hints(kind), dataclasses.fields(kind)
    unknown = set(value) - {field.name for field in fields}
    if unknown:
        raise WireError(f"{path}.{min(unknown)}: unknown")
    given = {}
    for field in fields:
        if field.name in value:
            given[field.name] = checked(hints[field.name], value[field.name], f"{path}.{field.name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise WireError(f"{path}.{field.name}: missing")
    return kind(**given)
