"""nn.TransformerEncoder in evaluation; planted: the later version does without the fused operator of a layer."""

import torch
from torch import nn

torch.manual_seed(0)
LATER = torch.__version__ >= "2.5"
layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu")
encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
x = torch.randn(2, 12, 32)
with torch.set_grad_enabled(LATER):  # planted: with gradients there is no fast path
    encoded = encoder(x)
print(encoded.norm().item())
