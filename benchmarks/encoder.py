"""The script that benchmarks/trace.py records: two training steps of a Transformer encoder of so many layers."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
encoder = nn.TransformerEncoder(layer, int(sys.argv[1]), enable_nested_tensor=False)
optimizer = torch.optim.AdamW(encoder.parameters())
x = torch.randn(4, 128, 256)
for _ in range(2):
    loss = encoder(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
