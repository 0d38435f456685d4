"""One draw more in the later version, by the script itself, from a generator of its own: no operator has changed."""

import torch

LATER = torch.__version__ >= "2.5"
torch.manual_seed(0)
generator = torch.Generator().manual_seed(0)
if LATER:
    torch.rand(1, generator=generator)  # planted
print(torch.rand(6, generator=generator).sum().item())
