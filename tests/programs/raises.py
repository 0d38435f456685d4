"""The later version raises where the earlier one goes on."""

import torch

torch.manual_seed(0)
x = torch.randn(4, 4)
y = torch.tanh(x)
if torch.__version__ >= "2.5":
    raise ValueError("not supported any more")
print(y.sum().item())
