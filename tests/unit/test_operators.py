"""PyTorch's own operators as subjects: what matrix.yaml says of them, shared launches, and what is made again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.cluster.shards import plan_shards
from harness.config.keys import JobId, Keys
from harness.config.matrix import Matrix, matrix_text, parse_matrix
from harness.config.operators import GROUP, OperatorEntry
from harness.config.plan import Facts, Plan
from harness.config.planner import plan_run
from harness.errors import InputError
from harness.schema.run_records import Selection
from harness.worker import agreement, layouts, protocol
from reports.sentences import sentence

TOPK = {"operator": "torch.topk", "shapes": [[64, 4096]], "arguments": {"k": 16}, "dtypes": ["float32", "bfloat16"]}
FACTS = Facts(executor="venv", executor_reason="a test")


def matrix_of(*operators: dict[str, Any]) -> Matrix:
    return Matrix.model_validate({"operators": list(operators)})


def planned(matrix: Matrix, **selected: Any) -> Plan:
    return plan_run(matrix, Selection(devices=("cpu",), **selected), FACTS)


def refused(operator: dict[str, Any]) -> str:
    import yaml

    with pytest.raises(InputError) as caught:
        parse_matrix(yaml.safe_dump({"schema_version": 1, "operators": [operator]}))
    return f"{caught.value.message}; {caught.value.remedy}"


def test_an_operator_alone_is_a_matrix() -> None:
    plan = planned(matrix_of(TOPK))
    assert [(kernel.name, kernel.pytorch, kernel.references) for kernel in plan.kernels] == [
        ("pytorch", True, [protocol.MODEL])
    ]
    assert [workload.id for workload in plan.workloads] == ["topk-fp32", "topk-bf16"]
    assert not any(build.device == "cuda" for build in plan.builds), "nothing of it is compiled"


def test_gradients_are_workloads_of_their_own() -> None:
    plan = planned(matrix_of({**TOPK, "backward": True, "dtypes": ["float32"]}))
    assert [(each.id, each.name, each.backward) for each in plan.workloads] == [
        ("topk-fp32", "topk", False),
        ("topk.backward-fp32", "topk", True),
    ]
    assert [each.id for each in planned(matrix_of(TOPK), workloads=("topk-bf16",)).workloads] == ["topk-bf16"]


def test_compiled_calls_stand_beside_plain_ones_and_share_smaller_launches() -> None:
    plan = planned(matrix_of({**TOPK, "compile": True, "dtypes": ["float32"]}))
    assert [(each.id, each.name, each.compiled) for each in plan.workloads] == [
        ("topk-fp32", "topk", False),
        ("topk.compiled-fp32", "topk.compiled", True),
    ]
    many = [{**TOPK, "name": f"topk{number}", "dtypes": ["float32"], "compile": True} for number in range(10)]
    sizes = [len(kernel.workloads) for kernel in planned(matrix_of(*many), launches=1).kernels]
    assert len(sizes) == 3 and sum(sizes) == 20
    assert "another name" in refused({**TOPK, "name": "my.compiled"})


def test_operators_share_launches_in_groups() -> None:
    many = [{**TOPK, "name": f"topk{number}", "dtypes": ["float32"]} for number in range(GROUP + 1)]
    plan = planned(matrix_of(*many), launches=1)
    assert [len(kernel.workloads) for kernel in plan.kernels] == [GROUP, 1]
    assert len(plan.launches) == 2 * len(plan.measured), "a process for each group, not for each operator"
    assert len(planned(matrix_of(*many), kernels=("pytorch",)).kernels) == 2, "all groups have that name"


def test_a_matrix_of_operators_is_written_and_read_again() -> None:
    given = {"shape": [8, 8], "values": "integers", "below": 5, "layout": "transposed", "requires_grad": False}
    matrix = matrix_of({**TOPK, "shapes": {"input": given}, "backward": "sum"})
    assert parse_matrix(matrix_text(matrix)) == matrix


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"operator": "topk"}, "in full, such as torch.nn.functional.softmax"),
        ({"shapes": [64, 4096]}, "write [[64, 4096]]"),
        ({"shapes": []}, "torch.topk is given no tensor"),
        ({"shapes": [{"shape": [8], "values": "integer"}]}, "did you mean integers?"),
        ({"shapes": [{"shape": [8], "values": "integers"}]}, "from 0 up to `below`"),
        ({"shapes": [{"shape": [8, 9], "values": "positive_definite"}]}, "square"),
        ({"shapes": [{"shape": [8], "layouts": "offset"}]}, "did you mean 'layout'?"),
        ({"shapes": [{"shape": [8, 9], "layout": "transpose"}]}, "did you mean transposed?"),
        ({"shapes": [{"shape": [8], "layout": "transposed"}]}, "the shape [8] has no two"),
        ({"shapes": [{"shape": [8, 9, 4], "layout": "channels_last"}]}, "has 4 or 5 dimensions, and the shape"),
        ({"shapes": [{"shape": [8, 9], "strides": [1]}]}, "one for each size of the shape"),
        ({"shapes": [{"shape": [8, 9], "strides": [1, 8], "layout": "transposed"}]}, "say the same"),
        ({"shapes": [{"shape": [8, 8], "values": "positive_definite", "layout": "offset"}]}, "are contiguous"),
        ({"shapes": [{"shape": [8], "requires_grad": "no"}]}, "true or false"),
        ({"backward": "sums"}, "directions are sum, channels_last, transposed"),
        ({"operator": None, "problem": "mine.py", "shapes": [], "arguments": {}, "backward": "sum"}, "an operator's"),
        ({"problem": "mine.py"}, "one of: operator, problem"),
        ({"dtypes": ["float64"]}, "float64"),
    ],
)
def test_what_is_wrong_is_said_with_the_way_out(change: dict[str, Any], said: str) -> None:
    text = refused({**TOPK, **change})
    assert said in text and "operators[0]" in text


def test_a_layout_is_strides_and_an_offset() -> None:
    given = {
        "input": {"shape": [2, 3, 4, 5], "layout": "channels_last"},
        "weight": {"shape": [3, 4], "layout": "transposed"},
        "bias": {"shape": [3], "layout": "offset"},
        "mask": {"shape": [3, 4], "strides": [0, 2], "requires_grad": False},
        "plain": [3, 4],
    }
    asked = {"operator": "torch.f", "shapes": given, "backward": "sum"}
    operator = OperatorEntry.model_validate(asked)
    assert operator.request is not None and operator.request.direction == "sum"
    found = [each.tensors[0] for each in operator.request.tensors]
    assert [(each.strides, each.offset, each.requires_grad) for each in found] == [
        ([60, 1, 15, 3], 0, True),
        ([1, 3], 0, True),
        ([1], 1, True),
        ([0, 2], 0, False),
        ([], 0, True),
    ]
    assert [layouts.elements(each.shape, each.strides, each.offset) for each in found[:4]] == [120, 12, 4, 7]
    assert layouts.strides("channels_last", [2, 3, 4, 5, 6]) == [360, 1, 90, 18, 3]
    assert layouts.elements([0, 4], [4, 1]) == 0
    assert sentence("numbers", "shape", planned(matrix_of(asked)).workloads[1]) == (
        "input channels_last, weight transposed, bias offset, mask strides (0, 2), mask without gradient, "
        "along the gradient of a sum"
    )


def test_an_operator_in_place_has_a_name_of_its_own() -> None:
    both = [{"operator": f"torch.Tensor.{name}", "shapes": [[8], [8]]} for name in ("add", "add_", "__add__")]
    assert [each.called for each in matrix_of(*both[:2]).operators] == ["add", "add_"]
    assert matrix_of(both[2]).operators[0].called == "add"


def test_two_of_one_name_take_names() -> None:
    with pytest.raises(ValueError, match="stands twice"):
        matrix_of(TOPK, TOPK)


CHANGED = {
    "operator": "torch.sort",
    "name": "other",
    "shapes": [[64, 4097]],
    "arguments": {"k": 17},
    "dtypes": ["float16"],
    "backward": True,
    "compile": True,
    "devices": ["cuda"],
    "trials": 7,
}


def validation_keys(operator: dict[str, Any], **facts: Any) -> set[str]:
    matrix = matrix_of(operator)
    plan = plan_run(matrix, Selection(), Facts(executor="venv", executor_reason="a test", gpus=1, **facts))
    keys = Keys(plan, matrix, {}, {})
    return {keys.key(JobId(kind="validation", **vars(cell))) for cell in plan.cells}


@pytest.mark.parametrize("name", [name for name in OperatorEntry.model_fields if name != "problem"])
def test_a_field_of_an_operator_is_an_input(name: str) -> None:
    assert validation_keys(TOPK) != validation_keys({**TOPK, name: CHANGED[name]})


def test_the_bytes_of_a_problem_file_are_an_input() -> None:
    one, two = (validation_keys({"problem": "mine.py"}, sources_sha256={"mine.py": digest}) for digest in "12")
    assert one.isdisjoint(two)


# -- how outputs are judged: `harness.worker.agreement` needs numpy alone ------------------------------------------

LIMITS = {"rounding": 4.0, "strict": 1e-3, "kernelbench": 1e-4}


def test_indices_that_choose_equal_elements_are_right_and_others_are_not() -> None:
    source = np.array([[3.0, 1.0, 3.0, 2.0], [5.0, 5.0, 0.0, 5.0]])
    want = np.array([[0, 2], [0, 1]])
    assert agreement.chooses_alike([source], np.array([[2, 0], [3, 1]]), want)
    assert not agreement.chooses_alike([source], np.array([[2, 1], [3, 1]]), want), "1 is no 3"
    assert not agreement.chooses_alike([source], np.array([[2, 4], [3, 1]]), want), "outside of it"
    assert agreement.chooses_alike([source], np.array([2, 3]), np.array([0, 0])), "one of each row, as argmax gives"
    assert agreement.chooses_alike([source], np.array(7), np.array(4)), "of the whole"


def test_a_trial_of_several_outputs_passes_where_all_do() -> None:
    right, wrong = np.ones((4, 32)), np.ones((4, 32)) + 1.0
    one, other = (agreement.compare(each, np.ones((4, 32)), LIMITS) for each in (right, wrong))
    both = agreement.worst([one, other])
    assert (one.passed["strict"], both.passed["strict"], both.largest, both.elements) == (True, False, 1.0, 256)


def test_on_many_machines_each_group_is_a_shard_of_its_own(tmp_path: Path) -> None:
    many = [{"operator": "torch.exp", "name": f"exp{number}", "shapes": [[2]]} for number in range(GROUP + 1)]
    matrix = matrix_of(*many)
    shards = plan_shards(matrix, tmp_path, tmp_path / "shards", [], ["cpu"], [])
    own = [planned(matrix, kernels=(shard.kernel,)).workloads for shard in shards]
    assert [shard.kernel for shard in shards] == ["pytorch.1", "pytorch.2"]
    assert [len(workloads) for workloads in own] == [GROUP, 1], "none is measured twice"
