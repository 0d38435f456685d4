from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import BAD_INPUT, RecordError
from harness.schema.records import LaunchRecord
from harness.schema.run_records import Cell
from harness.schema.storage import Run, load_record, parse_record, render_record, save_record
from harness.worker import protocol
from tests.unit.hand_made import launch, timing


@given(
    samples=st.lists(st.floats(0, 1e9, allow_nan=False), max_size=20),
    message=st.text(max_size=200).filter(lambda t: not any(0xD800 <= ord(c) < 0xE000 for c in t)),
)
def test_a_record_survives_the_round_trip(samples: list[float], message: str) -> None:
    record = launch(timing(*samples, message=message), message=message)
    text = json.dumps(render_record(record))
    assert parse_record(json.loads(text), LaunchRecord, "x.json") == record


RECORD = render_record(launch(timing(1.0)))


def with_body(**changes: object) -> dict[str, object]:
    """The record with another body, sealed again."""
    body = {**RECORD["body"], **changes}
    return {**RECORD, "body": body, "digest": protocol.digest(body)}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({**RECORD, "body": {**RECORD["body"], "duration_s": 0.5}}, "edited or damaged"),
        ({**RECORD, "schema_version": protocol.SCHEMA_VERSION + 1}, "schema version"),
        ({**RECORD, "kind": "build"}, "'build' record"),
        ({**RECORD, "more": 1}, "unexpected keys"),
        ([RECORD], "no schema_version"),
        ({}, "no schema_version"),
        (with_body(index="zero"), "index"),
    ],
)
def test_what_is_no_record_of_that_kind_is_refused(value: object, said: str) -> None:
    with pytest.raises(RecordError) as caught:
        parse_record(value, LaunchRecord, "runs/r/launches/x.json")
    assert caught.value.code == BAD_INPUT
    assert "runs/r/launches/x.json" in str(caught.value) and said in str(caught.value) and caught.value.remedy


def test_fields_of_earlier_versions_are_left_out() -> None:
    assert parse_record(with_body(gone=1), LaunchRecord, "x.json") == parse_record(RECORD, LaunchRecord, "x.json")


def test_a_truncated_or_missing_file_is_refused_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "launch.json"
    with pytest.raises(RecordError, match="cannot be read"):
        load_record(path, LaunchRecord)
    save_record(path, launch())
    assert load_record(path, LaunchRecord) == launch()
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(RecordError, match=r"launch\.json: is truncated"):
        load_record(path, LaunchRecord)


def test_nan_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        save_record(tmp_path / "x.json", launch(duration_s=float("nan")))
    assert not (tmp_path / "x.json").exists() and not list(tmp_path.iterdir())


def test_the_paths_of_records_differ_for_every_cell(tmp_path: Path) -> None:
    run = Run(tmp_path)
    names = ("environment", "kernel", "workload", "device")
    choices = itertools.product("ab", "kl", "vw", ("cpu", "cuda"))
    cells = [Cell(**dict(zip(names, chosen, strict=True))) for chosen in choices]  # type: ignore[arg-type]
    assert len({run.validation_path(cell) for cell in cells}) == len(cells)
    record = launch()
    own = run.launch_path(record.environment, record.kernel, record.device, record.index)
    own.parent.mkdir(parents=True)
    save_record(own, record)
    assert run.launches() == [record]
    other = own.with_name("999.json")
    own.rename(other)
    with pytest.raises(RecordError, match=r"999\.json: stands under another record's name"):
        run.launches()


def test_experiments_of_earlier_versions_are_left_out(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for name in ("poison", "counters"):
        path = run.experiment_path("e", "k", "cuda", "w", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    assert [path.name for path in run.experiment_paths()] == ["poison.json"]
