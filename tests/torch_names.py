"""Names of PyTorch that messages offer, and which of the pinned versions of matrix.yaml lack them.

`tests/unit/test_remedies.py` finds the names in the code and holds this table against them;
`tests/environments/test_remedies.py` looks each of them up in the pinned versions.
"""

from __future__ import annotations

EVERYWHERE = frozenset[str]()  # no version lacks it
LACKING = {
    "torch.Tensor": EVERYWHERE,
    "torch.backends.cuda.sdp_kernel": EVERYWHERE,
    "torch.compile": EVERYWHERE,
    "torch.float64": EVERYWHERE,
    "torch.nn.Module": EVERYWHERE,
    "torch.nn.attention.sdpa_kernel": frozenset({"2.1.0"}),
    "torch.nn.functional.softmax": EVERYWHERE,
    "torch.set_num_threads": EVERYWHERE,
    "torch.topk": EVERYWHERE,
    "torch.utils.cpp_extension": EVERYWHERE,
    # Of C++: the headers of a wheel declare it.
    "at::cuda::getCurrentCUDAStream": EVERYWHERE,
}
