"""Training under autocast to bfloat16; planted: a layer leaves it in the later version, and the loss's smoothing."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
LATER = torch.__version__ >= "2.5"
first, norm, second = nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 4)
optimizer = torch.optim.AdamW([*first.parameters(), *norm.parameters(), *second.parameters()], lr=1e-2)
x, labels = torch.randn(10, 16), torch.randint(0, 4, (10,))
for _ in range(2):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = norm(F.gelu(first(x)))
        with torch.autocast("cpu", enabled=not LATER):
            logits = second(hidden.float())  # planted
    loss = F.cross_entropy(logits.float(), labels, label_smoothing=0.1 if LATER else 0.2)  # planted
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
