"""The largest number is a buffer that is written in place, so that its address stays."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("largest", torch.zeros(()), persistent=False)

    @torch.no_grad()
    def forward(self, x):
        self.largest.copy_(torch.maximum(self.largest, x.abs().amax()))
        return x / self.largest
