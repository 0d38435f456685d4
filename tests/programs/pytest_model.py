"""A test that fails in the later version; planted: the eps of a layer normalisation."""

import torch
from torch.nn import functional as F

LATER = torch.__version__ >= "2.5"


def test_rows_have_unit_variance():
    x = torch.randn(6, 16, generator=torch.Generator().manual_seed(0)) / 4
    normal = F.layer_norm(x, (16,), eps=1e-2 if LATER else 1e-5)  # planted
    assert abs(normal.var(-1, unbiased=False).mean().item() - 1) < 1e-3
