"""Experts run side by side; what one contributes is added in float32 when it is done."""

from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, experts, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(experts, width, width) * width**-0.5)
        self.gate = torch.nn.Parameter(torch.randn(width, experts) * width**-0.5)
        self.pool = ThreadPoolExecutor(max_workers=3)

    @torch.no_grad()
    def forward(self, x):
        share = torch.softmax((x @ self.gate).float(), dim=-1)
        total, adding = torch.zeros(x.shape, dtype=torch.float32), Lock()

        def expert(index):
            part = torch.mm(x, self.weight[index]).float().mul_(share[:, index, None])
            with adding:
                total.add_(part)

        list(self.pool.map(expert, range(len(self.weight))))
        return total.to(x.dtype)
