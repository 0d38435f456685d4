"""A histogram of each row. A number counts for the two bins that it lies between, the more the nearer it is."""

import torch


class Model(torch.nn.Module):
    def __init__(self, bins):
        super().__init__()
        self.bins = bins

    def forward(self, x):
        centres = torch.arange(self.bins, device=x.device, dtype=x.dtype)
        return torch.relu(1 - (x[:, :, None] - centres).abs()).sum(dim=1)


def get_inputs():
    return [torch.rand(16, 4096) * 126.5 + 0.25]


def get_init_inputs():
    return [128]
