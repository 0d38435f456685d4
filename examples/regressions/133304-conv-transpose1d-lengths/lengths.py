"""conv_transpose1d of another length in each call, from 1100 of them: oneDNN keeps what it made for 1024.

Each length is the first columns of one tensor, and of the output what no later column reaches.
"""

import torch
from torch import nn

SHORTEST, LENGTHS, CHANNELS, WIDTH, STRIDE = 200, 1100, 64, 64, 16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x, weight):
        self.calls += 1
        columns = SHORTEST + self.calls * 7 % LENGTHS
        found = nn.functional.conv_transpose1d(x[:, :, :columns].contiguous(), weight, stride=STRIDE)
        return found[:, :, : SHORTEST * STRIDE - WIDTH].contiguous()


def get_inputs():
    return [torch.randn(1, CHANNELS, SHORTEST + LENGTHS), torch.randn(CHANNELS, 1, WIDTH)]


def get_init_inputs():
    return []
