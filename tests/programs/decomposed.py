"""The later version calls other operators for the same values: nothing moves."""

import torch

torch.manual_seed(0)
LATER = torch.__version__ >= "2.5"
x = torch.randn(6, 10)
doubled = x + x if LATER else x * 2  # exact in both
shifted = torch.sub(doubled, 1.0) if LATER else torch.add(doubled, -1.0)
print(shifted.abs().sum().item())
