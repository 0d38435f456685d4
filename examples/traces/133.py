"""A test that expects NaN where attention has no key: it fails from PyTorch 2.5 on, which gives zeros.

https://github.com/SalesforceAIResearch/uni2ts/issues/133, a test of its attention modules. Here:
kernel-matrix trace --good 2.1.0 --bad 2.5.0 --requirements pytest.txt -- pytest 133.py
where pytest.txt has the line pytest==8.3.4
"""

import torch
from torch import nn


def test_a_row_without_keys_is_nan():
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(24, 3, batch_first=True)
    x, banned = torch.randn(2, 6, 24), torch.ones(6, 6, dtype=torch.bool).triu(1)
    banned[2] = True
    mixed, _ = attention(x, x, x, attn_mask=banned, need_weights=False)
    assert torch.isnan(mixed[:, 2]).all() and not torch.isnan(mixed[:, 3:]).any()
