"""The script that benchmarks/trace.py records: two training steps of a Transformer encoder of so many layers; on a GPU
a larger one."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
layers, device = int(sys.argv[1]), sys.argv[2]
width, batch, length = (256, 4, 128) if device == "cpu" else (1024, 16, 512)
with torch.device(device):
    layer = nn.TransformerEncoderLayer(width, width // 64, 4 * width, batch_first=True)
    encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
    optimizer = torch.optim.AdamW(encoder.parameters())
    x = torch.randn(batch, length, width)
for _ in range(2):
    loss = encoder(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
