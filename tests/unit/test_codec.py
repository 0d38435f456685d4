"""Messages to the pinned environments: what is not as its type says is refused by the name of its field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.worker import codec, wire

WORKLOAD = {"id": "seed-fp16", "dtype": "float16", "recipes": {"large": 2, "independent": 1}, "scale": 1}
KERNEL = {"name": "k", "device": "cpu", "artifact": "/k.so"}
CANDIDATE = {"version": codec.VERSION, "kernel": KERNEL, "workload": WORKLOAD, "seed": 0, "threads": 1, "out": "/out"}


def changed(path: str, value: Any) -> dict[str, Any]:
    """`CANDIDATE` with another value at a path; without it where that is ``...``."""
    whole: dict[str, Any] = json.loads(json.dumps(CANDIDATE))
    *above, last = path.split(".")
    place = whole
    for name in above:
        place = place[name]
    place[last] = value
    if value is ...:
        del place[last]
    return whole


def test_a_message_is_read_as_it_was_written() -> None:
    asked = codec.read(wire.CandidateRequest, CANDIDATE)
    assert asked.workload.scale == 1.0 and type(asked.workload.scale) is float and asked.kernel.model_new is None
    assert list(asked.workload.recipes) == ["large", "independent"], "recipes have an order"
    assert codec.read(wire.CandidateRequest, json.loads(json.dumps(codec.dump(asked)))) == asked


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("version", ..., "CandidateRequest.version: expected 1, got None"),
        ("version", 2, "CandidateRequest.version: expected 1, got 2"),
        ("version", True, "CandidateRequest.version: expected 1, got True"),
        ("seed", ..., "CandidateRequest.seed: missing"),
        ("seed", "0", "CandidateRequest.seed: expected int, got str"),
        ("seed", True, "CandidateRequest.seed: expected int, got bool"),
        ("kernel", None, "CandidateRequest.kernel: expected an object, got NoneType"),
        ("kernel.artifact", 3, "CandidateRequest.kernel.artifact: expected str, got int"),
        ("kernel.other", 3, "CandidateRequest.kernel.other: unknown"),
        ("workload.scale", "1", "CandidateRequest.workload.scale: expected float, got str"),
        ("workload.recipes.large", 1.5, "CandidateRequest.workload.recipes.large: expected int, got float"),
        ("workload.problem", {"file": "/p.py"}, "CandidateRequest.workload.problem.store: missing"),
    ],
)
def test_what_is_not_as_its_type_says_is_refused(path: str, value: Any, said: str) -> None:
    with pytest.raises(codec.WireError) as caught:
        codec.read(wire.CandidateRequest, changed(path, value))
    assert str(caught.value) == said


def test_items_of_lists_are_named_by_their_index() -> None:
    message = {"version": codec.VERSION, "objects": [{"path": "a", "sha256": "b"}, 7], "library": "l", "cuda": False}
    with pytest.raises(codec.WireError, match=r"LinkRequest.objects\[1\]: expected an object, got int"):
        codec.read(wire.LinkRequest, message)
    with pytest.raises(codec.WireError, match="LinkRequest: expected an object, got list"):
        codec.read(wire.LinkRequest, [])


def test_a_result_is_read_as_it_was_written_and_its_status_is_a_known_one() -> None:
    result = wire.TimeResult(
        "ok", load=wire.Load(1.0, None, None, None), timings=[wire.TargetTiming("ok", workload="w")]
    )
    assert codec.read(wire.TimeResult, json.loads(json.dumps(codec.dump(result)))) == result
    with pytest.raises(codec.WireError, match=r"Outcome.status: expected one of ok, wrong, .*, got 'fine'"):
        codec.read(wire.Outcome, {"version": codec.VERSION, "status": "fine"})
