"""A setting into matrix.yaml: the values of one kernel's tunables, and not a byte besides."""

from __future__ import annotations

from pathlib import Path

import yaml

from harness.config.kernels import Setting
from harness.config.matrix import load_matrix, parse_matrix
from harness.errors import InputError
from harness.schema.sweep_records import SweepRecord
from harness.search.sweep.answer import setting_text
from harness.worker import protocol


def write_winner(path: Path, record: SweepRecord) -> None:
    """A confirmed winner into matrix.yaml; nothing where none is."""
    if record.verdict != "confirmed" or record.winner is None:
        print(f"--write: {path} stays as it is, for nothing is confirmed")
        return
    _, text = load_matrix(path)
    changed = with_setting(text, record.question.kernel, record.winner, str(path))
    protocol.write_atomically(str(path), changed.encode())
    print(f"--write: {path} has {setting_text(record.winner)} for {record.question.kernel}; commit it")


def with_setting(text: str, kernel: str, setting: Setting, path: str = "matrix.yaml") -> str:
    """The text of matrix.yaml with a kernel's tunables set. Comments, order and layout stay as they are: each value is
    replaced where YAML says that it stands. InputError where what comes out is not what was meant."""
    before = parse_matrix(text, path)
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert root is not None
    places = _values(root, kernel)
    changed = text
    for name, node in sorted(places.items(), key=lambda item: -item[1].start_mark.index):
        if name in setting:
            changed = changed[: node.start_mark.index] + _scalar(setting[name]) + changed[node.end_mark.index :]
    meant = before.model_copy(
        update={
            "kernels": [
                each.model_copy(update={"tunables": {**each.tunables, **setting}}) if each.name == kernel else each
                for each in before.kernels
            ]
        }
    )
    if parse_matrix(changed, path) != meant:
        raise InputError(f"{path}: the tunables of {kernel} cannot be set in it", f"set them by hand: {setting}")
    return changed


def _scalar(value: int | str) -> str:
    """A value as it stands in a flow mapping: quoted only where it must be."""
    return yaml.safe_dump([value], default_flow_style=True, width=1 << 20).strip()[1:-1]


def _values(root: yaml.Node, kernel: str) -> dict[str, yaml.Node]:
    """The nodes of a kernel's tunables, by name."""
    for entry in _get(root, "kernels").value:
        if _get(entry, "name").value == kernel:
            return {key.value: value for key, value in _get(entry, "tunables").value}
    raise AssertionError("parse_matrix accepted a matrix without this kernel")


def _get(mapping: yaml.Node, key: str) -> yaml.Node:
    found: yaml.Node = next(value for name, value in mapping.value if name.value == key)
    return found
