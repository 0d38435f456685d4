from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import BAD_INPUT, RecordError
from harness.schema.records import LaunchRecord, Load, Timing
from harness.schema.run_records import Cell
from harness.schema.storage import Run, load_record, parse_record, render_record, save_record
from harness.worker import protocol


def launch(**changes: object) -> LaunchRecord:
    values: dict[str, object] = {
        "environment": "torch2.5.0-cu121-py311",
        "kernel": "mine",
        "device": "cpu",
        "key": "k",
        "index": 0,
        "position": 1,
        "started_utc": "2024-01-01T00:00:00+00:00",
        "duration_s": 1.5,
        "status": "ok",
        "load": Load(load_average=0.5, busy_share_others=None, cpu_mhz=None, steal_share=0.0),
        "timings": [Timing(workload="seed-fp16", target="kernel", order=0, status="ok", samples_us=[1.0, 2.5])],
    }
    return LaunchRecord(**{**values, **changes})  # type: ignore[arg-type]


@given(
    samples=st.lists(st.floats(0, 1e9, allow_nan=False), max_size=20),
    message=st.text(max_size=200).filter(lambda t: not any(0xD800 <= ord(c) < 0xE000 for c in t)),
)
def test_a_record_survives_the_round_trip(samples: list[float], message: str) -> None:
    timing = Timing(workload="w", target="kernel", order=0, status="ok", message=message, samples_us=samples)
    record = launch(timings=[timing], message=message)
    text = json.dumps(render_record(record))
    assert parse_record(json.loads(text), LaunchRecord, "x.json") == record


def refused(value: object, said: str) -> None:
    with pytest.raises(RecordError) as caught:
        parse_record(value, LaunchRecord, "runs/r/launches/x.json")
    assert caught.value.code == BAD_INPUT
    assert "runs/r/launches/x.json" in str(caught.value) and said in str(caught.value) and caught.value.remedy


def test_an_edited_record_is_refused() -> None:
    value = render_record(launch())
    value["body"]["timings"][0]["samples_us"][0] = 0.5
    refused(value, "edited or damaged")


def test_another_schema_kind_or_shape_is_refused() -> None:
    value = render_record(launch())
    refused({**value, "schema_version": protocol.SCHEMA_VERSION + 1}, "schema version")
    refused({**value, "kind": "build"}, "'build' record")
    refused({**value, "more": 1}, "unexpected keys")
    refused([value], "no schema_version")
    refused({}, "no schema_version")
    body = {**value["body"], "unknown": 1}
    refused({**value, "body": body, "digest": protocol.digest(body)}, "unknown")
    body = {**value["body"], "index": "zero"}
    refused({**value, "body": body, "digest": protocol.digest(body)}, "index")


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
    cells = [
        Cell(environment=e, kernel=k, workload=w, device=d)  # type: ignore[arg-type]
        for e in ("a", "b")
        for k in ("k", "l")
        for w in ("v", "w")
        for d in ("cpu", "cuda")
    ]
    assert len({run.validation_path(cell) for cell in cells}) == len(cells)
    run.launch_path("a", "k", "cpu", 3).parent.mkdir(parents=True)
    save_record(run.launch_path("a", "k", "cpu", 3), launch())
    assert run.launches() == [launch()]
